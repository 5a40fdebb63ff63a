// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/executor.h"

#include "engine/plan/units.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rankyard::exec {

namespace {

constexpr std::int64_t sliceBytes = 256 << 10; ///< of communication between two looks at compute

} // namespace

/// A program with its addresses and kernels.
struct Executor::Bound {
    const plan::StepProgram *program = nullptr;
    std::vector<std::byte *> address;              ///< by buffer
    std::vector<std::unique_ptr<BoundOp>> kernels; ///< by op; null for those that the executor runs itself
    std::vector<plan::OpId> beside;                ///< those whose kernels go on beside the interpreter
    TransferContext transfers;
    std::vector<HostBatch> batches; ///< by op, of a device with queues: where LoadBatch begins
    double *stats = nullptr;        ///< on the host
    std::int64_t statsCount = 0;
    std::vector<double> statsCopy; ///< it, where the buffer itself is on a device
};

Executor::Executor(const Setup &setup, std::size_t mostOps)
    : m_setup(setup),
      m_queue(setup.device->queue()),
      m_transfers(mostOps)
{
    m_state.poll = [this] { poll(); };
}

Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::make(const Setup &setup)
{
    std::size_t mostOps = 0;
    std::size_t mostGroups = 0;
    for (const plan::StepProgram &program : setup.plan->programs) {
        mostOps = std::max(mostOps, program.ops.size());
        mostGroups = std::max(mostGroups, program.groups.size());
    }
    std::unique_ptr<Executor> executor(new Executor(setup, mostOps));
    if (setup.plan->job.layout.cp > 1) {
        const auto tokens = static_cast<std::size_t>(setup.plan->job.batch.micro * setup.plan->job.model.seq);
        executor->m_tokens.resize(tokens);
        executor->m_labels.resize(tokens);
    }
    if (executor->m_queue)
        RY_TRY(executor->m_queue->connect(*setup.plan, setup.rank, setup.groups));
    const plan::Role role = setup.plan->grid.role(setup.rank);
    for (const plan::StepProgram &program : setup.plan->programs) {
        if (program.role == role)
            RY_TRY(executor->bind(program));
    }
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
        bound->address.push_back(m_setup.arenas->address(program, buffer.id));
    if (program.stats != plan::none) {
        bound->stats = reinterpret_cast<double *>(bound->address[static_cast<std::size_t>(program.stats)]);
        bound->statsCount = program.buffer(program.stats).bytes / static_cast<std::int64_t>(sizeof(double));
        if (m_setup.device->memory()) {
            bound->statsCopy.resize(static_cast<std::size_t>(bound->statsCount));
            bound->stats = bound->statsCopy.data();
        }
    }
    bound->transfers.program = &program;
    bound->transfers.address = bound->address;
    for (const plan::Group &group : program.groups) {
        const auto found = m_setup.groups.find(group.name);
        bound->transfers.communicators.push_back(found == m_setup.groups.end() ? nullptr : found->second);
        bound->transfers.places.push_back(m_setup.plan->grid.indexIn(m_setup.rank, group));
    }
    BindContext context;
    context.plan = m_setup.plan;
    context.program = &program;
    context.address = bound->address;
    context.rank = m_setup.rank;
    for (const plan::Op &op : program.ops) {
        bound->kernels.emplace_back();
        bound->batches.emplace_back();
        if (m_queue) {
            if (op.kind != plan::OpKind::StepScalars) {
                RY_ASSIGN(bound->kernels.back(), m_setup.device->bind(context, op));
            }
            if (op.kind == plan::OpKind::LoadBatch)
                bound->batches.back() = m_queue->batchOf(context, op);
        } else if (plan::isTransfer(op.kind)) {
            if (op.group == plan::none || !bound->transfers.communicators[static_cast<std::size_t>(op.group)])
                return Error::make(Code::Internal, "there is no communicator for a group of the program",
                                   plan::opName(op));
        } else if (op.kind != plan::OpKind::LoadBatch && op.kind != plan::OpKind::StepScalars) {
            RY_ASSIGN(bound->kernels.back(), m_setup.device->bind(context, op));
            if (bound->kernels.back()->isBeside())
                bound->beside.push_back(op.id);
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
    m_state.batch = batch;
    execution.kind = kind;
    execution.program = &program;
    for (auto &order : execution.order)
        order.clear();
    std::fill(execution.groups.begin(), execution.groups.end(), GroupTotals{});
    m_transfers.begin(bound.transfers, execution);
    std::fill_n(bound.stats, bound.statsCount, 0.0);
    if (bound.statsCount >= plan::statsSlots)
        bound.stats[bound.statsCount - plan::statsSlots + plan::StatsVote] = m_state.vote;
    execution.beginNs = monotonicNs();
    const Status status = execute(bound, batch);
    if (!status)
        m_error = status.error();
    execution.endNs = monotonicNs();
    return status;
}

Status Executor::execute(Bound &bound, std::int64_t batch)
{
    if (m_queue) {
        RY_TRY(m_setup.device->memory()->copy(bound.address[static_cast<std::size_t>(bound.program->stats)],
                                              bound.stats,
                                              bound.statsCount * static_cast<std::int64_t>(sizeof(double))));
        RY_TRY(m_queue->beginRun(*bound.program));
    }
    for (const plan::Op &op : bound.program->ops)
        RY_TRY(m_queue ? runQueued(bound, op, batch) : runOp(bound, op, batch));
    if (m_queue)
        return finishQueued(bound);
    RY_TRY(m_transfers.drain());
    for (const plan::OpId op : bound.beside)
        finish(bound, op);
    return {};
}

/// An op may go on beside this thread until somebody waits for it.
void Executor::finish(Bound &bound, plan::OpId op)
{
    const auto id = static_cast<std::size_t>(op);
    if (!bound.kernels[id])
        return;
    if (const std::int64_t ended = bound.kernels[id]->finish(); ended > 0)
        m_current->opEnd[id] = ended;
}

Status Executor::runOp(Bound &bound, const plan::Op &op, std::int64_t batch)
{
    if (!bound.beside.empty()) {
        for (const plan::OpId wait : op.waits)
            finish(bound, wait);
    }
    if (plan::isTransfer(op.kind)) {
        RY_TRY(m_transfers.issue(op.id));
        return m_transfers.advance(sliceBytes);
    }
    for (const plan::OpId wait : op.waits)
        RY_TRY(m_transfers.await(wait));
    const auto id = static_cast<std::size_t>(op.id);
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
    m_transfers.setDone(op.id);
    poll();
    return m_error ? Status(*m_error) : Status();
}

/// The device does the op when its lane gets there; only its scalars are waited for.
Status Executor::runQueued(Bound &bound, const plan::Op &op, std::int64_t batch)
{
    const auto id = static_cast<std::size_t>(op.id);
    m_current->order[static_cast<std::size_t>(op.stream)].push_back(op.id);
    RY_TRY(m_queue->begin(op));
    if (op.kind == plan::OpKind::StepScalars) {
        RY_TRY(m_queue->await(&op, m_state.poll));
        RY_TRY(m_setup.device->memory()->copy(bound.stats,
                                              bound.address[static_cast<std::size_t>(bound.program->stats)],
                                              bound.statsCount * static_cast<std::int64_t>(sizeof(double))));
        scalars(bound);
    } else {
        if (op.kind == plan::OpKind::LoadBatch)
            RY_TRY(loadBatch(bound, op, batch));
        if (op.kind != plan::OpKind::Optimizer || !m_state.overflow)
            bound.kernels[id]->run(m_state);
    }
    RY_TRY(m_queue->end(op));
    poll();
    return {};
}

/// Waits for the device, and takes down when it did what.
Status Executor::finishQueued(Bound &bound)
{
    Execution &execution = *m_current;
    RY_TRY(m_queue->await(nullptr, m_state.poll));
    RY_TRY(m_queue->times(execution.opBegin, execution.opEnd));
    std::array<std::int64_t, plan::laneCount> laneEnd{};
    laneEnd.fill(execution.beginNs);
    for (const plan::Op &op : bound.program->ops) {
        const auto id = static_cast<std::size_t>(op.id);
        std::int64_t &before = laneEnd[static_cast<std::size_t>(plan::laneOf(op))];
        for (const plan::OpId wait : op.waits) {
            const plan::Op &other = bound.program->op(wait);
            if (op.stream != plan::Stream::Compute || !plan::isTransfer(other.kind))
                continue; // only computing is said to stand still
            const std::int64_t until =
                std::min(execution.opEnd[static_cast<std::size_t>(wait)], execution.opBegin[id]);
            execution.groups[static_cast<std::size_t>(other.group)].exposedNs +=
                std::max<std::int64_t>(0, until - before);
            before = std::max(before, until);
        }
        before = std::max(before, execution.opEnd[id]);
        if (!plan::isTransfer(op.kind))
            continue;
        GroupTotals &totals = execution.groups[static_cast<std::size_t>(op.group)];
        const comm::Figures figures = bound.transfers.figuresOf(op);
        totals.figures.payload += figures.payload;
        totals.figures.wire += figures.wire;
        totals.figures.moved += figures.moved;
        totals.activeNs += execution.opEnd[id] - execution.opBegin[id];
        ++totals.operations;
    }
    return {};
}

void Executor::poll()
{
    for (const auto &[name, communicator] : m_setup.groups)
        communicator->heartbeat();
    if (m_setup.progress)
        m_setup.progress->fetch_add(1, std::memory_order_relaxed);
    if (m_transfers.idle() || m_error)
        return;
    if (auto status = m_transfers.advance(sliceBytes); !status)
        m_error = status.error();
}

/// Of each sequence the rows that this context rank has.
Status Executor::loadBatch(Bound &bound, const plan::Op &op, std::int64_t batch)
{
    const auto place = [&](std::size_t i) {
        return reinterpret_cast<std::int32_t *>(bound.address[static_cast<std::size_t>(op.writes[i])]);
    };
    const HostBatch &staged = bound.batches[static_cast<std::size_t>(op.id)];
    std::int32_t *tokens = staged.tokens ? staged.tokens : place(0);
    std::int32_t *labels = staged.labels ? staged.labels : place(1);
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
