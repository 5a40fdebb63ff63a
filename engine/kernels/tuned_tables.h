// SPDX-License-Identifier: GPL-3.0-or-later
// The tables of one instruction set. Included by each tuned_*.cpp after RY_VECTOR_BYTES and RY_BF16.
#pragma once

#include "engine/kernels/tuned_attention.h"
#include "engine/kernels/tuned_gradients.h"
#include "engine/kernels/tuned_loss.h"
#include "engine/kernels/tuned_norms.h"

namespace rankyard::kernels {
namespace {

template<typename T>
constexpr KernelTable makeTable()
{
    using A = AccOf<T>;
    return KernelTable{
        .gemmScratch = gemmScratch<T>,
        .gemm = gemm<T>,
        .attentionScratch = attentionScratch<T>,
        .attentionForward = attentionForward<T>,
        .attentionBackward = attentionBackward<T>,
        .normForward = {normForward<T, true>, normForward<T, false>},
        .normBackward = {normBackward<T, true>, normBackward<T, false>},
        .geluForward = geluForward<T>,
        .geluBackward = geluBackward<T>,
        .swigluForward = swigluForward<T>,
        .swigluBackward = swigluBackward<T>,
        .rotate = rotate<T>,
        .dropRows = dropRows<T>,
        .columnSum = columnSum<T>,
        .join = join<T>,
        .lookup = lookup<T>,
        .addPositions = addPositions<T>,
        .softmaxLoss = softmaxLoss<T>,
        .lossStatistics = lossStatistics<T>,
        .lossMerge = lossMerge<T>,
        .exponential = exponentialOf<A>,
        .writeGradient = {writeGradient<A>, writeGradient<T>},
        .scatterAdd = {scatterAdd<T, A>, scatterAdd<T, T>},
        .sumByPosition = {sumByPosition<T, A>, sumByPosition<T, T>},
        .sumSquares = {sumSquares<A>, sumSquares<T>},
        .adam = {adam<T, A, A>, adam<T, T, A>},
    };
}

constexpr IsaTables makeTables()
{
    return {makeTable<float>(), makeTable<double>(), makeTable<Bf16>(), makeTable<Half>()};
}

} // namespace
} // namespace rankyard::kernels
