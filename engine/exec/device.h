// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/comm/communicator.h"
#include "engine/plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// What the executor needs of a device, free of LibTorch: binding ops to kernels, and of one that works beside the host, a GPU,
/// also memory and queues. Those of the CPU are plain memory and program order.
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

/// Memory of a device that the host cannot touch. From the rank's interpreter thread.
class DeviceMemory
{
public:
    virtual ~DeviceMemory() = default;
    /// Zeros on the device, or on the host where the device reaches it fast (`host`); gone with the last pointer. DoesNotFit.
    virtual Result<std::shared_ptr<std::byte>> allocate(std::int64_t bytes, bool host) = 0;
    /// Between any two places, made when it returns. Nothing under way may touch them.
    virtual Status copy(void *to, const void *from, std::int64_t bytes) = 0;
    /// Of the device, for arenas.
    virtual std::int64_t freeBytes() const = 0;
};

/// Where a batch is put by the host.
struct HostBatch {
    std::int32_t *tokens = nullptr;
    std::int32_t *labels = nullptr;
};

/// The order of work that a device does beside the host. Ops are issued in program order, to queues by their lane (plan::laneOf):
/// begin(), the bound op's run(), which only starts its work, end(). Such a device binds every op but StepScalars: transfers, and
/// LoadBatch as the way from the host's batch to its buffers. From the rank's interpreter thread.
class DeviceQueue
{
public:
    using Poll = std::function<void()>;
    virtual ~DeviceQueue() = default;
    /// Before the first bind, by all ranks at once: makes the device's own communicators. `host` has the rank's groups by name and
    /// is used to find each other only.
    virtual Status connect(const plan::Plan &plan, int rank,
                           const std::map<std::string, comm::Communicator *> &host) = 0;
    /// Of a bound LoadBatch: to be filled before it runs.
    virtual HostBatch batchOf(const BindContext &context, const plan::Op &op) = 0;
    virtual Status beginRun(const plan::StepProgram &program) = 0;
    /// The op's lane waits for the ops that it waits for.
    virtual Status begin(const plan::Op &op) = 0;
    virtual Status end(const plan::Op &op) = 0;
    /// Until all that was issued to the op's lane is done, or with null everything; calls poll meanwhile.
    virtual Status await(const plan::Op *op, const Poll &poll) = 0;
    /// After await(null): when the run's ops began and ended, monotonic.
    virtual Status times(std::span<std::int64_t> begin, std::span<std::int64_t> end) = 0;
};

/// A device that runs programs. One per rank; every call from the rank's interpreter thread.
class Device
{
public:
    static constexpr int abi = 2; ///< of everything that this header declares: a plug-in has the worker's
    virtual ~Device() = default;

    virtual std::string name() const = 0; ///< "AMD EPYC, AVX-512, 1 thread"
    virtual void setThreads(int threads) = 0;
    /// Ops that compute: all but transfers, LoadBatch and StepScalars. An error names the op and what is missing.
    virtual Result<std::unique_ptr<BoundOp>> bind(const BindContext &context, const plan::Op &op) = 0;
    /// Names and bytes of what library kernels allocate inside (DESIGN 1.5, `workspace`), for the memory
    /// report.
    virtual std::vector<std::pair<std::string, std::int64_t>> libraryWorkspace() const = 0;
    virtual DeviceMemory *memory() { return nullptr; } ///< null: the host's
    virtual DeviceQueue *queue() { return nullptr; }   ///< null: ops are done when run() returns
};

/// The CPU device, in engine/kernels. `threads` per rank.
std::unique_ptr<Device> makeCpuDevice(int threads);

} // namespace rankyard::exec
