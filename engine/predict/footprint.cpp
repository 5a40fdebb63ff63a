// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/footprint.h"

#include <algorithm>
#include <numeric>

namespace rankyard::predict {

namespace {

spec::JobSpec withMicroBatches(spec::JobSpec job, std::int64_t count)
{
    job.batch.global = job.layout.dp * job.batch.micro * count;
    return job;
}

Result<std::vector<plan::MemoryReport>> memoryByStage(const spec::JobSpec &job, const std::stop_token &stop)
{
    RY_ASSIGN(const auto plan, plan::makePlan(job, plan::PlanDepth::Placed, stop));
    std::vector<plan::MemoryReport> stages;
    for (std::int32_t stage = 0; stage < job.layout.pp; ++stage)
        stages.push_back(plan::memoryOf(plan, plan::Role{stage}));
    return stages;
}

ProgramTime beyond(const ProgramTime &a, const ProgramTime &b, double times)
{
    const auto line = [&](double from, double to) { return from + times * (to - from); };
    ProgramTime time;
    time.seconds = line(a.seconds, b.seconds);
    time.bubble = time.seconds > 0 ? line(a.bubble * a.seconds, b.bubble * b.seconds) / time.seconds : 0;
    for (std::size_t i = 0; i < a.stages.size(); ++i) {
        const ProgramTime::Stage &from = a.stages[i];
        ProgramTime::Stage &stage = time.stages.emplace_back();
        stage.compute = line(from.compute, b.stages[i].compute);
        for (const auto &[group, seconds] : b.stages[i].exposed) {
            const auto before = from.exposed.find(group);
            stage.exposed[group] = line(before == from.exposed.end() ? 0 : before->second, seconds);
        }
    }
    return time;
}

} // namespace

double ProgramTime::Stage::busy() const
{
    return std::accumulate(exposed.begin(), exposed.end(), compute,
                           [](double sum, const auto &group) { return sum + group.second; });
}

const ProgramTime::Stage &ProgramTime::busiest() const
{
    return *std::max_element(stages.begin(), stages.end(),
                             [](const Stage &a, const Stage &b) { return a.busy() < b.busy(); });
}

ProgramTime programTimeOf(const plan::Timeline &timeline)
{
    ProgramTime time;
    time.seconds = 1e-9 * static_cast<double>(timeline.stepNs);
    time.bubble = timeline.bubble();
    for (const plan::StageTimes &stage : timeline.stages) {
        ProgramTime::Stage &one = time.stages.emplace_back();
        one.compute = 1e-9 * static_cast<double>(stage.computeNs);
        for (const auto &[group, ns] : stage.exposedNs)
            one.exposed[group] = 1e-9 * static_cast<double>(ns);
    }
    return time;
}

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

Result<std::vector<plan::MemoryReport>> footprintOf(const spec::JobSpec &job, const std::stop_token &stop)
{
    return memoryByStage(withMicroBatches(job, steadyOf(job).memory), stop);
}

Result<ProgramTime> programTimeOf(
    const spec::JobSpec &job, const std::function<Result<plan::Timeline>(const plan::Plan &plan)> &timelineOf,
    const std::stop_token &stop)
{
    const auto simulated = [&](std::int64_t microBatches) -> Result<ProgramTime> {
        RY_ASSIGN(const auto plan,
                  plan::makePlan(withMicroBatches(job, microBatches), plan::PlanDepth::Ordered, stop));
        RY_ASSIGN(const auto timeline, timelineOf(plan));
        return programTimeOf(timeline);
    };
    const Steady steady = steadyOf(job);
    RY_ASSIGN(ProgramTime time, simulated(steady.time));
    if (const std::int64_t rest = job.microBatches() - steady.time; rest > 0) {
        RY_ASSIGN(const ProgramTime next, simulated(steady.time + steady.period));
        time = beyond(time, next, static_cast<double>(rest) / static_cast<double>(steady.period));
    }
    return time;
}

void settle(StepTime &step, const ProgramTime &program)
{
    const double software = step.overhead + step.launches;
    const double seconds = program.seconds + software;
    const double scale = seconds / step.seconds;
    step.low *= scale;
    step.high *= scale;
    step.seconds = seconds;
    const ProgramTime::Stage &stage = program.busiest();
    step.optimizer = 0; // an op like others: in compute
    step.tensor = step.pipeline = step.data = 0;
    for (const auto &[group, waits] : stage.exposed)
        (group == "tp" || group == "cp" || group == "kv" ? step.tensor
             : group == "pp"                             ? step.pipeline
                                                         : step.data) += waits;
    step.bubble = std::max(0.0, program.seconds - stage.compute - step.tensor - step.pipeline - step.data);
    step.compute = stage.compute + step.launches;
}

void settle(JobTime &time, const ProgramTime &program)
{
    const double before = time.step.seconds;
    settle(time.step, program);
    time.tflopsPerDevice *= before / time.step.seconds;
    time.mfu *= before / time.step.seconds;
}

} // namespace rankyard::predict
