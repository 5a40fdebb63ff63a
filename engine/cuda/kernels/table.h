// SPDX-License-Identifier: GPL-3.0-or-later
// The tables of a GPU: what a call of the CPU's computes, these start on the current queue.
#pragma once

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/gradients.h"

namespace rankyard::cuda {

template<typename T>
kernels::KernelTable makeTable()
{
    using A = AccOf<T>;
    kernels::KernelTable t{};
    t.gemmScratch = [](const kernels::Gemm &) { return i64(0); };
    t.gemm = gemm<T>;
    t.attentionScratch = attentionScratch<T>;
    t.attentionForward = attentionForward<T>;
    t.attentionBackward = attentionBackward<T>;
    t.normForward[kernels::Layer] = normForward<T, true>;
    t.normForward[kernels::Rms] = normForward<T, false>;
    t.normBackward[kernels::Layer] = normBackward<T, true>;
    t.normBackward[kernels::Rms] = normBackward<T, false>;
    t.geluForward = geluForward<T>;
    t.geluBackward = geluBackward<T>;
    t.swigluForward = swigluForward<T>;
    t.swigluBackward = swigluBackward<T>;
    t.rotate = rotate<T>;
    t.dropRows = dropRows<T>;
    t.columnSum = columnSum<T>;
    t.join = join<T>;
    t.lookup = lookup<T>;
    t.addPositions = addPositions<T>;
    t.softmaxLoss = softmaxLoss<T>;
    t.lossStatistics = lossStatistics<T>;
    t.lossMerge = lossMerge<T>;
    t.exponential = exponentialOf<A>;
    t.writeGradient[kernels::Wide] = writeGradient<A>;
    t.writeGradient[kernels::Same] = writeGradient<T>;
    t.scatterAdd[kernels::Wide] = scatterAdd<T, A>;
    t.scatterAdd[kernels::Same] = scatterAdd<T, T>;
    t.sumByPosition[kernels::Wide] = sumByPosition<T, A>;
    t.sumByPosition[kernels::Same] = sumByPosition<T, T>;
    t.sumSquares[kernels::Wide] = sumSquares<A>;
    t.sumSquares[kernels::Same] = sumSquares<T>;
    t.adam[kernels::Wide] = adam<T, A, A>;
    t.adam[kernels::Same] = adam<T, T, A>;
    return t;
}

} // namespace rankyard::cuda
