// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/thread_ranks.h"
#include "engine/plan/plan.h"

#include <map>
#include <string>
#include <vector>

/// Any layout gives what one rank gives (DESIGN section 4): the same job in its layout and on one rank, step by step, on threads
/// of this process.
namespace rankyard::exec {

struct ParityStep {
    double loss = 0, referenceLoss = 0;
    double gradNorm = 0, referenceGradNorm = 0;
    bool overflow = false, referenceOverflow = false;
    double lossScale = 1, referenceLossScale = 1;
    double exactLoss = 0; ///< 16 bits: of one rank in fp64 that updates when this layout does; else 0
};

/// Of a parameter's gradient: ‖g − g_ref‖ ÷ max(‖g_ref‖, 1e-6·‖g_ref,all‖·√(numel_p ÷ numel_all)).
struct ParityWorst {
    std::string parameter;
    std::string unit; ///< "attention(3)"
    std::int64_t step = 0;
    double relativeError = 0;
};

struct ParityReport {
    std::vector<ParityStep> steps;
    ParityWorst worst;
    double worstLoss = 0; ///< largest |loss − reference| ÷ |reference|
    double lossLimit = 0, gradientLimit = 0;
    double worstExact = 0; ///< 16 bits: largest |loss − exact| ÷ |exact|
    double exactLimit = 0; ///< 0: not compared with fp64
    /// Losses within the limits, overflow and loss scale the same in each step.
    bool follows() const;
    /// … and gradients within theirs.
    bool ok() const;
};

struct ParityOptions {
    std::int64_t steps = 20;
    ThreadRanks::DeviceFactory makeDevice;         ///< of the layout's ranks
    ThreadRanks::DeviceFactory makeReference = {}; ///< of the one rank; empty: makeDevice
    /// Data of a rank of the given job; called for both layouts, the result lives until the end.
    std::function<Result<std::unique_ptr<DataSource>>(const spec::JobSpec &)> makeData;
    std::function<void(std::int64_t step)> progress = {};
};

/// The job on one rank, where a lossy reduction is emulated replica by replica (replicas.h): no parallelism, sharding, recomputing, offloading or compression; micro-batches as they are.
spec::JobSpec oneRankJob(const spec::JobSpec &job);

/// Limits: fp64 losses 1e-10, gradients 1e-9; fp32 losses 1e-5, gradients 1e-3; 16 bits losses 1e-2, of each other and of one rank
/// in fp64 that updates when this layout does (DESIGN section 4), gradients 1e-1. Those of gradients, with u = 2⁻²⁴ of fp32 and 2⁻⁸
/// of bf16, and errors of n independent roundings as √n · u (Higham and Mary 2019):
///   16 bits  a gradient comes by 16 roundings to storage a layer, √(32 · layers) · u is 0.1 for 20 layers
///   fp32     sums of n products in another order, √n · u = 6e-5 for n = 10⁶; twenty steps of AdamW multiply it where an element's
///            gradient is as small as its rounding, since the update is of the size of lr whatever the gradient's: a factor of 16
Result<ParityReport> checkParity(const spec::JobSpec &job, const ParityOptions &options);
/// Of a plan that need not be what its job says (mutations).
Result<ParityReport> checkParity(const plan::Plan &plan, const ParityOptions &options);

/// Whole gradients by parameter name, put together from what each rank owns; an element that nobody or more than one owns is an
/// error.
Result<std::map<std::string, std::vector<double>>> gatherGradients(const plan::Plan &plan,
                                                                   ThreadRanks &ranks);

} // namespace rankyard::exec
