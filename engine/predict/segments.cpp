// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/segments.h"

#include <algorithm>

namespace rankyard::predict {

using plan::OpKind;
using plan::Segment;
using plan::UnitKind;

Local::Local(const Shape &shape, const Micro &micro)
{
    const auto d = [](std::int64_t value) { return static_cast<double>(value); };
    tokens = d(micro.sequences * shape.seq) / d(micro.cp);
    rows = micro.sequenceParallel ? tokens / d(micro.tp) : tokens;
    hidden = d(shape.hidden);
    headDim = d(shape.headDim);
    heads = d(shape.heads) / d(micro.tp);
    kvHeads = std::max(1.0, d(shape.kvHeads) / d(micro.tp));
    ffn = d(shape.ffn) / d(micro.tp);
    vocab = d(shape.vocab) / d(micro.tp);
    seq = d(shape.seq);
    bytes = micro.precision == Precision::Fp32 ? 4 : 2;
    gated = shape.gated;
    fusedAttention = micro.fusedAttention;
    sharedVocab = micro.tp > 1;
    precision = micro.precision;
}

namespace {

/// y = x · Wᵀ, x [t, in]: the product itself, or that of its input's or its weight's gradient. Same FLOPs, other sides.
double linear(const CostModel &cost, OpKind kind, double t, double out, double in, Precision precision)
{
    const double aligned = cost.alignment(out, in);
    switch (kind) {
    case OpKind::BackwardInput:
        return aligned * cost.gemm(t, in, out, precision);
    case OpKind::BackwardWeight:
        return aligned * cost.gemm(out, in, t, precision);
    default:
        return aligned * cost.gemm(t, out, in, precision);
    }
}

double coreSeconds(const CostModel &cost, const Local &local, OpKind kind, double tokens)
{
    const CostModel::Attention what{
        tokens, local.seq, local.heads, local.headDim, local.fusedAttention, local.precision};
    return kind == OpKind::BackwardInput ? cost.attentionBackward(what) : cost.attention(what);
}

/// Of the head's products with the vocabulary; those are not made in 8 bits.
double vocabularyProduct(const CostModel &cost, const Local &local, double tokens)
{
    const bool narrow = local.precision == Precision::Fp8 || local.precision == Precision::Fp4;
    return cost.gemm(tokens, local.vocab, local.hidden, narrow ? Precision::Bf16 : local.precision);
}

/// The softmax of whole rows in fp32 and its gradient. Over a shared vocabulary half of it stands with the logits.
double softmaxSeconds(const CostModel &cost, const Local &local, double tokens)
{
    return cost.elementwise(10 * tokens * local.vocab) + cost.exponentials(tokens * local.vocab);
}

double lossSeconds(const CostModel &cost, const Local &local, OpKind kind, double tokens, bool withGradients)
{
    const double product = vocabularyProduct(cost, local, tokens);
    const double softmax = softmaxSeconds(cost, local, tokens);
    if (kind == OpKind::BackwardInput)
        return product + softmax;
    if (kind == OpKind::BackwardWeight)
        return product;
    const double gradients = withGradients ? 2 * product + softmax : 0;
    return gradients + (local.sharedVocab ? 0 : product + softmax);
}

} // namespace

double segmentSeconds(const CostModel &cost, const Local &local, OpKind kind, UnitKind unit, Segment segment,
                      double tokens, bool withGradients)
{
    const double rowBytes =
        local.bytes * local.hidden * tokens * (local.tokens > 0 ? local.rows / local.tokens : 1);
    const bool backward = kind == OpKind::BackwardInput;
    const double act = local.bytes * tokens * local.ffn * (local.gated ? 3 : 2);
    switch (segment) {
    case Segment::Norm:
        return kind == OpKind::BackwardWeight ? 0 : cost.elementwise((backward ? 4 : 2) * rowBytes);
    case Segment::Join:
        return kind == OpKind::BackwardWeight ? 0 : cost.elementwise((backward ? 1 : 3) * rowBytes);
    case Segment::Lookup:
        return cost.elementwise(2 * local.bytes * local.hidden * tokens);
    case Segment::Qkv:
        return linear(cost, kind, tokens, local.width(), local.hidden, local.precision)
            + (kind == OpKind::BackwardWeight ? 0
                                              : cost.elementwise(2 * local.bytes * tokens * local.width()));
    case Segment::Kv:
        return cost.elementwise(4 * local.bytes * tokens * local.kvHeads * local.headDim);
    case Segment::Core:
        return kind == OpKind::BackwardWeight ? 0 : coreSeconds(cost, local, kind, tokens);
    case Segment::Out:
        return linear(cost, kind, tokens, local.hidden, local.queryWidth(), local.precision);
    case Segment::Up:
        return linear(cost, kind, tokens, (local.gated ? 2 : 1) * local.ffn, local.hidden, local.precision)
            + (kind == OpKind::BackwardWeight
                   ? 0
                   : cost.elementwise((backward ? 1.5 : 1) * act) + cost.exponentials(tokens * local.ffn));
    case Segment::Act:
        return cost.elementwise(act) + cost.exponentials(tokens * local.ffn);
    case Segment::Down:
        return linear(cost, kind, tokens, local.hidden, local.ffn, local.precision);
    case Segment::Logits:
        return vocabularyProduct(cost, local, tokens) + softmaxSeconds(cost, local, tokens);
    case Segment::Loss:
        return lossSeconds(cost, local, kind, tokens, withGradients);
    case Segment::None:
        break;
    }
    (void)unit;
    return 0;
}

int segmentKernels(OpKind kind, Segment segment)
{
    switch (segment) {
    case Segment::Core:
    case Segment::Up:
    case Segment::Qkv:
        return kind == OpKind::BackwardWeight ? 1 : 3;
    case Segment::Loss:
        return 6;
    case Segment::None:
        return 0;
    default:
        return kind == OpKind::BackwardWeight ? 1 : 2;
    }
}

} // namespace rankyard::predict
