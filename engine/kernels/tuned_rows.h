// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels that go over rows once: norm, GELU, sums of columns, embedding, softmax with the loss.
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
void normForward(const void *x, const void *w, const void *b, void *n, void *stats, i64 rows, i64 width,
                 double eps)
{
    using A = AccOf<T>;
    const T *weight = static_cast<const T *>(w), *bias = static_cast<const T *>(b);
    for (i64 r = 0; r < rows; ++r) {
        const T *from = static_cast<const T *>(x) + r * width;
        T *to = static_cast<T *>(n) + r * width;
        const A mean =
            rowSum<T>(width, [&](i64 i, auto part) { return part.get(from + i); }) / static_cast<A>(width);
        const A square = rowSum<T>(width, [&](i64 i, auto part) {
            const VecOf<T> d = part.get(from + i) - mean;
            return d * d;
        });
        const A scale =
            1 / static_cast<A>(std::sqrt(static_cast<double>(square) / static_cast<double>(width) + eps));
        forLanes<T>(width, [&](i64 i, auto part) {
            part.put(to + i, (part.get(from + i) - mean) * scale * part.get(weight + i) + part.get(bias + i));
        });
        static_cast<A *>(stats)[2 * r] = mean;
        static_cast<A *>(stats)[2 * r + 1] = scale;
    }
}

template<typename T>
void normBackward(void *dn, const void *x, const void *stats, const void *w, const void *dx, void *dw,
                  void *db, i64 rows, i64 width)
{
    using A = AccOf<T>;
    const T *weight = static_cast<const T *>(w);
    A *dWeight = static_cast<A *>(dw), *dBias = static_cast<A *>(db);
    for (i64 r = 0; r < rows; ++r) {
        const T *from = static_cast<const T *>(x) + r * width;
        const T *residual = dx ? static_cast<const T *>(dx) + r * width : nullptr;
        T *grad = static_cast<T *>(dn) + r * width;
        const A mean = static_cast<const A *>(stats)[2 * r], scale = static_cast<const A *>(stats)[2 * r + 1];
        VecOf<T> sumVec{}, dotVec{};
        A sumTail = 0, dotTail = 0;
        forLanes<T>(width, [&](i64 i, auto part) {
            const VecOf<T> g = part.get(grad + i), hat = (part.get(from + i) - mean) * scale;
            part.put(dWeight + i, part.get(dWeight + i) + g * hat);
            part.put(dBias + i, part.get(dBias + i) + g);
            const VecOf<T> scaled = g * part.get(weight + i);
            if constexpr (sizeof(part) == sizeof(Whole)) {
                sumVec += scaled;
                dotVec += scaled * hat;
            } else {
                for (i64 l = 0; l < width - i; ++l) {
                    sumTail += scaled[l];
                    dotTail += scaled[l] * hat[l];
                }
            }
        });
        const A mid = (sum(sumVec) + sumTail) / static_cast<A>(width),
                slope = (sum(dotVec) + dotTail) / static_cast<A>(width);
        forLanes<T>(width, [&](i64 i, auto part) {
            const VecOf<T> hat = (part.get(from + i) - mean) * scale;
            VecOf<T> value = (part.get(grad + i) * part.get(weight + i) - mid - hat * slope) * scale;
            if (residual)
                value += part.get(residual + i);
            part.put(grad + i, value);
        });
    }
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

template<typename T>
void join(const void *x, void *y, const void *b, i64 rows, i64 width)
{
    const T *bias = static_cast<const T *>(b);
    for (i64 r = 0; r < rows; ++r) {
        const T *from = static_cast<const T *>(x) + r * width;
        T *to = static_cast<T *>(y) + r * width;
        forLanes<T>(width, [&](i64 i, auto part) {
            part.put(to + i, part.get(to + i) + part.get(from + i) + part.get(bias + i));
        });
    }
}

template<typename T>
void lookup(const std::int32_t *index, const void *table, void *x, i64 rows, i64 width)
{
    for (i64 r = 0; r < rows; ++r)
        std::memcpy(static_cast<T *>(x) + r * width, static_cast<const T *>(table) + index[r] * width,
                    width * sizeof(T));
}

template<typename T>
void addPositions(void *x, const void *table, i64 first, i64 period, i64 rows, i64 width)
{
    for (i64 r = 0; r < rows; ++r) {
        const T *from = static_cast<const T *>(table) + (first + r) % period * width;
        T *to = static_cast<T *>(x) + r * width;
        forLanes<T>(width,
                    [&](i64 i, auto part) { part.put(to + i, part.get(to + i) + part.get(from + i)); });
    }
}

/// One row: logits l → loss and, in place, (softmax − onehot)·scale as T from the row's beginning.
template<typename T, typename L>
AccOf<T> softmaxLossRow(L *logits, i64 vocab, std::int32_t label, bool backward, AccOf<T> scale)
{
    using A = AccOf<T>;
    constexpr i64 lanes = lanesOf<T>;
    T *grads = reinterpret_cast<T *>(logits);
    if (label < 0) {
        if (backward)
            std::memset(grads, 0, vocab * sizeof(T));
        return 0;
    }
    VecOf<T> best = splat<T>(-__builtin_inff());
    A top = -__builtin_inff();
    i64 j = 0;
    for (; j + lanes <= vocab; j += lanes)
        best = maximum(best, load(logits + j));
    for (; j < vocab; ++j)
        top = larger<A>(top, widen(logits[j]));
    top = larger(top, largest(best));
    const A target = widen(logits[label]);
    // In place the T values never overtake the logits that are still to be read: sizeof(T) ≤ sizeof(L).
    const A total = rowSum<T>(vocab, [&](i64 i, auto part) {
        const VecOf<T> e = exponential(part.get(logits + i) - top);
        if (backward && sizeof(T) == sizeof(A))
            part.put(reinterpret_cast<A *>(logits) + i, e);
        return e;
    });
    const A logTotal = static_cast<A>(std::log(static_cast<double>(total)));
    if (backward) {
        const A factor = scale / total;
        forLanes<T>(vocab, [&](i64 i, auto part) {
            VecOf<T> e;
            if constexpr (sizeof(T) == sizeof(A))
                e = part.get(reinterpret_cast<A *>(logits) + i);
            else
                e = exponential(part.get(logits + i) - top);
            part.put(grads + i, e * factor);
        });
        narrow((static_cast<A>(std::exp(static_cast<double>(target - top))) / total - 1) * scale,
               grads[label]);
    }
    return logTotal - (target - top);
}

template<typename T>
double softmaxLoss(const SoftmaxLoss &s)
{
    double loss = 0;
    for (i64 r = 0; r < s.rows; ++r) {
        if (s.wide)
            loss += softmaxLossRow<T>(static_cast<AccOf<T> *>(s.logits) + r * s.ld, s.vocab, s.labels[r],
                                      s.backward, static_cast<AccOf<T>>(s.scale));
        else
            loss += softmaxLossRow<T>(static_cast<T *>(s.logits) + r * s.ld, s.vocab, s.labels[r], s.backward,
                                      static_cast<AccOf<T>>(s.scale));
    }
    return loss;
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
