// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"
#include "engine/plan/units.h"

#include <algorithm>
#include <map>

namespace rankyard::plan {

namespace {

/// Puts the transfers of the tensor group between the segments of every unit (DESIGN 1.1; Shoeybi et al. 2019, Korthikanti et
/// al. 2022). The emitter has made partial sums in T rows, and the residual stream in R.
class TensorParallel
{
public:
    explicit TensorParallel(PassContext context)
        : m_context(context),
          m_program(context.program),
          m_split(context.job),
          m_group(context.group("tp")),
          m_rows(context.job.layout.sequenceParallel)
    {}
    void run();

private:
    void before(Op &op);
    void after(const Op &op);
    void push(Op op) { appendOp(m_out, std::move(op)); }
    BufferId gathered(const Op &op, BufferId id, bool again);
    void reduce(const Op &op, BufferId id);
    void loss(Op op);
    Op transfer(OpKind kind, const Op &like, BufferId from, BufferId to, std::int64_t payload) const;
    BufferId like(BufferId id, const std::string &suffix, std::int64_t rows);
    BufferId now(BufferId id) const
    {
        const auto found = m_moved.find(id);
        return found == m_moved.end() ? id : found->second;
    }

    PassContext m_context;
    StepProgram &m_program;
    StepProgram m_out; ///< its ops only
    Split m_split;
    GroupId m_group;
    bool m_rows;                             ///< sequence parallelism
    std::map<BufferId, BufferId> m_moved;    ///< partial sums → this rank's rows of the sum
    std::map<BufferId, BufferId> m_gathered; ///< rows → all rows, while they are current
    std::map<BufferId, int> m_copies;
};

/// Which read has to have T rows; −1: none.
int gatheredRead(const Op &op)
{
    switch (op.segment) {
    case Segment::Qkv:
    case Segment::Up:
        return op.kind == OpKind::Forward ? 0 : op.kind == OpKind::BackwardWeight ? 1 : -1;
    case Segment::Loss:
        return 0;
    case Segment::Out:
    case Segment::Down:
        return op.kind == OpKind::Forward ? -1 : 0;
    case Segment::Lookup:
        return op.kind == OpKind::BackwardWeight ? 0 : -1;
    default:
        return -1;
    }
}

/// The write that is a partial sum; none when the op makes none.
BufferId partialOf(const StepProgram &program, const Op &op)
{
    const bool row =
        op.segment == Segment::Lookup || op.segment == Segment::Out || op.segment == Segment::Down;
    if (op.kind == OpKind::Forward && row)
        return op.writes[0];
    if (op.kind == OpKind::BackwardInput && (op.segment == Segment::Qkv || op.segment == Segment::Up)) {
        for (auto id = op.writes.rbegin(); id != op.writes.rend(); ++id) { // dn, before a bias' gradient
            if (program.buffer(*id).tensor == none)
                return *id;
        }
    }
    return none;
}

BufferId TensorParallel::like(BufferId id, const std::string &suffix, std::int64_t rows)
{
    const Buffer buffer = m_program.buffer(id);
    std::vector<std::int64_t> shape = buffer.shape;
    shape[0] = rows;
    std::string name = buffer.name;
    name.insert(name.rfind('@'), suffix);
    return addBuffer(m_program, std::move(name), buffer.kind, buffer.dtype, std::move(shape));
}

Op TensorParallel::transfer(OpKind kind, const Op &like, BufferId from, BufferId to,
                            std::int64_t payload) const
{
    Op op;
    op.kind = kind;
    op.unit = like.unit;
    op.segment = like.segment;
    op.microbatch = like.microbatch;
    op.stream = Stream::Tensor;
    op.group = m_group;
    op.reads = {from};
    op.writes = {to};
    op.payload = payload;
    return op;
}

/// All rows of `id`. A weight op gathers its input again: keeping it would cost what sequence parallelism saves.
BufferId TensorParallel::gathered(const Op &op, BufferId id, bool again)
{
    const auto found = m_gathered.find(id);
    if (!again && found != m_gathered.end())
        return found->second;
    const std::string suffix = ".all" + (m_copies[id]++ > 0 ? std::to_string(m_copies[id]) : "");
    const BufferId whole = like(id, suffix, m_split.tokens);
    const Op *writer = nullptr;
    for (auto before = m_out.ops.rbegin(); before != m_out.ops.rend() && writer == nullptr; ++before) {
        if (!isCollective(before->kind)
            && std::find(before->writes.begin(), before->writes.end(), id) != before->writes.end())
            writer = &*before;
    }
    Op gather = transfer(OpKind::AllGather, writer != nullptr ? *writer : op, id, whole,
                         m_program.buffer(whole).bytes);
    gather.microbatch = op.microbatch;
    push(std::move(gather));
    m_gathered[id] = whole;
    return whole;
}

void TensorParallel::reduce(const Op &op, BufferId id)
{
    const std::int64_t bytes = m_program.buffer(id).bytes;
    if (!m_rows) {
        push(transfer(OpKind::AllReduce, op, id, id, bytes));
        return;
    }
    const BufferId rows = like(id, ".rows", m_split.rows);
    push(transfer(OpKind::ReduceScatter, op, id, rows, bytes));
    m_moved[id] = rows;
}

/// In two: statistics of this rank's columns, gathered, then the loss from all of them.
void TensorParallel::loss(Op op)
{
    const bool training = m_context.training();
    const DType type = m_context.job.precision.compute == DType::F64 ? DType::F64 : DType::F32;
    const BufferId logitsBuffer = op.writes.back();
    const std::int64_t chunk = m_program.buffer(logitsBuffer).shape[0];
    const std::string suffix = "." + std::to_string(op.chunk) + "@" + std::to_string(op.microbatch);
    const BufferId part = addBuffer(m_program, "head.part" + suffix, MemoryKind::Workspace, type, {chunk, 3});
    const BufferId parts = addBuffer(m_program, "head.parts" + suffix, MemoryKind::Workspace, type,
                                     {m_context.job.layout.tp, chunk, 3});
    Op logits = op;
    logits.segment = Segment::Logits;
    logits.writes = {logitsBuffer, part};
    logits.flops = opFlops(m_context.job, OpKind::Forward, Segment::Loss, op.rowEnd - op.rowBegin);
    push(logits);
    Op gather = transfer(OpKind::AllGather, logits, part, parts, m_program.buffer(parts).bytes);
    gather.chunk = op.chunk;
    push(std::move(gather));
    op.flops -= logits.flops;
    if (training) {
        op.reads.push_back(parts);
    } else {
        op.reads = {op.reads[2], parts};
        op.writes = {m_program.stats};
    }
    const bool last = op.rowEnd == m_split.tokens;
    push(op);
    if (training && last)
        reduce(op, op.writes[1]);
}

void TensorParallel::before(Op &op)
{
    for (auto *list : {&op.reads, &op.writes}) {
        for (BufferId &id : *list)
            id = now(id);
    }
    if (op.kind == OpKind::Send)
        op.payload = m_program.buffer(op.reads[0]).bytes;
    const int place = m_rows && !isTransfer(op.kind) ? gatheredRead(op) : -1;
    if (place < 0)
        return;
    BufferId &id = op.reads[static_cast<std::size_t>(place)];
    const bool again =
        op.kind == OpKind::BackwardWeight && (op.segment == Segment::Qkv || op.segment == Segment::Up);
    id = gathered(op, id, again);
}

void TensorParallel::after(const Op &op)
{
    for (const BufferId id : op.writes)
        m_gathered.erase(id);
    if (const BufferId partial = isTransfer(op.kind) ? none : partialOf(m_program, op); partial != none)
        reduce(op, partial);
}

void TensorParallel::run()
{
    std::vector<OpId> moved;
    for (Op op : std::vector<Op>(m_program.ops)) {
        before(op);
        for (OpId &wait : op.waits)
            wait = moved[static_cast<std::size_t>(wait)];
        if (op.segment == Segment::Loss) {
            loss(op);
            moved.push_back(static_cast<OpId>(m_out.ops.size()) - 1);
            continue;
        }
        push(op);
        moved.push_back(m_out.ops.back().id);
        after(op);
    }
    m_program.ops = std::move(m_out.ops);
}

} // namespace

void tensorPass(PassContext context)
{
    if (context.job.layout.tp > 1)
        TensorParallel(context).run();
}

} // namespace rankyard::plan
