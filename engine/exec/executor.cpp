// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/executor.h"

#include "engine/plan/units.h"

#include <algorithm>
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
    double *stats = nullptr;
    std::int64_t statsCount = 0;
};

Executor::Executor(const Setup &setup, std::size_t mostOps) : m_setup(setup), m_transfers(mostOps)
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
        if (plan::isTransfer(op.kind)) {
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
    for (const plan::Op &op : program.ops) {
        if (auto status = runOp(bound, op, batch); !status) {
            m_error = status.error();
            return status;
        }
    }
    if (auto status = m_transfers.drain(); !status) {
        m_error = status.error();
        return status;
    }
    for (const plan::OpId op : bound.beside)
        finish(bound, op);
    execution.endNs = monotonicNs();
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
