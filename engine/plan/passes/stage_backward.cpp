// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/stage.h"

namespace rankyard::plan {

void StageEmitter::backward(std::int32_t chunk, bool split)
{
    m_defer = split;
    const StageSpan &span = m_spans[static_cast<std::size_t>(virtualStageOf(m_context.job, m_stage, chunk))];
    BufferId &dx = inputOf({ActionKind::Backward, chunk, m_microbatch});
    const MicroBatch &batch = m_batches[m_microbatch];
    if (span.head)
        normBackward({UnitKind::Head}, dx, batch.head, m_norm, none);
    for (std::int32_t i = span.end; i-- > span.begin;)
        dx = attentionBackward(i, mlpBackward(i, dx));
    if (span.embedding)
        embeddingBackward(dx);
    m_defer = false;
}

/// The gradient of the branch: dx itself, or with dropout a buffer of its own.
BufferId StageEmitter::joinBackward(Unit unit, const std::string &prefix, BufferId dx, const Weight &bias)
{
    const BufferId dy = m_dropout ? activation(prefix + "dy", {m_split.rows, m_split.hidden}) : none;
    if (dy != none || bias.grad != none)
        op(OpKind::BackwardInput, unit, Segment::Join, {dx}, {dy, bias.grad});
    return dy != none ? dy : dx;
}

/// In place: dn becomes the gradient of x. The head is not on the residual stream: nothing is added to it.
BufferId StageEmitter::normBackward(Unit unit, BufferId dn, const NormSaved &saved, const Linear &weights,
                                    BufferId dx)
{
    op(OpKind::BackwardInput, unit, Segment::Norm, {dn, saved.x, saved.stats, weights.weight.param, dx},
       {dn, weights.weight.grad, weights.bias.grad});
    return dn;
}

BufferId StageEmitter::mlpBackward(std::int32_t layer, BufferId dx)
{
    const Layer &w = m_layers.at(layer);
    const LayerSaved &s = m_batches[m_microbatch].layers[layer];
    const Unit unit{UnitKind::Mlp, layer};
    const std::string prefix = "layers." + std::to_string(layer) + ".mlp.";
    const std::int64_t tokens = m_split.tokens;
    const BufferId dy = joinBackward(unit, prefix, dx, w.down.bias);
    // The weight op first: `a` dies before `da`, which is as large, is made.
    weightOp(unit, Segment::Down, {dy, s.a}, w.down.weight);
    const BufferId da = activation(prefix + "da", {tokens, m_split.ffn});
    op(OpKind::BackwardInput, unit, Segment::Down, {dy, w.down.weight.param}, {da});
    const BufferId dn = activation(prefix + "dx", {tokens, m_split.hidden});
    const BufferId du = m_llama ? s.u : da;
    op(OpKind::BackwardInput, unit, Segment::Up, {da, s.u, w.up.weight.param}, {du, dn, w.up.bias.grad});
    weightOp(unit, Segment::Up, {du, s.mlpNorm.n}, w.up.weight);
    return normBackward(unit, dn, s.mlpNorm, w.mlpNorm, dx);
}

BufferId StageEmitter::attentionBackward(std::int32_t layer, BufferId dx)
{
    const Layer &w = m_layers.at(layer);
    const LayerSaved &s = m_batches[m_microbatch].layers[layer];
    const Unit unit{UnitKind::Attention, layer};
    const std::string prefix = "layers." + std::to_string(layer) + ".attn.";
    const std::int64_t tokens = m_split.tokens;
    const BufferId dy = joinBackward(unit, prefix, dx, w.out.bias);
    const BufferId dOut = activation(prefix + "do", {tokens, m_split.qWidth()});
    op(OpKind::BackwardInput, unit, Segment::Out, {dy, w.out.weight.param}, {dOut});
    weightOp(unit, Segment::Out, {dy, s.o}, w.out.weight);
    const BufferId dqkv = activation(prefix + "dqkv", {tokens, m_split.qkvWidth()});
    op(OpKind::BackwardInput, unit, Segment::Core, {dOut, s.qkv, s.o, s.lse}, {dqkv});
    const BufferId dn = activation(prefix + "dx", {tokens, m_split.hidden});
    op(OpKind::BackwardInput, unit, Segment::Qkv, {dqkv, w.qkv.weight.param},
       {m_llama ? dqkv : none, dn, w.qkv.bias.grad});
    weightOp(unit, Segment::Qkv, {dqkv, s.attnNorm.n}, w.qkv.weight);
    return normBackward(unit, dn, s.attnNorm, w.attnNorm, dx);
}

void StageEmitter::embeddingBackward(BufferId dx)
{
    const Unit unit{UnitKind::Embedding};
    if (m_wpe.grad != none || m_dropout)
        op(OpKind::BackwardInput, unit, Segment::Join, {dx}, {m_dropout ? dx : none, m_wpe.grad});
    weightOp(unit, Segment::Lookup, {dx, m_batches[m_microbatch].tokens}, m_wte);
}

} // namespace rankyard::plan
