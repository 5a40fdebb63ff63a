// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cuda/kernels/block.h"
#include "engine/cuda/queue.h"

/// Starting a kernel (block.h) on the current queue.
namespace rankyard::cuda {

constexpr int ordinaryShared = 48 << 10; ///< bytes of shared memory that a kernel may have without asking

#ifdef __CUDACC__

template<typename Kernel>
__global__ void entry(const Kernel kernel)
{
    Block block;
    kernel(block);
}

template<typename Kernel>
void launch(Grid grid, int threads, i64 shared, const Kernel &kernel)
{
    if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0)
        return;
    cudaError_t error = cudaSuccess;
    if (shared > ordinaryShared)
        error = cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared));
    if (error == cudaSuccess) {
        const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                          static_cast<unsigned>(grid.z));
        entry<<<blocks, static_cast<unsigned>(threads), static_cast<std::size_t>(shared),
                static_cast<cudaStream_t>(currentQueue().stream)>>>(kernel);
        error = cudaGetLastError();
    }
    if (error != cudaSuccess)
        startFailed(cudaGetErrorString(error));
}

#else

/// Of the tests; the plug-in never links it.
void launchOnHost(Grid grid, int threads, i64 shared, bool cooperative, std::function<void(Block &)> kernel);

template<typename Kernel>
void launch(Grid grid, int threads, i64 shared, const Kernel &kernel)
{
    if (grid.x > 0 && grid.y > 0 && grid.z > 0)
        launchOnHost(grid, threads, shared, Kernel::cooperative, [kernel](Block &block) { kernel(block); });
}

#endif

constexpr int plainThreads = 256;

/// One call f(i) for each i < count.
template<typename F>
struct Each {
    static constexpr bool cooperative = false;
    i64 count;
    F f;
    RY_DEVICE void operator()(Block &block) const
    {
        const i64 step = block.gridX() * block.threads();
        for (i64 i = block.x() * block.threads() + block.thread(); i < count; i += step)
            f(i);
    }
};

template<typename F>
void forEach(i64 count, const F &f)
{
    constexpr i64 mostBlocks = 65536;
    launch({smaller<i64>((count + plainThreads - 1) / plainThreads, mostBlocks), 1, 1}, plainThreads, 0,
           Each<F>{count, f});
}

/// Threads of a block that goes over a row of `width`.
inline int threadsFor(i64 width)
{
    const i64 wish = (width + warpSize - 1) / warpSize * warpSize;
    return static_cast<int>(wish < plainThreads ? wish : plainThreads);
}

} // namespace rankyard::cuda
