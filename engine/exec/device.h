// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// What the executor needs of a device, free of LibTorch: binding ops to kernels. Arenas, streams and events
/// of the CPU are plain memory and program order; a GPU plug-in adds its own behind the same table.
namespace rankyard::exec {

/// The scalars of a step that kernels read and StepScalars writes. One per rank.
struct StepState {
    std::int64_t step = 0;    ///< training step, from 1
    std::int64_t skipped = 0; ///< of the steps before: those that overflowed and updated nothing
    std::int64_t batch = 0;   ///< global batch that the program runs over, from 0; set by Executor::run
    double lossScale = 1;     ///< the scale that this step's backward uses
    double lossWeight = 1;    ///< 1 ÷ N, N = labels of the whole global batch
    double lr = 0;
    // Written by StepScalars from the reduced stats:
    double loss = 0;       ///< mean over N
    double gradNorm = 0;   ///< unscaled, before clipping
    double gradFactor = 1; ///< what the optimizer multiplies gradients with: clip ÷ scale
    bool overflow = false; ///< the update is skipped everywhere
    double vote = 0; ///< this rank's word for the step boundary (exec::Vote), and after the reduction the sum
    /// The optimizer update about to be made, from 1: what Adam's bias correction and the learning rate follow.
    std::int64_t update() const { return step - skipped; }
    /// Called by long kernels between slices, so that communication advances without a spare core. May be
    /// empty.
    std::function<void()> poll;
};

/// An op with its addresses resolved: running it allocates nothing of ours.
class BoundOp
{
public:
    virtual ~BoundOp() = default;
    virtual void run(StepState &state) = 0;
    /// Whether run() only starts the work, which goes on beside the interpreter until finish().
    virtual bool isBeside() const { return false; }
    /// Waits for what run() has started; when it was done (monotonic), 0 when nothing was under way.
    virtual std::int64_t finish() { return 0; }
};

/// What binding needs beside the program.
struct BindContext {
    const plan::Plan *plan = nullptr;
    const plan::StepProgram *program = nullptr;
    std::span<std::byte *const> address; ///< by buffer id, views and slices resolved for this rank
    int rank = 0;

    /// This rank's place in a group of the program; 0 for none.
    int indexIn(plan::GroupId group) const
    {
        return group == plan::none
            ? 0
            : plan->grid.indexIn(rank, program->groups[static_cast<std::size_t>(group)]);
    }
};

/// A device that runs programs. One per rank; every call from the rank's interpreter thread.
class Device
{
public:
    static constexpr int abi = 1;
    virtual ~Device() = default;

    virtual std::string name() const = 0; ///< "AMD EPYC, AVX-512, 1 thread"
    virtual void setThreads(int threads) = 0;
    /// Ops that compute: all but transfers, LoadBatch and StepScalars. An error names the op and what is missing.
    virtual Result<std::unique_ptr<BoundOp>> bind(const BindContext &context, const plan::Op &op) = 0;
    /// Names and bytes of what library kernels allocate inside (DESIGN 1.5, `workspace`), for the memory
    /// report.
    virtual std::vector<std::pair<std::string, std::int64_t>> libraryWorkspace() const = 0;
};

/// The CPU device, in engine/kernels (LibTorch). `threads` per rank.
std::unique_ptr<Device> makeCpuDevice(int threads);

} // namespace rankyard::exec
