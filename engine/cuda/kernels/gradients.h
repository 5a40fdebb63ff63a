// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels on flat gradient storage of type G: sums written, rows scattered, the norm, AdamW.
#pragma once

#include "engine/cuda/kernels/loss.h"

namespace rankyard::cuda {

template<typename G>
struct WriteGradient {
    const AccOf<G> *sums;
    G *gradient;
    bool accumulate;
    RY_DEVICE void operator()(i64 i) const
    {
        narrow(accumulate ? sums[i] + widen(gradient[i]) : sums[i], gradient[i]);
    }
};
template<typename G>
void writeGradient(const void *sums, void *gradient, i64 count, bool accumulate)
{
    forEach(count,
            WriteGradient<G>{static_cast<const AccOf<G> *>(sums), static_cast<G *>(gradient), accumulate});
}

/// A thread a column; the rows of the table are dealt to the blocks, so that each is added to by one of them, in the order of r.
template<typename T, typename G>
struct ScatterAdd {
    static constexpr bool cooperative = false;
    const std::int32_t *index;
    const T *dx;
    G *gradient;
    i64 first, count, rows, width, begin, end, deals;
    RY_DEVICE void operator()(Block &block) const
    {
        const i64 column = begin + block.x() * block.threads() + block.thread();
        if (column >= end)
            return;
        for (i64 r = 0; r < rows; ++r) {
            const i64 row = index[r] - first;
            if (row < 0 || row >= count || row % deals != block.y())
                continue;
            G &to = gradient[row * width + column];
            narrow(widen(to) + static_cast<AccOf<G>>(widen(dx[r * width + column])), to);
        }
    }
};
template<typename T, typename G>
void scatterAdd(const std::int32_t *index, const void *dx, void *gradient, i64 first, i64 count, i64 rows,
                i64 width, i64 begin, i64 end)
{
    constexpr i64 mostDeals = 64;
    const i64 deals = smaller(mostDeals, larger<i64>(count, 1));
    launch({(end - begin + columnThreads - 1) / columnThreads, deals, 1}, columnThreads, 0,
           ScatterAdd<T, G>{index, static_cast<const T *>(dx), static_cast<G *>(gradient), first, count, rows,
                            width, begin, end, deals});
}

template<typename T, typename G>
struct SumByPosition {
    const std::int32_t *begin, *rows;
    const T *dx;
    G *gradient;
    i64 width;
    bool accumulate;
    RY_DEVICE void operator()(i64 i) const
    {
        const i64 p = i / width, column = i % width;
        AccOf<G> sum = 0;
        for (std::int32_t r = begin[p]; r < begin[p + 1]; ++r)
            sum += widen(dx[rows[r] * width + column]);
        narrow(accumulate ? sum + widen(gradient[i]) : sum, gradient[i]);
    }
};
template<typename T, typename G>
void sumByPosition(const std::int32_t *begin, const std::int32_t *rows, const void *dx, void *gradient,
                   i64 positions, i64 width, bool accumulate, void *)
{
    forEach(positions * width,
            SumByPosition<T, G>{begin, rows, static_cast<const T *>(dx), static_cast<G *>(gradient), width,
                                accumulate});
}

constexpr i64 mostParts = 512; ///< of a gradient whose squares are summed apart

/// sums [grid, 2]: of each block's elements Σ squares and the number of those that are not finite.
template<typename G>
struct SquaresOfPart {
    static constexpr bool cooperative = true;
    const G *gradient;
    i64 count;
    double *sums;
    RY_DEVICE void operator()(Block &block) const
    {
        double *shared = reinterpret_cast<double *>(block.shared());
        double squares = 0, bad = 0;
        for (i64 i = block.x() * block.threads() + block.thread(); i < count;
             i += block.gridX() * block.threads()) {
            const double value = widen(gradient[i]);
            squares += value * value;
            bad += value - value == 0 ? 0 : 1;
        }
        squares = overBlock(block, squares, shared, Plus());
        bad = overBlock(block, bad, shared, Plus());
        if (block.thread() == 0) {
            sums[2 * block.x()] = squares;
            sums[2 * block.x() + 1] = bad;
        }
    }
};
template<typename G>
void sumSquares(const void *gradient, i64 count, double *squares, double *nonFinite)
{
    const i64 blocks = smaller<i64>(mostParts, (count + 4 * plainThreads - 1) / (4 * plainThreads));
    double *sums = static_cast<double *>(partials(2 * blocks * static_cast<i64>(sizeof(double))));
    launch({blocks, 1, 1}, plainThreads, sharedFor<double>(plainThreads),
           SquaresOfPart<G>{static_cast<const G *>(gradient), count, sums});
    addTo(sums, blocks, 2, squares);
    addTo(sums + 1, blocks, 2, nonFinite);
}

/// AdamW of kernel_table.h with its factors in the type of the moments.
template<typename P, typename G, typename M>
struct AdamStep {
    const G *grad;
    P *param;
    M *exp1, *exp2, *master;
    M factor, beta1, beta2, rest1, rest2, eps, shrink, stepSize, root;
    RY_DEVICE void operator()(i64 i) const
    {
        const M g = static_cast<M>(widen(grad[i])) * factor;
        const M first = beta1 * exp1[i] + rest1 * g;
        const M second = beta2 * exp2[i] + rest2 * g * g;
        exp1[i] = first;
        exp2[i] = second;
        const M value = master[i] * shrink - stepSize * first / (sqrt(second) * root + eps);
        master[i] = value;
        if constexpr (sizeof(P) != sizeof(M))
            narrow(value, param[i]);
    }
};
template<typename P, typename G, typename M>
void adam(const kernels::Adam &a)
{
    const auto in = [](double value) { return static_cast<M>(value); };
    forEach(a.count,
            AdamStep<P, G, M>{static_cast<const G *>(a.grad), static_cast<P *>(a.param),
                              static_cast<M *>(a.exp1), static_cast<M *>(a.exp2),
                              static_cast<M *>(a.master ? a.master : a.param), in(a.gradFactor), in(a.beta1),
                              in(a.beta2), in(1 - a.beta1), in(1 - a.beta2), in(a.eps), in(a.shrink),
                              in(a.stepSize), in(a.rootCorrection)});
}

struct Zero {
    double *values;
    RY_DEVICE void operator()(i64 i) const { values[i] = 0; }
};

template<typename T>
struct AddInto {
    const T *from;
    T *to;
    RY_DEVICE void operator()(i64 i) const { narrow(widen(to[i]) + widen(from[i]), to[i]); }
};
template<typename T>
void addInto(const void *from, void *to, i64 count)
{
    forEach(count, AddInto<T>{static_cast<const T *>(from), static_cast<T *>(to)});
}

} // namespace rankyard::cuda
