// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"
#include "engine/predict/flops.h"
#include "engine/predict/step_time.h"

#include <algorithm>

namespace rankyard::predict {

const char *nameOf(Schedule schedule)
{
    constexpr const char *names[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv"};
    return names[static_cast<std::size_t>(schedule)];
}

Schedule scheduleOf(const std::string &name)
{
    for (int i = 0; i <= static_cast<int>(Schedule::ZeroBubbleV); ++i) {
        if (name == nameOf(static_cast<Schedule>(i)))
            return static_cast<Schedule>(i);
    }
    return Schedule::OneFOneB;
}

const char *nameOf(Recompute recompute)
{
    constexpr const char *names[] = {"none", "selective", "attention", "full"};
    return names[static_cast<std::size_t>(recompute)];
}

Recompute recomputeOf(const std::string &mode)
{
    for (int i = 0; i <= static_cast<int>(Recompute::Full); ++i) {
        if (mode == nameOf(static_cast<Recompute>(i)))
            return static_cast<Recompute>(i);
    }
    return Recompute::None;
}

Micro microOf(const spec::JobSpec &job)
{
    Micro micro;
    micro.sequences = job.batch.micro;
    micro.tp = job.layout.tp;
    micro.cp = job.layout.cp;
    micro.sequenceParallel = job.layout.sequenceParallel;
    micro.ours = true;
    micro.precision = precisionOf(job.precision.compute);
    return micro;
}

Layout layoutOf(const spec::JobSpec &job)
{
    Layout layout;
    layout.dp = static_cast<int>(job.layout.dp);
    layout.cp = static_cast<int>(job.layout.cp);
    layout.pp = static_cast<int>(job.layout.pp);
    layout.virtualStages = static_cast<int>(job.layout.virtualStages);
    layout.schedule = scheduleOf(job.layout.schedule);
    layout.zero = static_cast<int>(job.zero.stage);
    layout.shard = static_cast<int>(job.zero.shard);
    layout.microBatches = static_cast<int>(job.microBatches());
    layout.scatterEach = true;
    layout.reuse = static_cast<double>(std::min(job.zero.maxReuseDistance, 2 * job.zero.maxLive));
    layout.maxLive = job.comm.overlapParams ? static_cast<double>(job.zero.maxLive) : 0;
    layout.overlapGrads = job.comm.overlapGrads;
    layout.overlapParams = job.comm.overlapParams;
    layout.gradBytes = static_cast<double>(bytesOf(job.precision.reduce));
    layout.paramBytes = static_cast<double>(bytesOf(job.precision.compute));
    return layout;
}

JobTime jobTime(const CostModel &cost, const spec::JobSpec &job)
{
    const Shape shape = shapeOf(job.model);
    JobTime time;
    time.unit = unitTimes(cost, shape, microOf(job), recomputeOf(job.recompute.mode));
    const plan::LayerBytes bytes = plan::layerBytes(job, job.recompute.mode != "none");
    if (bytes.pending > 0)
        time.unit.deferrable = static_cast<double>(bytes.kept) / static_cast<double>(bytes.pending);
    time.step = combine(cost, time.unit, layoutOf(job));
    const double flops = stepFlops(shape, static_cast<double>(job.batch.global), Convention::Model3);
    const auto world = static_cast<double>(job.layout.world());
    time.tflopsPerDevice = flops / (time.step.seconds * world) / 1e12;
    time.mfu = utilisation(flops, time.step.seconds, world, cost.peak(precisionOf(job.precision.compute)));
    return time;
}

double peakSeconds(const spec::JobSpec &job, const cluster::Cluster &cluster)
{
    const auto cost = costModelFor(job, cluster);
    if (!cost)
        return 0;
    const double peak = cost->peak(precisionOf(job.precision.compute));
    return stepFlops(shapeOf(job.model), static_cast<double>(job.batch.global), Convention::Model3)
        / (static_cast<double>(job.layout.world()) * peak);
}

} // namespace rankyard::predict
