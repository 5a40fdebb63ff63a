// SPDX-License-Identifier: GPL-3.0-or-later
// Norms of rows: LayerNorm (Ba, Kiros & Hinton 2016) and RMSNorm (Zhang & Sennrich 2019), which has no mean and no bias.
#pragma once

#include "engine/kernels/tuned_rows.h"

namespace rankyard::kernels {
namespace {

template<typename T, bool Centred>
void normForward(const void *x, const void *w, const void *b, void *n, void *stats, i64 rows, i64 width,
                 double eps)
{
    using A = AccOf<T>;
    const T *weight = static_cast<const T *>(w), *bias = static_cast<const T *>(b);
    for (i64 r = 0; r < rows; ++r) {
        const T *from = static_cast<const T *>(x) + r * width;
        T *to = static_cast<T *>(n) + r * width;
        A mean = 0;
        if constexpr (Centred)
            mean = rowSum<T>(width, [&](i64 i, auto part) { return part.get(from + i); })
                / static_cast<A>(width);
        const A square = rowSum<T>(width, [&](i64 i, auto part) {
            const VecOf<T> d = part.get(from + i) - mean;
            return d * d;
        });
        const A scale =
            1 / static_cast<A>(std::sqrt(static_cast<double>(square) / static_cast<double>(width) + eps));
        forLanes<T>(width, [&](i64 i, auto part) {
            VecOf<T> value = (part.get(from + i) - mean) * scale * part.get(weight + i);
            if constexpr (Centred)
                value += part.get(bias + i);
            part.put(to + i, value);
        });
        A *kept = static_cast<A *>(stats) + r * (Centred ? 2 : 1);
        if constexpr (Centred)
            *kept++ = mean;
        *kept = scale;
    }
}

template<typename T, bool Centred>
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
        const A *kept = static_cast<const A *>(stats) + r * (Centred ? 2 : 1);
        const A mean = Centred ? kept[0] : 0, scale = kept[Centred ? 1 : 0];
        VecOf<T> sumVec{}, dotVec{};
        A sumTail = 0, dotTail = 0;
        forLanes<T>(width, [&](i64 i, auto part) {
            const VecOf<T> g = part.get(grad + i), hat = (part.get(from + i) - mean) * scale;
            part.put(dWeight + i, part.get(dWeight + i) + g * hat);
            if constexpr (Centred)
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
        const A mid = Centred ? (sum(sumVec) + sumTail) / static_cast<A>(width) : 0,
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

} // namespace
} // namespace rankyard::kernels
