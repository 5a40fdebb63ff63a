// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"
#include "engine/plan/units.h"

#include <algorithm>
#include <map>

namespace rankyard::plan {

namespace {

/// Storage of a parameter and of its gradient; `grad` is none in eval programs.
struct Weight {
    BufferId param = none;
    BufferId grad = none;
};

/// What a layer's forward leaves for its backward. Released by the dependency pass, not here.
struct AttentionSaved {
    BufferId x = none, n = none, stats = none, qkv = none, o = none, lse = none;
};
struct MlpSaved {
    BufferId x = none, n = none, stats = none, u = none, a = none;
};
struct Saved {
    std::vector<AttentionSaved> attention;
    std::vector<MlpSaved> mlp;
    BufferId x = none, n = none, stats = none, tokens = none, labels = none;
};

/// Emits one stage's units, micro-batch by micro-batch, after the table in units.h.
class StageEmitter
{
public:
    explicit StageEmitter(PassContext context);

    void emitForward(int microbatch);
    void emitBackward(int microbatch);

private:
    struct Layer {
        Weight attnNormW, attnNormB, qkvW, qkvB, outW, outB, mlpNormW, mlpNormB, upW, upB, downW, downB;
    };

    void addTensors();
    Weight weight(const std::string &name) const;
    BufferId activation(const std::string &name, std::vector<std::int64_t> shape, DType dtype);
    BufferId activation(const std::string &name, std::vector<std::int64_t> shape)
    {
        return activation(name, std::move(shape), m_compute);
    }
    Op &op(OpKind kind, Unit unit, Segment segment, std::vector<BufferId> reads,
           std::vector<BufferId> writes);
    void emitAttentionForward(int layer);
    void emitMlpForward(int layer);
    void emitLoss();
    void emitAttentionBackward(int layer);
    void emitMlpBackward(int layer);

    PassContext m_context;
    StepProgram &m_program;
    DType m_compute;
    DType m_statType;
    std::int64_t m_tokens;
    std::int64_t m_hidden;
    std::int64_t m_ffn;
    std::int64_t m_heads;
    int m_layers;

    std::map<std::string, Weight> m_weights;
    std::vector<Layer> m_layerWeights;
    Weight m_wte, m_wpe, m_normW, m_normB, m_head;

    int m_microbatch = 0;
    Saved m_saved;       ///< of the micro-batch in work: one stage runs its backward at once
    BufferId m_x = none; ///< the residual stream
    BufferId m_dx = none;
};

StageEmitter::StageEmitter(PassContext context)
    : m_context(context),
      m_program(context.program),
      m_compute(context.job.precision.compute),
      m_statType(m_compute == DType::F64 ? DType::F64 : DType::F32),
      m_tokens(context.job.batch.micro * context.job.model.seq),
      m_hidden(context.job.model.hidden),
      m_ffn(context.job.model.ffnSize()),
      m_heads(context.job.model.heads),
      m_layers(static_cast<int>(context.job.model.layers))
{
    addTensors();
    m_wte = weight("wte.weight");
    m_wpe = weight("wpe.weight");
    m_normW = weight("norm.weight");
    m_normB = weight("norm.bias");
    m_head = context.job.model.tied ? m_wte : weight("head.weight");
    for (int i = 0; i < m_layers; ++i) {
        const std::string attn = "layers." + std::to_string(i) + ".attn.";
        const std::string mlp = "layers." + std::to_string(i) + ".mlp.";
        m_layerWeights.push_back(
            {weight(attn + "norm.weight"), weight(attn + "norm.bias"), weight(attn + "qkv.weight"),
             weight(attn + "qkv.bias"), weight(attn + "out.weight"), weight(attn + "out.bias"),
             weight(mlp + "norm.weight"), weight(mlp + "norm.bias"), weight(mlp + "up.weight"),
             weight(mlp + "up.bias"), weight(mlp + "down.weight"), weight(mlp + "down.bias")});
    }
}

void StageEmitter::addTensors()
{
    for (const TensorSpec &spec : modelTensors(m_context.job)) {
        Tensor tensor;
        tensor.id = static_cast<TensorId>(m_program.tensors.size());
        tensor.name = spec.name;
        tensor.index = tensor.id;
        tensor.shape = tensor.global = spec.shape;
        tensor.numel = numelOf(spec.shape);
        tensor.decay = spec.decay;
        tensor.param = addState(m_program, spec.name, MemoryKind::Params, m_compute, spec.shape);
        m_program.buffers.back().tensor = tensor.id;
        if (m_context.training()) {
            tensor.grad = addState(m_program, "grad:" + spec.name, MemoryKind::Grads,
                                   m_context.job.precision.grad, spec.shape);
            m_program.buffers.back().tensor = tensor.id;
        }
        m_weights[spec.name] = {tensor.param, tensor.grad};
        m_program.tensors.push_back(std::move(tensor));
    }
    const auto count = static_cast<std::int64_t>(m_program.tensors.size());
    m_program.stats = addState(m_program, "stats", MemoryKind::Workspace, DType::F64, {count + statsSlots});
}

Weight StageEmitter::weight(const std::string &name) const { return m_weights.at(name); }

BufferId StageEmitter::activation(const std::string &name, std::vector<std::int64_t> shape, DType dtype)
{
    return addBuffer(m_program, name + "@" + std::to_string(m_microbatch), MemoryKind::Activations, dtype,
                     std::move(shape));
}

Op &StageEmitter::op(OpKind kind, Unit unit, Segment segment, std::vector<BufferId> reads,
                     std::vector<BufferId> writes)
{
    Op op;
    op.id = static_cast<OpId>(m_program.ops.size());
    op.kind = kind;
    op.unit = unit;
    op.segment = segment;
    op.microbatch = m_microbatch;
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    op.flops = opFlops(m_context.job, kind, segment, m_tokens);
    const bool hasGrads = std::any_of(op.writes.begin(), op.writes.end(), [&](BufferId id) {
        return m_program.buffer(id).kind == MemoryKind::Grads;
    });
    op.accumulate = hasGrads && m_microbatch > 0;
    m_program.ops.push_back(std::move(op));
    return m_program.ops.back();
}

void StageEmitter::emitForward(int microbatch)
{
    m_microbatch = microbatch;
    m_saved = {};
    m_saved.tokens = activation("tokens", {m_tokens}, DType::I32);
    m_saved.labels = activation("labels", {m_tokens}, DType::I32);
    op(OpKind::LoadBatch, {}, Segment::None, {}, {m_saved.tokens, m_saved.labels});

    const Unit embedding{UnitKind::Embedding};
    m_x = activation("embedding.x", {m_tokens, m_hidden});
    op(OpKind::Forward, embedding, Segment::Lookup, {m_saved.tokens, m_wte.param}, {m_x});
    op(OpKind::Forward, embedding, Segment::Join, {m_x, m_wpe.param}, {m_x});
    for (int i = 0; i < m_layers; ++i) {
        emitAttentionForward(i);
        emitMlpForward(i);
    }
    m_saved.x = m_x;
    m_saved.n = activation("head.n", {m_tokens, m_hidden});
    m_saved.stats = activation("head.stats", {m_tokens, 2}, m_statType);
    op(OpKind::Forward, {UnitKind::Head}, Segment::Norm, {m_x, m_normW.param, m_normB.param},
       {m_saved.n, m_saved.stats});
    emitLoss();
}

void StageEmitter::emitAttentionForward(int layer)
{
    const Layer &w = m_layerWeights[static_cast<std::size_t>(layer)];
    const Unit unit{UnitKind::Attention, layer};
    const std::string prefix = "layers." + std::to_string(layer) + ".attn.";
    AttentionSaved s;
    s.x = m_x;
    s.n = activation(prefix + "n", {m_tokens, m_hidden});
    s.stats = activation(prefix + "stats", {m_tokens, 2}, m_statType);
    op(OpKind::Forward, unit, Segment::Norm, {s.x, w.attnNormW.param, w.attnNormB.param}, {s.n, s.stats});
    s.qkv = activation(prefix + "qkv", {m_tokens, 3 * m_hidden});
    op(OpKind::Forward, unit, Segment::Qkv, {s.n, w.qkvW.param, w.qkvB.param}, {s.qkv});
    s.o = activation(prefix + "o", {m_tokens, m_hidden});
    s.lse = activation(prefix + "lse", {m_heads, m_tokens}, m_statType);
    op(OpKind::Forward, unit, Segment::Core, {s.qkv}, {s.o, s.lse});
    const BufferId y = activation(prefix + "y", {m_tokens, m_hidden});
    op(OpKind::Forward, unit, Segment::Out, {s.o, w.outW.param}, {y});
    op(OpKind::Forward, unit, Segment::Join, {s.x, y, w.outB.param}, {y});
    m_x = y;
    m_saved.attention.push_back(s);
}

void StageEmitter::emitMlpForward(int layer)
{
    const Layer &w = m_layerWeights[static_cast<std::size_t>(layer)];
    const Unit unit{UnitKind::Mlp, layer};
    const std::string prefix = "layers." + std::to_string(layer) + ".mlp.";
    MlpSaved s;
    s.x = m_x;
    s.n = activation(prefix + "n", {m_tokens, m_hidden});
    s.stats = activation(prefix + "stats", {m_tokens, 2}, m_statType);
    op(OpKind::Forward, unit, Segment::Norm, {s.x, w.mlpNormW.param, w.mlpNormB.param}, {s.n, s.stats});
    s.u = activation(prefix + "u", {m_tokens, m_ffn});
    s.a = activation(prefix + "a", {m_tokens, m_ffn});
    op(OpKind::Forward, unit, Segment::Up, {s.n, w.upW.param, w.upB.param}, {s.u, s.a});
    const BufferId y = activation(prefix + "y", {m_tokens, m_hidden});
    op(OpKind::Forward, unit, Segment::Down, {s.a, w.downW.param}, {y});
    op(OpKind::Forward, unit, Segment::Join, {s.x, y, w.downB.param}, {y});
    m_x = y;
    m_saved.mlp.push_back(s);
}

void StageEmitter::emitLoss()
{
    const spec::JobSpec &job = m_context.job;
    const Unit head{UnitKind::Head};
    const std::int64_t chunk = lossChunkTokens(job);
    const DType logitsType = job.precision.lossIn16bit ? m_compute : m_statType;
    const std::string name = "head.logits@" + std::to_string(m_microbatch);
    const BufferId logits =
        addBuffer(m_program, name, MemoryKind::Workspace, logitsType, {chunk, job.model.vocab});
    std::vector<BufferId> writes = {m_program.stats};
    if (m_context.training()) {
        m_dx = activation("head.dx", {m_tokens, m_hidden});
        writes.insert(writes.end(), {m_dx, m_head.grad});
    }
    writes.push_back(logits);
    for (std::int64_t begin = 0, index = 0; begin < m_tokens; begin += chunk, ++index) {
        Op &loss =
            op(OpKind::Forward, head, Segment::Loss, {m_saved.n, m_head.param, m_saved.labels}, writes);
        loss.chunk = static_cast<std::int32_t>(index);
        loss.rowBegin = begin;
        loss.rowEnd = std::min(begin + chunk, m_tokens);
        loss.accumulate = m_context.training() && (m_microbatch > 0 || index > 0);
        const std::int64_t rows = loss.rowEnd - begin;
        loss.flops = opFlops(job, OpKind::Forward, Segment::Loss, rows);
        if (m_context.training()) {
            loss.flops += opFlops(job, OpKind::BackwardInput, Segment::Loss, rows)
                + opFlops(job, OpKind::BackwardWeight, Segment::Loss, rows);
        }
    }
}

void StageEmitter::emitBackward(int microbatch)
{
    m_microbatch = microbatch;
    op(OpKind::BackwardInput, {UnitKind::Head}, Segment::Norm,
       {m_dx, m_saved.x, m_saved.stats, m_normW.param}, {m_dx, m_normW.grad, m_normB.grad});
    for (int i = m_layers; i-- > 0;) {
        emitMlpBackward(i);
        emitAttentionBackward(i);
    }
    const Unit embedding{UnitKind::Embedding};
    op(OpKind::BackwardInput, embedding, Segment::Join, {m_dx}, {m_wpe.grad});
    Op &lookup = op(OpKind::BackwardWeight, embedding, Segment::Lookup, {m_dx, m_saved.tokens}, {m_wte.grad});
    lookup.accumulate =
        microbatch > 0 || m_context.job.model.tied; // a tied weight has the head's gradient already
}

void StageEmitter::emitMlpBackward(int layer)
{
    const Layer &w = m_layerWeights[static_cast<std::size_t>(layer)];
    const MlpSaved &s = m_saved.mlp[static_cast<std::size_t>(layer)];
    const Unit unit{UnitKind::Mlp, layer};
    const std::string prefix = "layers." + std::to_string(layer) + ".mlp.";
    op(OpKind::BackwardInput, unit, Segment::Join, {m_dx}, {w.downB.grad});
    // The weight op first: `a` dies before `da`, which is as large, is made.
    op(OpKind::BackwardWeight, unit, Segment::Down, {m_dx, s.a}, {w.downW.grad});
    const BufferId da = activation(prefix + "da", {m_tokens, m_ffn});
    op(OpKind::BackwardInput, unit, Segment::Down, {m_dx, w.downW.param}, {da});
    const BufferId dn = activation(prefix + "dx", {m_tokens, m_hidden});
    op(OpKind::BackwardInput, unit, Segment::Up, {da, s.u, w.upW.param}, {da, dn, w.upB.grad});
    op(OpKind::BackwardWeight, unit, Segment::Up, {da, s.n}, {w.upW.grad});
    op(OpKind::BackwardInput, unit, Segment::Norm, {dn, s.x, s.stats, w.mlpNormW.param, m_dx},
       {dn, w.mlpNormW.grad, w.mlpNormB.grad});
    m_dx = dn;
}

void StageEmitter::emitAttentionBackward(int layer)
{
    const Layer &w = m_layerWeights[static_cast<std::size_t>(layer)];
    const AttentionSaved &s = m_saved.attention[static_cast<std::size_t>(layer)];
    const Unit unit{UnitKind::Attention, layer};
    const std::string prefix = "layers." + std::to_string(layer) + ".attn.";
    op(OpKind::BackwardInput, unit, Segment::Join, {m_dx}, {w.outB.grad});
    const BufferId dOut = activation(prefix + "do", {m_tokens, m_hidden});
    op(OpKind::BackwardInput, unit, Segment::Out, {m_dx, w.outW.param}, {dOut});
    op(OpKind::BackwardWeight, unit, Segment::Out, {m_dx, s.o}, {w.outW.grad});
    const BufferId dqkv = activation(prefix + "dqkv", {m_tokens, 3 * m_hidden});
    op(OpKind::BackwardInput, unit, Segment::Core, {dOut, s.qkv, s.o, s.lse}, {dqkv});
    const BufferId dn = activation(prefix + "dx", {m_tokens, m_hidden});
    op(OpKind::BackwardInput, unit, Segment::Qkv, {dqkv, w.qkvW.param}, {dn, w.qkvB.grad});
    op(OpKind::BackwardWeight, unit, Segment::Qkv, {dqkv, s.n}, {w.qkvW.grad});
    op(OpKind::BackwardInput, unit, Segment::Norm, {dn, s.x, s.stats, w.attnNormW.param, m_dx},
       {dn, w.attnNormW.grad, w.attnNormB.grad});
    m_dx = dn;
}

} // namespace

void stagePass(PassContext context)
{
    StageEmitter emitter(context);
    const auto microbatches = static_cast<int>(context.job.microBatches());
    for (int i = 0; i < microbatches; ++i) {
        emitter.emitForward(i);
        if (context.training())
            emitter.emitBackward(i);
    }
}

} // namespace rankyard::plan
