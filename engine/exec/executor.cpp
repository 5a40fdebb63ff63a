// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/executor.h"

#include "engine/comm/reduce.h"
#include "engine/plan/units.h"

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
    std::vector<Lane *> lanes;                     ///< by op; null for those that transfer nothing
    std::vector<int> places;                       ///< of this rank, by group
    double *stats = nullptr;
    std::int64_t statsCount = 0;
};

/// One transfer under way.
struct Executor::Transfer {
    Bound *bound = nullptr;
    plan::OpId op = plan::none;
    comm::Ticket ticket;
    comm::Ticket second; ///< of a Shift: the message that comes in
};

/// What is under way on one communicator and lane of a program, first in, first out.
struct Executor::Lane {
    comm::Communicator *communicator = nullptr;
    int number = 0;             ///< plan::laneOf
    std::vector<Transfer> ring; ///< as many as the largest program has ops
    std::size_t first = 0;
    std::size_t count = 0;

    Transfer &front() { return ring[first]; }
    void push(Transfer entry) { ring[(first + count++) % ring.size()] = entry; }
    void pop()
    {
        first = (first + 1) % ring.size();
        --count;
    }
};

Executor::Executor(const Setup &setup) : m_setup(setup)
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
    if (setup.plan->job.layout.cp > 1) {
        const auto tokens = static_cast<std::size_t>(setup.plan->job.batch.micro * setup.plan->job.model.seq);
        executor->m_tokens.resize(tokens);
        executor->m_labels.resize(tokens);
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
    for (const plan::Group &group : program.groups)
        bound->places.push_back(m_setup.plan->grid.indexIn(m_setup.rank, group));
    for (const plan::Buffer &buffer : program.buffers)
        bound->address.push_back(m_setup.arenas->address(program, buffer.id));
    if (program.stats != plan::none) {
        bound->stats = reinterpret_cast<double *>(bound->address[static_cast<std::size_t>(program.stats)]);
        bound->statsCount = program.buffer(program.stats).bytes / static_cast<std::int64_t>(sizeof(double));
    }
    BindContext context;
    context.plan = m_setup.plan;
    context.program = &program;
    context.address = bound->address;
    context.rank = m_setup.rank;
    for (const plan::Op &op : program.ops) {
        bound->kernels.emplace_back();
        bound->lanes.emplace_back();
        if (plan::isTransfer(op.kind)) {
            RY_ASSIGN(bound->lanes.back(), laneFor(program, op));
        } else if (op.kind != plan::OpKind::LoadBatch && op.kind != plan::OpKind::StepScalars) {
            RY_ASSIGN(bound->kernels.back(), m_setup.device->bind(context, op));
        }
    }
    m_programs.push_back(std::move(bound));
    return {};
}

/// The lane of a transfer, made when it is the first.
Result<Executor::Lane *> Executor::laneFor(const plan::StepProgram &program, const plan::Op &op)
{
    const std::string name = program.groups[static_cast<std::size_t>(op.group)].name;
    const auto group = m_setup.groups.find(name);
    if (group == m_setup.groups.end())
        return Error::make(Code::Internal, "there is no communicator for a group of the program", name);
    const int number = plan::laneOf(op);
    const auto found = std::find_if(m_lanes.begin(), m_lanes.end(), [&](const auto &lane) {
        return lane->communicator == group->second && lane->number == number;
    });
    if (found != m_lanes.end())
        return found->get();
    std::size_t mostOps = 0;
    for (const plan::StepProgram &each : m_setup.plan->programs)
        mostOps = std::max(mostOps, each.ops.size());
    auto lane = std::make_unique<Lane>();
    lane->communicator = group->second;
    lane->number = number;
    lane->ring.resize(mostOps + 1);
    m_lanes.push_back(std::move(lane));
    return m_lanes.back().get();
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
    m_state.batch = batch;
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
    if (plan::isTransfer(op.kind)) {
        RY_TRY(startTransfer(bound, op));
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

namespace {

std::int64_t elementsOf(const plan::Buffer &buffer)
{
    return buffer.bytes / static_cast<std::int64_t>(bytesOf(buffer.dtype));
}

} // namespace

Status Executor::startTransfer(Bound &bound, const plan::Op &op)
{
    Lane &lane = *bound.lanes[static_cast<std::size_t>(op.id)];
    // A stream is a FIFO: what other groups have under way on it comes first. Within a lane the communicator keeps the order.
    for (const auto &other : m_lanes) {
        while (other.get() != &lane && other->number == lane.number && other->count > 0)
            RY_TRY(awaitOp(bound, other->front().op));
    }
    m_current->order[static_cast<std::size_t>(op.stream)].push_back(op.id);
    m_current->opBegin[static_cast<std::size_t>(op.id)] = monotonicNs();
    Transfer entry{&bound, op.id, {}, {}};
    RY_TRY(start(bound, op, entry));
    lane.push(entry);
    ++m_outstanding;
    return {};
}

Status Executor::start(Bound &bound, const plan::Op &op, Transfer &entry)
{
    comm::Communicator &communicator = *bound.lanes[static_cast<std::size_t>(op.id)]->communicator;
    const auto place = [&](plan::BufferId id) { return bound.address[static_cast<std::size_t>(id)]; };
    const int own = bound.places[static_cast<std::size_t>(op.group)], size = communicator.size();
    const auto peer = [&](std::int32_t offset) { return ((own + offset) % size + size) % size; };
    const plan::Buffer &buffer = bound.program->buffer(
        op.kind == plan::OpKind::Send || op.kind == plan::OpKind::ReduceScatter ? op.reads[0] : op.writes[0]);
    switch (op.kind) {
    case plan::OpKind::AllReduce: {
        RY_ASSIGN(
            entry.ticket,
            communicator.allReduce(place(buffer.id), elementsOf(buffer), buffer.dtype, comm::ReduceOp::Sum));
        return {};
    }
    case plan::OpKind::ReduceScatter: {
        RY_ASSIGN(entry.ticket,
                  communicator.reduceScatter(place(buffer.id), elementsOf(buffer), buffer.dtype));
        return {};
    }
    case plan::OpKind::AllGather: {
        // The communicator gathers in place: the own slice goes there first, unless it is a view of it.
        const std::int64_t bytes = bound.program->buffer(op.reads[0]).bytes;
        std::byte *slice = place(buffer.id) + own * bytes;
        if (slice != place(op.reads[0]))
            std::memcpy(slice, place(op.reads[0]), static_cast<std::size_t>(bytes));
        RY_ASSIGN(entry.ticket, communicator.allGather(place(buffer.id), elementsOf(buffer), buffer.dtype));
        return {};
    }
    case plan::OpKind::Send: {
        RY_ASSIGN(entry.ticket,
                  communicator.send(place(buffer.id), buffer.bytes, peer(op.peer), std::max(0, op.channel)));
        return {};
    }
    case plan::OpKind::Recv: {
        RY_ASSIGN(
            entry.ticket,
            communicator.receive(place(buffer.id), buffer.bytes, peer(op.peer), std::max(0, op.channel)));
        return {};
    }
    default: { // Shift
        RY_ASSIGN(
            entry.ticket,
            communicator.send(place(op.reads[0]), bound.program->buffer(op.reads[0]).bytes, peer(op.peer)));
        RY_ASSIGN(entry.second, communicator.receive(place(buffer.id), buffer.bytes, peer(-op.peer)));
        return {};
    }
    }
}

/// What the communicator does not do itself after a reduce-scatter: its slice goes where the program wants it.
void Executor::finishScatter(const Bound &bound, const plan::Op &op) const
{
    if (op.reads[0] == op.writes[0])
        return; // the slice stays in its place
    const plan::Buffer &to = bound.program->buffer(op.writes[0]);
    std::byte *target = bound.address[static_cast<std::size_t>(to.id)];
    const std::byte *slice = bound.address[static_cast<std::size_t>(op.reads[0])]
        + bound.places[static_cast<std::size_t>(op.group)] * to.bytes;
    if (op.accumulate) {
        const void *inputs[] = {target, slice};
        comm::reduce(to.dtype, comm::ReduceOp::Sum, inputs, 2, target, elementsOf(to));
    } else if (slice != target) {
        std::memcpy(target, slice, static_cast<std::size_t>(to.bytes));
    }
}

/// The front operation of a lane is complete.
void Executor::complete(Lane &lane)
{
    const Transfer entry = lane.front();
    lane.pop();
    --m_outstanding;
    const auto id = static_cast<std::size_t>(entry.op);
    const plan::Op &op = entry.bound->program->op(entry.op);
    if (op.kind == plan::OpKind::ReduceScatter)
        finishScatter(*entry.bound, op);
    m_done[id] = 1;
    m_current->opEnd[id] = monotonicNs();
    GroupTotals &totals = m_current->groups[static_cast<std::size_t>(op.group)];
    for (const comm::Ticket ticket : {entry.ticket, entry.second}) {
        if (ticket.sequence == 0)
            continue;
        const comm::Figures figures = lane.communicator->figures(ticket);
        totals.figures.payload += op.kind == plan::OpKind::Shift && ticket.sequence == entry.second.sequence
            ? 0 // sent and received: one message
            : figures.payload;
        totals.figures.wire += figures.wire;
        totals.figures.moved += figures.moved;
    }
    totals.activeNs += m_current->opEnd[id] - m_current->opBegin[id];
    ++totals.operations;
    if (m_setup.progress)
        m_setup.progress->fetch_add(1, std::memory_order_relaxed);
}

/// Whether the front of a lane is complete, after at most `budget` bytes of work.
Result<bool> Executor::advanceFront(Lane &lane, std::int64_t budget)
{
    RY_ASSIGN(const bool done, lane.communicator->advance(lane.front().ticket, budget));
    if (!done || lane.front().second.sequence == 0)
        return done;
    return lane.communicator->advance(lane.front().second, budget);
}

void Executor::advance(std::int64_t budget)
{
    for (const auto &lane : m_lanes) {
        while (lane->count > 0 && !m_error) {
            const auto done = advanceFront(*lane, budget);
            if (!done) {
                m_error = done.error();
                return;
            }
            if (!*done)
                break;
            complete(*lane);
        }
    }
}

void Executor::poll()
{
    for (const auto &[name, communicator] : m_setup.groups)
        communicator->heartbeat();
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
    if (!plan::isTransfer(op.kind))
        return notStarted();
    Lane &lane = *bound.lanes[static_cast<std::size_t>(id)];
    const std::int64_t begin = monotonicNs();
    std::int64_t pause = 0;
    while (!m_done[static_cast<std::size_t>(id)]) {
        if (lane.count == 0)
            return notStarted();
        // Only this lane has something under way: sleep in the communicator. Else a peer may need the others to go on.
        if (static_cast<int>(lane.count) == m_outstanding) {
            RY_TRY(lane.communicator->wait(lane.front().ticket));
            if (lane.front().second.sequence != 0)
                RY_TRY(lane.communicator->wait(lane.front().second));
            complete(lane);
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
    for (const auto &lane : m_lanes) {
        while (lane->count > 0)
            RY_TRY(awaitOp(bound, lane->front().op));
    }
    return {};
}

/// Of each sequence the rows that this context rank has.
Status Executor::loadBatch(Bound &bound, const plan::Op &op, std::int64_t batch)
{
    auto *tokens = reinterpret_cast<std::int32_t *>(bound.address[static_cast<std::size_t>(op.writes[0])]);
    auto *labels = reinterpret_cast<std::int32_t *>(bound.address[static_cast<std::size_t>(op.writes[1])]);
    const plan::RankGrid &grid = m_setup.plan->grid;
    const spec::JobSpec &job = m_setup.plan->job;
    const int replica = grid.coordinate(m_setup.rank, "dp");
    const std::int64_t ranks = job.layout.cp, seq = job.model.seq;
    if (ranks == 1)
        return m_setup.data->fill(bound.program->kind, batch, replica, op.microbatch, tokens, labels);
    RY_TRY(m_setup.data->fill(bound.program->kind, batch, replica, op.microbatch, m_tokens.data(),
                              m_labels.data()));
    const std::int64_t own = grid.coordinate(m_setup.rank, "cp");
    for (std::int64_t sample = 0; sample < job.batch.micro; ++sample) {
        for (std::int64_t row = 0; row < seq / ranks; ++row) {
            const auto from = static_cast<std::size_t>(sample * seq + plan::positionOf(row, seq, own, ranks));
            *tokens++ = m_tokens[from];
            *labels++ = m_labels[from];
        }
    }
    return {};
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
