// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>

namespace rankyard::exec {

namespace {

constexpr std::int64_t sliceBytes = 256 << 10; ///< of communication between two looks at compute

} // namespace

/// A program with its addresses, kernels and communicators.
struct Executor::Bound {
    const plan::StepProgram *program = nullptr;
    std::vector<std::byte *> address;              ///< by buffer
    std::vector<std::unique_ptr<BoundOp>> kernels; ///< by op; null for those that the executor runs itself
    std::vector<Channel *> channels;               ///< by group
    double *stats = nullptr;
    std::int64_t statsCount = 0;
};

/// One communicator with its operations under way, first in, first out.
struct Executor::Channel {
    struct Entry {
        plan::OpId op = plan::none;
        plan::GroupId group = plan::none;
        comm::Ticket ticket;
    };
    comm::Communicator *communicator = nullptr;
    std::vector<Entry> ring; ///< as many as the largest program has ops
    std::size_t first = 0;
    std::size_t count = 0;

    Entry &front() { return ring[first]; }
    void push(Entry entry) { ring[(first + count++) % ring.size()] = entry; }
    void pop()
    {
        first = (first + 1) % ring.size();
        --count;
    }
};

Executor::Executor(const Setup &setup)
    : m_setup(setup),
      m_dpRank(setup.plan->grid.coordinate(setup.rank, "dp"))
{
    m_state.poll = [this] { poll(); };
}

Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::make(const Setup &setup)
{
    std::unique_ptr<Executor> executor(new Executor(setup));
    std::size_t mostOps = 0;
    std::size_t mostGroups = 0;
    for (const plan::StepProgram &program : setup.plan->programs) {
        mostOps = std::max(mostOps, program.ops.size());
        mostGroups = std::max(mostGroups, program.groups.size());
    }
    for (const auto &[name, communicator] : setup.groups) {
        auto channel = std::make_unique<Channel>();
        channel->communicator = communicator;
        channel->ring.resize(mostOps + 1);
        executor->m_channels.push_back(std::move(channel));
    }
    const plan::Role role = setup.plan->grid.role(setup.rank);
    for (const plan::StepProgram &program : setup.plan->programs) {
        if (program.role == role)
            RY_TRY(executor->bind(program));
    }
    executor->m_done.resize(mostOps);
    executor->m_recent.resize(kept);
    for (Execution &execution : executor->m_recent) {
        execution.opBegin.resize(mostOps);
        execution.opEnd.resize(mostOps);
        execution.groups.resize(mostGroups);
        for (auto &order : execution.order)
            order.reserve(mostOps);
    }
    return executor;
}

Status Executor::bind(const plan::StepProgram &program)
{
    auto bound = std::make_unique<Bound>();
    bound->program = &program;
    for (const plan::Buffer &buffer : program.buffers)
        bound->address.push_back(m_setup.arenas->address(program, buffer.id, m_dpRank));
    if (program.stats != plan::none) {
        bound->stats = reinterpret_cast<double *>(bound->address[static_cast<std::size_t>(program.stats)]);
        bound->statsCount = program.buffer(program.stats).bytes / static_cast<std::int64_t>(sizeof(double));
    }
    for (const plan::Group &group : program.groups) {
        const auto found = m_setup.groups.find(group.name);
        if (found == m_setup.groups.end())
            return Error::make(Code::Internal, "there is no communicator for a group of the program",
                               group.name);
        const auto place = static_cast<std::size_t>(std::distance(m_setup.groups.begin(), found));
        bound->channels.push_back(m_channels[place].get());
    }
    BindContext context;
    context.plan = m_setup.plan;
    context.program = &program;
    context.address = bound->address;
    context.rank = m_setup.rank;
    context.dpRank = m_dpRank;
    for (const plan::Op &op : program.ops) {
        switch (op.kind) {
        case plan::OpKind::Forward:
        case plan::OpKind::BackwardInput:
        case plan::OpKind::BackwardWeight:
        case plan::OpKind::Recompute:
        case plan::OpKind::GradNorm:
        case plan::OpKind::Optimizer: {
            RY_ASSIGN(bound->kernels.emplace_back(), m_setup.device->bind(context, op));
            break;
        }
        case plan::OpKind::LoadBatch:
        case plan::OpKind::StepScalars:
        case plan::OpKind::AllReduce:
        case plan::OpKind::ReduceScatter:
        case plan::OpKind::AllGather:
            bound->kernels.emplace_back();
            break;
        default:
            return Error::make(Code::NotHere, "this executor does not know the op", plan::opName(op));
        }
    }
    m_programs.push_back(std::move(bound));
    return {};
}

// ------------------------------------------------------------------------------------------------------- run

Status Executor::run(plan::ProgramKind kind, std::int64_t batch)
{
    if (m_error)
        return *m_error;
    const auto found = std::find_if(m_programs.begin(), m_programs.end(),
                                    [kind](const auto &p) { return p->program->kind == kind; });
    if (found == m_programs.end())
        return Error::make(Code::Internal, "the plan has no such program", plan::nameOf(kind));
    Bound &bound = **found;
    const plan::StepProgram &program = *bound.program;
    m_current = &m_recent[m_runs++ % kept];
    Execution &execution = *m_current;
    execution.step = m_state.step;
    execution.kind = kind;
    execution.program = &program;
    for (auto &order : execution.order)
        order.clear();
    std::fill(execution.groups.begin(), execution.groups.end(), GroupTotals{});
    std::fill(m_done.begin(), m_done.end(), std::uint8_t{0});
    std::fill_n(bound.stats, bound.statsCount, 0.0);
    if (bound.statsCount >= plan::statsSlots)
        bound.stats[bound.statsCount - plan::statsSlots + plan::StatsVote] = m_state.vote;
    execution.beginNs = monotonicNs();
    for (const plan::Op &op : program.ops) {
        if (auto status = runOp(bound, op, batch); !status) {
            m_error = status.error();
            return status;
        }
    }
    if (auto status = drain(bound); !status) {
        m_error = status.error();
        return status;
    }
    execution.endNs = monotonicNs();
    return {};
}

Status Executor::runOp(Bound &bound, const plan::Op &op, std::int64_t batch)
{
    RY_TRY(awaitWaits(bound, op));
    const auto id = static_cast<std::size_t>(op.id);
    if (plan::isCollective(op.kind)) {
        RY_TRY(startCollective(bound, op));
        advance(sliceBytes);
        return m_error ? Status(*m_error) : Status();
    }
    Execution &execution = *m_current;
    execution.order[static_cast<std::size_t>(op.stream)].push_back(op.id);
    execution.opBegin[id] = monotonicNs();
    if (op.kind == plan::OpKind::LoadBatch)
        RY_TRY(loadBatch(bound, op, batch));
    else if (op.kind == plan::OpKind::StepScalars)
        scalars(bound);
    else if (op.kind != plan::OpKind::Optimizer || !m_state.overflow)
        bound.kernels[id]->run(m_state);
    execution.opEnd[id] = monotonicNs();
    m_done[id] = 1;
    poll();
    return m_error ? Status(*m_error) : Status();
}

Status Executor::awaitWaits(Bound &bound, const plan::Op &op)
{
    for (const plan::OpId wait : op.waits) {
        if (!m_done[static_cast<std::size_t>(wait)])
            RY_TRY(awaitOp(bound, wait));
    }
    return {};
}

Status Executor::startCollective(Bound &bound, const plan::Op &op)
{
    Channel &channel = *bound.channels[static_cast<std::size_t>(op.group)];
    // A stream is a FIFO: what other groups have under way on it comes first. Within a group the communicator
    // keeps the order.
    for (const auto &other : m_channels) {
        while (other.get() != &channel && other->count > 0
               && bound.program->op(other->front().op).stream == op.stream)
            RY_TRY(awaitOp(bound, other->front().op));
    }
    const plan::Buffer &buffer = bound.program->buffer(op.writes[0]);
    void *data = bound.address[static_cast<std::size_t>(buffer.id)];
    const std::int64_t count = buffer.bytes / static_cast<std::int64_t>(bytesOf(buffer.dtype));
    comm::Communicator &communicator = *channel.communicator;
    m_current->order[static_cast<std::size_t>(op.stream)].push_back(op.id);
    m_current->opBegin[static_cast<std::size_t>(op.id)] = monotonicNs();
    const auto started = [&]() -> Result<comm::Ticket> {
        if (op.kind == plan::OpKind::AllReduce)
            return communicator.allReduce(data, count, buffer.dtype, comm::ReduceOp::Sum);
        if (op.kind == plan::OpKind::ReduceScatter)
            return communicator.reduceScatter(data, count, buffer.dtype);
        return communicator.allGather(data, count, buffer.dtype);
    }();
    if (!started)
        return started.error();
    channel.push({op.id, op.group, *started});
    ++m_outstanding;
    return {};
}

/// The front operation of a channel is complete.
void Executor::complete(Channel &channel)
{
    const Channel::Entry entry = channel.front();
    channel.pop();
    --m_outstanding;
    const auto id = static_cast<std::size_t>(entry.op);
    m_done[id] = 1;
    m_current->opEnd[id] = monotonicNs();
    GroupTotals &totals = m_current->groups[static_cast<std::size_t>(entry.group)];
    const comm::Figures figures = channel.communicator->figures(entry.ticket);
    totals.figures.payload += figures.payload;
    totals.figures.wire += figures.wire;
    totals.figures.moved += figures.moved;
    totals.activeNs += m_current->opEnd[id] - m_current->opBegin[id];
    ++totals.operations;
    if (m_setup.progress)
        m_setup.progress->fetch_add(1, std::memory_order_relaxed);
}

void Executor::advance(std::int64_t budget)
{
    for (const auto &channel : m_channels) {
        while (channel->count > 0 && !m_error) {
            const auto done = channel->communicator->advance(channel->front().ticket, budget);
            if (!done) {
                m_error = done.error();
                return;
            }
            if (!*done)
                break;
            complete(*channel);
        }
    }
}

void Executor::poll()
{
    for (const auto &channel : m_channels)
        channel->communicator->heartbeat();
    if (m_setup.progress)
        m_setup.progress->fetch_add(1, std::memory_order_relaxed);
    if (m_outstanding > 0)
        advance(sliceBytes);
}

Status Executor::awaitOp(Bound &bound, plan::OpId id)
{
    const plan::Op &op = bound.program->op(id);
    const auto notStarted = [&] {
        return Error::make(Code::Internal, "an op waits for one that has not been started", plan::opName(op));
    };
    if (!plan::isCollective(op.kind))
        return notStarted();
    Channel &channel = *bound.channels[static_cast<std::size_t>(op.group)];
    const std::int64_t begin = monotonicNs();
    std::int64_t pause = 0;
    while (!m_done[static_cast<std::size_t>(id)]) {
        if (channel.count == 0)
            return notStarted();
        // Only this group has something under way: sleep in the communicator. Else a peer may need the others
        // to go on.
        if (static_cast<int>(channel.count) == m_outstanding) {
            RY_TRY(channel.communicator->wait(channel.front().ticket));
            complete(channel);
            continue;
        }
        const int before = m_outstanding;
        advance(sliceBytes);
        if (m_error)
            return *m_error;
        pause = m_outstanding < before ? 0 : std::min<std::int64_t>(pause + 2000, 50000);
        const timespec time{0, pause};
        if (pause > 0)
            ::nanosleep(&time, nullptr);
    }
    m_current->groups[static_cast<std::size_t>(op.group)].exposedNs += monotonicNs() - begin;
    return {};
}

Status Executor::drain(Bound &bound)
{
    for (const auto &channel : m_channels) {
        while (channel->count > 0)
            RY_TRY(awaitOp(bound, channel->front().op));
    }
    return {};
}

Status Executor::loadBatch(Bound &bound, const plan::Op &op, std::int64_t batch)
{
    auto *tokens = reinterpret_cast<std::int32_t *>(bound.address[static_cast<std::size_t>(op.writes[0])]);
    auto *labels = reinterpret_cast<std::int32_t *>(bound.address[static_cast<std::size_t>(op.writes[1])]);
    return m_setup.data->fill(bound.program->kind, batch, m_dpRank, op.microbatch, tokens, labels);
}

/// DESIGN section 4: the norm is summed over tensors in order; the clip factor is max ÷ (norm + 1e-6),
/// applied below 1.
void Executor::scalars(Bound &bound)
{
    const std::int64_t tensors = bound.statsCount - plan::statsSlots;
    const double *slots = bound.stats + tensors;
    m_state.loss = slots[plan::StatsLoss] * m_state.lossWeight;
    m_state.vote = slots[plan::StatsVote];
    if (bound.program->kind != plan::ProgramKind::Train)
        return;
    double squares = 0;
    for (std::int64_t i = 0; i < tensors; ++i)
        squares += bound.stats[i];
    m_state.gradNorm = std::sqrt(squares) / m_state.lossScale;
    m_state.overflow = slots[plan::StatsNonFinite] > 0 || !std::isfinite(m_state.gradNorm);
    const double most = m_setup.plan->job.optimizer.clip;
    const double clip = most > 0 ? std::min(1.0, most / (m_state.gradNorm + 1e-6)) : 1.0;
    m_state.gradFactor = clip / m_state.lossScale;
}

const Execution *Executor::recent(std::size_t ago) const
{
    if (ago >= kept || ago >= m_runs)
        return nullptr;
    return &m_recent[(m_runs - 1 - ago) % kept];
}

} // namespace rankyard::exec
