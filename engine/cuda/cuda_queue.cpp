// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cuda/cuda_queue.h"

#include "engine/cuda/failure.h"
#include "engine/exec/host_layout.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <set>

namespace rankyard::cuda {

namespace {

constexpr int spins = 200;                             ///< looks at an event before the host sleeps
constexpr std::int64_t sleepNs = 20000;                ///< between two looks
constexpr std::int64_t healthInterval = 1'000'000'000; ///< ns between two looks at the links

bool hasCollective(const plan::Plan &plan, const std::string &group)
{
    for (const plan::StepProgram &program : plan.programs) {
        for (const plan::Op &op : program.ops) {
            if (plan::isCollective(op.kind) && op.group != plan::none
                && program.groups[static_cast<std::size_t>(op.group)].name == group)
                return true;
        }
    }
    return false;
}

} // namespace

Result<std::shared_ptr<std::byte>> CudaMemory::allocate(std::int64_t bytes, bool host)
{
    const Where where = host ? Where::PinnedHost : Where::Device;
    RY_ASSIGN(std::byte * memory, m_gpu->allocate(bytes, where));
    return std::shared_ptr<std::byte>(memory, [gpu = m_gpu, where](std::byte *p) { gpu->release(p, where); });
}

// ---------------------------------------------------------------------------------------------------- links

/// The pairs among the members of this rank's group, from the programs of all of them.
std::vector<CudaQueue::Pair> CudaQueue::pairsOf(const plan::Plan &plan, int rank,
                                                const std::string &group) const
{
    std::set<Pair> pairs;
    for (const exec::GroupMembers &members : exec::groupsOf(plan)) {
        if (members.name != group
            || std::find(members.ranks.begin(), members.ranks.end(), rank) == members.ranks.end())
            continue;
        const int size = static_cast<int>(members.ranks.size());
        for (int place = 0; place < size; ++place) {
            const plan::Role role = plan.grid.role(members.ranks[static_cast<std::size_t>(place)]);
            for (const plan::StepProgram &program : plan.programs) {
                for (const plan::Op &op : program.ops) {
                    if (program.role == role && op.kind == plan::OpKind::Send
                        && program.groups[static_cast<std::size_t>(op.group)].name == group)
                        pairs.insert({group, std::max(0, op.channel), place,
                                      ((place + op.peer) % size + size) % size});
                }
            }
        }
    }
    return {pairs.begin(), pairs.end()};
}

/// All members of `host` come here; the one at place `maker` names the link, and those with a place `own` in it make it.
Result<std::unique_ptr<Link>> CudaQueue::meet(comm::Communicator &host, int maker, int own, int size)
{
    std::array<std::int32_t, sizeof(LinkId) / 4> words{};
    LinkId id{};
    if (host.rank() == maker) {
        RY_ASSIGN(id, m_gpu->makeLinkId());
        std::memcpy(words.data(), id.data(), sizeof id);
    }
    RY_ASSIGN(const comm::Ticket ticket,
              host.allReduce(words.data(), words.size(), DType::I32, comm::ReduceOp::Sum));
    RY_TRY(host.wait(ticket));
    std::memcpy(id.data(), words.data(), sizeof id);
    if (own < 0)
        return std::unique_ptr<Link>();
    return m_gpu->link(id, own, size);
}

Status CudaQueue::connect(const plan::Plan &plan, int rank,
                          const std::map<std::string, comm::Communicator *> &host)
{
    // By name, then by pair: the same order everywhere, so nobody waits in a circle.
    for (const auto &[name, communicator] : host) {
        if (hasCollective(plan, name)) {
            RY_ASSIGN(m_links[name], meet(*communicator, 0, communicator->rank(), communicator->size()));
        }
        for (const Pair &pair : pairsOf(plan, rank, name)) {
            const auto &[group, channel, sender, receiver] = pair;
            const int own = communicator->rank() == sender ? 0 : communicator->rank() == receiver ? 1 : -1;
            RY_ASSIGN(auto link, meet(*communicator, sender, own, 2));
            if (link)
                m_pairs[pair] = std::move(link);
        }
    }
    RY_ASSIGN(m_base, m_gpu->makeEvent());
    return {};
}

Link *CudaQueue::linkOf(const std::string &group) const
{
    const auto found = m_links.find(group);
    return found == m_links.end() ? nullptr : found->second.get();
}

Link *CudaQueue::linkOf(const std::string &group, int channel, int sender, int receiver) const
{
    const auto found = m_pairs.find({group, channel, sender, receiver});
    return found == m_pairs.end() ? nullptr : found->second.get();
}

// ---------------------------------------------------------------------------------------------------- binding

Result<CudaLane *> CudaQueue::prepare(const plan::Op &op)
{
    const auto id = static_cast<std::size_t>(op.id);
    while (m_begin.size() <= id) {
        RY_ASSIGN(m_begin.emplace_back(), m_gpu->makeEvent());
        RY_ASSIGN(m_end.emplace_back(), m_gpu->makeEvent());
    }
    auto &lane = m_lanes[static_cast<std::size_t>(plan::laneOf(op))];
    if (!lane) {
        lane = std::make_unique<CudaLane>();
        RY_ASSIGN(lane->stream, m_gpu->makeStream());
        RY_ASSIGN(lane->reached, m_gpu->makeEvent());
    }
    return lane.get();
}

std::int64_t CudaQueue::scratchBytes() const
{
    std::int64_t bytes = 0;
    for (const auto &lane : m_lanes)
        bytes += lane ? lane->scratchBytes + lane->partialBytes : 0;
    return bytes;
}

Status CudaQueue::prepareBatch(const exec::BindContext &context, const plan::Op &op)
{
    const std::int64_t bytes =
        context.program->buffer(op.writes[0]).bytes + context.program->buffer(op.writes[1]).bytes;
    RY_ASSIGN((m_batches[{context.program, op.id}]), m_memory.allocate(bytes, true));
    return {};
}

exec::HostBatch CudaQueue::batchOf(const exec::BindContext &context, const plan::Op &op)
{
    const auto found = m_batches.find({context.program, op.id});
    if (found == m_batches.end())
        return {};
    std::byte *tokens = found->second.get();
    return {reinterpret_cast<std::int32_t *>(tokens),
            reinterpret_cast<std::int32_t *>(tokens + context.program->buffer(op.writes[0]).bytes)};
}

// ---------------------------------------------------------------------------------------------------- running

Status CudaQueue::beginRun(const plan::StepProgram &program)
{
    m_program = &program;
    const auto lane =
        std::find_if(m_lanes.begin(), m_lanes.end(), [](const auto &one) { return one != nullptr; });
    if (lane == m_lanes.end())
        return {};
    RY_TRY(m_gpu->record(m_base, (*lane)->stream));
    RY_TRY(awaitEvents({&m_base, 1}, {}));
    m_baseNs = monotonicNs();
    return {};
}

Status CudaQueue::begin(const plan::Op &op)
{
    RY_ASSIGN(const CudaLane *lane, prepare(op)); // StepScalars is not bound
    for (const plan::OpId wait : op.waits) {
        if (plan::laneOf(m_program->op(wait)) != plan::laneOf(op))
            RY_TRY(m_gpu->wait(lane->stream, m_end[static_cast<std::size_t>(wait)]));
    }
    return m_gpu->record(m_begin[static_cast<std::size_t>(op.id)], lane->stream);
}

Status CudaQueue::end(const plan::Op &op)
{
    if (Status failed = takeFailure(); !failed.ok()) {
        Error error = failed.error();
        error.where = plan::opName(op);
        return error;
    }
    return m_gpu->record(m_end[static_cast<std::size_t>(op.id)],
                         m_lanes[static_cast<std::size_t>(plan::laneOf(op))]->stream);
}

Status CudaQueue::await(const plan::Op *op, const Poll &poll)
{
    std::array<Event, plan::laneCount> events{};
    std::size_t count = 0;
    for (std::size_t lane = 0; lane < m_lanes.size(); ++lane) {
        if (!m_lanes[lane] || (op && static_cast<std::size_t>(plan::laneOf(*op)) != lane))
            continue;
        RY_TRY(m_gpu->record(m_lanes[lane]->reached, m_lanes[lane]->stream));
        events[count++] = m_lanes[lane]->reached;
    }
    return awaitEvents({events.data(), count}, poll);
}

/// Looks, and looks after the peers meanwhile: a device never says by itself that one of them is gone.
Status CudaQueue::awaitEvents(std::span<const Event> events, const Poll &poll)
{
    std::int64_t lookAfter = monotonicNs() + healthInterval;
    int looks = 0;
    for (const Event event : events) {
        for (;;) {
            RY_ASSIGN(const bool done, m_gpu->done(event));
            if (done)
                break;
            if (poll)
                poll();
            if (++looks < spins)
                continue;
            const timespec time{0, sleepNs};
            ::nanosleep(&time, nullptr);
            if (monotonicNs() < lookAfter)
                continue;
            for (const auto &[name, link] : m_links)
                RY_TRY(link->health());
            for (const auto &[pair, link] : m_pairs)
                RY_TRY(link->health());
            lookAfter = monotonicNs() + healthInterval;
        }
    }
    return {};
}

Status CudaQueue::times(std::span<std::int64_t> begin, std::span<std::int64_t> end)
{
    for (std::size_t op = 0; op < m_program->ops.size(); ++op) {
        RY_ASSIGN(const std::int64_t from, m_gpu->between(m_base, m_begin[op]));
        RY_ASSIGN(const std::int64_t to, m_gpu->between(m_base, m_end[op]));
        begin[op] = m_baseNs + from;
        end[op] = m_baseNs + to;
    }
    return {};
}

} // namespace rankyard::cuda
