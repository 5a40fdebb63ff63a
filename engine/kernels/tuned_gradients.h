// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels on flat gradient storage of type G: sums written, rows scattered, the norm, AdamW.
#pragma once

#include "engine/kernels/tuned_rows.h"

namespace rankyard::kernels {
namespace {

template<typename G>
void writeGradient(const void *sums, void *gradient, i64 count, bool accumulate)
{
    using A = AccOf<G>;
    const A *from = static_cast<const A *>(sums);
    G *to = static_cast<G *>(gradient);
    forLanes<G>(count, [&](i64 i, auto part) {
        VecOf<G> value = part.get(from + i);
        if (accumulate)
            value += part.get(to + i);
        part.put(to + i, value);
    });
}

/// Rows outside first … first + count are another rank's.
template<typename T, typename G>
void scatterAdd(const std::int32_t *index, const void *dx, void *gradient, i64 first, i64 count, i64 rows,
                i64 width, i64 begin, i64 end)
{
    for (i64 r = 0; r < rows; ++r) {
        const i64 row = index[r] - first;
        if (row < 0 || row >= count)
            continue;
        const T *from = static_cast<const T *>(dx) + r * width + begin;
        G *to = static_cast<G *>(gradient) + row * width + begin;
        forLanes<T>(end - begin,
                    [&](i64 i, auto part) { part.put(to + i, part.get(to + i) + part.get(from + i)); });
    }
}

template<typename T, typename G>
void sumByPosition(const std::int32_t *begin, const std::int32_t *rows, const void *dx, void *gradient,
                   i64 positions, i64 width, bool accumulate, void *sums)
{
    for (i64 p = 0; p < positions; ++p) {
        std::memset(sums, 0, width * sizeof(AccOf<T>));
        for (std::int32_t i = begin[p]; i < begin[p + 1]; ++i)
            columnSum<T>(static_cast<const T *>(dx) + rows[i] * width, width, 1, width, sums);
        writeGradient<G>(sums, static_cast<G *>(gradient) + p * width, width, accumulate);
    }
}

/// Plain loops: the compiler makes wide ones of them (a reduction by omp simd has a fixed order for a given width).
template<typename G>
void sumSquares(const void *gradient, i64 count, double *squares, double *nonFinite)
{
    const G *g = static_cast<const G *>(gradient);
    constexpr i64 block = 16384;
    double total = 0;
    i64 bad = 0;
    for (i64 begin = 0; begin < count; begin += block) {
        const i64 end = smaller(begin + block, count);
        double part = 0;
        int badPart = 0;
#pragma omp simd reduction(+ : part, badPart)
        for (i64 i = begin; i < end; ++i) {
            const double value = widen(g[i]);
            part += value * value;
            badPart += value - value == 0 ? 0 : 1;
        }
        total += part;
        bad += badPart;
    }
    *squares += total;
    *nonFinite += static_cast<double>(bad);
}

template<typename P, typename G, typename M>
void adam(const Adam &a)
{
    const G *__restrict grad = static_cast<const G *>(a.grad);
    M *__restrict exp1 = static_cast<M *>(a.exp1);
    M *__restrict exp2 = static_cast<M *>(a.exp2);
    M *__restrict master = static_cast<M *>(a.master ? a.master : a.param);
    P *__restrict param = static_cast<P *>(a.param);
    const M factor = static_cast<M>(a.gradFactor), beta1 = static_cast<M>(a.beta1),
            beta2 = static_cast<M>(a.beta2);
    const M rest1 = static_cast<M>(1 - a.beta1), rest2 = static_cast<M>(1 - a.beta2),
            eps = static_cast<M>(a.eps);
    const M shrink = static_cast<M>(a.shrink), stepSize = static_cast<M>(a.stepSize);
    const M root = static_cast<M>(a.rootCorrection);
#pragma omp simd
    for (i64 i = 0; i < a.count; ++i) {
        const M g = static_cast<M>(widen(grad[i])) * factor;
        const M first = beta1 * exp1[i] + rest1 * g;
        const M second = beta2 * exp2[i] + rest2 * g * g;
        exp1[i] = first;
        exp2[i] = second;
        const M value = master[i] * shrink - stepSize * first / (std::sqrt(second) * root + eps);
        master[i] = value;
        if constexpr (sizeof(P) != sizeof(M))
            narrow(value, param[i]);
    }
}

} // namespace
} // namespace rankyard::kernels
