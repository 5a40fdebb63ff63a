// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/device.h"
#include "engine/plan/plan.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

/// Small training jobs that run on this machine's devices to learn what their ops take: the programs that are priced later are of the
/// same kind as those measured here.
namespace rankyard::probe {

using DeviceFactory = std::function<std::unique_ptr<exec::Device>()>;

/// Ops of a program that do the same work: one of them, and how long they took.
struct Sample {
    const plan::StepProgram *program = nullptr; ///< of the trial's plan
    plan::OpId op = plan::none;
    int times = 0;      ///< how often it was seen
    double seconds = 0; ///< median over ops, steps and ranks
};

/// A job, its plan, and what its ops took. The samples point into the plan, which stays where it is.
struct Trial {
    spec::JobSpec job;
    std::unique_ptr<plan::Plan> plan;
    std::vector<Sample> samples;
};

/// One training job on `ranks` devices at once, which exchange nothing while they compute: gradients are reduced at the end. `ranks`
/// threads of this process; a few steps, of which the first warms up. Only ops that compute are sampled.
Result<Trial> runTrial(const spec::JobSpec &job, const DeviceFactory &makeDevice, int steps);

/// Models small enough for a probe and different enough to tell a device's constants apart, for `ranks` ranks in one type.
std::vector<spec::JobSpec> trialJobs(int ranks, DType type);

} // namespace rankyard::probe
