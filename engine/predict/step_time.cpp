// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/step_time.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rankyard::predict {

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
    // Weights' gradients fill holes as far as there are micro-batches: of one, the other stages' are off its way back; each further one
    // fills as much again. Where a layer holds more for them than it kept before, the last stage has room for fewer.
    const double others = layout.pp - 1.0;
    const double more = std::min<double>(layout.microBatches - 1, others);
    const double filled = ramp * weight / others; // by the weights' gradients of one stage
    switch (layout.schedule) {
    case Schedule::Interleaved:
        return ramp / std::max(1, layout.virtualStages);
    case Schedule::ZeroBubbleH1: {
        const double room = std::floor((layout.pp + 1) * std::min(1.0, unit.deferrable)) - 1;
        return std::max(0.0, ramp - filled * (others + std::clamp(room, 0.0, more)));
    }
    case Schedule::ZeroBubbleV:
        if (!unit.parts) // a V all the same: no stage waits for another's second forward
            return std::max(0.0, ramp * (1 - unit.recompute / unit.layer() * (1 + more / others)));
        // In a V a further one fills 11/6, and 5/6 after the p-th, up to 3.4 a stage: measured on our programs, pp 2 to 16, within 6 % of a
        // step. (The paper has 3 for stages that are all alike; the stage with the head hides more.)
        return std::max(0.0,
                        ramp
                            - filled
                                * std::min(3.4 * others,
                                           others + 11.0 / 6 * more
                                               + 5.0 / 6 * std::max(0, layout.microBatches - layout.pp)));
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
        // A gather is ahead of its use where the budget has room for two neighbours, which make a layer.
        const bool ahead = unit.layerParams <= layout.maxLive;
        add(times_ * gather, times_ * forward, ahead);
        // Around where forward turns into backward parameters stay: all layers pass by twice until their next use, or once more.
        const double passes = unit.recompute > unit.forward / 2 ? 3 : 2;
        const double again = layout.keepGathered ? 0 : std::max(0.0, 1 - layout.reuse / passes / params);
        if (!ahead)
            add(times_ * again * gather, 0, false);
        add(times_ * ((ahead ? again : 0) * gather + scatter), times_ * backward, true);
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
