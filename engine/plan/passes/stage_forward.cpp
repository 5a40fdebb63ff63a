// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/stage.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

constexpr Unit embeddingUnit{UnitKind::Embedding};
constexpr Unit headUnit{UnitKind::Head};

} // namespace

void StageEmitter::forward(std::int32_t chunk)
{
    const StageSpan &span = m_spans[static_cast<std::size_t>(virtualStageOf(m_context.job, m_stage, chunk))];
    BufferId &x = inputOf({ActionKind::Forward, chunk, m_microbatch});
    MicroBatch &batch = m_batches[m_microbatch];
    if ((span.embedding || span.head) && batch.tokens == none) {
        batch.tokens = activation("tokens", {m_split.tokens}, DType::I32);
        batch.labels = activation("labels", {m_split.tokens}, DType::I32);
        op(OpKind::LoadBatch, {}, Segment::None, {}, {batch.tokens, batch.labels});
    }
    if (span.embedding) {
        x = activation("embedding.x", {m_split.tokens, m_split.hidden});
        op(OpKind::Forward, embeddingUnit, Segment::Lookup, {batch.tokens, m_wte.param}, {x});
        if (m_wpe.param != none || m_dropout)
            op(OpKind::Forward, embeddingUnit, Segment::Join, {x, m_wpe.param}, {x});
    }
    for (std::int32_t i = span.begin; i < span.end; ++i)
        x = mlp(i, attention(i, x));
    if (span.head) {
        batch.head.x = x;
        norm(headUnit, batch.head, "head.", m_norm);
        loss();
    }
}

void StageEmitter::norm(Unit unit, NormSaved &saved, const std::string &prefix, const Linear &weights)
{
    saved.n = activation(prefix + "n", {m_split.rows, m_split.hidden});
    saved.stats = activation(prefix + "stats", {m_split.rows, m_llama ? 1 : 2}, m_statType);
    op(OpKind::Forward, unit, Segment::Norm, {saved.x, weights.weight.param, weights.bias.param},
       {saved.n, saved.stats});
}

BufferId StageEmitter::join(Unit unit, BufferId x, BufferId y, const Weight &bias)
{
    op(OpKind::Forward, unit, Segment::Join, {x, y, bias.param}, {y});
    return y;
}

BufferId StageEmitter::attention(std::int32_t layer, BufferId x)
{
    const Layer &w = m_layers.at(layer);
    const Unit unit{UnitKind::Attention, layer};
    const std::string prefix = "layers." + std::to_string(layer) + ".attn.";
    const std::int64_t tokens = m_split.tokens;
    LayerSaved &s = m_batches[m_microbatch].layers[layer];
    s.attnNorm.x = x;
    norm(unit, s.attnNorm, prefix, w.attnNorm);
    s.qkv = activation(prefix + "qkv", {tokens, m_split.qkvWidth()});
    op(OpKind::Forward, unit, Segment::Qkv, {s.attnNorm.n, w.qkv.weight.param, w.qkv.bias.param}, {s.qkv});
    s.o = activation(prefix + "o", {tokens, m_split.qWidth()});
    s.lse = activation(prefix + "lse", {m_split.heads, tokens}, m_statType);
    op(OpKind::Forward, unit, Segment::Core, {s.qkv}, {s.o, s.lse});
    const BufferId y = activation(prefix + "y", {tokens, m_split.hidden});
    op(OpKind::Forward, unit, Segment::Out, {s.o, w.out.weight.param}, {y});
    return join(unit, x, y, w.out.bias);
}

BufferId StageEmitter::mlp(std::int32_t layer, BufferId x)
{
    const Layer &w = m_layers.at(layer);
    const Unit unit{UnitKind::Mlp, layer};
    const std::string prefix = "layers." + std::to_string(layer) + ".mlp.";
    const std::int64_t tokens = m_split.tokens;
    LayerSaved &s = m_batches[m_microbatch].layers[layer];
    s.mlpNorm.x = x;
    norm(unit, s.mlpNorm, prefix, w.mlpNorm);
    s.u = activation(prefix + "u", {tokens, m_llama ? 2 * m_split.ffn : m_split.ffn});
    s.a = activation(prefix + "a", {tokens, m_split.ffn});
    op(OpKind::Forward, unit, Segment::Up, {s.mlpNorm.n, w.up.weight.param, w.up.bias.param}, {s.u, s.a});
    const BufferId y = activation(prefix + "y", {tokens, m_split.hidden});
    op(OpKind::Forward, unit, Segment::Down, {s.a, w.down.weight.param}, {y});
    return join(unit, x, y, w.down.bias);
}

void StageEmitter::loss()
{
    const spec::JobSpec &job = m_context.job;
    MicroBatch &batch = m_batches[m_microbatch];
    const std::int64_t chunk = lossChunkTokens(job);
    const DType logitsType = job.precision.lossIn16bit ? m_compute : m_statType;
    const std::string name = "head.logits@" + std::to_string(m_microbatch);
    const BufferId logits =
        addBuffer(m_program, name, MemoryKind::Workspace, logitsType, {chunk, m_split.vocab});
    std::vector<BufferId> writes = {m_program.stats};
    if (m_context.training()) {
        BufferId &dx = inputOf({ActionKind::Backward, m_chunk, m_microbatch});
        dx = activation("head.dx", {m_split.tokens, m_split.hidden});
        writes.insert(writes.end(), {dx, m_head.grad});
    }
    writes.push_back(logits);
    for (std::int64_t begin = 0, index = 0; begin < m_split.tokens; begin += chunk, ++index) {
        Op &loss =
            op(OpKind::Forward, headUnit, Segment::Loss, {batch.head.n, m_head.param, batch.labels}, writes);
        loss.chunk = static_cast<std::int32_t>(index);
        loss.rowBegin = begin;
        loss.rowEnd = std::min(begin + chunk, m_split.tokens);
        const std::int64_t rows = loss.rowEnd - begin;
        loss.flops = opFlops(job, OpKind::Forward, Segment::Loss, rows);
        if (m_context.training()) {
            loss.flops += opFlops(job, OpKind::BackwardInput, Segment::Loss, rows)
                + opFlops(job, OpKind::BackwardWeight, Segment::Loss, rows);
        }
    }
}

} // namespace rankyard::plan
