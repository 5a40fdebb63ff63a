// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"
#include "engine/predict/step_time.h"

#include <algorithm>
#include <cmath>

namespace rankyard::predict {

using plan::OpKind;
using plan::Segment;
using plan::UnitKind;

namespace {

struct Pair {
    double forward = 0;
    double input = 0;
    double weight = 0;
};

struct Part {
    UnitKind unit;
    Segment segment;
};

constexpr Part attentionParts[] = {{UnitKind::Attention, Segment::Norm},
                                   {UnitKind::Attention, Segment::Qkv},
                                   {UnitKind::Attention, Segment::Core},
                                   {UnitKind::Attention, Segment::Out},
                                   {UnitKind::Attention, Segment::Join}};
constexpr Part mlpParts[] = {{UnitKind::Mlp, Segment::Norm},
                             {UnitKind::Mlp, Segment::Up},
                             {UnitKind::Mlp, Segment::Down},
                             {UnitKind::Mlp, Segment::Join}};

/// The device works while the host launches; a small model waits for the host. Both with a round corner.
double withHost(double device, double host)
{
    if (host == 0)
        return device;
    const double a = device * device;
    const double b = host * host;
    return std::sqrt(std::sqrt(a * a + b * b));
}

template<std::size_t N>
Pair sum(const CostModel &cost, const Local &local, const Part (&parts)[N], double &kernels)
{
    Pair total;
    for (const Part &part : parts) {
        const auto one = [&](OpKind kind) {
            return segmentSeconds(cost, local, kind, part.unit, part.segment, local.tokens);
        };
        total.forward += one(OpKind::Forward);
        total.input += one(OpKind::BackwardInput);
        const bool weighs = part.segment == Segment::Qkv || part.segment == Segment::Out
            || part.segment == Segment::Up || part.segment == Segment::Down;
        total.weight += weighs ? one(OpKind::BackwardWeight) : 0;
        kernels += segmentKernels(OpKind::Forward, part.segment);
    }
    return total;
}

/// Router, dispatch and experts instead of a dense MLP: each of this rank's experts has an equal share of the tokens.
Pair sparseMlp(const CostModel &cost, const Shape &shape, const Micro &micro, const Local &local,
               double &kernels)
{
    const Experts &e = shape.experts;
    const auto local_ = static_cast<double>(e.count) / static_cast<double>(micro.ep);
    Local one = local;
    one.ffn = static_cast<double>(e.ffn);
    const double routed = local.tokens / static_cast<double>(micro.tp)
        * static_cast<double>(e.topK); // over tp: experts are not cut
    const double each = routed / local_;
    Pair total;
    const auto add = [&](const Local &what, double tokens, double times) {
        for (const Segment segment : {Segment::Up, Segment::Down}) {
            total.forward +=
                times * segmentSeconds(cost, what, OpKind::Forward, UnitKind::Mlp, segment, tokens);
            total.input +=
                times * segmentSeconds(cost, what, OpKind::BackwardInput, UnitKind::Mlp, segment, tokens);
            total.weight +=
                times * segmentSeconds(cost, what, OpKind::BackwardWeight, UnitKind::Mlp, segment, tokens);
        }
    };
    add(one, each, local_);
    if (e.shared > 0) {
        Local shared = local;
        shared.ffn = static_cast<double>(e.ffn * e.shared) / static_cast<double>(micro.tp);
        add(shared, local.tokens, 1);
    }
    // Router, permutation there and back, norm and join.
    const double bytes = 2 * local.hidden;
    const double moves = cost.elementwise(4 * bytes * routed)
        + cost.gemm(local.tokens, static_cast<double>(e.count), local.hidden, Precision::Bf16);
    for (const Segment segment : {Segment::Norm, Segment::Join}) {
        total.forward += segmentSeconds(cost, local, OpKind::Forward, UnitKind::Mlp, segment, local.tokens);
        total.input +=
            segmentSeconds(cost, local, OpKind::BackwardInput, UnitKind::Mlp, segment, local.tokens);
    }
    total.forward += moves;
    total.input += moves;
    kernels += 20;
    return total;
}

/// Exposed transfers of a layer, forward; backward has as many, and one gather more with sequence parallelism.
double tensorSeconds(const CostModel &cost, const Shape &shape, const Micro &micro, const Local &local)
{
    const int tp = static_cast<int>(micro.tp);
    const int cp = static_cast<int>(micro.cp);
    const int island = cost.machine().island;
    double seconds = 0;
    if (tp > 1) {
        const Placement group{tp, std::min(tp, island)};
        const double bytes = local.bytes * local.tokens * local.hidden;
        seconds += (shape.parallelBlock ? 1 : 2) * cost.collective(OpKind::AllReduce, bytes, group);
    }
    if (cp > 1 && !micro.ours) { // keys and values gathered
        const Placement group{cp, std::clamp(island / tp, 1, cp)};
        const double bytes =
            local.bytes * 2 * local.tokens * static_cast<double>(cp) * local.kvHeads * local.headDim;
        seconds += cost.collective(OpKind::AllGather, bytes, group);
    }
    if (shape.sparse() && micro.ep > 1) {
        const int ep = static_cast<int>(micro.ep);
        const Placement group{ep, std::clamp(island / (tp * cp), 1, ep)};
        const double share =
            static_cast<double>(shape.layers - shape.experts.denseLayers) / static_cast<double>(shape.layers);
        const double bytes = 2 * local.tokens / static_cast<double>(tp) * local.hidden
            * static_cast<double>(shape.experts.topK);
        seconds += share * 2 * cost.collective(OpKind::AllGather, bytes, group);
    }
    return seconds;
}

/// What a layer's ring of keys and values adds (plan/passes/context.cpp): the packing, and what of its shifts no block covers.
struct Ring {
    double forward = 0;
    double backward = 0;
    double exposedForward = 0; ///< of them, transfers
    double exposedBackward = 0;
};

/// A shift of keys and values runs beside a block of the core; that of their gradients comes between two blocks, and nothing runs beside it.
Ring ringOf(const CostModel &cost, const Micro &micro, const Local &local)
{
    Ring ring;
    if (micro.cp < 2 || !micro.ours)
        return ring;
    const int cp = static_cast<int>(micro.cp);
    const Placement group{cp, std::clamp(cost.machine().island / static_cast<int>(micro.tp), 1, cp)};
    const double shift =
        cost.collective(OpKind::Shift, local.bytes * 2 * local.tokens * local.kvHeads * local.headDim, group);
    const auto seconds = [&](OpKind kind, Segment segment) {
        return segmentSeconds(cost, local, kind, UnitKind::Attention, segment, local.tokens);
    };
    const auto late = [&](OpKind kind) {
        return (cp - 1) * std::max(0.0, shift - seconds(kind, Segment::Core) / cp);
    };
    ring.exposedForward = late(OpKind::Forward);
    ring.exposedBackward = late(OpKind::BackwardInput) + cp * shift;
    ring.forward = ring.exposedForward + seconds(OpKind::Forward, Segment::Kv);
    ring.backward = ring.exposedBackward + seconds(OpKind::Recompute, Segment::Kv)
        + seconds(OpKind::BackwardInput, Segment::Kv);
    return ring;
}

/// What of a layer's transfers computation waits for.
struct Exposed {
    double forward = 0;
    double backward = 0;
    double again = 0;    ///< where backward computes the layer again whole
    double deferred = 0; ///< more in backward when the weights' gradients come later
};

/// Our programs reduce a unit's input gradient beside its weights' gradients, and nothing runs beside forward's two reductions. With
/// sequence parallelism they gather the inputs of qkv and up again for their weights, which only gradients that come later cover.
Exposed exposedOf(const CostModel &cost, const Micro &micro, double transfers, double attentionWeights,
                  double mlpWeights)
{
    const double hide = cost.constants().hideTensor;
    if (!micro.ours) {
        const double shown = transfers * (1 - hide);
        return {shown, shown * (micro.sequenceParallel ? 1.25 : 1), shown, 0};
    }
    if (micro.sequenceParallel)
        return {transfers, 1.5 * transfers, 0.5 * transfers, -0.5 * hide * transfers};
    const double one = transfers / 2;
    const double covered = hide * (std::min(one, attentionWeights) + std::min(one, mlpWeights));
    return {transfers, transfers - covered, one, covered};
}

/// What backward computes again, of a layer's forward.
double recomputeSeconds(const CostModel &cost, const Local &local, Recompute recompute, double forward,
                        bool lean)
{
    const auto again = [&](UnitKind unit, Segment segment) {
        return segmentSeconds(cost, local, OpKind::Recompute, unit, segment, local.tokens);
    };
    if (recompute == Recompute::Full)
        return forward
            - (lean ? again(UnitKind::Mlp, Segment::Down) + again(UnitKind::Mlp, Segment::Join) : 0);
    // Our "attention" drops what "selective" drops, and the core's output; others' drops the core alone (Korthikanti et al. 2022).
    double seconds = 0;
    if (recompute == Recompute::Attention)
        seconds += again(UnitKind::Attention, Segment::Core);
    if (recompute == Recompute::Selective || (recompute == Recompute::Attention && lean))
        seconds += again(UnitKind::Attention, Segment::Norm) + again(UnitKind::Mlp, Segment::Norm)
            + again(UnitKind::Mlp, Segment::Act);
    return seconds;
}

void countParams(UnitTimes &unit, const Shape &shape, const Micro &micro)
{
    const auto tp = static_cast<double>(micro.tp);
    const double sparse = shape.sparse()
        ? static_cast<double>(shape.layers - shape.experts.denseLayers) / static_cast<double>(shape.layers)
        : 0;
    const double mlp = (1 - sparse) * static_cast<double>(denseMlpParams(shape)) / tp;
    unit.expertParams = sparse * static_cast<double>(sparseMlpParams(shape)) / static_cast<double>(micro.ep);
    unit.layerParams = static_cast<double>(attentionParams(shape)) / tp
        + static_cast<double>(normParams(shape)) + mlp + unit.expertParams;
    const double table = static_cast<double>(tableParams(shape, shape.vocab)) / tp;
    unit.embeddingParams = table + (shape.positions ? static_cast<double>(shape.seq * shape.hidden) : 0);
    unit.headParams = shape.tied ? 0 : table;
    unit.lastParams = table;
}

} // namespace

UnitTimes unitSizes(const Shape &shape, const Micro &micro)
{
    const Local local(shape, micro);
    UnitTimes unit;
    unit.layers = static_cast<double>(shape.layers);
    unit.boundaryBytes = local.bytes * local.rows * local.hidden;
    unit.tp = static_cast<double>(micro.tp);
    unit.inner = static_cast<double>(micro.tp * micro.cp);
    unit.ep = static_cast<double>(micro.ep);
    unit.tokens = local.tokens;
    if (!micro.frozen)
        countParams(unit, shape, micro);
    return unit;
}

UnitTimes unitTimes(const CostModel &cost, const Shape &shape, const Micro &micro, Recompute recompute)
{
    const Calibration &c = cost.constants();
    const Local local(shape, micro);
    double kernels = 0;
    Pair layer = sum(cost, local, attentionParts, kernels);
    double unused = 0;
    const Pair dense = sum(cost, local, mlpParts, shape.sparse() ? unused : kernels);
    const Pair sparse = shape.sparse() ? sparseMlp(cost, shape, micro, local, kernels) : Pair{};
    const double share = shape.sparse()
        ? static_cast<double>(shape.layers - shape.experts.denseLayers) / static_cast<double>(shape.layers)
        : 0;
    const Exposed shown = exposedOf(cost, micro, tensorSeconds(cost, shape, micro, local), layer.weight,
                                    (1 - share) * dense.weight + share * sparse.weight);
    layer.forward += (1 - share) * dense.forward + share * sparse.forward;
    layer.input += (1 - share) * dense.input + share * sparse.input;
    layer.weight += (1 - share) * dense.weight + share * sparse.weight;

    UnitTimes unit = unitSizes(shape, micro);
    const double host = c.host * kernels;
    const double again =
        recomputeSeconds(cost, local, recompute, layer.forward, micro.ours && !shape.sparse());
    const bool full = recompute == Recompute::Full;
    const Ring ring = ringOf(cost, micro, local);
    unit.forward = withHost(layer.forward, host) + shown.forward + ring.forward;
    unit.backwardInput = withHost(layer.input, host) + shown.backward + ring.backward;
    unit.backwardWeight = withHost(layer.weight, host / 2);
    unit.recompute = full ? withHost(again, host) + shown.again + ring.forward : again;
    unit.launches = withHost(layer.forward, host) - layer.forward + withHost(layer.input, host) - layer.input
        + withHost(layer.weight, host / 2) - layer.weight + (full ? withHost(again, host) - again : 0);
    unit.parts = !full;
    unit.exposedTensor = shown.forward + shown.backward + ring.exposedForward + ring.exposedBackward
        + (full ? shown.again + ring.exposedForward : 0);
    unit.deferredTensor = full ? 0 : shown.deferred;
    unit.embedding =
        segmentSeconds(cost, local, OpKind::Forward, UnitKind::Embedding, Segment::Lookup, local.tokens)
        + segmentSeconds(cost, local, OpKind::BackwardWeight, UnitKind::Embedding, Segment::Lookup,
                         local.tokens);
    // Our programs work off the head a chunk of tokens at a time.
    const double chunk = micro.ours
        ? static_cast<double>(plan::lossChunkTokens(std::llround(local.tokens), std::llround(local.vocab),
                                                    std::llround(local.bytes)))
        : local.tokens;
    unit.head = segmentSeconds(cost, local, OpKind::Forward, UnitKind::Head, Segment::Loss, chunk);
    if (local.sharedVocab)
        unit.head += segmentSeconds(cost, local, OpKind::Forward, UnitKind::Head, Segment::Logits, chunk);
    unit.head *= local.tokens / chunk;
    if (micro.frozen)
        unit.backwardWeight = 0;
    return unit;
}

} // namespace rankyard::predict
