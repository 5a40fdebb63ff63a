// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/kernels/kernel_table.h"

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define RY_DEVICE __device__ __forceinline__
#define RY_BOTH __host__ __device__ __forceinline__ // for the launches too
#else
#include "engine/base/float16.h"
#include <cstring>
#include <functional>
#define RY_DEVICE inline
#define RY_BOTH inline
#endif

/// What a kernel sees of the machine that runs it. A kernel is a struct of its arguments with
///
///   static constexpr bool cooperative = …;      // whether its threads wait for each other
///   RY_DEVICE void operator()(Block &block) const;
///
/// compiled by nvcc for the GPU, and by the host's compiler for tests, which run the same source block by block
/// (tests/engine/cuda/host_launcher.h): what is proven there is all but nvcc's code and the GPU itself.
namespace rankyard::cuda {

using i64 = std::int64_t;
using kernels::Bf16;
using kernels::Half;

constexpr int warpSize = 32;

struct Grid {
    i64 x = 1, y = 1, z = 1;
};

#ifdef __CUDACC__

/// A thread's place in its block and the block's in the grid.
class Block
{
public:
    RY_DEVICE i64 x() const { return blockIdx.x; }
    RY_DEVICE i64 y() const { return blockIdx.y; }
    RY_DEVICE i64 z() const { return blockIdx.z; }
    RY_DEVICE i64 gridX() const { return gridDim.x; }
    RY_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
    RY_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
    RY_DEVICE int lane() const { return thread() % warpSize; }
    RY_DEVICE int warp() const { return thread() / warpSize; }
    /// Until all threads of the block, or of the warp, are here.
    RY_DEVICE void sync() const { __syncthreads(); }
    RY_DEVICE void syncWarp() const { __syncwarp(); }
    /// The value of the thread whose lane differs in the bits of `mask`.
    template<typename V>
    RY_DEVICE V exchange(V value, int mask) const
    {
        return __shfl_xor_sync(0xffffffffu, value, mask);
    }
    /// The shared memory of the launch.
    RY_DEVICE char *shared() const
    {
        extern __shared__ __align__(16) char memory[];
        return memory;
    }
};

#else

/// The same on the host: the launcher behind it runs threads one after the other and switches where they wait.
class Block
{
public:
    virtual ~Block() = default;
    i64 x() const { return place.x; }
    i64 y() const { return place.y; }
    i64 z() const { return place.z; }
    i64 gridX() const { return grid.x; }
    int thread() const { return current; }
    int threads() const { return count; }
    int lane() const { return thread() % warpSize; }
    int warp() const { return thread() / warpSize; }
    virtual void sync() = 0;
    virtual void syncWarp() = 0;
    template<typename V>
    V exchange(V value, int mask)
    {
        V other;
        exchangeBytes(&value, &other, sizeof(V), mask);
        return other;
    }
    char *shared() const { return memory; }

protected:
    virtual void exchangeBytes(const void *mine, void *other, std::size_t bytes, int mask) = 0;

    Grid grid, place;
    int current = 0, count = 0;
    char *memory = nullptr;
};

#endif

// ---------------------------------------------------------------------------------------------------- numbers

template<typename T>
struct AccOf_ {
    using type = float;
};
template<>
struct AccOf_<double> {
    using type = double;
};
/// What sums of T are kept in.
template<typename T>
using AccOf = typename AccOf_<T>::type;

RY_DEVICE float widen(float v) { return v; }
RY_DEVICE double widen(double v) { return v; }
RY_DEVICE float widen(Bf16 v)
{
#ifdef __CUDACC__
    return __uint_as_float(static_cast<unsigned>(v.bits) << 16);
#else
    return fromBFloat16(v.bits);
#endif
}
RY_DEVICE float widen(Half v)
{
#ifdef __CUDACC__
    __half_raw raw;
    raw.x = v.bits;
    return __half2float(__half(raw));
#else
    return fromHalf(v.bits);
#endif
}

/// To nearest even.
RY_DEVICE void narrow(float v, float &to) { to = v; }
RY_DEVICE void narrow(double v, double &to) { to = v; }
RY_DEVICE void narrow(float v, Bf16 &to)
{
#ifdef __CUDACC__
    const unsigned bits = __float_as_uint(v);
    to.bits = v == v ? static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)
                     : static_cast<std::uint16_t>(0x7fc0);
#else
    to.bits = toBFloat16(v);
#endif
}
RY_DEVICE void narrow(float v, Half &to)
{
#ifdef __CUDACC__
    to.bits = static_cast<__half_raw>(__float2half_rn(v)).x;
#else
    to.bits = toHalf(v);
#endif
}

RY_DEVICE float infinity(float) { return HUGE_VALF; }
RY_DEVICE double infinity(double) { return HUGE_VAL; }
RY_DEVICE float exponential(float v) { return expf(v); }
RY_DEVICE double exponential(double v) { return exp(v); }
template<typename A>
RY_BOTH A larger(A a, A b)
{
    return a > b ? a : b;
}
template<typename A>
RY_BOTH A smaller(A a, A b)
{
    return a < b ? a : b;
}

// ---------------------------------------------------------------------------------------------------- sums

struct Plus {
    template<typename V>
    RY_DEVICE V operator()(V a, V b) const
    {
        return a + b;
    }
};
struct Most {
    template<typename V>
    RY_DEVICE V operator()(V a, V b) const
    {
        return larger(a, b);
    }
};

/// Over the 32 threads of a warp; all of them get it, in an order that is always the same.
template<typename V, typename Op>
RY_DEVICE V overWarp(Block &block, V value, Op op)
{
    for (int mask = warpSize / 2; mask > 0; mask /= 2)
        value = op(value, block.exchange(value, mask));
    return value;
}

/// Over the block; `shared` has room for a value of each warp.
template<typename V, typename Op>
RY_DEVICE V overBlock(Block &block, V value, V *shared, Op op)
{
    value = overWarp(block, value, op);
    if (block.threads() == warpSize)
        return value;
    block.sync(); // what was there before has been read
    if (block.lane() == 0)
        shared[block.warp()] = value;
    block.sync();
    V total = shared[0];
    for (int warp = 1; warp < block.threads() / warpSize; ++warp)
        total = op(total, shared[warp]);
    return total;
}

/// Word `feature` mod 4 of Philox4x32-10 (Salmon et al. 2011) at a place of units.h: all four of features 4·quad … + 3.
struct Draws {
    std::uint32_t word[4];
};
RY_DEVICE Draws dropDraws(const kernels::Dropout &d, std::uint32_t quad, std::uint32_t position,
                          std::uint32_t sample, std::uint32_t row)
{
    std::uint32_t c0 = quad, c1 = position, c2 = sample, c3 = row, key0 = d.key[0], key1 = d.key[1];
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        const std::uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key0;
        c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key1;
        c1 = static_cast<std::uint32_t>(p1);
        c3 = static_cast<std::uint32_t>(p0);
    }
    return {{c0, c1, c2, c3}};
}

} // namespace rankyard::cuda
