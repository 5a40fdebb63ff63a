// SPDX-License-Identifier: GPL-3.0-or-later
// Dropout by counters: which elements stay is a function of their place, so nothing is kept for backward and every layout
// drops the same ones (DESIGN section 4).
#pragma once

#include "engine/kernels/tuned_simd.h"

namespace rankyard::kernels {
namespace {

constexpr int dropTile = 64; ///< features that sixteen blocks of Philox decide about

/// Philox4x32-10 (Salmon et al. 2011): the draws of features 64·tile … + 63, four to a block (the place of each in units.h).
RY_INLINE void dropDraws(const Dropout &d, i64 tile, std::uint32_t sample, std::uint32_t position,
                         std::uint32_t row, std::uint32_t *draws)
{
    constexpr int blocks = dropTile / 4;
    std::uint32_t c0[blocks], c1[blocks], c2[blocks], c3[blocks];
#pragma omp simd
    for (int i = 0; i < blocks; ++i) {
        c0[i] = static_cast<std::uint32_t>(tile) * blocks + static_cast<std::uint32_t>(i);
        c1[i] = position;
        c2[i] = sample;
        c3[i] = row;
    }
    std::uint32_t key0 = d.key[0], key1 = d.key[1];
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
#pragma omp simd
        for (int i = 0; i < blocks; ++i) {
            const std::uint64_t p0 = 0xD2511F53ull * c0[i], p1 = 0xCD9E8D57ull * c2[i];
            c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ key0;
            c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ key1;
            c1[i] = static_cast<std::uint32_t>(p1);
            c3[i] = static_cast<std::uint32_t>(p0);
        }
    }
    for (int i = 0; i < blocks; ++i) {
        draws[4 * i] = c0[i];
        draws[4 * i + 1] = c1[i];
        draws[4 * i + 2] = c2[i];
        draws[4 * i + 3] = c3[i];
    }
}

/// Calls f(offset, load-store, factors) over features begin … begin + count of one row; factors are 0 or d.scale.
template<typename T, typename F>
RY_INLINE void forKept(const Dropout &d, std::uint32_t sample, std::uint32_t position, std::uint32_t row,
                       i64 begin, i64 count, F f)
{
    using A = AccOf<T>;
    alignas(64) std::uint32_t draws[dropTile];
    alignas(64) A factors[dropTile];
    const A scale = static_cast<A>(d.scale);
    for (i64 at = 0; at < count;) {
        const i64 feature = begin + at, inTile = feature % dropTile,
                  n = smaller(count - at, dropTile - inTile);
        dropDraws(d, feature / dropTile, sample, position, row, draws);
#pragma omp simd
        for (int i = 0; i < dropTile; ++i)
            factors[i] = draws[i] >= d.threshold ? scale : 0;
        forLanes<T>(n, [&](i64 i, auto part) { f(at + i, part, part.get(factors + inTile + i)); });
        at += n;
    }
}

/// y = [residual +] dropped(x [+ b]); y may be x.
template<typename T>
void dropRows(const Dropout &d, const void *x, const void *b, const void *residual, void *y, i64 rows,
              i64 width)
{
    const T *bias = static_cast<const T *>(b);
    for (i64 r = 0; r < rows; ++r) {
        const T *from = static_cast<const T *>(x) + r * width;
        const T *stream = residual ? static_cast<const T *>(residual) + r * width : nullptr;
        T *to = static_cast<T *>(y) + r * width;
        const auto sample = static_cast<std::uint32_t>(d.sample[r] + d.firstSample);
        forKept<T>(d, sample, static_cast<std::uint32_t>(d.position[r]), d.purpose, 0, width,
                   [&](i64 i, auto part, VecOf<T> factor) {
                       VecOf<T> value = part.get(from + i);
                       if (bias)
                           value += part.get(bias + i);
                       value *= factor;
                       if (stream)
                           value += part.get(stream + i);
                       part.put(to + i, value);
                   });
    }
}

} // namespace
} // namespace rankyard::kernels
