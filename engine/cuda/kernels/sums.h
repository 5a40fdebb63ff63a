// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels with sums over rows or columns: norms, gradients of biases, the norm of gradients. Every sum has a fixed order: no
// atomics, so equal runs are equal to the bit.
#pragma once

#include "engine/cuda/kernels/rows.h"

namespace rankyard::cuda {

// ---------------------------------------------------------------------------------------------------- columns

constexpr i64 mostStripes = 64; ///< of rows that are summed apart
constexpr int columnThreads = 128;

/// Sums of columns over a stripe of rows: value(row, column, sums) adds to `Sums` sums.
template<typename A, int Sums, typename Value>
struct StripeSums {
    static constexpr bool cooperative = false;
    Value value;
    i64 rows, width, rowsPerStripe;
    A *partials; ///< [stripes, Sums, width]
    RY_DEVICE void operator()(Block &block) const
    {
        const i64 column = block.x() * block.threads() + block.thread(), stripe = block.y();
        if (column >= width)
            return;
        A sums[Sums] = {};
        const i64 end = smaller(rows, (stripe + 1) * rowsPerStripe);
        for (i64 row = stripe * rowsPerStripe; row < end; ++row)
            value(row, column, sums);
        for (int i = 0; i < Sums; ++i)
            partials[(stripe * Sums + i) * width + column] = sums[i];
    }
};
/// out += the stripes' sums, in their order.
template<typename A>
struct AddStripes {
    const A *partials;
    A *out;
    i64 width, stripes, stride;
    RY_DEVICE void operator()(i64 column) const
    {
        A total = 0;
        for (i64 stripe = 0; stripe < stripes; ++stripe)
            total += partials[stripe * stride + column];
        out[column] += total;
    }
};

template<typename A, int Sums, typename Value>
void sumColumns(i64 rows, i64 width, A *const (&out)[Sums], const Value &value)
{
    const i64 perStripe = larger<i64>(8, (rows + mostStripes - 1) / mostStripes);
    const i64 stripes = (rows + perStripe - 1) / perStripe;
    A *sums = static_cast<A *>(partials(stripes * Sums * width * static_cast<i64>(sizeof(A))));
    launch({(width + columnThreads - 1) / columnThreads, stripes, 1}, columnThreads, 0,
           StripeSums<A, Sums, Value>{value, rows, width, perStripe, sums});
    for (int i = 0; i < Sums; ++i) {
        if (out[i])
            forEach(width, AddStripes<A>{sums + i * width, out[i], width, stripes, Sums * width});
    }
}

template<typename T>
struct ColumnValue {
    const T *x;
    i64 ld;
    RY_DEVICE void operator()(i64 row, i64 column, AccOf<T> *sums) const
    {
        sums[0] += widen(x[row * ld + column]);
    }
};
template<typename T>
void columnSum(const void *x, i64 ld, i64 rows, i64 width, void *out)
{
    sumColumns<AccOf<T>, 1>(rows, width, {static_cast<AccOf<T> *>(out)},
                            ColumnValue<T>{static_cast<const T *>(x), ld});
}

template<typename T>
struct GeluGradient {
    T *da;
    const T *u;
    i64 width;
    RY_DEVICE void operator()(i64 row, i64 column, AccOf<T> *sums) const
    {
        const i64 at = row * width + column;
        const AccOf<T> value = widen(da[at]) * geluSlope(widen(u[at]));
        narrow(value, da[at]);
        sums[0] += value;
    }
};
template<typename T>
void geluBackward(void *da, const void *u, void *db, i64 rows, i64 width)
{
    sumColumns<AccOf<T>, 1>(rows, width, {static_cast<AccOf<T> *>(db)},
                            GeluGradient<T>{static_cast<T *>(da), static_cast<const T *>(u), width});
}

// ---------------------------------------------------------------------------------------------------- norms

/// A block a row.
template<typename T, bool Centred>
struct NormForward {
    static constexpr bool cooperative = true;
    const T *x, *w, *b;
    T *n;
    AccOf<T> *stats;
    i64 width;
    double eps;
    RY_DEVICE void operator()(Block &block) const
    {
        using A = AccOf<T>;
        A *shared = reinterpret_cast<A *>(block.shared());
        const T *from = x + block.x() * width;
        T *to = n + block.x() * width;
        A mean = 0;
        if constexpr (Centred) {
            A sum = 0;
            for (i64 i = block.thread(); i < width; i += block.threads())
                sum += widen(from[i]);
            mean = overBlock(block, sum, shared, Plus()) / static_cast<A>(width);
        }
        A square = 0;
        for (i64 i = block.thread(); i < width; i += block.threads()) {
            const A d = widen(from[i]) - mean;
            square += d * d;
        }
        square = overBlock(block, square, shared, Plus());
        const A scale =
            1 / static_cast<A>(sqrt(static_cast<double>(square) / static_cast<double>(width) + eps));
        for (i64 i = block.thread(); i < width; i += block.threads()) {
            A value = (widen(from[i]) - mean) * scale * widen(w[i]);
            if constexpr (Centred)
                value += widen(b[i]);
            narrow(value, to[i]);
        }
        if (block.thread() > 0)
            return;
        AccOf<T> *kept = stats + block.x() * (Centred ? 2 : 1);
        if constexpr (Centred)
            *kept++ = mean;
        *kept = scale;
    }
};
template<typename T>
i64 sharedFor(int threads)
{
    return threads / warpSize * static_cast<i64>(sizeof(T));
}
template<typename T, bool Centred>
void normForward(const void *x, const void *w, const void *b, void *n, void *stats, i64 rows, i64 width,
                 double eps)
{
    const int threads = threadsFor(width);
    launch({rows, 1, 1}, threads, sharedFor<AccOf<T>>(threads),
           NormForward<T, Centred>{static_cast<const T *>(x), static_cast<const T *>(w),
                                   static_cast<const T *>(b), static_cast<T *>(n),
                                   static_cast<AccOf<T> *>(stats), width, eps});
}

template<typename T, bool Centred>
struct NormWeights {
    const T *dn, *x;
    const AccOf<T> *stats;
    i64 width;
    RY_DEVICE void operator()(i64 row, i64 column, AccOf<T> *sums) const
    {
        const AccOf<T> *kept = stats + row * (Centred ? 2 : 1);
        const AccOf<T> mean = Centred ? kept[0] : 0, scale = kept[Centred ? 1 : 0];
        const AccOf<T> g = widen(dn[row * width + column]);
        sums[0] += g * ((widen(x[row * width + column]) - mean) * scale);
        if constexpr (Centred)
            sums[1] += g;
    }
};
/// A block a row.
template<typename T, bool Centred>
struct NormBackward {
    static constexpr bool cooperative = true;
    T *dn;
    const T *x, *w, *dx;
    const AccOf<T> *stats;
    i64 width;
    RY_DEVICE void operator()(Block &block) const
    {
        using A = AccOf<T>;
        A *shared = reinterpret_cast<A *>(block.shared());
        const i64 first = block.x() * width;
        const A *kept = stats + block.x() * (Centred ? 2 : 1);
        const A mean = Centred ? kept[0] : 0, scale = kept[Centred ? 1 : 0];
        A sum = 0, dot = 0;
        for (i64 i = block.thread(); i < width; i += block.threads()) {
            const A scaled = widen(dn[first + i]) * widen(w[i]);
            sum += scaled;
            dot += scaled * ((widen(x[first + i]) - mean) * scale);
        }
        const A mid = Centred ? overBlock(block, sum, shared, Plus()) / static_cast<A>(width) : 0;
        const A slope = overBlock(block, dot, shared, Plus()) / static_cast<A>(width);
        for (i64 i = block.thread(); i < width; i += block.threads()) {
            const A hat = (widen(x[first + i]) - mean) * scale;
            A value = (widen(dn[first + i]) * widen(w[i]) - mid - hat * slope) * scale;
            if (dx)
                value += widen(dx[first + i]);
            narrow(value, dn[first + i]);
        }
    }
};
template<typename T, bool Centred>
void normBackward(void *dn, const void *x, const void *stats, const void *w, const void *dx, void *dw,
                  void *db, i64 rows, i64 width)
{
    using A = AccOf<T>;
    T *grad = static_cast<T *>(dn);
    const T *from = static_cast<const T *>(x);
    const A *kept = static_cast<const A *>(stats);
    const NormWeights<T, Centred> weights{grad, from, kept, width}; // before dn becomes dx
    if constexpr (Centred)
        sumColumns<A, 2>(rows, width, {static_cast<A *>(dw), static_cast<A *>(db)}, weights);
    else
        sumColumns<A, 1>(rows, width, {static_cast<A *>(dw)}, weights);
    const int threads = threadsFor(width);
    launch({rows, 1, 1}, threads, sharedFor<A>(threads),
           NormBackward<T, Centred>{grad, from, static_cast<const T *>(w), static_cast<const T *>(dx), kept,
                                    width});
}

} // namespace rankyard::cuda
