// SPDX-License-Identifier: GPL-3.0-or-later
// Vectors of RY_VECTOR_BYTES bytes by GCC's vector extension. Included once by each tuned_*.cpp, all in an unnamed namespace:
// nothing here may be shared between files of different instruction sets, so no templates of the standard library.
#pragma once

#include "engine/kernels/kernel_table.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#if RY_VECTOR_BYTES >= 32
#include <immintrin.h>
#endif

#define RY_INLINE inline __attribute__((always_inline))

namespace rankyard::kernels {
namespace {

using i64 = std::int64_t;
constexpr int vectorBytes = RY_VECTOR_BYTES;

typedef float VecF __attribute__((vector_size(RY_VECTOR_BYTES), may_alias));
typedef double VecD __attribute__((vector_size(RY_VECTOR_BYTES), may_alias));
typedef std::uint32_t VecU __attribute__((vector_size(RY_VECTOR_BYTES), may_alias));
typedef std::int32_t VecI __attribute__((vector_size(RY_VECTOR_BYTES), may_alias));
typedef std::int64_t VecL __attribute__((vector_size(RY_VECTOR_BYTES), may_alias));
typedef float LooseF __attribute__((vector_size(RY_VECTOR_BYTES), aligned(4), may_alias));
typedef double LooseD __attribute__((vector_size(RY_VECTOR_BYTES), aligned(8), may_alias));
typedef std::uint32_t LooseU __attribute__((vector_size(RY_VECTOR_BYTES), aligned(2), may_alias));
typedef std::uint16_t LooseH __attribute__((vector_size(RY_VECTOR_BYTES / 2), aligned(2), may_alias));
typedef std::uint16_t VecH __attribute__((vector_size(RY_VECTOR_BYTES / 2), may_alias));

template<typename T>
struct Types;
template<>
struct Types<float> {
    using Acc = float;
    using Vec = VecF;
    using Mask = VecI;
};
template<>
struct Types<double> {
    using Acc = double;
    using Vec = VecD;
    using Mask = VecL;
};
template<>
struct Types<Bf16> {
    using Acc = float;
    using Vec = VecF;
    using Mask = VecI;
};
template<>
struct Types<Half> {
    using Acc = float;
    using Vec = VecF;
    using Mask = VecI;
};
template<typename T>
using AccOf = typename Types<T>::Acc;
template<typename T>
using VecOf = typename Types<T>::Vec;
template<typename T>
constexpr int lanesOf = vectorBytes / static_cast<int>(sizeof(AccOf<T>));

template<typename V>
using ElementOf = decltype(V{}[0] + 0);

template<typename T>
RY_INLINE T smaller(T a, T b)
{
    return b < a ? b : a;
}
template<typename T>
RY_INLINE T larger(T a, T b)
{
    return a < b ? b : a;
}
RY_INLINE i64 roundUp(i64 value, i64 step) { return (value + step - 1) / step * step; }

RY_INLINE float widen(Bf16 value)
{
    const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
    float result;
    __builtin_memcpy(&result, &bits, 4);
    return result;
}
/// A subnormal half becomes a normal float by a subtraction, since subnormal floats count as zeros (FlushSubnormals).
RY_INLINE float widen(Half value)
{
    const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13, exponent = magnitude & 0x0f800000u;
    const std::uint32_t bits = magnitude
        + (exponent == 0                 ? 113u
               : exponent == 0x0f800000u ? 224u
                                         : 112u)
            * 0x800000u;
    const std::uint32_t offset = exponent == 0 ? 113u << 23 : 0u;
    float result, shift;
    __builtin_memcpy(&result, &bits, 4);
    __builtin_memcpy(&shift, &offset, 4);
    result -= shift;
    return value.bits & 0x8000u ? -result : result;
}
RY_INLINE float widen(float value) { return value; }
RY_INLINE double widen(double value) { return value; }

/// To nearest, ties to even; NaN stays NaN.
RY_INLINE void narrow(float value, Bf16 &result)
{
    std::uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    bits = value != value ? 0x7fc00000u : bits + 0x7fffu + ((bits >> 16) & 1u);
    result.bits = static_cast<std::uint16_t>(bits >> 16);
}
/// To nearest, ties to even; too large becomes infinity (F. Giesen, "float->half variants", 2012, public domain).
RY_INLINE void narrow(float value, Half &result)
{
    std::uint32_t bits, tiny;
    __builtin_memcpy(&bits, &value, 4);
    const std::uint32_t sign = bits & 0x80000000u, size = bits ^ sign;
    const float shifted = (value < 0 ? -value : value) + 0.5f; // rounds at 2^-24
    __builtin_memcpy(&tiny, &shifted, 4);
    const std::uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    const std::uint32_t finite = size < 0x38800000u ? tiny - 0x3f000000u : normal;
    const std::uint32_t special = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    result.bits = static_cast<std::uint16_t>((size >= 0x47800000u ? special : finite) | sign >> 16);
}
RY_INLINE void narrow(float value, float &result) { result = value; }
RY_INLINE void narrow(double value, double &result) { result = value; }

RY_INLINE VecF load(const float *p) { return *reinterpret_cast<const LooseF *>(p); }
RY_INLINE VecD load(const double *p) { return *reinterpret_cast<const LooseD *>(p); }
RY_INLINE VecF load(const Bf16 *p)
{
    const VecU bits = __builtin_convertvector(*reinterpret_cast<const LooseH *>(p), VecU) << 16;
    return reinterpret_cast<VecF>(bits);
}
RY_INLINE VecF load(const Half *p)
{
#if RY_VECTOR_BYTES == 64
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
#elif RY_VECTOR_BYTES == 32
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
#else
    VecF result{};
    for (int i = 0; i < vectorBytes / 4; ++i)
        result[i] = widen(p[i]);
    return result;
#endif
}
RY_INLINE void store(float *p, VecF v) { *reinterpret_cast<LooseF *>(p) = v; }
RY_INLINE void store(double *p, VecD v) { *reinterpret_cast<LooseD *>(p) = v; }
RY_INLINE void store(Bf16 *p, VecF v)
{
#if RY_BF16
    const __m256bh narrowed = _mm512_cvtneps_pbh(v);
    __builtin_memcpy(p, &narrowed, sizeof narrowed);
    return;
#endif
    VecU bits = reinterpret_cast<VecU>(v);
    const VecU rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    bits = (v == v) ? rounded : VecU{} + 0x7fc00000u;
    *reinterpret_cast<LooseH *>(p) = __builtin_convertvector(bits >> 16, VecH);
}
RY_INLINE void store(Half *p, VecF v)
{
#if RY_VECTOR_BYTES == 64
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif RY_VECTOR_BYTES == 32
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < vectorBytes / 4; ++i)
        narrow(v[i], p[i]);
#endif
}
/// The first n lanes; the others are 0.
template<typename T>
RY_INLINE VecOf<T> loadPart(const T *p, i64 n)
{
    T lanes[lanesOf<T>] = {};
    for (i64 i = 0; i < n; ++i)
        lanes[i] = p[i];
    return load(lanes);
}
template<typename T>
RY_INLINE void storePart(T *p, VecOf<T> v, i64 n)
{
    T lanes[lanesOf<T>];
    store(lanes, v);
    for (i64 i = 0; i < n; ++i)
        p[i] = lanes[i];
}

/// Calls f(offset, load, store, count) for whole vectors, then for the rest: the body is written once.
struct Whole {
    template<typename T>
    RY_INLINE VecOf<T> get(const T *p) const
    {
        return load(p);
    }
    template<typename T>
    RY_INLINE void put(T *p, VecOf<T> v) const
    {
        store(p, v);
    }
};
struct Part {
    i64 count;
    template<typename T>
    RY_INLINE VecOf<T> get(const T *p) const
    {
        return loadPart(p, count);
    }
    template<typename T>
    RY_INLINE void put(T *p, VecOf<T> v) const
    {
        storePart(p, v, count);
    }
};
template<typename T, typename F>
RY_INLINE void forLanes(i64 count, F f)
{
    constexpr i64 lanes = lanesOf<T>;
    i64 i = 0;
    for (; i + lanes <= count; i += lanes)
        f(i, Whole{});
    if (i < count)
        f(i, Part{count - i});
}

template<typename T>
RY_INLINE VecOf<T> splat(AccOf<T> value)
{
    return VecOf<T>{} + value;
}
RY_INLINE float sum(VecF v)
{
#if RY_VECTOR_BYTES == 64
    return _mm512_reduce_add_ps(v);
#else
    float result = 0;
    for (int i = 0; i < lanesOf<float>; ++i)
        result += v[i];
    return result;
#endif
}
RY_INLINE double sum(VecD v)
{
    double result = 0;
    for (int i = 0; i < lanesOf<double>; ++i)
        result += v[i];
    return result;
}
RY_INLINE float largest(VecF v)
{
#if RY_VECTOR_BYTES == 64
    return _mm512_reduce_max_ps(v);
#else
    float result = v[0];
    for (int i = 1; i < lanesOf<float>; ++i)
        result = v[i] > result ? v[i] : result;
    return result;
#endif
}
RY_INLINE double largest(VecD v)
{
    double result = v[0];
    for (int i = 1; i < lanesOf<double>; ++i)
        result = v[i] > result ? v[i] : result;
    return result;
}
/// b where either is NaN.
RY_INLINE VecF maximum(VecF a, VecF b)
{
#if RY_VECTOR_BYTES == 64
    return _mm512_max_ps(a, b);
#else
    return a > b ? a : b;
#endif
}
RY_INLINE VecD maximum(VecD a, VecD b) { return a > b ? a : b; }

/// e^x. Cephes' expf: 2^n · p(r), |r| ≤ ln 2 / 2; within 2 ULP from -87 to 88.72 (a test). Far below: 0. Above: infinity. NaN
/// stays NaN.
RY_INLINE VecF exponential(VecF x)
{
    constexpr float shift = 12582912.0f; // adding it rounds to an integer, which then stands in the low bits
#if RY_VECTOR_BYTES == 64
    // The second operand wins when one is NaN.
    const VecF clamped = _mm512_min_ps(splat<float>(120.0f), _mm512_max_ps(splat<float>(-120.0f), x));
#else
    constexpr float low = -87.0f, high = 88.72283f;
    VecF clamped = x < low ? splat<float>(low) : x;
    clamped = clamped > high ? splat<float>(high) : clamped;
#endif
    const VecF shifted = clamped * 1.44269504088896341f + shift;
    const VecF n = shifted - shift;
    VecF r = clamped - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    VecF p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
#if RY_VECTOR_BYTES == 64
    return _mm512_scalef_ps(p, n); // rounds to 0 and infinity by itself
#else
    const VecI exponent = reinterpret_cast<VecI>(shifted) << 23;
    VecF result = reinterpret_cast<VecF>(reinterpret_cast<VecI>(p) + exponent);
    result = x < low ? VecF{} : result;
    result = x > high ? splat<float>(__builtin_inff()) : result;
    return x == x ? result : x;
#endif
}
RY_INLINE VecD exponential(VecD x)
{
    VecD result;
    for (int i = 0; i < lanesOf<double>; ++i)
        result[i] = ::exp(x[i]);
    return result;
}

} // namespace
} // namespace rankyard::kernels
