// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/kernels/kernel_table.h"

namespace rankyard::cuda {

/// A product as a library of columns takes it (BLAS): C[m,n] (+)= op(first)[m,k] · op(second)[k,n], column by column; ld is the
/// distance of columns.
struct ColumnProduct {
    std::int64_t m = 0, n = 0, k = 0;
    const void *first = nullptr, *second = nullptr;
    std::int64_t ldFirst = 0, ldSecond = 0, ldc = 0;
    bool firstTransposed = false, secondTransposed = false;
};

/// Cᵀ = Bᵀ·Aᵀ, and a matrix of rows is its transpose in columns already.
inline ColumnProduct inColumns(const kernels::Gemm &g)
{
    return {g.n, g.m, g.k, g.b, g.a, g.ldb, g.lda, g.ldc, g.bTransposed, g.aTransposed};
}

} // namespace rankyard::cuda
