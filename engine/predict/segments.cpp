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
    precision = micro.precision;
}

namespace {

/// y = x · Wᵀ, x [t, in]: the product itself, or that of its input's or its weight's gradient. Same FLOPs, other sides.
double linear(const CostModel &cost, OpKind kind, double t, double out, double in, Precision precision)
{
    switch (kind) {
    case OpKind::BackwardInput:
        return cost.gemm(t, in, out, precision);
    case OpKind::BackwardWeight:
        return cost.gemm(out, in, t, precision);
    default:
        return cost.gemm(t, out, in, precision);
    }
}

double coreSeconds(const CostModel &cost, const Local &local, OpKind kind, double tokens)
{
    const CostModel::Attention what{
        tokens, local.seq, local.heads, local.headDim, local.fusedAttention, local.precision};
    return kind == OpKind::BackwardInput ? cost.attentionBackward(what) : cost.attention(what);
}

/// Logits in the computing type, their softmax in fp32, and the way back.
double lossSeconds(const CostModel &cost, const Local &local, OpKind kind, double tokens, bool withGradients)
{
    const Precision precision = local.precision == Precision::Fp8 || local.precision == Precision::Fp4
        ? Precision::Bf16
        : local.precision;
    const double product = cost.gemm(tokens, local.vocab, local.hidden, precision);
    const double softmax = cost.elementwise(10 * tokens * local.vocab);
    if (kind == OpKind::Forward)
        return withGradients ? 3 * product + 2 * softmax : product + softmax;
    return kind == OpKind::BackwardInput ? product + softmax : product;
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
            + (kind == OpKind::BackwardWeight ? 0 : cost.elementwise((backward ? 1.5 : 1) * act));
    case Segment::Act:
        return cost.elementwise(act);
    case Segment::Down:
        return linear(cost, kind, tokens, local.hidden, local.ffn, local.precision);
    case Segment::Logits:
        return cost.gemm(tokens, local.vocab, local.hidden, Precision::Bf16);
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
