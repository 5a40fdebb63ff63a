// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/footprint.h"

#include <algorithm>

namespace rankyard::predict {

namespace {

spec::JobSpec withMicroBatches(spec::JobSpec job, std::int64_t count)
{
    job.batch.global = job.layout.dp * job.batch.micro * count;
    return job;
}

Result<std::vector<plan::MemoryReport>> memoryByStage(const spec::JobSpec &job)
{
    RY_ASSIGN(const auto plan, plan::makePlan(job, plan::PlanDepth::Placed));
    std::vector<plan::MemoryReport> stages;
    for (std::int32_t stage = 0; stage < job.layout.pp; ++stage)
        stages.push_back(plan::memoryOf(plan, plan::Role{stage}));
    return stages;
}

ProgramTime timeOf(const plan::Timeline &timeline)
{
    ProgramTime time;
    time.seconds = 1e-9 * static_cast<double>(timeline.stepNs);
    time.bubble = timeline.bubble() * time.seconds;
    for (const plan::StageTimes &stage : timeline.stages) {
        time.compute.push_back(1e-9 * static_cast<double>(stage.computeNs));
        time.barrier +=
            1e-9 * static_cast<double>(stage.barrierNs) / static_cast<double>(timeline.stages.size());
        for (const auto &[group, ns] : stage.exposedNs)
            time.exposed[group] = std::max(time.exposed[group], 1e-9 * static_cast<double>(ns));
    }
    return time;
}

ProgramTime beyond(const ProgramTime &a, const ProgramTime &b, double times)
{
    const auto line = [&](double from, double to) { return from + times * (to - from); };
    ProgramTime time;
    time.seconds = line(a.seconds, b.seconds);
    time.bubble = line(a.bubble, b.bubble);
    time.barrier = line(a.barrier, b.barrier);
    for (std::size_t i = 0; i < a.compute.size(); ++i)
        time.compute.push_back(line(a.compute[i], b.compute[i]));
    for (const auto &[group, seconds] : b.exposed) {
        const auto before = a.exposed.find(group);
        time.exposed[group] = line(before == a.exposed.end() ? 0 : before->second, seconds);
    }
    return time;
}

} // namespace

Steady steadyOf(const spec::JobSpec &job)
{
    const std::int64_t all = std::max<std::int64_t>(1, job.microBatches());
    const std::int64_t pp = job.layout.pp;
    const std::string &schedule = job.layout.schedule;
    const auto atMost = [&](std::int64_t memory, std::int64_t time, std::int64_t period) {
        return Steady{std::min(all, memory), std::min(all, time), period};
    };
    if (pp == 1)
        return atMost(job.zero.stage == 3 ? 12 : 4, 4, 1);
    if (schedule == "gpipe")
        return atMost(all, 2 * pp, 2 * pp);
    const bool copies =
        job.offload.params != "none"; // ahead of their use: their place in the step moves for longer
    return atMost(copies ? 4 * pp : 2 * pp, job.layout.virtualStages > 1 ? 6 * pp : 3 * pp, 2 * pp);
}

Result<std::vector<plan::MemoryReport>> footprintOf(const spec::JobSpec &job)
{
    return memoryByStage(withMicroBatches(job, steadyOf(job).memory));
}

Result<ProgramTime> programTimeOf(
    const spec::JobSpec &job, const std::function<Result<plan::Timeline>(const plan::Plan &plan)> &timelineOf)
{
    const auto simulated = [&](std::int64_t microBatches) -> Result<ProgramTime> {
        RY_ASSIGN(const auto plan,
                  plan::makePlan(withMicroBatches(job, microBatches), plan::PlanDepth::Ordered));
        RY_ASSIGN(const auto timeline, timelineOf(plan));
        return timeOf(timeline);
    };
    const Steady steady = steadyOf(job);
    RY_ASSIGN(ProgramTime time, simulated(steady.time));
    if (const std::int64_t rest = job.microBatches() - steady.time; rest > 0) {
        RY_ASSIGN(const ProgramTime next, simulated(steady.time + steady.period));
        time = beyond(time, next, static_cast<double>(rest) / static_cast<double>(steady.period));
    }
    time.bubble = time.seconds > 0 ? time.bubble / time.seconds : 0;
    return time;
}

} // namespace rankyard::predict
