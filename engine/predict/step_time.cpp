// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/step_time.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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
    unit.embeddingParams = static_cast<double>(tableParams(shape, shape.vocab)) / tp
        + (shape.positions ? static_cast<double>(shape.seq * shape.hidden) : 0);
    unit.headParams = shape.tied ? 0 : static_cast<double>(tableParams(shape, shape.vocab)) / tp;
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
    unit.head = segmentSeconds(cost, local, OpKind::Forward, UnitKind::Head, Segment::Loss, local.tokens);
    if (local.sharedVocab)
        unit.head +=
            segmentSeconds(cost, local, OpKind::Forward, UnitKind::Head, Segment::Logits, local.tokens);
    if (micro.frozen)
        unit.backwardWeight = 0;
    return unit;
}

namespace {

/// What the longest stage has, and the sum over stages, of forward and of all.
struct Stages {
    double layers = 0;  ///< of the slowest stage
    double longest = 0; ///< seconds a micro-batch takes it
    double sum = 0;     ///< over stages
};

Stages stagesOf(const UnitTimes &unit, const Layout &layout, double send)
{
    const double pp = layout.pp;
    const double layer = unit.layer();
    Stages stages;
    if (layout.pp == 1) {
        stages.layers = unit.layers;
        stages.longest = unit.layers * layer + unit.embedding + unit.head;
        stages.sum = stages.longest;
        return stages;
    }
    const double ends = unit.embedding + unit.head;
    stages.sum = unit.layers * layer + ends + pp * send;
    double middle = std::ceil(unit.layers / pp);
    double last = std::floor(unit.layers / pp); // uneven: the ends, which have more to do, get fewer
    if (layout.evenEnds) {
        middle = std::ceil((unit.layers + 2) / pp);
        last = middle - 1;
    }
    const double tail = last * layer + std::max(unit.head, unit.embedding);
    stages.layers = middle * layer >= tail ? middle : last;
    stages.longest = std::max(middle * layer, tail) + send;
    return stages;
}

/// Sum over stages that a micro-batch's first way through the pipeline and its last way back leave empty (the closed forms of the schedules' papers:
/// Narayanan et al. 2021; Qi et al. 2024 for the zero-bubble schedules).
double bubbleOf(const UnitTimes &unit, const Layout &layout, const Stages &stages)
{
    if (layout.pp == 1)
        return 0;
    const double ramp = stages.sum - stages.longest;
    // Layers that are computed again whole are not held for their weights' gradients (plan/passes/schedule.h).
    const double weight = unit.layer() > 0 && unit.parts ? unit.backwardWeight / unit.layer() : 0;
    switch (layout.schedule) {
    case Schedule::Interleaved:
        return ramp / std::max(1, layout.virtualStages);
    case Schedule::ZeroBubbleH1:
        return ramp * std::max(0.0, 1 - 2 * weight);
    case Schedule::ZeroBubbleV:
        if (!unit.parts) // a V all the same: no stage waits for another's second forward
            return ramp * (1 - unit.recompute / unit.layer());
        [[fallthrough]];
    case Schedule::ZeroBubbleH2:
        return ramp * std::max(0.0, 1 - 3 * weight);
    case Schedule::GPipe:
    case Schedule::OneFOneB:
        break;
    }
    return ramp;
}

/// log₂ with straight lines between powers of two: continuous, and no call.
double roughLog2(double x)
{
    if (!(x > 1))
        return 0;
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    const auto exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
    const double fraction = static_cast<double>(bits & ((std::uint64_t{1} << 52) - 1))
        / static_cast<double>(std::uint64_t{1} << 52);
    return exponent + fraction;
}

/// A ring that moves a whole tensor of `bytes` once (gather or scatter), in `calls` pieces: each piece takes its latency, as many steps
/// as there are islands (NCCL has trees for all-reduce only). CostModel::collective without its logarithm.
double ring(const CostModel &cost, double bytes, double ranks, double perIsland, double calls)
{
    if (ranks < 2)
        return 0;
    const Calibration &c = cost.constants();
    const double inside = cost.machine().islandBandwidth * c.island;
    double bandwidth = inside;
    double latency = (std::min(ranks, perIsland) - 1) * c.islandLatency / 7;
    if (ranks > perIsland) {
        const double outside = cost.machine().networkBandwidth * c.network * perIsland;
        bandwidth =
            perIsland <= 1 ? outside : inside * outside / std::sqrt(inside * inside + outside * outside);
        latency += (ranks / perIsland - 1) * c.networkLatency;
    }
    return bytes * (ranks - 1) / ranks / bandwidth + calls * latency;
}

struct DataTimes {
    double exposed = 0;
    double hidden = 0;
};

/// ZeRO 3 gathers and scatters for each micro-batch under the layers' own computation; the rest reduces once a step under the last
/// backward, and gathers under the first forward.
DataTimes dataTimes(const CostModel &cost, const UnitTimes &unit, const Layout &layout, double params,
                    double layersHere)
{
    const Calibration &c = cost.constants();
    DataTimes times;
    const double ranks = static_cast<double>(layout.dp) * layout.cp;
    if (ranks < 2)
        return times;
    const double island = std::max(1.0, cost.machine().island / unit.inner * layout.cp);
    const double perIsland = std::min(ranks, island);
    const auto add = [&](double seconds, double cover, bool overlaps) {
        // Of what is issued early enough to hide, what computation is too short for; and the rest.
        const double early = overlaps ? c.hideData * seconds : 0;
        const double shown = seconds - early + positivePart(early - cover, 0.1 * early);
        times.exposed += shown;
        times.hidden += std::max(0.0, seconds - shown);
    };
    const double forward = layersHere * unit.forward;
    const double backward = layersHere * (unit.backwardInput + unit.backwardWeight + unit.recompute);
    if (layout.zero == 3) {
        const double group = layout.shard > 0 ? std::min<double>(layout.shard, ranks) : ranks;
        const double inGroup = std::min(group, perIsland);
        const double times_ = layout.keepGathered ? 1 : layout.microBatches;
        const double gather = ring(cost, layout.paramBytes * params, group, inGroup, layersHere);
        const double scatter = ring(cost, layout.gradBytes * params, group, inGroup, layersHere);
        // The first layer's gather and the last one's scatter have nothing to hide under.
        const double edge = (gather + scatter) / std::max(1.0, unit.layers);
        add(times_ * gather, times_ * forward, true);
        add(times_ * ((layout.keepGathered ? 0 : gather) + scatter), times_ * backward, true);
        times.exposed += times_ * edge;
        if (group < ranks) // replicas of the shards
            add(2 * ring(cost, layout.gradBytes * params / group, ranks / group, 1, layersHere), backward,
                true);
        return times;
    }
    // Interleaved, the chunks before the last are reduced while other micro-batches are still on their way.
    const double v = layout.virtualStages;
    const double longer =
        layout.schedule == Schedule::Interleaved ? std::max(1.0, layout.pp * (v - 1) / v) : 1;
    const double buckets = 1 + params / 40e6; // Megatron-LM's size of a bucket, in elements
    const double scatter = ring(cost, layout.gradBytes * params, ranks, perIsland, buckets);
    const double gather =
        layout.zero > 0 ? ring(cost, layout.paramBytes * params, ranks, perIsland, buckets) : scatter;
    const double times_ = layout.scatterEach && layout.zero == 2 ? layout.microBatches : 1;
    add(times_ * scatter + (layout.zero > 0 ? 0 : gather), times_ * longer * backward, layout.overlapGrads);
    if (layout.zero > 0)
        add(gather, longer * forward, layout.overlapParams);
    return times;
}

/// Ranks that share a core work while others of it wait: a step takes as long as all of them compute, `mean` each and the data group's
/// transfers and the optimizer, where that is longer than the slowest stage alone. Everything is longer then (plan::Timeline::stretch).
void takeTurns(StepTime &step, double ranksPerCore, double mean)
{
    const double alone =
        step.compute + step.tensor + step.pipeline + step.bubble + step.data + step.optimizer;
    const double shared = ranksPerCore * (mean + step.data + step.optimizer);
    if (shared <= alone)
        return;
    for (double StepTime::*part : {&StepTime::compute, &StepTime::tensor, &StepTime::pipeline,
                                   &StepTime::bubble, &StepTime::data, &StepTime::optimizer})
        step.*part *= shared / alone;
}

} // namespace

namespace {

bool isZeroBubble(Schedule schedule)
{
    return schedule == Schedule::ZeroBubbleH1 || schedule == Schedule::ZeroBubbleH2
        || schedule == Schedule::ZeroBubbleV;
}

} // namespace

StepTime combine(const CostModel &cost, const UnitTimes &unit, const Layout &layout)
{
    if (unit.deferredTensor != 0 && layout.pp > 1 && isZeroBubble(layout.schedule)) {
        UnitTimes deferred = unit;
        deferred.backwardInput += unit.deferredTensor;
        deferred.exposedTensor += unit.deferredTensor;
        deferred.deferredTensor = 0;
        return combine(cost, deferred, layout);
    }
    const Calibration &c = cost.constants();
    const Machine &machine = cost.machine();
    const double m = layout.microBatches;
    const double replicas = static_cast<double>(layout.dp) * layout.cp;
    const double world = unit.inner * layout.dp * layout.pp;

    double send = 0;
    if (layout.pp > 1) {
        const bool inside = unit.inner * layout.dp * layout.pp <= machine.island;
        const double passes = layout.schedule == Schedule::Interleaved ? layout.virtualStages
            : layout.schedule == Schedule::ZeroBubbleV                 ? 2
                                                                       : 1;
        const double bytes = unit.boundaryBytes / (layout.scatterSends ? unit.tp : 1);
        send = 2 * passes * (1 - c.hidePipeline) * cost.send(bytes, inside);
    }
    const Stages stages = stagesOf(unit, layout, send);
    StepTime step;
    step.tensor = m * stages.layers * unit.exposedTensor;
    step.pipeline = m * send;
    step.compute = m * stages.longest - step.tensor - step.pipeline;
    step.launches = m * stages.layers * unit.launches;
    step.bubble = bubbleOf(unit, layout, stages);

    const double tables = layout.pp == 1 ? unit.embeddingParams + unit.headParams
                                         : std::max(unit.embeddingParams, unit.headParams);
    const double params = stages.layers * unit.layerParams + tables;
    const DataTimes data = dataTimes(cost, unit, layout, params, stages.layers);
    step.data = data.exposed;
    // Parameter, gradient, master copy and two moments are read and written once: about 30 bytes a parameter.
    const double shard = layout.zero > 0 ? replicas : 1;
    step.optimizer = cost.optimizer(30 * params / shard);
    if (machine.ranksPerCore > 1)
        takeTurns(step, machine.ranksPerCore, m * stages.sum / layout.pp);
    const double busy = step.compute + step.tensor + step.pipeline + step.bubble + step.data + step.optimizer;
    const double nodes = world / machine.island;
    step.overhead = c.step + c.contention * data.hidden + c.straggler * roughLog2(nodes) * busy;
    step.seconds = busy + step.overhead;
    const double factor = 1 + c.spread + c.spread * c.spread / 2;
    step.low = step.seconds / factor;
    step.high = step.seconds * factor;
    return step;
}

} // namespace rankyard::predict
