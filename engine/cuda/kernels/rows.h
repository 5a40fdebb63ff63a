// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels that look at every element once: activations, rotary positions, joins, dropout, embedding. kernel_table.h says what
// each of them computes.
#pragma once

#include "engine/cuda/kernels/launch.h"

namespace rankyard::cuda {

/// gelu_tanh(u) = u·σ(2z), z = √(2/π)·(u + 0.044715·u³) (Hendrycks & Gimpel 2016).
template<typename A>
RY_DEVICE A geluOf(A u)
{
    constexpr A one = static_cast<A>(1.5957691216057308), cube = static_cast<A>(0.07135481627260025);
    return u / (exponential(-u * (u * u * cube + one)) + static_cast<A>(1));
}

/// Its derivative: σ + u·σ·(1 − σ)·2z'.
template<typename A>
RY_DEVICE A geluSlope(A u)
{
    constexpr A one = static_cast<A>(1.5957691216057308), cube = static_cast<A>(0.07135481627260025);
    const A square = u * u;
    const A sigma = static_cast<A>(1) / (exponential(-u * (square * cube + one)) + static_cast<A>(1));
    // Where σ(1 − σ) is 0 the factor before it may be infinite.
    return sigma + sigma * (static_cast<A>(1) - sigma) * (square * (3 * cube) + one) * u;
}

template<typename T>
struct GeluForward {
    const T *u;
    T *a;
    RY_DEVICE void operator()(i64 i) const { narrow(geluOf(widen(u[i])), a[i]); }
};
template<typename T>
void geluForward(const void *u, void *a, i64 count)
{
    forEach(count, GeluForward<T>{static_cast<const T *>(u), static_cast<T *>(a)});
}

template<typename T>
struct SwigluForward {
    const T *u;
    T *a;
    i64 width;
    RY_DEVICE void operator()(i64 i) const
    {
        const T *gate = u + i / width * 2 * width + i % width;
        const AccOf<T> g = widen(gate[0]);
        narrow(g / (exponential(-g) + 1) * widen(gate[width]), a[i]);
    }
};
template<typename T>
void swigluForward(const void *u, void *a, i64 rows, i64 width)
{
    forEach(rows * width, SwigluForward<T>{static_cast<const T *>(u), static_cast<T *>(a), width});
}

template<typename T>
struct SwigluBackward {
    const T *da, *u;
    T *du;
    i64 width;
    RY_DEVICE void operator()(i64 i) const
    {
        using A = AccOf<T>;
        const i64 at = i / width * 2 * width + i % width;
        const A g = widen(u[at]), up = widen(u[at + width]), d = widen(da[i]);
        const A sigma = 1 / (exponential(-g) + 1);
        narrow(d * up * sigma * (g * (1 - sigma) + 1), du[at]);
        narrow(d * g * sigma, du[at + width]);
    }
};
template<typename T>
void swigluBackward(const void *da, const void *u, void *du, i64 rows, i64 width)
{
    forEach(rows * width,
            SwigluBackward<T>{static_cast<const T *>(da), static_cast<const T *>(u), static_cast<T *>(du),
                              width});
}

/// A pair of a head each.
template<typename T>
struct Rotate {
    T *x;
    i64 ld;
    const AccOf<T> *table;
    const std::int32_t *position;
    i64 heads, size;
    AccOf<T> turn;
    RY_DEVICE void operator()(i64 index) const
    {
        using A = AccOf<T>;
        const i64 half = size / 2, i = index % half, head = index / half % heads, row = index / half / heads;
        const A *angles = table + position[row] * size;
        const A c = angles[i], s = angles[half + i] * turn;
        T *low = x + row * ld + head * size + i;
        const A a = widen(low[0]), b = widen(low[half]);
        narrow(a * c - b * s, low[0]);
        narrow(b * c + a * s, low[half]);
    }
};
template<typename T>
void rotate(void *x, i64 ld, const void *table, const std::int32_t *position, i64 rows, i64 heads, i64 size,
            bool back)
{
    forEach(rows * heads * (size / 2),
            Rotate<T>{static_cast<T *>(x), ld, static_cast<const AccOf<T> *>(table), position, heads, size,
                      static_cast<AccOf<T>>(back ? -1 : 1)});
}

/// Four features of a row: what one block of Philox decides about.
template<typename T>
struct DropRows {
    kernels::Dropout d;
    const T *x, *bias, *residual;
    T *y;
    i64 width, quads;
    RY_DEVICE void operator()(i64 index) const
    {
        using A = AccOf<T>;
        const i64 row = index / quads, quad = index % quads;
        const Draws draws =
            dropDraws(d, static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(d.position[row]),
                      static_cast<std::uint32_t>(d.sample[row] + d.firstSample), d.purpose);
        for (i64 i = 4 * quad; i < smaller(4 * quad + 4, width); ++i) {
            const i64 at = row * width + i;
            A value = widen(x[at]);
            if (bias)
                value += widen(bias[i]);
            value *= draws.word[i % 4] >= d.threshold ? static_cast<A>(d.scale) : 0;
            if (residual)
                value += widen(residual[at]);
            narrow(value, y[at]);
        }
    }
};
template<typename T>
void dropRows(const kernels::Dropout &d, const void *x, const void *b, const void *residual, void *y,
              i64 rows, i64 width)
{
    const i64 quads = (width + 3) / 4;
    forEach(rows * quads,
            DropRows<T>{d, static_cast<const T *>(x), static_cast<const T *>(b),
                        static_cast<const T *>(residual), static_cast<T *>(y), width, quads});
}

template<typename T>
struct Join {
    const T *x, *bias;
    T *y;
    i64 width;
    RY_DEVICE void operator()(i64 i) const
    {
        AccOf<T> value = widen(y[i]) + widen(x[i]);
        if (bias)
            value += widen(bias[i % width]);
        narrow(value, y[i]);
    }
};
template<typename T>
void join(const void *x, void *y, const void *b, i64 rows, i64 width)
{
    forEach(rows * width,
            Join<T>{static_cast<const T *>(x), static_cast<const T *>(b), static_cast<T *>(y), width});
}

template<typename T>
struct Lookup {
    const std::int32_t *index;
    const T *table;
    i64 first, count;
    T *x;
    i64 width;
    RY_DEVICE void operator()(i64 i) const
    {
        const i64 row = index[i / width] - first;
        x[i] = row >= 0 && row < count ? table[row * width + i % width] : T{};
    }
};
template<typename T>
void lookup(const std::int32_t *index, const void *table, i64 first, i64 count, void *x, i64 rows, i64 width)
{
    forEach(rows * width,
            Lookup<T>{index, static_cast<const T *>(table), first, count, static_cast<T *>(x), width});
}

template<typename T>
struct AddPositions {
    T *x;
    const T *table;
    const std::int32_t *position;
    i64 width;
    RY_DEVICE void operator()(i64 i) const
    {
        narrow(widen(x[i]) + widen(table[position[i / width] * width + i % width]), x[i]);
    }
};
template<typename T>
void addPositions(void *x, const void *table, const std::int32_t *position, i64 rows, i64 width)
{
    forEach(rows * width,
            AddPositions<T>{static_cast<T *>(x), static_cast<const T *>(table), position, width});
}

template<typename A>
struct Exponential {
    const A *x;
    A *y;
    RY_DEVICE void operator()(i64 i) const { y[i] = exponential(x[i]); }
};
template<typename A>
void exponentialOf(const void *x, void *y, i64 count)
{
    forEach(count, Exponential<A>{static_cast<const A *>(x), static_cast<A *>(y)});
}

/// Every row of C is the bias: what the product is added to, so that each value is rounded once.
template<typename T, typename C>
struct SpreadBias {
    const T *bias;
    C *c;
    i64 n, ldc;
    RY_DEVICE void operator()(i64 i) const { narrow(widen(bias[i % n]), c[i / n * ldc + i % n]); }
};
template<typename T, typename C>
struct GeluOfProduct {
    const C *c;
    T *a;
    i64 n, ldc;
    RY_DEVICE void operator()(i64 i) const
    {
        const i64 at = i / n * ldc + i % n;
        narrow(geluOf(widen(c[at])), a[at]);
    }
};

template<typename T>
struct NumberOf;
template<>
struct NumberOf<float> {
    static constexpr Number value = Number::F32;
};
template<>
struct NumberOf<double> {
    static constexpr Number value = Number::F64;
};
template<>
struct NumberOf<Bf16> {
    static constexpr Number value = Number::Bf16;
};
template<>
struct NumberOf<Half> {
    static constexpr Number value = Number::Half;
};

template<typename T, typename C>
void gemmInto(const kernels::Gemm &g)
{
    kernels::Gemm product = g;
    if (g.bias) {
        forEach(g.m * g.n,
                SpreadBias<T, C>{static_cast<const T *>(g.bias), static_cast<C *>(g.c), g.n, g.ldc});
        product.accumulate = true;
    }
    product.bias = product.gelu = nullptr;
    startProduct(product, NumberOf<T>::value);
    if (g.gelu)
        forEach(g.m * g.n,
                GeluOfProduct<T, C>{static_cast<const C *>(g.c), static_cast<T *>(g.gelu), g.n, g.ldc});
}
template<typename T>
void gemm(const kernels::Gemm &g)
{
    if (g.wide)
        gemmInto<T, AccOf<T>>(g);
    else
        gemmInto<T, T>(g);
}

} // namespace rankyard::cuda
