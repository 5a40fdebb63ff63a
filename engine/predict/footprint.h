// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/simulate.h"

#include <functional>
#include <map>
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

/// Memory of one rank of each stage, in order.
Result<std::vector<plan::MemoryReport>> footprintOf(const spec::JobSpec &job);

/// The step's time by the programs and the cost model's durations.
struct ProgramTime {
    double seconds = 0;
    double bubble = 0;                     ///< idle share, as plan::Timeline has it
    double barrier = 0;                    ///< seconds of it before the gradient norm, mean over stages
    std::vector<double> compute;           ///< seconds, by stage
    std::map<std::string, double> exposed; ///< seconds that the slowest stage waits, by group
};
/// `timelineOf`: when the ops of a plan's step run (durations.h), called with plans of few micro-batches.
Result<ProgramTime> programTimeOf(
    const spec::JobSpec &job,
    const std::function<Result<plan::Timeline>(const plan::Plan &plan)> &timelineOf);

} // namespace rankyard::predict
