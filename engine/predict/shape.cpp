// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/shape.h"

namespace rankyard::predict {

Shape shapeOf(const spec::Model &model)
{
    const bool gpt = model.family == "gpt2";
    Shape shape;
    shape.name = model.family;
    shape.layers = model.layers;
    shape.hidden = model.hidden;
    shape.heads = model.heads;
    shape.kvHeads = model.keyHeads();
    shape.headDim = model.headSize();
    shape.ffn = model.ffnSize();
    shape.seq = model.seq;
    shape.vocab = model.vocab;
    shape.gated = !gpt;
    shape.tied = model.tied;
    shape.biases = gpt;
    shape.positions = gpt;
    return shape;
}

std::int64_t attentionParams(const Shape &shape)
{
    const std::int64_t h = shape.hidden;
    if (shape.latent) {
        const Latent &l = *shape.latent;
        const std::int64_t query = shape.heads * (l.nope + l.rope);
        const std::int64_t queries =
            l.queryRank > 0 ? h * l.queryRank + l.queryRank + l.queryRank * query : h * query;
        const std::int64_t keys =
            h * (l.keyRank + l.rope) + l.keyRank + l.keyRank * shape.heads * (l.nope + l.value);
        return queries + keys + shape.heads * l.value * h;
    }
    const std::int64_t qkv = shape.queryWidth() + 2 * shape.keyWidth();
    const std::int64_t biases = shape.biases ? qkv + h : shape.queryBias ? qkv : 0;
    return h * qkv + shape.queryWidth() * h + biases;
}

std::int64_t denseMlpParams(const Shape &shape)
{
    const std::int64_t biases = shape.biases ? (shape.mlpMatrices() - 1) * shape.ffn + shape.hidden : 0;
    return shape.mlpMatrices() * shape.hidden * shape.ffn + biases;
}

std::int64_t sparseMlpParams(const Shape &shape)
{
    const Experts &e = shape.experts;
    return shape.hidden * e.count + (e.count + e.shared) * shape.mlpMatrices() * shape.hidden * e.ffn;
}

std::int64_t normParams(const Shape &shape) { return (shape.biases ? 4 : 2) * shape.hidden; }

std::int64_t tableParams(const Shape &shape, std::int64_t vocab) { return shape.hidden * vocab; }

namespace {

std::int64_t withMlp(const Shape &shape, std::int64_t vocab, std::int64_t sparseMlp)
{
    const std::int64_t sparse = shape.sparse() ? shape.layers - shape.experts.denseLayers : 0;
    const std::int64_t layers = shape.layers * (attentionParams(shape) + normParams(shape))
        + (shape.layers - sparse) * denseMlpParams(shape) + sparse * sparseMlp;
    const std::int64_t lastNorm = normParams(shape) / 2;
    return layers + lastNorm + (shape.tied ? 1 : 2) * tableParams(shape, vocab)
        + (shape.positions ? shape.seq * shape.hidden : 0);
}

} // namespace

std::int64_t paramsOf(const Shape &shape, std::int64_t vocab)
{
    return withMlp(shape, vocab, sparseMlpParams(shape));
}

std::int64_t activeParams(const Shape &shape)
{
    const Experts &e = shape.experts;
    return withMlp(shape, shape.vocab,
                   shape.hidden * e.count + (e.topK + e.shared) * shape.mlpMatrices() * shape.hidden * e.ffn);
}

std::int64_t paddedVocab(std::int64_t vocab, std::int64_t tp, std::int64_t multiple)
{
    const std::int64_t step = multiple * tp;
    return (vocab + step - 1) / step * step;
}

} // namespace rankyard::predict
