// SPDX-License-Identifier: GPL-3.0-or-later
// How operands of products are laid out for the micro kernel, and the copying into it.
#pragma once

#include "engine/kernels/tuned_simd.h"

namespace rankyard::kernels {
namespace {

#if RY_VECTOR_BYTES == 64
constexpr int maxRows = 14;
#else
constexpr int maxRows = 6;
#endif

/// What a step of k is in packed form.
template<typename T>
struct Packed {
    using Step = AccOf<T>;
    static constexpr int width = 1;
};
#if RY_BF16
struct Pair {
    std::uint32_t bits;
};
template<>
struct Packed<Bf16> {
    using Step = Pair;
    static constexpr int width = 2;
};
#endif
template<typename T>
using StepOf = typename Packed<T>::Step;
template<typename T>
constexpr bool sameWhenPacked = Packed<T>::width == 2 || sizeof(T) == sizeof(StepOf<T>);
template<typename T>
constexpr int panelColumns = 2 * lanesOf<T>;
template<typename T>
RY_INLINE i64 stepsOf(i64 k)
{
    return (k + Packed<T>::width - 1) / Packed<T>::width;
}

#if RY_BF16
RY_INLINE Pair makePair(Bf16 first, Bf16 second)
{
    return {static_cast<std::uint32_t>(first.bits) | static_cast<std::uint32_t>(second.bits) << 16};
}
#endif

#if RY_VECTOR_BYTES == 64
/// 16×16 words: out[k·outStride + r] = row r's word k.
RY_INLINE void transpose16(const char *source, i64 stride, char *out, i64 outStride)
{
    __m512i r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        r[i] = _mm512_loadu_si512(source + i * stride);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    // r[4g + c]: in 128-bit lane l, column 4l + c of rows 4g … 4g + 3.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                      b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd),
                      e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        _mm512_storeu_si512(out + c * outStride, _mm512_shuffle_i32x4(a, b, 0x88));
        _mm512_storeu_si512(out + (8 + c) * outStride, _mm512_shuffle_i32x4(a, b, 0xdd));
        _mm512_storeu_si512(out + (4 + c) * outStride, _mm512_shuffle_i32x4(d, e, 0x88));
        _mm512_storeu_si512(out + (12 + c) * outStride, _mm512_shuffle_i32x4(d, e, 0xdd));
    }
}
#endif

/// One panel of B for k = 0 … kc from b[k·ldb + j], j < columns; the missing columns and the odd k are zeros.
template<typename T>
void packStraight(const T *b, i64 ldb, i64 kc, i64 columns, StepOf<T> *out)
{
    constexpr int lanes = lanesOf<T>, width = panelColumns<T>;
    if constexpr (Packed<T>::width == 1) {
        for (i64 k = 0; k < kc; ++k, out += width) {
            const T *row = b + k * ldb;
            if (columns == width) {
                store(out, load(row));
                store(out + lanes, load(row + lanes));
            } else {
                for (i64 j = 0; j < width; ++j)
                    out[j] = j < columns ? widen(row[j]) : 0;
            }
        }
    } else {
#if RY_BF16
        for (i64 k = 0; k < kc; k += 2, out += width) {
            const T *row = b + k * ldb;
            const bool both = k + 1 < kc;
            if (columns == width) {
                for (int half = 0; half < 2; ++half) {
                    const T *p = row + half * lanes;
                    VecU pair = __builtin_convertvector(*reinterpret_cast<const LooseH *>(p), VecU);
                    if (both)
                        pair |= __builtin_convertvector(*reinterpret_cast<const LooseH *>(p + ldb), VecU)
                            << 16;
                    *reinterpret_cast<LooseU *>(out + half * lanes) = pair;
                }
            } else {
                for (i64 j = 0; j < width; ++j)
                    out[j] = j < columns ? makePair(row[j], both ? row[ldb + j] : Bf16{}) : Pair{};
            }
        }
#endif
    }
}

/// The same from b[j·ldb + k].
template<typename T>
void packTurned(const T *b, i64 ldb, i64 kc, i64 columns, StepOf<T> *out)
{
    constexpr int width = panelColumns<T>, step = Packed<T>::width;
    i64 k = 0;
#if RY_VECTOR_BYTES == 64
    if constexpr (sameWhenPacked<T> && sizeof(StepOf<T>) == 4) {
        if (columns == width) {
            for (; k + 16 * step <= kc; k += 16 * step) {
                char *to = reinterpret_cast<char *>(out + k / step * width);
                transpose16(reinterpret_cast<const char *>(b + k), ldb * sizeof(T), to, width * 4);
                transpose16(reinterpret_cast<const char *>(b + 16 * ldb + k), ldb * sizeof(T), to + 64,
                            width * 4);
            }
        }
    }
#endif
    for (; k < kc; k += step) {
        StepOf<T> *to = out + k / step * width;
        for (i64 j = 0; j < width; ++j) {
            if (j >= columns) {
                to[j] = StepOf<T>{};
                continue;
            }
            const T *p = b + j * ldb + k;
            if constexpr (step == 1) {
                to[j] = widen(*p);
            } else {
#if RY_BF16
                to[j] = makePair(p[0], k + 1 < kc ? p[1] : Bf16{});
#endif
            }
        }
    }
}

/// Rows of A for the k-major micro kernel, from a[k·lda + i]: out[step·rows + i]. `beyond`: elements behind the last row's
/// part that may be read. Whole vectors are copied, each over the end of the one before.
template<typename T>
void packColumns(const T *a, i64 lda, i64 kc, int rows, i64 beyond, StepOf<T> *out)
{
    constexpr int lanes = lanesOf<T>;
    const i64 end = (kc - 1) * lda + rows + beyond;
    if constexpr (Packed<T>::width == 1) {
        for (i64 k = 0; k < kc; ++k, out += rows) {
            const T *p = a + k * lda;
            if (lanes >= maxRows && k * lda + lanes <= end) {
                store(out, load(p));
            } else {
                for (int i = 0; i < rows; ++i)
                    out[i] = widen(p[i]);
            }
        }
    } else {
#if RY_BF16
        for (i64 k = 0; k < kc; k += 2, out += rows) {
            const T *p = a + k * lda;
            if ((k + 1) * lda + lanes <= end) {
                const VecU pair = __builtin_convertvector(*reinterpret_cast<const LooseH *>(p), VecU)
                    | __builtin_convertvector(*reinterpret_cast<const LooseH *>(p + lda), VecU) << 16;
                *reinterpret_cast<LooseU *>(out) = pair;
            } else {
                for (int i = 0; i < rows; ++i)
                    out[i] = makePair(p[i], k + 1 < kc ? p[lda + i] : Bf16{});
            }
        }
#endif
    }
}

/// Rows of A as they lie, widened or with an even number of k: out[i·stride + step].
template<typename T>
void packRows(const T *a, i64 lda, i64 kc, int rows, StepOf<T> *out, i64 stride)
{
    for (int i = 0; i < rows; ++i) {
        const T *p = a + i * lda;
        StepOf<T> *to = out + i * stride;
        if constexpr (Packed<T>::width == 1) {
            forLanes<T>(kc, [&](i64 k, auto lanes) { lanes.put(to + k, lanes.get(p + k)); });
        } else {
#if RY_BF16
            std::memcpy(to, p, kc * sizeof(T));
            if (kc % 2)
                to[kc / 2] = makePair(p[kc - 1], Bf16{});
#endif
        }
    }
}

} // namespace
} // namespace rankyard::kernels
