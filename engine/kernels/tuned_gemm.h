// SPDX-License-Identifier: GPL-3.0-or-later
// Matrix products. A panel of B (NR columns) is packed k-major and streams from the second-level cache; a block of MR rows of A
// is read where it lies, one broadcast a (row, k); MR × NR sums live in registers (Goto & van de Geijn 2008, with the roles of
// the caches as they suit wide vectors). Products of bf16 take two k a step by VDPBF16PS where there is one, else they are
// widened while packing.
#pragma once

#include "engine/kernels/tuned_pack.h"

namespace rankyard::kernels {
namespace {

RY_INLINE void multiplyAdd(VecF &sum, const char *a, VecF b)
{
    float value;
    __builtin_memcpy(&value, a, 4);
    sum += value * b;
}
RY_INLINE void multiplyAdd(VecD &sum, const char *a, VecD b)
{
    double value;
    __builtin_memcpy(&value, a, 8);
    sum += value * b;
}
#if RY_BF16
RY_INLINE void multiplyAdd(VecF &sum, const char *a, VecU b)
{
    int value;
    __builtin_memcpy(&value, a, 4);
    sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(value)),
                           reinterpret_cast<__m512bh>(b));
}
#endif
template<typename Step>
struct StepVec {
    using Sum = VecOf<Step>;
    using Type = VecOf<Step>;
    using Value = Step;
};
#if RY_BF16
template<>
struct StepVec<Pair> {
    using Sum = VecF;
    using Type = VecU;
    using Value = float;
};
#endif

enum class Start { Zero, Load, Bias };

/// c[R, 2 vectors] = start + Σ over `steps`. Rows: A(i,k) lies at a + i·stride + k·sizeof(Step); else at a + k·stride + i·sizeof.
template<typename Step, int R, bool Rows>
void micro(i64 steps, const char *a, i64 stride, const Step *b, typename StepVec<Step>::Value *c, i64 ldc,
           Start start, const typename StepVec<Step>::Value *bias)
{
    using Sum = typename StepVec<Step>::Sum;
    using Vec = typename StepVec<Step>::Type;
    constexpr int lanes = vectorBytes / sizeof(typename StepVec<Step>::Value);
    Sum sums[R][2];
    const Sum left0 = start == Start::Bias ? load(bias) : Sum{};
    const Sum right0 = start == Start::Bias ? load(bias + lanes) : Sum{};
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
        sums[i][0] = left0;
        sums[i][1] = right0;
        // C is touched at the end: by then its lines are here.
        __builtin_prefetch(c + i * ldc, 1);
        __builtin_prefetch(c + i * ldc + lanes, 1);
    }
    const Vec *panel = reinterpret_cast<const Vec *>(b);
    for (i64 k = 0; k < steps; ++k) {
        const Vec left = panel[0], right = panel[1];
        panel += 2;
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i) {
            const char *value = Rows ? a + i * stride : a + i * static_cast<i64>(sizeof(Step));
            multiplyAdd(sums[i][0], value, left);
            multiplyAdd(sums[i][1], value, right);
        }
        a += Rows ? static_cast<i64>(sizeof(Step)) : stride;
    }
    if (start == Start::Load) {
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i) {
            sums[i][0] += load(c + i * ldc);
            sums[i][1] += load(c + i * ldc + lanes);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
        store(c + i * ldc, sums[i][0]);
        store(c + i * ldc + lanes, sums[i][1]);
    }
}

/// micro for 1 … maxRows rows.
template<typename Step, bool Rows>
struct Micro {
    using Value = typename StepVec<Step>::Value;
    using Function = void (*)(i64, const char *, i64, const Step *, Value *, i64, Start, const Value *);
    static Function of(int rows)
    {
        static constexpr Function table[] = {
            micro<Step, 1, Rows>,
            micro<Step, 2, Rows>,
            micro<Step, 3, Rows>,
            micro<Step, 4, Rows>,
            micro<Step, 5, Rows>,
            micro<Step, 6, Rows>,
#if RY_VECTOR_BYTES == 64
            micro<Step, 7, Rows>,
            micro<Step, 8, Rows>,
            micro<Step, 9, Rows>,
            micro<Step, 10, Rows>,
            micro<Step, 11, Rows>,
            micro<Step, 12, Rows>,
            micro<Step, 13, Rows>,
            micro<Step, 14, Rows>,
#endif
        };
        return table[rows - 1];
    }
};

template<typename T>
struct GemmPlan {
    i64 kc, nc;   ///< block of B, which stays in the second-level cache
    bool packA;   ///< A is packed, `group` row blocks at a time
    bool partial; ///< sums over several blocks of k are kept apart from C
    i64 group;
    i64 panelStride; ///< of packed rows, in steps
    i64 bBytes, aBlock, aBytes, biasBytes, partialBytes;
};

/// The block of B that moves least: A is read once for every block of columns (and packed, where it has to be), C once or
/// written and read again for every block of k.
template<typename T>
void chooseBlocks(const Gemm &g, GemmPlan<T> &plan)
{
    constexpr i64 stepBytes = sizeof(StepOf<T>), nr = panelColumns<T>, width = Packed<T>::width;
    constexpr i64 cacheBytes = 448 << 10; // of 1 MiB
    const i64 columns = roundUp(larger<i64>(g.n, 1), nr);
    double least = 0;
    for (i64 passes = 1; passes == 1 || g.k > passes * 128 * width; ++passes) {
        const i64 kc = larger<i64>(roundUp((g.k + passes - 1) / passes, 2), 2);
        const i64 widest = cacheBytes / (stepsOf<T>(kc) * stepBytes) / nr * nr;
        if (widest == 0)
            continue;
        const i64 parts = (columns + widest - 1) / widest;
        const double moved =
            static_cast<double>(parts) * static_cast<double>(g.k) * sizeof(T) * (plan.packA ? 2.5 : 1)
            + static_cast<double>(2 * passes - 1) * static_cast<double>(g.n) * sizeof(AccOf<T>);
        if (least == 0 || moved < least) {
            least = moved;
            plan.kc = kc;
            plan.nc = smaller(widest, columns);
        }
    }
    if (least == 0) { // not even one panel of the shortest k fits
        plan.kc = 128 * width;
        plan.nc = nr;
    }
}

template<typename T>
GemmPlan<T> planGemm(const Gemm &g)
{
    constexpr i64 stepBytes = sizeof(StepOf<T>);
    GemmPlan<T> plan{};
    plan.packA = g.aTransposed || !sameWhenPacked<T> || (Packed<T>::width == 2 && g.k % 2)
        || g.lda * static_cast<i64>(sizeof(T)) % 4096 == 0;
    chooseBlocks(g, plan);
    plan.partial = plan.kc < g.k && !g.wide && sizeof(T) != sizeof(AccOf<T>);
    // Columns of A are far apart in memory: several row blocks are packed together, so that whole cache lines are used.
    plan.group = g.aTransposed ? 8 : 1;
    plan.panelStride = stepsOf<T>(plan.kc) + 64 / stepBytes;
    plan.bBytes = roundUp(plan.nc * stepsOf<T>(plan.kc) * stepBytes, 64);
    plan.aBlock = roundUp(maxRows * plan.panelStride * stepBytes + 64, 64);
    plan.aBytes = plan.packA ? plan.group * plan.aBlock : 0;
    plan.biasBytes = roundUp(plan.nc * sizeof(AccOf<T>), 64);
    plan.partialBytes = plan.partial ? roundUp(g.m * plan.nc * sizeof(AccOf<T>), 64) : 0;
    return plan;
}

template<typename T>
i64 gemmScratch(const Gemm &g)
{
    const GemmPlan<T> plan = planGemm<T>(g);
    return plan.bBytes + plan.aBytes + plan.biasBytes + plan.partialBytes;
}

/// gelu_tanh(u) = u·σ(2z), z = √(2/π)·(u + 0.044715·u³): the same function as with tanh, without its cancellation.
template<typename V>
RY_INLINE V geluOf(V u)
{
    using A = ElementOf<V>;
    const V twice = u * ((u * u) * static_cast<A>(0.07135481627260025) + static_cast<A>(1.5957691216057308));
    return u / (exponential(-twice) + static_cast<A>(1));
}

/// C (+)= a tile of sums, in C's type, then gelu.
template<typename T>
void finishTile(const AccOf<T> *tile, i64 ldTile, const Gemm &g, i64 row, i64 column, int rows, i64 columns,
                bool add)
{
    for (int i = 0; i < rows; ++i) {
        const AccOf<T> *from = tile + i * ldTile;
        const i64 at = (row + i) * g.ldc + column;
        const auto write = [&](auto *c) {
            forLanes<T>(columns, [&](i64 j, auto lanes) {
                auto value = lanes.get(from + j);
                if (add)
                    value += lanes.get(c + j);
                lanes.put(c + j, value);
            });
        };
        if (g.wide)
            write(static_cast<AccOf<T> *>(g.c) + at);
        else
            write(static_cast<T *>(g.c) + at);
    }
}

template<typename T>
void geluTile(const Gemm &g, i64 row, i64 column, int rows, i64 columns)
{
    for (int i = 0; i < rows; ++i) {
        const i64 at = (row + i) * g.ldc + column;
        const T *u = static_cast<const T *>(g.c) + at;
        T *a = static_cast<T *>(g.gelu) + at;
        forLanes<T>(columns, [&](i64 j, auto lanes) { lanes.put(a + j, geluOf(lanes.get(u + j))); });
    }
}

/// One row block of A against the packed block of B.
template<typename T>
struct RowBlock {
    const Gemm &g;
    const GemmPlan<T> &plan;
    const StepOf<T> *packedB;
    StepOf<T> *packedA;
    const AccOf<T> *bias;
    AccOf<T> *partial;
    i64 jc, nc, pc, kc;

    /// Row block i of the m rows.
    i64 blocks() const { return (g.m + maxRows - 1) / maxRows; }
    int rowsOf(i64 i) const { return static_cast<int>(g.m / blocks() + (i < g.m % blocks())); }

    StepOf<T> *packedBlock(i64 place) const
    {
        return packedA + place * (plan.aBlock / static_cast<i64>(sizeof(StepOf<T>)));
    }

    /// Packs row blocks first … first + count, which begin at `row`.
    void pack(i64 first, i64 count, i64 row) const
    {
        constexpr i64 strip = 32;
        const T *a = static_cast<const T *>(g.a);
        if (!g.aTransposed) {
            for (i64 i = 0; i < count; row += rowsOf(first + i++))
                packRows(a + row * g.lda + pc, g.lda, kc, rowsOf(first + i), packedBlock(i),
                         plan.panelStride);
            return;
        }
        for (i64 k = 0; k < kc; k += strip) {
            const T *from = a + (pc + k) * g.lda;
            for (i64 i = 0, r = row; i < count; ++i) {
                const int rows = rowsOf(first + i);
                packColumns(from + r, g.lda, smaller(strip, kc - k), rows, g.m - r - rows,
                            packedBlock(i) + k / Packed<T>::width * rows);
                r += rows;
            }
        }
    }

    void run(i64 row, int rows, i64 place) const
    {
        constexpr bool narrowC = sizeof(T) != sizeof(AccOf<T>);
        constexpr int nr = panelColumns<T>;
        const bool first = pc == 0, last = pc + kc >= g.k;
        const i64 steps = stepsOf<T>(kc);
        const auto bytes = static_cast<i64>(sizeof(StepOf<T>));
        const i64 stride = g.aTransposed ? rows * bytes
            : plan.packA                 ? plan.panelStride * bytes
                                         : g.lda * static_cast<i64>(sizeof(T));
        const char *a = plan.packA
            ? reinterpret_cast<const char *>(packedBlock(place))
            : reinterpret_cast<const char *>(static_cast<const T *>(g.a) + row * g.lda + pc);
        const auto kernel =
            g.aTransposed ? Micro<StepOf<T>, false>::of(rows) : Micro<StepOf<T>, true>::of(rows);
        alignas(64) AccOf<T> tile[maxRows * nr];
        for (i64 j = 0; j < nc; j += nr) {
            const i64 columns = smaller<i64>(nr, nc - j);
            const StepOf<T> *b = packedB + j * steps;
            const Start fresh = g.bias ? Start::Bias : Start::Zero;
            if (plan.partial) {
                AccOf<T> *sums = partial + row * plan.nc + j;
                kernel(steps, a, stride, b, sums, plan.nc, first ? fresh : Start::Load, bias + j);
                if (last)
                    finishTile<T>(sums, plan.nc, g, row, jc + j, rows, columns, g.accumulate);
            } else if (columns == nr && (g.wide || !narrowC)) {
                AccOf<T> *c = static_cast<AccOf<T> *>(g.c) + row * g.ldc + jc + j;
                kernel(steps, a, stride, b, c, g.ldc, first && !g.accumulate ? fresh : Start::Load, bias + j);
            } else {
                kernel(steps, a, stride, b, tile, nr, first ? fresh : Start::Zero, bias + j);
                finishTile<T>(tile, nr, g, row, jc + j, rows, columns, g.accumulate || !first);
            }
            if (last && g.gelu)
                geluTile<T>(g, row, jc + j, rows, columns);
        }
    }
};

template<typename T>
void packBlock(const Gemm &g, i64 pc, i64 kc, i64 jc, i64 nc, StepOf<T> *out)
{
    constexpr int nr = panelColumns<T>;
    const T *b = static_cast<const T *>(g.b);
    for (i64 j = 0; j < nc; j += nr, out += nr * stepsOf<T>(kc)) {
        const i64 columns = smaller<i64>(nr, nc - j);
        if (g.bTransposed)
            packTurned(b + (jc + j) * g.ldb + pc, g.ldb, kc, columns, out);
        else
            packStraight(b + pc * g.ldb + jc + j, g.ldb, kc, columns, out);
    }
}

template<typename T>
void gemm(const Gemm &g)
{
    constexpr double flopsPerPoll = 4e8;
    const GemmPlan<T> plan = planGemm<T>(g);
    char *scratch = static_cast<char *>(g.scratch);
    auto *packedB = reinterpret_cast<StepOf<T> *>(scratch);
    auto *packedA = reinterpret_cast<StepOf<T> *>(scratch + plan.bBytes);
    auto *bias = reinterpret_cast<AccOf<T> *>(scratch + plan.bBytes + plan.aBytes);
    auto *partial = reinterpret_cast<AccOf<T> *>(scratch + plan.bBytes + plan.aBytes + plan.biasBytes);
    const i64 parts = larger<i64>((g.n + plan.nc - 1) / plan.nc, 1);
    const i64 width = roundUp((g.n + parts - 1) / parts, panelColumns<T>); // even parts
    double flops = 0;
    for (i64 jc = 0; jc < g.n; jc += width) {
        const i64 nc = smaller(width, g.n - jc);
        if (g.bias) {
            for (i64 j = 0; j < width; ++j)
                bias[j] = j < nc ? widen(static_cast<const T *>(g.bias)[jc + j]) : 0;
        }
        for (i64 pc = 0; pc == 0 || pc < g.k; pc += plan.kc) {
            const i64 kc = smaller(plan.kc, g.k - pc);
            packBlock<T>(g, pc, kc, jc, nc, packedB);
            const RowBlock<T> block{g, plan, packedB, packedA, bias, partial, jc, nc, pc, kc};
            for (i64 i = 0, row = 0; i < block.blocks(); ++i) {
                const i64 place = i % plan.group;
                if (plan.packA && place == 0)
                    block.pack(i, smaller(plan.group, block.blocks() - i), row);
                block.run(row, block.rowsOf(i), place);
                row += block.rowsOf(i);
                flops += 2.0 * static_cast<double>(block.rowsOf(i) * nc * kc);
                if (g.poll && flops > flopsPerPoll) {
                    g.poll(g.pollContext);
                    flops = 0;
                }
            }
        }
    }
}

} // namespace
} // namespace rankyard::kernels
