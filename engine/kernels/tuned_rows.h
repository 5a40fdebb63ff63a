// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels that go over rows once: GELU, SwiGLU, rotary positions, sums of columns, embedding.
#pragma once

#include "engine/kernels/tuned_gemm.h"

namespace rankyard::kernels {
namespace {

/// Σ f(i, part) over a row; f returns a vector whose lanes beyond the row are zero.
template<typename T, typename F>
RY_INLINE AccOf<T> rowSum(i64 count, F f)
{
    VecOf<T> one{}, two{};
    constexpr i64 lanes = lanesOf<T>;
    i64 i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
        one += f(i, Whole{});
        two += f(i + lanes, Whole{});
    }
    for (; i + lanes <= count; i += lanes)
        one += f(i, Whole{});
    AccOf<T> total = sum(one + two);
    if (i < count) {
        const VecOf<T> rest = f(i, Part{count - i});
        for (i64 l = 0; l < count - i; ++l)
            total += rest[l];
    }
    return total;
}

template<typename T>
void geluForward(const void *u, void *a, i64 count)
{
    const T *from = static_cast<const T *>(u);
    T *to = static_cast<T *>(a);
    forLanes<T>(count, [&](i64 i, auto part) { part.put(to + i, geluOf(part.get(from + i))); });
}

/// Derivative of u·σ(2z): σ + u·σ·(1 − σ)·2z'.
template<typename V>
RY_INLINE V geluSlope(V u)
{
    using A = ElementOf<V>;
    constexpr A one = static_cast<A>(1.5957691216057308), cube = static_cast<A>(0.07135481627260025);
    const V square = u * u;
    const V sigma = static_cast<A>(1) / (exponential(-u * (square * cube + one)) + static_cast<A>(1));
    // Where σ(1 − σ) is 0 the factor before it may be infinite.
    const V bend = sigma * (static_cast<A>(1) - sigma) * (square * (3 * cube) + one) * u;
    return sigma + bend;
}

template<typename T>
void geluBackward(void *da, const void *u, void *db, i64 rows, i64 width)
{
    AccOf<T> *bias = static_cast<AccOf<T> *>(db);
    for (i64 r = 0; r < rows; ++r) {
        T *grad = static_cast<T *>(da) + r * width;
        const T *from = static_cast<const T *>(u) + r * width;
        forLanes<T>(width, [&](i64 i, auto part) {
            const VecOf<T> value = part.get(grad + i) * geluSlope(part.get(from + i));
            part.put(grad + i, value);
            part.put(bias + i, part.get(bias + i) + value);
        });
    }
}

/// silu(gate)·up (Shazeer 2020); a row of u is the gates, then the ups.
template<typename T>
void swigluForward(const void *u, void *a, i64 rows, i64 width)
{
    for (i64 r = 0; r < rows; ++r) {
        const T *gate = static_cast<const T *>(u) + r * 2 * width, *up = gate + width;
        T *to = static_cast<T *>(a) + r * width;
        forLanes<T>(width, [&](i64 i, auto part) {
            const VecOf<T> g = part.get(gate + i);
            part.put(to + i, g / (exponential(-g) + static_cast<AccOf<T>>(1)) * part.get(up + i));
        });
    }
}

/// du may be u.
template<typename T>
void swigluBackward(const void *da, const void *u, void *du, i64 rows, i64 width)
{
    constexpr AccOf<T> one = 1;
    for (i64 r = 0; r < rows; ++r) {
        const T *gate = static_cast<const T *>(u) + r * 2 * width, *up = gate + width;
        const T *grad = static_cast<const T *>(da) + r * width;
        T *dGate = static_cast<T *>(du) + r * 2 * width, *dUp = dGate + width;
        forLanes<T>(width, [&](i64 i, auto part) {
            const VecOf<T> g = part.get(gate + i), d = part.get(grad + i), value = part.get(up + i);
            const VecOf<T> sigma = one / (exponential(-g) + one);
            part.put(dUp + i, d * g * sigma);
            part.put(dGate + i, d * value * sigma * (g * (one - sigma) + one));
        });
    }
}

/// Pairs (i, i + size/2) of every head turned by the angle of the row's position (Su et al. 2021, in halves as Hugging Face
/// stores it). table [positions, size]: cosines, then sines.
template<typename T>
void rotate(void *x, i64 ld, const void *table, const std::int32_t *position, i64 rows, i64 heads, i64 size,
            bool back)
{
    using A = AccOf<T>;
    const i64 half = size / 2;
    const A turn = back ? -1 : 1;
    for (i64 r = 0; r < rows; ++r) {
        const A *cosine = static_cast<const A *>(table) + position[r] * size, *sine = cosine + half;
        for (i64 h = 0; h < heads; ++h) {
            T *low = static_cast<T *>(x) + r * ld + h * size, *high = low + half;
            forLanes<T>(half, [&](i64 i, auto part) {
                const VecOf<T> a = part.get(low + i), b = part.get(high + i), c = part.get(cosine + i),
                               s = part.get(sine + i) * turn;
                part.put(low + i, a * c - b * s);
                part.put(high + i, b * c + a * s);
            });
        }
    }
}

template<typename T>
void columnSum(const void *x, i64 ld, i64 rows, i64 width, void *out)
{
    const T *from = static_cast<const T *>(x);
    AccOf<T> *to = static_cast<AccOf<T> *>(out);
    constexpr i64 block = 8; // rows a visit to the sums
    i64 r = 0;
    for (; r + block <= rows; r += block) {
        const T *row = from + r * ld;
        forLanes<T>(width, [&](i64 i, auto part) {
            VecOf<T> total = part.get(row + i);
#pragma GCC unroll 8
            for (i64 k = 1; k < block; ++k)
                total += part.get(row + k * ld + i);
            part.put(to + i, part.get(to + i) + total);
        });
    }
    for (; r < rows; ++r)
        forLanes<T>(width, [&](i64 i, auto part) {
            part.put(to + i, part.get(to + i) + part.get(from + r * ld + i));
        });
}

/// y += x [+ b]
template<typename T>
void join(const void *x, void *y, const void *b, i64 rows, i64 width)
{
    const T *bias = static_cast<const T *>(b);
    for (i64 r = 0; r < rows; ++r) {
        const T *from = static_cast<const T *>(x) + r * width;
        T *to = static_cast<T *>(y) + r * width;
        forLanes<T>(width, [&](i64 i, auto part) {
            VecOf<T> value = part.get(to + i) + part.get(from + i);
            if (bias)
                value += part.get(bias + i);
            part.put(to + i, value);
        });
    }
}

/// Rows of the table from `first` on; others are zeros.
template<typename T>
void lookup(const std::int32_t *index, const void *table, i64 first, i64 count, void *x, i64 rows, i64 width)
{
    for (i64 r = 0; r < rows; ++r) {
        T *to = static_cast<T *>(x) + r * width;
        const i64 row = index[r] - first;
        if (row >= 0 && row < count)
            std::memcpy(to, static_cast<const T *>(table) + row * width, width * sizeof(T));
        else
            std::memset(to, 0, width * sizeof(T));
    }
}

template<typename T>
void addPositions(void *x, const void *table, const std::int32_t *position, i64 rows, i64 width)
{
    for (i64 r = 0; r < rows; ++r) {
        const T *from = static_cast<const T *>(table) + position[r] * width;
        T *to = static_cast<T *>(x) + r * width;
        forLanes<T>(width,
                    [&](i64 i, auto part) { part.put(to + i, part.get(to + i) + part.get(from + i)); });
    }
}

template<typename A>
void exponentialOf(const void *x, void *y, i64 count)
{
    forLanes<A>(count, [&](i64 i, auto part) {
        part.put(static_cast<A *>(y) + i, exponential(part.get(static_cast<const A *>(x) + i)));
    });
}

} // namespace
} // namespace rankyard::kernels
