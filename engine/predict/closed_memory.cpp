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

/// Of the programs as they are.
Result<UnitMemory> measured(const spec::JobSpec &asked)
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
    unit.passes = job.recompute.mode == "full" ? 3 : 2;
    unit.deferred = static_cast<double>(plan::layerBytes(job, job.recompute.mode != "none").pending);
    return unit;
}

} // namespace

Result<UnitMemory> unitMemory(const spec::JobSpec &job)
{
    if (job.layout.cp <= 3)
        return measured(job);
    // A ring's program grows with the square of its length, what a rank keeps of it at most with the length: a line through rings of two and
    // three, with the same tokens a rank.
    const auto shorter = [&](std::int64_t cp) {
        spec::JobSpec other = job;
        other.model.seq = job.model.seq / job.layout.cp * cp;
        other.layout.cp = cp;
        return measured(other);
    };
    RY_ASSIGN(UnitMemory unit, shorter(2));
    RY_ASSIGN(const UnitMemory three, shorter(3));
    const auto longer = static_cast<double>(job.layout.cp - 2);
    for (double UnitMemory::*part :
         {&UnitMemory::kept, &UnitMemory::work, &UnitMemory::workspace, &UnitMemory::deferred})
        unit.*part += longer * (three.*part - unit.*part);
    return unit;
}

StateBytes::StateBytes(const spec::JobSpec &job)
    : param(static_cast<double>(bytesOf(job.precision.compute))),
      grad(static_cast<double>(bytesOf(job.precision.grad))),
      optimizer(static_cast<double>(bytesOf(job.precision.master))
                * (job.precision.master == job.precision.compute ? 2 : 3)),
      maxLive(static_cast<double>(job.zero.maxLive)),
      maxReuse(static_cast<double>(job.zero.maxReuseDistance)),
      bucket(static_cast<double>(job.zero.bucketBytes)),
      reduce(job.precision.reduce == job.precision.grad ? 0
                                                        : static_cast<double>(bytesOf(job.precision.reduce))),
      offloadOptimizer(job.offload.optimizer != "none"),
      onDisk(job.offload.optimizer == "nvme"),
      offloadParams(job.offload.params != "none"),
      staged(static_cast<double>(job.offload.buffers)),
      subGroup(static_cast<double>(job.zero.subGroup)),
      largest(static_cast<double>(job.model.hidden)
              * static_cast<double>(
                  std::max(job.model.vocab, job.model.ffnSize() * (job.model.family == "llama" ? 2 : 1)))),
      widest(static_cast<double>(
          std::max({attentionParams(shapeOf(job.model)), denseMlpParams(shapeOf(job.model)),
                    job.model.vocab * job.model.hidden})))
{
    spec::JobSpec one = job;
    one.model.layers = 1;
    for (const plan::TensorSpec &tensor : plan::modelTensors(one)) {
        const std::int64_t count = plan::numelOf(tensor.shape);
        if (count < job.zero.persistenceThreshold)
            (tensor.name.starts_with("layers.") ? smallLayer : smallTables) += static_cast<double>(count);
    }
}

PeakStages::PeakStages(const std::vector<std::int64_t> &layersByStage)
{
    const auto most_ = std::max_element(layersByStage.begin(), layersByStage.end());
    first = {0, static_cast<double>(layersByStage.front())};
    most = {static_cast<int>(most_ - layersByStage.begin()), static_cast<double>(*most_)};
    last = {static_cast<int>(layersByStage.size()) - 1, static_cast<double>(layersByStage.back())};
}

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
        return std::min(
            {m, p, (m + s + 1) / 2}); // chunks of few micro-batches come back before the stage is full
    case Schedule::ZeroBubbleH2:
        return std::min(m, 2 * (p - s) - 1);
    default:
        return std::min(m, p - s);
    }
}

namespace {

/// Bytes of a stage's micro-batches in flight, `kept` each, and of weight gradients that are put off, `pending` each: as
/// plan/passes/schedule.cpp has them at their most.
double heldOf(const Layout &layout, int stage, double kept, double pending)
{
    const double m = layout.microBatches;
    const double p = layout.pp;
    const double s = stage;
    const double flight = inFlight(layout, stage);
    const bool v = layout.schedule == Schedule::ZeroBubbleV;
    if (layout.pp == 1 || (!v && layout.schedule != Schedule::ZeroBubbleH1))
        return flight * kept;
    const double chunk = v ? 0.5 : 1;
    const double limit = (p + chunk) * kept;
    if (flight * kept + chunk * (pending - kept) > limit)
        return flight * kept; // backwards are not parted
    // A V empties with p + s chunks in flight, of which 2s leave their weights for later.
    const double late = v ? std::min(m, (p - s) / 2) * kept + std::min(m, s) * pending
                          : (flight - 1) * kept + std::min(m - flight + 1, s + 1) * pending;
    return std::max(flight * kept, std::min(late, limit));
}

double shardsOf(const Layout &layout)
{
    return layout.shard > 0 ? layout.shard : static_cast<double>(layout.dp) * static_cast<double>(layout.cp);
}

/// Between stages, in flight and on the way.
double sentBytes(const UnitTimes &unit, const Layout &layout, double flight)
{
    return layout.pp > 1 ? (flight + 1) * unit.boundaryBytes : 0;
}

ClosedMemory stageMemory(const StateBytes &state, const UnitTimes &unit, const UnitMemory &memory,
                         const Layout &layout, int stage, double layers, double params)
{
    const double shards = shardsOf(layout);
    const double held = layout.zero >= 1 ? params / shards : params;
    ClosedMemory bytes;
    const double small = std::min(params, layers * state.smallLayer + (stage == 0 ? state.smallTables : 0));
    const double apart = (params - small) / shards; // of ZeRO 3
    bytes.params = state.param * (layout.zero >= 3 ? apart + small : params);
    bytes.grads = state.grad * (layout.zero >= 2 ? held : params);
    const double widest = state.widest / (unit.inner / layout.cp);
    if (state.offloadOptimizer) {
        // Gradients, and what else is not in host memory, come there a bucket's part at a time for their update: a table, the others
        // of a layer's two units or four matrices.
        const bool units = layout.zero >= 3;
        const double least = units ? 0 : state.bucket / state.grad;
        const double part = held / params;
        const double table =
            std::min(state.subGroup,
                     part * std::max(least, units ? widest : state.largest / (unit.inner / layout.cp)));
        const double usual =
            std::min(state.subGroup, part * std::max(least, unit.layerParams / (units ? 2 : 4)));
        bytes.host = (state.onDisk ? 0 : state.optimizer * held)
            + std::min(held, table + (state.staged - 1) * usual)
                * (state.grad + (state.offloadParams ? 0 : state.param)
                   + (state.onDisk ? state.optimizer : 0));
    } else {
        bytes.optimizer = state.optimizer * held;
    }
    if (state.offloadParams && layout.zero >= 3) {
        bytes.host += state.param * apart;
        bytes.params -= state.param * apart;
    }
    if (layout.zero == 2) // two reductions' storage
        bytes.buckets = 2
            * std::min(std::max(state.bucket, state.grad * state.largest / (unit.inner / layout.cp)),
                       state.grad * params);
    if (layout.zero == 3) // of units
        bytes.buckets = 2 * state.grad * std::min(widest, params / 2);
    if (shards > 1) { // the copies of two buckets
        const double whole = layout.zero == 3
            ? std::min(widest, params / 2)
            : std::min(std::max(state.bucket / state.grad, state.largest / (unit.inner / layout.cp)),
                       params / 2);
        bytes.buckets += 2 * state.reduce * whole;
    }
    if (layout.zero >= 3) {
        const double pair = unit.layerParams <= state.maxLive ? 2 * widest : widest;
        // The unit in work and the next, where there is room for both, and those whose next use is near enough: around where forward turns into backward.
        const double kept = state.maxReuse / memory.passes;
        bytes.gathered = state.param * std::min(params, std::max(pair, std::min(state.maxLive, kept + pair)));
    }
    bytes.activations = heldOf(layout, stage, layers * memory.kept, layers * memory.deferred) + memory.work
        + sentBytes(unit, layout, inFlight(layout, stage));
    bytes.workspace =
        stage == layout.pp - 1 || layout.schedule == Schedule::ZeroBubbleV ? memory.workspace : 0;
    return bytes;
}

double stageParams(const UnitTimes &unit, const Layout &layout, int stage, double layers)
{
    const bool both = layout.schedule == Schedule::ZeroBubbleV; // the V's ends are on the first stage
    double params = layers * unit.layerParams;
    if (layout.pp == 1 || (both && stage == 0))
        params += unit.embeddingParams + unit.headParams;
    else if (stage == 0)
        params += unit.embeddingParams;
    else if (stage == layout.pp - 1 && !both) // a tied table has a copy on the last stage
        params += unit.lastParams;
    return params;
}

} // namespace

Result<std::vector<ClosedStage>> closedStages(const spec::JobSpec &job)
{
    RY_ASSIGN(UnitMemory memory, unitMemory(job));
    const double share = job.recompute.ratio.value_or(1.0 / static_cast<double>(job.recompute.every));
    if (job.recompute.mode != "none" && share < 1) {
        spec::JobSpec without = job;
        without.recompute.mode = "none";
        RY_ASSIGN(const UnitMemory whole, unitMemory(without));
        memory.kept = share * memory.kept + (1 - share) * whole.kept;
    }
    const StateBytes state(job);
    const UnitTimes unit = unitSizes(shapeOf(job.model), microOf(job));
    const Layout layout = layoutOf(job);
    const std::vector<std::int64_t> layers = plan::layersByStage(job);
    std::vector<ClosedStage> stages;
    for (int stage = 0; stage < layout.pp; ++stage) {
        const auto here = static_cast<double>(layers[static_cast<std::size_t>(stage)]);
        const double params = stageParams(unit, layout, stage, here);
        const double flight = inFlight(layout, stage);
        const MemoryTerms terms{here,
                                unit.layerParams,
                                params - here * unit.layerParams,
                                shardsOf(layout),
                                here * state.smallLayer + (stage == 0 ? state.smallTables : 0),
                                memory.kept,
                                flight,
                                heldOf(layout, stage, here * memory.kept, here * memory.deferred),
                                memory.work,
                                sentBytes(unit, layout, flight),
                                state.widest / (unit.inner / layout.cp)};
        stages.push_back({stageMemory(state, unit, memory, layout, stage, here, params), terms});
    }
    return stages;
}

ClosedPeak closedPeak(const StateBytes &state, const UnitTimes &unit, const UnitMemory &memory,
                      const Layout &layout, const PeakStages &stages)
{
    ClosedPeak peak;
    for (const PeakStages::Stage &stage : {stages.first, stages.most, stages.last}) {
        const ClosedMemory bytes = stageMemory(state, unit, memory, layout, stage.stage, stage.layers,
                                               stageParams(unit, layout, stage.stage, stage.layers));
        if (bytes.peak() > peak.peak())
            peak = {bytes, stage.stage};
    }
    return peak;
}

} // namespace rankyard::predict
