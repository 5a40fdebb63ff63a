// SPDX-License-Identifier: GPL-3.0-or-later
// Cross-entropy with the softmax's gradient in place: over a whole vocabulary, and over a rank's columns of it. A block a row.
#pragma once

#include "engine/cuda/kernels/sums.h"

namespace rankyard::cuda {

/// sum += Σ values, in one block.
struct AddTo {
    static constexpr bool cooperative = true;
    const double *values;
    i64 count, stride;
    double *sum;
    RY_DEVICE void operator()(Block &block) const
    {
        double total = 0;
        for (i64 i = block.thread(); i < count; i += block.threads())
            total += values[i * stride];
        total = overBlock(block, total, reinterpret_cast<double *>(block.shared()), Plus());
        if (block.thread() == 0)
            *sum += total;
    }
};
inline void addTo(const double *values, i64 count, i64 stride, double *sum)
{
    if (sum && count > 0)
        launch({1, 1, 1}, plainThreads, sharedFor<double>(plainThreads), AddTo{values, count, stride, sum});
}

template<typename A, typename L>
RY_DEVICE A largestOf(Block &block, const L *logits, i64 count, A *shared)
{
    A top = -infinity(A());
    for (i64 i = block.thread(); i < count; i += block.threads())
        top = larger<A>(top, widen(logits[i]));
    return overBlock(block, top, shared, Most());
}

template<typename A, typename L>
RY_DEVICE A sumOfExponentials(Block &block, const L *logits, i64 count, A top, A *shared)
{
    A total = 0;
    for (i64 i = block.thread(); i < count; i += block.threads())
        total += exponential(static_cast<A>(widen(logits[i])) - top);
    return overBlock(block, total, shared, Plus());
}

/// grads[i] = gradient(i, logits[i]) for i < count, zeros up to `padded`, where the grads begin where the logits begin and may be
/// narrower: what a round writes lies before all that later rounds read.
template<typename T, typename L, typename F>
RY_DEVICE void replaceRow(Block &block, L *logits, i64 count, i64 padded, F gradient)
{
    T *grads = reinterpret_cast<T *>(logits);
    for (i64 begin = 0; begin < padded; begin += block.threads()) {
        const i64 i = begin + block.thread();
        const L logit = i < count ? logits[i] : L{};
        block.sync();
        if (i < count)
            narrow(gradient(i, widen(logit)), grads[i]);
        else if (i < padded)
            grads[i] = T{};
    }
}

template<typename T, typename L>
struct SoftmaxLossRow {
    static constexpr bool cooperative = true;
    kernels::SoftmaxLoss s;
    double *losses; ///< [rows]
    RY_DEVICE void operator()(Block &block) const
    {
        using A = AccOf<T>;
        A *shared = reinterpret_cast<A *>(block.shared());
        L *logits = static_cast<L *>(s.logits) + block.x() * s.ld;
        const std::int32_t label = s.labels[block.x()];
        double loss = 0;
        if (label < 0) {
            if (s.backward)
                replaceRow<T>(block, logits, 0, s.vocab, [](i64, A) { return A(0); });
        } else {
            const A top = largestOf(block, logits, s.vocab, shared);
            const A target = widen(logits[label]);
            const A total = sumOfExponentials(block, logits, s.vocab, top, shared);
            loss = static_cast<double>(static_cast<A>(log(static_cast<double>(total))) - (target - top));
            const A scale = static_cast<A>(s.scale), factor = scale / total;
            if (s.backward)
                replaceRow<T>(block, logits, s.vocab, s.vocab, [&](i64 i, A logit) {
                    const A e = exponential(logit - top);
                    return i == label ? (e / total - 1) * scale : e * factor;
                });
        }
        if (block.thread() == 0)
            losses[block.x()] = loss;
    }
};
template<typename T, typename L>
void softmaxLossOf(const kernels::SoftmaxLoss &s, double *sum)
{
    double *losses = static_cast<double *>(partials(s.rows * static_cast<i64>(sizeof(double))));
    const int threads = threadsFor(s.vocab);
    launch({s.rows, 1, 1}, threads, sharedFor<AccOf<T>>(threads), SoftmaxLossRow<T, L>{s, losses});
    addTo(losses, s.rows, 1, sum);
}
template<typename T>
void softmaxLoss(const kernels::SoftmaxLoss &s, double *sum)
{
    if (s.wide)
        softmaxLossOf<T, AccOf<T>>(s, sum);
    else
        softmaxLossOf<T, T>(s, sum);
}

template<typename T, typename L>
struct LossStatistics {
    static constexpr bool cooperative = true;
    kernels::ShardedLoss s;
    RY_DEVICE void operator()(Block &block) const
    {
        using A = AccOf<T>;
        A *shared = reinterpret_cast<A *>(block.shared());
        const L *logits = static_cast<const L *>(s.logits) + block.x() * s.ld;
        const A top = largestOf(block, logits, s.columns, shared);
        const A total = sumOfExponentials(block, logits, s.columns, top, shared);
        if (block.thread() > 0)
            return;
        const i64 label = s.labels[block.x()] - s.firstColumn;
        A *out = static_cast<A *>(s.statistics) + 3 * block.x();
        out[0] = top;
        out[1] = total;
        out[2] = label >= 0 && label < s.columns ? static_cast<A>(widen(logits[label])) : 0;
    }
};
template<typename T>
void lossStatistics(const kernels::ShardedLoss &s)
{
    const int threads = threadsFor(s.columns > 0 ? s.columns : 1);
    const i64 shared = sharedFor<AccOf<T>>(threads);
    if (s.wide)
        launch({s.rows, 1, 1}, threads, shared, LossStatistics<T, AccOf<T>>{s});
    else
        launch({s.rows, 1, 1}, threads, shared, LossStatistics<T, T>{s});
}

template<typename T, typename L>
struct LossMerge {
    static constexpr bool cooperative = true;
    kernels::ShardedLoss s;
    double *losses; ///< [rows]
    RY_DEVICE void operator()(Block &block) const
    {
        using A = AccOf<T>;
        const A *statistics = static_cast<const A *>(s.statistics) + 3 * block.x();
        const bool counts = s.labels[block.x()] >= 0;
        A top = -infinity(A()), total = 0, target = 0;
        for (i64 p = 0; p < s.parts; ++p)
            top = larger(top, statistics[p * s.partStride]);
        for (i64 p = 0; p < s.parts; ++p) {
            const A *part = statistics + p * s.partStride;
            if (part[1] > 0 || part[1] != part[1]) // a rank with padding only has no largest logit
                total += part[1] * static_cast<A>(exp(static_cast<double>(part[0] - top)));
            target += part[2];
        }
        const A logSum = top + static_cast<A>(log(static_cast<double>(total)));
        if (block.thread() == 0)
            losses[block.x()] = counts ? static_cast<double>(logSum - target) : 0;
        if (!s.backward)
            return;
        const A scale = static_cast<A>(s.scale);
        const i64 label = s.labels[block.x()] - s.firstColumn;
        replaceRow<T>(block, static_cast<L *>(s.logits) + block.x() * s.ld, counts ? s.columns : 0, s.padded,
                      [&](i64 i, A logit) {
                          return i == label
                              ? static_cast<A>((exp(static_cast<double>(logit - logSum)) - 1) * s.scale)
                              : exponential(logit - logSum) * scale;
                      });
    }
};
template<typename T>
void lossMerge(const kernels::ShardedLoss &s, double *sum)
{
    double *losses = static_cast<double *>(partials(s.rows * static_cast<i64>(sizeof(double))));
    const int threads = s.backward ? threadsFor(s.padded) : warpSize;
    if (s.wide)
        launch({s.rows, 1, 1}, threads, 0, LossMerge<T, AccOf<T>>{s, losses});
    else
        launch({s.rows, 1, 1}, threads, 0, LossMerge<T, T>{s, losses});
    addTo(losses, s.rows, 1, sum);
}

} // namespace rankyard::cuda
