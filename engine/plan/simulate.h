// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

/// When every op of a step runs, from what each takes: the plan's programs against each other, without hardware.
namespace rankyard::plan {

/// Nanoseconds of an op once it runs; of a transfer, once all who take part have come to it. Not negative.
using Duration = std::function<std::int64_t(const StepProgram &program, const Op &op)>;

/// A transfer's time is latency + wire bytes ÷ bandwidth (the α–β model; ring formulas for the bytes: wireBytes in plan.h).
struct Link {
    double latencyNs = 0;
    double bytesPerNs = 0; ///< 0: takes the latency only
};
std::int64_t transferNs(const StepProgram &program, const Op &op, const Link &link);

struct OpTime {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// One stage's step. computeNs + bubbleNs + barrierNs + the exposed times = the step.
struct StageTimes {
    std::vector<OpTime> ops; ///< by op id
    std::int64_t computeNs = 0;
    std::int64_t bubbleNs = 0; ///< computation waits for another stage, or has nothing left while another has
    std::int64_t barrierNs =
        0; ///< waits for the reduction of `stats` over all ranks: no update before every norm is known
    std::map<std::string, std::int64_t> exposedNs; ///< waits for transfers, by group
};

struct Timeline {
    std::int64_t stepNs = 0;
    std::vector<StageTimes> stages;
    /// Idle share of the step for want of work, mean over stages: (bubble + barrier) ÷ (stages · step).
    double bubble() const;
    /// Everything takes `factor` times as long.
    void stretch(double factor);
};

/// Where transfers inside a stage advance: on lanes beside computation, or on the thread that computes, in program order.
enum class Progress : std::uint8_t { Beside, OnThread };

/// One rank a stage stands for its peers, which do the same at the same time. A stage's lanes are FIFO, and an op starts when its
/// waits are done (DESIGN 1.6); transfers are not buffered. An error says which op never starts.
Result<Timeline> simulate(const Plan &plan, ProgramKind kind, const Duration &duration,
                          Progress progress = Progress::Beside);

} // namespace rankyard::plan
