// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"

#include <algorithm>
#include <cmath>

namespace rankyard::plan {

namespace {

constexpr std::int64_t chunkBytes = 32 << 20; ///< about a last-level cache

std::int64_t roundUp(std::int64_t value, std::int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

bool globMatches(std::string_view pattern, std::string_view text)
{
    std::size_t p = 0;
    std::size_t t = 0;
    std::size_t star = std::string_view::npos;
    std::size_t resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] != '*' && pattern[p] == text[t]))) {
            ++p;
            ++t;
        } else if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*')
        ++p;
    return p == pattern.size();
}

/// [out, in] of the linear layer in a segment on one rank; zeros where there is none.
struct Linear {
    std::int64_t out = 0;
    std::int64_t in = 0;
};

bool isLlama(const spec::Model &model) { return model.family == "llama"; }

Linear linearOf(const spec::Model &model, const Split &split, Segment segment)
{
    switch (segment) {
    case Segment::Qkv:
        return {split.qkvWidth(), split.hidden};
    case Segment::Out:
        return {split.hidden, split.qWidth()};
    case Segment::Up:
        return {isLlama(model) ? 2 * split.ffn : split.ffn, split.hidden};
    case Segment::Down:
        return {split.hidden, split.ffn};
    case Segment::Logits:
    case Segment::Loss:
        return {split.vocab, split.hidden};
    default:
        return {};
    }
}

/// Collects the tensors of a model in forward order.
class TensorList
{
public:
    explicit TensorList(const spec::JobSpec &job) : m_job(job), m_split(job) {}

    std::vector<TensorSpec> take() { return std::move(m_tensors); }
    void setUnit(Unit unit) { m_unit = unit; }
    void add(std::string name, std::vector<std::int64_t> shape, double initStd, double initValue)
    {
        const auto &patterns = m_job.optimizer.noDecay;
        const bool decay = std::none_of(patterns.begin(), patterns.end(),
                                        [&](const std::string &p) { return globMatches(p, name); });
        m_tensors.push_back({std::move(name), std::move(shape), decay, initStd, initValue, m_unit, none, {}});
    }
    void addNorm(const std::string &name)
    {
        add(name + ".weight", {m_split.hidden}, 0, 1);
        if (!isLlama(m_job.model))
            add(name + ".bias", {m_split.hidden}, 0, 0);
    }
    void addLinear(const std::string &name, std::int64_t out, std::int64_t in, double initStd)
    {
        add(name + ".weight", {out, in}, initStd, 0);
        if (!isLlama(m_job.model))
            add(name + ".bias", {out}, 0, 0);
    }
    /// Divides the last tensors with this prefix; a bias is divided only with the rows of its weight.
    void divide(const std::string &prefix, std::int32_t axis, const std::vector<Section> &sections)
    {
        for (auto tensor = m_tensors.rbegin(); tensor != m_tensors.rend() && tensor->name.starts_with(prefix);
             ++tensor) {
            if (m_job.layout.tp == 1 || static_cast<std::size_t>(axis) >= tensor->shape.size())
                continue;
            tensor->axis = axis;
            tensor->sections = sections;
        }
    }

private:
    const spec::JobSpec &m_job;
    Split m_split;
    std::vector<TensorSpec> m_tensors;
    Unit m_unit;
};

} // namespace

Split::Split(const spec::JobSpec &job)
{
    const spec::Model &model = job.model;
    const std::int64_t tp = job.layout.tp;
    tokens = job.batch.micro * model.seq / job.layout.cp;
    rows = job.layout.sequenceParallel ? tokens / tp : tokens;
    hidden = model.hidden;
    headSize = model.headSize();
    heads = model.heads / tp;
    keyHeads = std::max<std::int64_t>(1, model.keyHeads() / tp);
    keyCopies = std::max<std::int64_t>(1, tp / model.keyHeads());
    ffn = model.ffnSize() / tp;
    vocab = (model.vocab + tp - 1) / tp;
}

std::int64_t positionOf(std::int64_t row, std::int64_t seq, std::int64_t rank, std::int64_t ranks)
{
    if (ranks == 1)
        return row;
    const std::int64_t chunk = seq / (2 * ranks);
    return row < chunk ? rank * chunk + row : (2 * ranks - 1 - rank) * chunk + row - chunk;
}

std::vector<TensorSpec> modelTensors(const spec::JobSpec &job)
{
    const spec::Model &model = job.model;
    const Split split(job);
    const std::int64_t hidden = model.hidden;
    const std::int64_t ffn = model.ffnSize();
    const std::int64_t q = model.heads * model.headSize();
    const std::int64_t k = model.keyHeads() * model.headSize();
    const auto copies = static_cast<std::int32_t>(split.keyCopies);
    const Section keys{k, split.keyHeads * split.headSize, copies};
    const Section inner{ffn, split.ffn, 1};
    const bool llama = isLlama(model);
    constexpr double std0 = 0.02;
    const double stdResidual = std0 / std::sqrt(2.0 * static_cast<double>(model.layers));
    TensorList list(job);
    list.setUnit({UnitKind::Embedding});
    list.add("wte.weight", {model.vocab, hidden}, std0, 0);
    list.divide("wte", 0, {{model.vocab, split.vocab, 1}});
    if (!llama)
        list.add("wpe.weight", {model.seq, hidden}, std0, 0);
    for (std::int32_t i = 0; i < model.layers; ++i) {
        const std::string layer = "layers." + std::to_string(i);
        list.setUnit({UnitKind::Attention, i});
        list.addNorm(layer + ".attn.norm");
        list.addLinear(layer + ".attn.qkv", q + 2 * k, hidden, std0);
        list.divide(layer + ".attn.qkv", 0, {{q, split.qWidth(), 1}, keys, keys});
        list.addLinear(layer + ".attn.out", hidden, q, stdResidual);
        list.divide(layer + ".attn.out", 1, {{q, split.qWidth(), 1}});
        list.setUnit({UnitKind::Mlp, i});
        list.addNorm(layer + ".mlp.norm");
        list.addLinear(layer + ".mlp.up", llama ? 2 * ffn : ffn, hidden, std0);
        list.divide(layer + ".mlp.up", 0, llama ? std::vector{inner, inner} : std::vector{inner});
        list.addLinear(layer + ".mlp.down", hidden, ffn, stdResidual);
        list.divide(layer + ".mlp.down", 1, {inner});
    }
    list.setUnit({UnitKind::Head});
    list.addNorm("norm");
    if (!model.tied) {
        list.add("head.weight", {model.vocab, hidden}, std0, 0);
        list.divide("head", 0, {{model.vocab, split.vocab, 1}});
    }
    return list.take();
}

std::int64_t lossChunkTokens(const spec::JobSpec &job)
{
    const Split split(job);
    return lossChunkTokens(split.tokens, split.vocab,
                           static_cast<std::int64_t>(bytesOf(job.precision.compute)));
}

std::int64_t lossChunkTokens(std::int64_t tokens, std::int64_t vocab, std::int64_t bytes)
{
    const std::int64_t row = vocab * std::max<std::int64_t>(4, bytes);
    const std::int64_t most = std::max<std::int64_t>(128, chunkBytes / row);
    if (tokens <= most)
        return tokens;
    // Even chunks: no short one at the end that would run at a fraction of the speed.
    const std::int64_t chunks = (tokens + most - 1) / most;
    return std::min(roundUp((tokens + chunks - 1) / chunks, 16), tokens);
}

LayerBytes layerBytes(const spec::JobSpec &job, bool recomputed)
{
    const Split split(job);
    const bool llama = isLlama(job.model);
    const DType compute = job.precision.compute;
    const auto size = static_cast<std::int64_t>(bytesOf(compute));
    const auto statSize = static_cast<std::int64_t>(bytesOf(compute == DType::F64 ? DType::F64 : DType::F32));
    const std::int64_t residual = split.rows * split.hidden * size;
    const std::int64_t qkv = split.tokens * split.qkvWidth() * size;
    const std::int64_t o = split.tokens * split.qWidth() * size;
    const std::int64_t a = split.tokens * split.ffn * size;
    const std::int64_t u = llama ? 2 * a : a;
    const std::int64_t stats = 2 * split.rows * (llama ? 1 : 2) * statSize;
    const std::int64_t lse = split.heads * split.tokens * statSize;
    LayerBytes bytes;
    // n and dx of both halves; dqkv, o, du, a. Sequence parallelism gathers dx for the gradients of out and down, whose weights need it whole.
    const std::int64_t whole = split.tokens * split.hidden * size;
    bytes.pending = 2 * residual + 2 * whole + qkv + o + u + a;
    const std::string &mode = recomputed ? job.recompute.mode : "none";
    if (mode == "full")
        bytes.kept = job.recompute.toHost ? 0 : job.recompute.partition ? residual / job.layout.tp : residual;
    else if (mode == "attention")
        bytes.kept = 2 * residual + qkv + u;
    else if (mode == "selective")
        bytes.kept = 2 * residual + qkv + o + lse + u;
    else
        bytes.kept = 4 * residual + qkv + o + u + a + stats + lse;
    return bytes;
}

std::int64_t opFlops(const spec::JobSpec &job, OpKind kind, Segment segment, std::int64_t tokens)
{
    const bool forward = kind == OpKind::Forward || kind == OpKind::Recompute;
    if (!forward && kind != OpKind::BackwardInput && kind != OpKind::BackwardWeight)
        return 0;
    const Split split(job);
    if (segment == Segment::Core) {
        const std::int64_t whole = 4 * tokens * job.model.seq * split.qWidth();
        return forward ? whole : kind == OpKind::BackwardInput ? 2 * whole : 0;
    }
    const Linear linear = linearOf(job.model, split, segment);
    return 2 * tokens * linear.in * linear.out;
}

} // namespace rankyard::plan
