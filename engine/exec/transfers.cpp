// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/transfers.h"

#include "engine/comm/reduce.h"
#include "engine/plan/codec.h"

#include <algorithm>
#include <cstring>
#include <ctime>

namespace rankyard::exec {

namespace {

constexpr std::int64_t sliceBytes = 256 << 10;

std::int64_t elementsOf(const plan::Buffer &buffer)
{
    return buffer.bytes / static_cast<std::int64_t>(bytesOf(buffer.dtype));
}

} // namespace

comm::Figures TransferContext::figuresOf(const plan::Op &op) const
{
    const auto bytes = [this](plan::BufferId id) { return program->buffer(id).bytes; };
    const std::int64_t ranks = program->groups[static_cast<std::size_t>(op.group)].size;
    comm::Figures figures;
    switch (op.kind) {
    case plan::OpKind::AllReduce:
        figures.payload = bytes(op.writes[0]);
        figures.wire = comm::ringAllReduceBytes(figures.payload, ranks);
        break;
    case plan::OpKind::ReduceScatter:
    case plan::OpKind::AllGather:
        figures.payload = bytes(op.kind == plan::OpKind::AllGather ? op.writes[0] : op.reads[0]);
        figures.wire = comm::ringSliceBytes(figures.payload, ranks);
        break;
    case plan::OpKind::Recv:
        figures.payload = bytes(op.writes[0]);
        break;
    default: // Send and Shift
        figures.payload = figures.wire = bytes(op.reads[0]);
    }
    figures.moved = figures.wire;
    return figures;
}

Transfers::Transfers(std::size_t mostOps) : m_done(mostOps)
{
    for (Lane &lane : m_lanes)
        lane.ring.resize(mostOps + 1);
}

void Transfers::begin(const TransferContext &context, Execution &execution)
{
    m_context = &context;
    m_execution = &execution;
    std::fill(m_done.begin(), m_done.end(), std::uint8_t{0});
}

Status Transfers::issue(plan::OpId id)
{
    const plan::Op &op = m_context->program->op(id);
    Lane &lane = m_lanes[static_cast<std::size_t>(plan::laneOf(op))];
    lane.at(lane.count++) = {id, {}, {}};
    ++m_underWay;
    ++m_pending;
    m_execution->order[static_cast<std::size_t>(op.stream)].push_back(id);
    m_execution->opBegin[static_cast<std::size_t>(id)] = monotonicNs();
    return startReady();
}

// ----------------------------------------------------------------------------------------------------- start

/// Whether what `earlier` does would meet what `later` does in memory. Within a communicator operations are worked on in order,
/// but inputs are read from the start on, and results are put into their places at the end.
bool Transfers::conflict(const plan::Op &earlier, const plan::Op &later) const
{
    const auto overlap = [this](const std::vector<plan::BufferId> &some,
                                const std::vector<plan::BufferId> &others) {
        for (const plan::BufferId a : some) {
            const std::byte *begin = m_context->address[static_cast<std::size_t>(a)];
            for (const plan::BufferId b : others) {
                const std::byte *other = m_context->address[static_cast<std::size_t>(b)];
                if (begin < other + m_context->program->buffer(b).bytes
                    && other < begin + m_context->program->buffer(a).bytes)
                    return true;
            }
        }
        return false;
    };
    return overlap(later.reads, earlier.writes) || overlap(later.writes, earlier.reads)
        || overlap(later.writes, earlier.writes);
}

/// Whether no collective that was issued before waits to start on the same communicator: all members start them in one order.
bool Transfers::isNext(const plan::Op &op) const
{
    if (!plan::isCollective(op.kind))
        return true;
    for (const Lane &lane : m_lanes) {
        for (std::size_t i = lane.started; i < lane.count; ++i) {
            const plan::Op &other = m_context->program->op(lane.ring[(lane.first + i) % lane.ring.size()].op);
            if (other.id < op.id && plan::isCollective(other.kind)
                && &communicatorOf(other) == &communicatorOf(op))
                return false;
        }
    }
    return true;
}

/// The first of the lane that has not started: after what it waits for, after the operations before it of other groups, and
/// after those of its own whose memory it needs.
bool Transfers::mayStart(Lane &lane) const
{
    const plan::Op &op = opOf(lane.at(lane.started));
    if (!std::all_of(op.waits.begin(), op.waits.end(), [this](plan::OpId wait) { return done(wait); })
        || !isNext(op))
        return false;
    for (std::size_t i = 0; i < lane.started; ++i) {
        const plan::Op &earlier = opOf(lane.at(i));
        if (&communicatorOf(earlier) != &communicatorOf(op) || conflict(earlier, op))
            return false;
    }
    return true;
}

Status Transfers::startReady()
{
    for (bool again = m_pending > 0; again;) {
        again = false;
        for (Lane &lane : m_lanes) {
            while (lane.started < lane.count && mayStart(lane)) {
                RY_TRY(start(lane.at(lane.started)));
                ++lane.started;
                --m_pending;
                again = m_pending > 0;
            }
        }
    }
    return {};
}

Status Transfers::start(Entry &entry)
{
    const plan::Op &op = opOf(entry);
    comm::Communicator &communicator = communicatorOf(op);
    const auto at = [&](plan::BufferId id) { return m_context->address[static_cast<std::size_t>(id)]; };
    const auto buffer = [&](plan::BufferId id) -> const plan::Buffer & {
        return m_context->program->buffer(id);
    };
    const int own = m_context->places[static_cast<std::size_t>(op.group)], size = communicator.size();
    const auto peer = [&](std::int32_t offset) { return ((own + offset) % size + size) % size; };
    const int channel = std::max(0, op.channel);
    m_execution->opBegin[static_cast<std::size_t>(op.id)] = monotonicNs();
    switch (op.kind) {
    case plan::OpKind::AllReduce: {
        const plan::Buffer &all = buffer(op.writes[0]);
        RY_ASSIGN(entry.ticket,
                  communicator.allReduce(at(all.id), elementsOf(all), all.dtype, comm::ReduceOp::Sum));
        return {};
    }
    case plan::OpKind::ReduceScatter: {
        const plan::Buffer &all = buffer(op.reads[0]);
        RY_ASSIGN(entry.ticket, communicator.reduceScatter(at(all.id), elementsOf(all), all.dtype));
        return {};
    }
    case plan::OpKind::AllGather: {
        // The communicator gathers in place: the own slice goes there first, unless it is a view of it.
        const plan::Buffer &all = buffer(op.writes[0]);
        const std::int64_t bytes = all.bytes / size;
        if (at(op.reads[0]) != at(all.id) + own * bytes && op.reads[0] != all.id)
            std::memcpy(at(all.id) + own * bytes, at(op.reads[0]), static_cast<std::size_t>(bytes));
        const comm::UsedBytes used = all.dtype == DType::U8 ? plan::usedBytes : nullptr; // bytes are codes
        RY_ASSIGN(entry.ticket, communicator.allGather(at(all.id), elementsOf(all), all.dtype, used));
        return {};
    }
    case plan::OpKind::Send: {
        RY_ASSIGN(entry.ticket,
                  communicator.send(at(op.reads[0]), buffer(op.reads[0]).bytes, peer(op.peer), channel));
        return {};
    }
    case plan::OpKind::Recv: {
        RY_ASSIGN(entry.ticket,
                  communicator.receive(at(op.writes[0]), buffer(op.writes[0]).bytes, peer(op.peer), channel));
        return {};
    }
    default: { // Shift
        RY_ASSIGN(entry.ticket, communicator.send(at(op.reads[0]), buffer(op.reads[0]).bytes, peer(op.peer)));
        RY_ASSIGN(entry.second,
                  communicator.receive(at(op.writes[0]), buffer(op.writes[0]).bytes, peer(-op.peer)));
        return {};
    }
    }
}

// -------------------------------------------------------------------------------------------------- progress

/// What the communicator does not do itself after a reduce-scatter: its slice goes where the program wants it.
void Transfers::finishScatter(const plan::Op &op) const
{
    if (op.reads[0] == op.writes[0])
        return; // the slice stays in its place
    const plan::Buffer &to = m_context->program->buffer(op.writes[0]);
    std::byte *target = m_context->address[static_cast<std::size_t>(to.id)];
    const std::byte *slice = m_context->address[static_cast<std::size_t>(op.reads[0])]
        + m_context->places[static_cast<std::size_t>(op.group)] * to.bytes;
    if (op.accumulate) {
        const void *inputs[] = {target, slice};
        comm::reduce(to.dtype, comm::ReduceOp::Sum, inputs, 2, target, elementsOf(to));
    } else if (slice != target) {
        std::memcpy(target, slice, static_cast<std::size_t>(to.bytes));
    }
}

/// The first of a lane is complete.
void Transfers::complete(Lane &lane)
{
    const Entry entry = lane.at(0);
    const plan::Op &op = opOf(entry);
    lane.first = (lane.first + 1) % lane.ring.size();
    --lane.count;
    --lane.started;
    --m_underWay;
    if (op.kind == plan::OpKind::ReduceScatter)
        finishScatter(op);
    setDone(op.id);
    const auto id = static_cast<std::size_t>(op.id);
    m_execution->opEnd[id] = monotonicNs();
    GroupTotals &totals = m_execution->groups[static_cast<std::size_t>(op.group)];
    const comm::Figures figures = communicatorOf(op).figures(entry.ticket);
    totals.figures.payload += figures.payload;
    totals.figures.wire += figures.wire;
    totals.figures.moved += figures.moved;
    if (entry.second.sequence != 0) // of a Shift; its payload is what it sends
        totals.figures.moved += communicatorOf(op).figures(entry.second).moved;
    totals.activeNs += m_execution->opEnd[id] - m_execution->opBegin[id];
    ++totals.operations;
}

Result<bool> Transfers::advanceFront(Lane &lane, std::int64_t budget)
{
    const Entry &front = lane.at(0);
    comm::Communicator &communicator = communicatorOf(opOf(front));
    RY_ASSIGN(const bool first, communicator.advance(front.ticket, budget));
    if (!first || front.second.sequence == 0)
        return first;
    return communicator.advance(front.second, budget);
}

Status Transfers::advance(std::int64_t budget)
{
    for (Lane &lane : m_lanes) {
        while (lane.started > 0) {
            RY_ASSIGN(const bool finished, advanceFront(lane, budget));
            if (!finished)
                break;
            complete(lane);
            RY_TRY(startReady());
        }
    }
    return {};
}

Status Transfers::awaitFront(Lane &lane)
{
    const Entry &front = lane.at(0);
    comm::Communicator &communicator = communicatorOf(opOf(front));
    RY_TRY(communicator.wait(front.ticket));
    if (front.second.sequence != 0)
        RY_TRY(communicator.wait(front.second));
    complete(lane);
    return startReady();
}

Status Transfers::await(plan::OpId id)
{
    const plan::Op &op = m_context->program->op(id);
    const auto notIssued = [&] {
        return Error::make(Code::Internal, "an op waits for one that has not been started", plan::opName(op));
    };
    if (done(id))
        return {};
    if (!plan::isTransfer(op.kind))
        return notIssued();
    Lane &lane = m_lanes[static_cast<std::size_t>(plan::laneOf(op))];
    const std::int64_t begin = monotonicNs();
    std::int64_t pause = 0;
    while (!done(id)) {
        if (lane.count == 0)
            return notIssued();
        // Only this lane has something under way: sleep in the communicator. Else a peer may need the others to go on.
        if (static_cast<int>(lane.count) == m_underWay && lane.started > 0) {
            RY_TRY(awaitFront(lane));
            continue;
        }
        const int before = m_underWay;
        RY_TRY(advance(sliceBytes));
        pause = m_underWay < before ? 0 : std::min<std::int64_t>(pause + 2000, 50000);
        const timespec time{0, pause};
        if (pause > 0)
            ::nanosleep(&time, nullptr);
    }
    m_execution->groups[static_cast<std::size_t>(op.group)].exposedNs += monotonicNs() - begin;
    return {};
}

Status Transfers::drain()
{
    for (Lane &lane : m_lanes) {
        while (lane.count > 0)
            RY_TRY(await(lane.at(0).op));
    }
    return {};
}

} // namespace rankyard::exec
