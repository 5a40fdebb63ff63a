// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>
#include <map>

namespace rankyard::plan {

namespace {

/// Inputs of layers that are computed again, kept somewhere else between forward and backward: a slice on each rank of the tensor
/// group, which all have the same (Rasley et al. 2020, partitioned activations), or in host memory; both: the slice on the host.
class SavedInputs
{
public:
    explicit SavedInputs(PassContext context)
        : m_context(context),
          m_program(context.program),
          m_tensorGroup(context.job.recompute.partition ? context.group("tp") : none)
    {}
    void run();

private:
    struct Saved {
        BufferId x = none;
        Unit unit; ///< the layer's attention, whose input it is
        std::int32_t microbatch = none;
        OpId writer = none;
        OpId lastForward = none;
        OpId firstBackward = none;
    };
    static bool isBackward(const Op &op)
    {
        return op.kind == OpKind::Recompute || op.kind == OpKind::BackwardInput
            || op.kind == OpKind::BackwardWeight;
    }
    std::vector<Saved> find() const;
    BufferId like(BufferId id, const char *suffix, MemoryKind kind, std::int64_t parts);
    Op copy(const Saved &saved, BufferId from, BufferId to) const;
    Op gather(const Saved &saved, BufferId from, BufferId to) const;
    void keep(const Saved &saved, OpId back, Insertions &insertions);
    void boundCopies();

    PassContext m_context;
    StepProgram &m_program;
    GroupId m_tensorGroup;
};

/// By their first use in the backward.
std::vector<SavedInputs::Saved> SavedInputs::find() const
{
    std::map<BufferId, Saved> inputs;
    for (const Op &op : m_program.ops) {
        if (op.kind == OpKind::Forward && op.segment == Segment::Norm && op.unit.kind == UnitKind::Attention
            && recomputes(m_context.job.recompute, op.unit.layer))
            inputs[op.reads[0]] = {op.reads[0], op.unit, op.microbatch};
    }
    for (const Op &op : m_program.ops) {
        for (const auto *list : {&op.reads, &op.writes}) {
            for (const BufferId id : *list) {
                const auto found = inputs.find(id);
                if (found == inputs.end())
                    continue;
                Saved &saved = found->second;
                if (list == &op.writes)
                    saved.writer = op.id;
                if (!isBackward(op))
                    saved.lastForward = op.id;
                else if (saved.firstBackward == none)
                    saved.firstBackward = op.id;
            }
        }
    }
    std::vector<Saved> list;
    for (const auto &[id, saved] : inputs) {
        if (saved.firstBackward != none)
            list.push_back(saved);
    }
    std::sort(list.begin(), list.end(),
              [](const Saved &a, const Saved &b) { return a.firstBackward < b.firstBackward; });
    return list;
}

/// A buffer for one of `parts` equal parts.
BufferId SavedInputs::like(BufferId id, const char *suffix, MemoryKind kind, std::int64_t parts)
{
    const Buffer buffer = m_program.buffer(id);
    std::string name = buffer.name;
    name.insert(std::min(name.rfind('@'), name.size()), suffix);
    const std::vector<std::int64_t> shape =
        parts == 1 ? buffer.shape : std::vector<std::int64_t>{numelOf(buffer.shape) / parts};
    return addBuffer(m_program, std::move(name), kind, buffer.dtype, shape);
}

Op SavedInputs::copy(const Saved &saved, BufferId from, BufferId to) const
{
    Op op;
    op.kind = OpKind::Copy;
    op.stream = Stream::Copy;
    op.unit = saved.unit;
    op.microbatch = saved.microbatch;
    op.reads = {from};
    op.writes = {to};
    return op;
}

/// Named after the op that made the value, as transfers are.
Op SavedInputs::gather(const Saved &saved, BufferId from, BufferId to) const
{
    const Op &writer = m_program.op(saved.writer);
    Op op;
    op.kind = OpKind::AllGather;
    op.stream = Stream::Tensor;
    op.unit = writer.unit;
    op.segment = writer.segment;
    op.microbatch = saved.microbatch;
    op.group = m_tensorGroup;
    op.reads = {from};
    op.writes = {to};
    op.payload = m_program.buffer(to).bytes;
    return op;
}

/// Away after the last use of the forward, back before op `back`.
void SavedInputs::keep(const Saved &saved, OpId back, Insertions &insertions)
{
    const bool host = m_context.job.recompute.toHost;
    const std::int64_t parts =
        m_tensorGroup == none ? 1 : m_program.groups[static_cast<std::size_t>(m_tensorGroup)].size;
    const OpId away = saved.lastForward + 1;
    back = std::max(back, away);
    BufferId source = saved.x;
    if (parts > 1) {
        source = like(saved.x, ".slice", MemoryKind::Activations, parts);
        makeView(m_program, source, saved.x, 0);
        m_program.buffers.back().sliceGroup = m_tensorGroup;
    }
    const BufferId kept = like(saved.x, ".kept", host ? MemoryKind::Host : MemoryKind::Activations, parts);
    insertions.emplace_back(away, copy(saved, source, kept));
    const BufferId again = like(saved.x, ".again", MemoryKind::Activations, 1);
    std::vector<Op> ops;
    BufferId slice = kept;
    if (host) {
        slice = parts > 1 ? like(saved.x, ".back", MemoryKind::Activations, parts) : again;
        ops.push_back(copy(saved, kept, slice));
    }
    if (parts > 1)
        ops.push_back(gather(saved, slice, again));
    // Into bytes that the computation before has let go. Not after a Recv that stands there: what it waits for may, on another stage,
    // wait for a transfer behind this one.
    OpId computed = back - 1;
    while (computed > away && m_program.op(computed).stream != Stream::Compute)
        --computed;
    for (Op &op : ops) {
        op.waits = {computed};
        insertions.emplace_back(back, std::move(op));
    }
    for (Op &op : m_program.ops) {
        if (isBackward(op))
            std::replace(op.reads.begin(), op.reads.end(), saved.x, again);
    }
}

void SavedInputs::run()
{
    Insertions insertions;
    OpId before = none; // one layer ahead: on its way while the layer before it is computed again
    for (const Saved &saved : find()) {
        keep(saved, before == none ? saved.firstBackward : before, insertions);
        before = saved.firstBackward;
    }
    insertOps(m_program, std::move(insertions));
    boundCopies();
}

/// The last use of an input in the forward waits for the copy of the one before: after it the bytes of that one are free for
/// computing. Without such a wait they never would be, and the device would hold all inputs as before.
void SavedInputs::boundCopies()
{
    OpId before = none;
    for (const Op &op : std::vector<Op>(m_program.ops)) {
        const bool away = op.kind == OpKind::Copy && op.unit.kind == UnitKind::Attention
            && m_program.buffer(op.reads[0]).kind == MemoryKind::Activations;
        if (!away)
            continue;
        Op &last = m_program.ops[static_cast<std::size_t>(op.id) - 1];
        if (before != none && before < last.id && last.stream == Stream::Compute)
            last.waits.push_back(before);
        before = op.id;
    }
}

} // namespace

void savedPass(PassContext context)
{
    const spec::Recompute &recompute = context.job.recompute;
    if (context.training() && (recompute.partition || recompute.toHost))
        SavedInputs(context).run();
}

} // namespace rankyard::plan
