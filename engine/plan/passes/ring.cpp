// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>
#include <deque>
#include <map>

namespace rankyard::plan {

namespace {

/// Reductions and gathers over the replicas, written out in steps that a reader can follow. `ring` (Patarasuk and Yuan 2009): slices
/// go round, n − 1 steps to one neighbour; `direct`: each rank sends every other its slice at once. The steps of a reduction stand
/// between the ops of the backward that follows, one each, so that its transfers are under way meanwhile.
class WrittenOut
{
public:
    explicit WrittenOut(PassContext context)
        : m_context(context),
          m_program(context.program),
          m_ring(context.job.comm.algorithm == "ring")
    {}
    void run();

private:
    bool isWrittenOut(const Op &op) const;
    void reduce(const Op &op);
    std::vector<Op> gatherSteps(const Op &op, BufferId root);
    BufferId slice(BufferId root, GroupId group, std::int32_t shift);
    Op shift(const Op &like, BufferId from, BufferId to, std::int32_t peer) const;
    void flush()
    {
        for (; !m_steps.empty(); m_steps.pop_front())
            appendOp(m_out, std::move(m_steps.front()));
    }

    PassContext m_context;
    StepProgram &m_program;
    StepProgram m_out; ///< its ops only
    bool m_ring;
    std::map<std::pair<BufferId, std::int32_t>, BufferId> m_slices; ///< of a root, by whose
    std::deque<Op> m_steps;                                         ///< of reductions that have begun
    std::vector<Op> m_after;                                        ///< sums of slices over other groups
};

/// Of a bucket over its group, in the storage that lives over all steps; what is gathered for one use is not.
bool WrittenOut::isWrittenOut(const Op &op) const
{
    if (op.unit.kind != UnitKind::None || op.chunk == none || !isCollective(op.kind))
        return false;
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(op.chunk)];
    return op.group == bucket.group && (op.writes[0] == bucket.grad || op.writes[0] == bucket.param);
}

/// The slice of the rank `shift` places after this one.
BufferId WrittenOut::slice(BufferId root, GroupId group, std::int32_t shift)
{
    const std::int32_t size = m_program.groups[static_cast<std::size_t>(group)].size;
    shift = (shift % size + size) % size;
    const auto [found, isNew] = m_slices.try_emplace({root, shift}, none);
    if (!isNew)
        return found->second;
    const Buffer whole = m_program.buffer(root);
    BufferId id = addBuffer(m_program, whole.name + ".slice+" + std::to_string(shift), whole.kind,
                            whole.dtype, {numelOf(whole.shape) / size});
    makeView(m_program, id, root, 0);
    m_program.buffers.back().sliceGroup = group;
    m_program.buffers.back().sliceShift = shift;
    found->second = id;
    return id;
}

Op WrittenOut::shift(const Op &like, BufferId from, BufferId to, std::int32_t peer) const
{
    Op op;
    op.kind = OpKind::Shift;
    op.chunk = like.chunk;
    op.stream = like.stream;
    op.group = like.group;
    op.peer = peer;
    op.reads = {from};
    op.writes = {to};
    op.payload = m_program.buffer(from).bytes;
    return op;
}

/// From every rank's own slice to all slices on every rank.
std::vector<Op> WrittenOut::gatherSteps(const Op &op, BufferId root)
{
    const std::int32_t size = m_program.groups[static_cast<std::size_t>(op.group)].size;
    std::vector<Op> steps;
    for (std::int32_t k = 0; k + 1 < size; ++k) {
        if (m_ring)
            steps.push_back(shift(op, slice(root, op.group, -k), slice(root, op.group, -k - 1), 1));
        else
            steps.push_back(shift(op, slice(root, op.group, 0), slice(root, op.group, -k - 1), k + 1));
    }
    return steps;
}

void WrittenOut::reduce(const Op &op)
{
    const BufferId root = op.writes[0];
    const Buffer whole = m_program.buffer(root);
    const std::int32_t size = m_program.groups[static_cast<std::size_t>(op.group)].size;
    for (std::int32_t k = 0; k + 1 < size; ++k) {
        const BufferId part = addBuffer(m_program, whole.name + ".part" + std::to_string(k),
                                        MemoryKind::Buckets, whole.dtype, {numelOf(whole.shape) / size});
        m_program.buffers.back().shared = true;
        Op add;
        add.kind = OpKind::Add;
        add.chunk = op.chunk;
        add.accumulate = true;
        add.reads = {part};
        if (m_ring) {
            m_steps.push_back(shift(op, slice(root, op.group, -k - 1), part, 1));
            add.writes = {slice(root, op.group, -k - 2)};
        } else {
            m_steps.push_back(shift(op, slice(root, op.group, k + 1), part, k + 1));
            add.writes = {slice(root, op.group, 0)};
        }
        m_steps.push_back(std::move(add));
    }
    if (op.kind == OpKind::AllReduce) {
        for (Op &step : gatherSteps(op, root))
            m_steps.push_back(std::move(step));
    }
}

void WrittenOut::run()
{
    for (const Bucket &bucket : m_program.buckets) {
        for (const auto &[root, own] :
             {std::pair(bucket.param, bucket.paramSlice), std::pair(bucket.grad, bucket.gradSlice)}) {
            if (root != none && own != root)
                m_slices[{root, 0}] = own;
        }
    }
    std::vector<OpId> moved;
    for (Op op : std::vector<Op>(m_program.ops)) {
        for (OpId &wait : op.waits)
            wait = moved[static_cast<std::size_t>(wait)];
        if (isWrittenOut(op) && op.kind == OpKind::AllGather) {
            for (Op &step : gatherSteps(op, op.writes[0]))
                appendOp(m_out, std::move(step));
        } else if (isWrittenOut(op)) {
            reduce(op);
        } else if (op.unit.kind == UnitKind::None && op.chunk != none
                   && (op.kind == OpKind::AllReduce || op.kind == OpKind::ReduceScatter)) {
            m_after.push_back(std::move(op)); // of a slice, or before any reduction of its bucket
            if (m_program.groups[static_cast<std::size_t>(m_after.back().group)].pick == Pick::Inner) {
                appendOp(m_out, std::move(m_after.back()));
                m_after.pop_back();
            }
        } else {
            appendOp(m_out, std::move(op));
            if (!m_steps.empty()) {
                appendOp(m_out, std::move(m_steps.front()));
                m_steps.pop_front();
            }
        }
        moved.push_back(std::max<OpId>(0, static_cast<OpId>(m_out.ops.size()) - 1));
    }
    flush();
    for (Op &op : m_after)
        appendOp(m_out, std::move(op));
    m_program.ops = std::move(m_out.ops);
}

} // namespace

void ringPass(PassContext context)
{
    if (context.job.comm.algorithm != "library")
        WrittenOut(context).run();
}

} // namespace rankyard::plan
