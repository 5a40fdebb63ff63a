// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/closed_memory.h"

#include "engine/plan/plan.h"
#include "engine/plan/units.h"

#include <algorithm>
#include <cmath>

namespace rankyard::predict {

namespace {

double liveOf(const plan::MemoryReport &report, plan::MemoryKind kind)
{
    return static_cast<double>(report.live[static_cast<std::size_t>(kind)]);
}

} // namespace

Result<UnitMemory> unitMemory(const spec::JobSpec &asked)
{
    spec::JobSpec job = asked;
    job.layout.dp = 1;
    job.layout.pp = 1;
    job.layout.virtualStages = 1;
    job.layout.stages.reset();
    job.layout.schedule = "1f1b";
    job.zero.stage = 0;
    job.zero.shard = 0;
    job.offload = {};
    job.compression = {};
    job.recompute.every = 1;
    job.recompute.ratio.reset();
    job.batch.global = job.batch.micro;
    UnitMemory unit;
    double live[2];
    for (int layers = 1; layers <= 2; ++layers) {
        job.model.layers = layers;
        RY_ASSIGN(const auto plan, plan::makePlan(job, plan::PlanDepth::Ordered));
        const plan::MemoryReport report = plan::memoryOf(plan, plan::Role{0});
        live[layers - 1] = liveOf(report, plan::MemoryKind::Activations);
        unit.workspace = liveOf(report, plan::MemoryKind::Workspace);
    }
    unit.kept = live[1] - live[0];
    unit.work = live[0] - unit.kept;
    const plan::Split split(job);
    const auto bytes = static_cast<double>(bytesOf(job.precision.compute));
    const auto width = static_cast<double>(split.qkvWidth());
    // dqkv and the two dx that weight gradients still need; du has u's place.
    unit.deferred = bytes
        * (static_cast<double>(split.tokens) * width
           + 2 * static_cast<double>(split.rows) * static_cast<double>(job.model.hidden));
    return unit;
}

StateBytes::StateBytes(const spec::JobSpec &job)
    : param(static_cast<double>(bytesOf(job.precision.compute))),
      grad(static_cast<double>(bytesOf(job.precision.grad))),
      optimizer(static_cast<double>(bytesOf(job.precision.master))
                * (job.precision.master == job.precision.compute ? 2 : 3)),
      maxLive(static_cast<double>(job.zero.maxLive)),
      bucket(static_cast<double>(job.zero.bucketBytes)),
      offloadOptimizer(job.offload.optimizer != "none")
{}

double inFlight(const Layout &layout, int stage)
{
    const double m = layout.microBatches;
    const double p = layout.pp;
    const double v = layout.virtualStages;
    const double s = stage;
    if (layout.pp == 1)
        return 1;
    switch (layout.schedule) {
    case Schedule::GPipe:
        return m;
    case Schedule::Interleaved:
        return std::min(m, ((v - 1) * p + 2 * (p - s) - 1) / v);
    case Schedule::ZeroBubbleV:
        return std::min(m, p);
    case Schedule::ZeroBubbleH2:
        return std::min(m, 2 * (p - s) - 1);
    default:
        return std::min(m, p - s);
    }
}

namespace {

ClosedMemory stageMemory(const StateBytes &state, const UnitTimes &unit, const UnitMemory &memory, const Layout &layout,
                         int stage, double layers, double params)
{
    const double shards = static_cast<double>(layout.dp) * static_cast<double>(layout.cp);
    const double held = layout.zero >= 1 ? params / shards : params;
    ClosedMemory bytes;
    bytes.params = state.param * (layout.zero >= 3 ? held : params);
    bytes.grads = state.grad * (layout.zero >= 2 ? held : params);
    (state.offloadOptimizer ? bytes.host : bytes.optimizer) = state.optimizer * held;
    if (layout.zero >= 2)
        bytes.buckets = 2 * std::min(std::max(state.bucket, state.grad * unit.layerParams), state.grad * params);
    if (layout.zero >= 3)
        bytes.gathered = state.param * std::min(params, std::max(state.maxLive, 2 * unit.layerParams));
    const double flight = inFlight(layout, stage);
    const bool parts = layout.schedule == Schedule::ZeroBubbleH1 || layout.schedule == Schedule::ZeroBubbleV;
    const double pending = layout.pp > 1 && parts ? std::min<double>(layout.microBatches, stage + 1) : 0;
    bytes.activations = flight * layers * memory.kept + memory.work + pending * layers * memory.deferred
        + (layout.pp > 1 ? (flight + 1) * unit.boundaryBytes : 0);
    bytes.workspace = stage == layout.pp - 1 || layout.schedule == Schedule::ZeroBubbleV ? memory.workspace : 0;
    return bytes;
}

} // namespace

ClosedPeak closedPeak(const StateBytes &state, const UnitTimes &unit, const UnitMemory &memory, const Layout &layout,
                      bool tied)
{
    const double layers = std::ceil(unit.layers / layout.pp);
    const double stack = layers * unit.layerParams;
    if (layout.pp == 1)
        return {stageMemory(state, unit, memory, layout, 0, unit.layers,
                            unit.layers * unit.layerParams + unit.embeddingParams + unit.headParams),
                0};
    const double head = tied ? unit.embeddingParams : unit.headParams; // a tied table has a copy there
    const bool both = layout.schedule == Schedule::ZeroBubbleV; // the V's ends are on the first stage
    const ClosedMemory first = stageMemory(state, unit, memory, layout, 0, layers,
                                           stack + unit.embeddingParams + (both ? unit.headParams : 0));
    if (both)
        return {first, 0};
    const ClosedMemory last = stageMemory(state, unit, memory, layout, layout.pp - 1, layers, stack + head);
    return first.peak() >= last.peak() ? ClosedPeak{first, 0} : ClosedPeak{last, layout.pp - 1};
}

} // namespace rankyard::predict
