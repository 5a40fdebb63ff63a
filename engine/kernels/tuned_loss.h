// SPDX-License-Identifier: GPL-3.0-or-later
// Cross-entropy with the softmax's gradient in place: over a whole vocabulary, and over a rank's columns of it.
#pragma once

#include "engine/kernels/tuned_rows.h"

namespace rankyard::kernels {
namespace {

template<typename T, typename L>
AccOf<T> largestOf(const L *logits, i64 count)
{
    using A = AccOf<T>;
    constexpr i64 lanes = lanesOf<T>;
    VecOf<T> best = splat<T>(-__builtin_inff());
    A top = -__builtin_inff();
    i64 j = 0;
    for (; j + lanes <= count; j += lanes)
        best = maximum(best, load(logits + j));
    for (; j < count; ++j)
        top = larger<A>(top, widen(logits[j]));
    return larger(top, largest(best));
}

/// One row: logits l → loss and, in place, (softmax − onehot)·scale as T from the row's beginning.
template<typename T, typename L>
AccOf<T> softmaxLossRow(L *logits, i64 vocab, std::int32_t label, bool backward, AccOf<T> scale)
{
    using A = AccOf<T>;
    T *grads = reinterpret_cast<T *>(logits);
    if (label < 0) {
        if (backward)
            std::memset(grads, 0, vocab * sizeof(T));
        return 0;
    }
    const A top = largestOf<T>(logits, vocab);
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
void softmaxLoss(const SoftmaxLoss &s, double *sum)
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
    if (sum)
        *sum += loss;
}

template<typename T, typename L>
void lossStatisticsRow(const L *logits, i64 count, i64 label, AccOf<T> *out)
{
    using A = AccOf<T>;
    const A top = largestOf<T>(logits, count);
    out[0] = top;
    out[1] = rowSum<T>(count, [&](i64 i, auto part) { return exponential(part.get(logits + i) - top); });
    out[2] = label >= 0 && label < count ? static_cast<A>(widen(logits[label])) : 0;
}

template<typename T>
void lossStatistics(const ShardedLoss &s)
{
    for (i64 r = 0; r < s.rows; ++r) {
        AccOf<T> *out = static_cast<AccOf<T> *>(s.statistics) + 3 * r;
        const i64 label = s.labels[r] - s.firstColumn;
        if (s.wide)
            lossStatisticsRow<T>(static_cast<const AccOf<T> *>(s.logits) + r * s.ld, s.columns, label, out);
        else
            lossStatisticsRow<T>(static_cast<const T *>(s.logits) + r * s.ld, s.columns, label, out);
    }
}

/// In place as in softmaxLossRow: T values never overtake the logits that are still to be read.
template<typename T, typename L>
void lossGradientRow(L *logits, i64 count, i64 padded, i64 label, AccOf<T> logSum, AccOf<T> scale)
{
    using A = AccOf<T>;
    T *grads = reinterpret_cast<T *>(logits);
    const bool mine = label >= 0 && label < count;
    const A target = mine ? widen(logits[label]) : 0;
    forLanes<T>(count, [&](i64 i, auto part) {
        part.put(grads + i, exponential(part.get(logits + i) - logSum) * scale);
    });
    if (mine)
        narrow(
            static_cast<A>((std::exp(static_cast<double>(target - logSum)) - 1) * static_cast<double>(scale)),
            grads[label]);
    for (i64 i = count; i < padded; ++i)
        grads[i] = T{};
}

template<typename T>
void lossMerge(const ShardedLoss &s, double *sum)
{
    using A = AccOf<T>;
    const A *statistics = static_cast<const A *>(s.statistics);
    double loss = 0;
    for (i64 r = 0; r < s.rows; ++r) {
        const bool counts = s.labels[r] >= 0;
        A top = -__builtin_inff(), total = 0, target = 0;
        for (i64 p = 0; p < s.parts; ++p)
            top = larger(top, statistics[p * s.partStride + 3 * r]);
        for (i64 p = 0; p < s.parts; ++p) {
            const A *part = statistics + p * s.partStride + 3 * r;
            if (part[1] > 0 || part[1] != part[1]) // a rank with padding only has no largest logit
                total += part[1] * static_cast<A>(std::exp(static_cast<double>(part[0] - top)));
            target += part[2];
        }
        const A logSum = top + static_cast<A>(std::log(static_cast<double>(total)));
        loss += counts ? static_cast<double>(logSum - target) : 0;
        if (!s.backward)
            continue;
        const A scale = counts ? static_cast<A>(s.scale) : 0;
        const i64 label = s.labels[r] - s.firstColumn;
        if (!counts)
            std::memset(static_cast<char *>(s.logits) + r * s.ld * (s.wide ? sizeof(A) : sizeof(T)), 0,
                        s.padded * sizeof(T));
        else if (s.wide)
            lossGradientRow<T>(static_cast<A *>(s.logits) + r * s.ld, s.columns, s.padded, label, logSum,
                               scale);
        else
            lossGradientRow<T>(static_cast<T *>(s.logits) + r * s.ld, s.columns, s.padded, label, logSum,
                               scale);
    }
    if (sum)
        *sum += loss;
}

} // namespace
} // namespace rankyard::kernels
