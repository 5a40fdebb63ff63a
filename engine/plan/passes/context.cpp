// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"
#include "engine/plan/units.h"

namespace rankyard::plan {

namespace {

/// Ring attention (Liu et al. 2023) with balanced causal halves: keys and values go round the context group, one rank a block;
/// in backward their gradients go with them and come home after the last.
class ContextParallel
{
public:
    explicit ContextParallel(PassContext context)
        : m_context(context),
          m_program(context.program),
          m_group(context.group("cp")),
          m_ranks(context.job.layout.cp),
          m_width(Split(context.job).kvWidth())
    {}
    void run();

private:
    void forward(const Op &core);
    void backward(const Op &core);
    BufferId kv(const Op &core, const std::string &name, std::int64_t block);
    Op op(OpKind kind, const Op &core, Segment segment, std::vector<BufferId> reads,
          std::vector<BufferId> writes) const;
    Op shift(const Op &core, Segment segment, BufferId from, BufferId to) const;
    Op block(const Op &core, std::int64_t k, std::vector<BufferId> reads, std::vector<BufferId> writes) const;
    void push(Op op) { appendOp(m_out, std::move(op)); }

    PassContext m_context;
    StepProgram &m_program;
    StepProgram m_out; ///< its ops only
    GroupId m_group;
    std::int64_t m_ranks;
    std::int64_t m_width;
};

BufferId ContextParallel::kv(const Op &core, const std::string &name, std::int64_t block)
{
    const Buffer qkv = m_program.buffer(core.kind == OpKind::Forward ? core.reads[0] : core.reads[1]);
    const std::string full = "layers." + std::to_string(core.unit.layer) + ".attn." + name + "."
        + std::to_string(block) + "@" + std::to_string(core.microbatch);
    return addBuffer(m_program, full, qkv.kind, qkv.dtype, {qkv.shape[0], m_width});
}

Op ContextParallel::op(OpKind kind, const Op &core, Segment segment, std::vector<BufferId> reads,
                       std::vector<BufferId> writes) const
{
    Op op;
    op.kind = kind;
    op.unit = core.unit;
    op.segment = segment;
    op.microbatch = core.microbatch;
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    return op;
}

Op ContextParallel::shift(const Op &core, Segment segment, BufferId from, BufferId to) const
{
    Op shift = op(OpKind::Shift, core, segment, {from}, {to});
    shift.stream = Stream::Tensor;
    shift.group = m_group;
    shift.peer = 1;
    shift.payload = m_program.buffer(from).bytes;
    return shift;
}

/// A block costs its share: the halves are cut so that all ranks have as much to do in each.
Op ContextParallel::block(const Op &core, std::int64_t k, std::vector<BufferId> reads,
                          std::vector<BufferId> writes) const
{
    Op block = op(core.kind, core, Segment::Core, std::move(reads), std::move(writes));
    block.chunk = static_cast<std::int32_t>(k);
    block.accumulate = k > 0;
    block.flops = core.flops / m_ranks + (k == 0 ? core.flops % m_ranks : 0);
    return block;
}

void ContextParallel::forward(const Op &core)
{
    const BufferId qkv = core.reads[0];
    BufferId own = kv(core, "kv", 0);
    push(op(OpKind::Forward, core, Segment::Kv, {qkv}, {own}));
    for (std::int64_t k = 0; k < m_ranks; ++k) {
        BufferId next = none;
        if (k + 1 < m_ranks) { // on its way while this block is computed
            next = kv(core, "kv", k + 1);
            push(shift(core, Segment::Kv, own, next));
        }
        push(block(core, k, {qkv, own}, core.writes));
        own = next;
    }
}

void ContextParallel::backward(const Op &core)
{
    const BufferId qkv = core.reads[1];
    const BufferId dqkv = core.writes[0];
    BufferId own = kv(core, "kv.again", 0);
    BufferId gradient = kv(core, "dkv", 0);
    push(op(OpKind::Recompute, core, Segment::Kv, {qkv}, {own}));
    for (std::int64_t k = 0; k < m_ranks; ++k) {
        BufferId next = none;
        if (k + 1 < m_ranks) {
            next = kv(core, "kv.again", k + 1);
            push(shift(core, Segment::Kv, own, next));
        }
        push(block(core, k, {core.reads[0], qkv, own, core.reads[2], core.reads[3]}, {dqkv, gradient}));
        const BufferId moved = kv(core, "dkv", k + 1);
        push(shift(core, Segment::Core, gradient, moved));
        gradient = moved;
        own = next;
    }
    push(op(OpKind::BackwardInput, core, Segment::Kv, {gradient}, {dqkv}));
}

void ContextParallel::run()
{
    std::vector<OpId> moved;
    for (Op op : std::vector<Op>(m_program.ops)) {
        for (OpId &wait : op.waits)
            wait = moved[static_cast<std::size_t>(wait)];
        if (op.segment == Segment::Core)
            op.kind == OpKind::Forward ? forward(op) : backward(op);
        else
            push(op);
        moved.push_back(static_cast<OpId>(m_out.ops.size()) - 1);
    }
    m_program.ops = std::move(m_out.ops);
}

} // namespace

void contextPass(PassContext context)
{
    if (context.job.layout.cp > 1)
        ContextParallel(context).run();
}

} // namespace rankyard::plan
