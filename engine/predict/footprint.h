// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/simulate.h"
#include "engine/predict/step_time.h"

#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

/// Memory and time of a job from the programs of a shorter one. Once the pipeline is full every further micro-batch does what the one
/// before did: it adds the same time and, but for GPipe, no memory. So the programs of a few micro-batches tell the numbers of
/// hundreds, and still nothing describes a step twice.
namespace rankyard::predict {

/// Micro-batches of the shorter job.
struct Steady {
    std::int64_t memory = 1; ///< a stage's peak does not move after; gpipe's grows to the end: all
    std::int64_t time = 1;   ///< each period adds the same time after
    std::int64_t period =
        1; ///< micro-batches over which that is measured: a multiple of what the schedule takes together
};
/// At most the job's. A pipeline is full after p micro-batches and empties over as many; with virtual stages it takes longer to
/// settle. ZeRO 3 may keep parameters from one micro-batch to the next.
Steady steadyOf(const spec::JobSpec &job);

/// Memory of one rank of each stage, in order. Stopped when `stop` asks.
Result<std::vector<plan::MemoryReport>> footprintOf(const spec::JobSpec &job,
                                                    const std::stop_token &stop = {});

/// The step's time by the programs and the cost model's durations.
struct ProgramTime {
    struct Stage {
        double compute = 0;                      ///< seconds
        std::map<std::string, double> exposed{}; ///< seconds that it waits, by group
        double busy() const;                     ///< with those waits
    };
    double seconds = 0;
    double bubble = 0; ///< idle share, as plan::Timeline has it
    std::vector<Stage> stages;
    /// The stage that computes and waits for transfers longest: it explains most of the step.
    const Stage &busiest() const;
};
/// Of a whole program.
ProgramTime programTimeOf(const plan::Timeline &timeline);
/// `timelineOf`: when the ops of a plan's step run (durations.h), called with plans of few micro-batches.
Result<ProgramTime> programTimeOf(
    const spec::JobSpec &job, const std::function<Result<plan::Timeline>(const plan::Plan &plan)> &timelineOf,
    const std::stop_token &stop = {});

/// Closed form and program, both of one job, become its step: the program's time, and what no op does, which stays the closed form's
/// (launches, loader, stragglers, hidden transfers that slow the computation above them). Parts are the busiest stage's; the interval
/// keeps its shape. Whoever tells a step time whose program is known has it from here: judge(), `plan`, the search.
void settle(StepTime &step, const ProgramTime &program);
void settle(JobTime &time, const ProgramTime &program);

} // namespace rankyard::predict
