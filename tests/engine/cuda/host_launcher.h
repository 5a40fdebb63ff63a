// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cuda/kernels/block.h"
#include "engine/cuda/tables.h"

#include <functional>

/// The kernels of the GPU on the CPU: their source, compiled by the host's compiler, run block by block. The threads of a block are
/// fibers that switch where they wait for each other, so barriers and exchanges mean what they mean on a GPU, but for memory
/// between them: a thread runs alone until it waits. A missing barrier shows when the order of the threads is another one.
namespace rankyard::cuda::test {

/// In which order the threads of a block run between two barriers.
enum class ThreadOrder { Forward, Backward, Shuffled };
/// Of the kernels that this thread runs from now on.
void setThreadOrder(ThreadOrder order);

/// Runs all blocks of a grid, one after the other. Shared memory begins with NaN. Throws std::runtime_error where threads wait
/// for each other for ever.
void runGrid(Grid grid, int threads, std::int64_t shared, bool cooperative,
             const std::function<void(Block &)> &kernel);

/// The kernels compiled for the host.
const Tables &hostTables();

} // namespace rankyard::cuda::test
