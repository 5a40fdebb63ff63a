// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/reduce.h"

#include "engine/base/float16.h"

#include <algorithm>
#include <cstring>

// The compiler makes one copy of each loop for every instruction set and the loader picks one. The
// sanitizers' run time is not up yet when the loader asks, so there is one copy under them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__)                                \
    && !defined(__SANITIZE_ADDRESS__)
#define RANKYARD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RANKYARD_CLONES
#endif
#define RANKYARD_INLINE inline __attribute__((always_inline))

namespace rankyard::comm {

namespace {

constexpr std::int64_t blockElements = 1024;

/// Plain types are accumulated as they are.
template<typename T>
struct Plain {
    using Stored = T;
    using Sum = T;
    static RANKYARD_INLINE T load(T value) { return value; }
    static RANKYARD_INLINE T store(T value) { return value; }
};

/// The 16-bit types are accumulated in fp32.
struct BFloat16 {
    using Stored = std::uint16_t;
    using Sum = float;
    static RANKYARD_INLINE float load(std::uint16_t bits) { return fromBFloat16(bits); }
    static RANKYARD_INLINE std::uint16_t store(float value) { return toBFloat16(value); }
};

struct Half {
    using Stored = std::uint16_t;
    using Sum = float;
    static RANKYARD_INLINE float load(std::uint16_t bits) { return fromHalf(bits); }
    static RANKYARD_INLINE std::uint16_t store(float value) { return toHalf(value); }
};

template<ReduceOp op, typename T>
RANKYARD_INLINE T join(T a, T b)
{
    if constexpr (op == ReduceOp::Sum)
        return a + b;
    else
        return a > b || a != a ? a : b;
}

template<typename Type, ReduceOp op>
RANKYARD_INLINE void reduceAs(const void *const *inputs, int n, void *output, std::int64_t count)
{
    using Stored = typename Type::Stored;
    using Sum = typename Type::Sum;
    auto *out = static_cast<Stored *>(output);
    const auto at = [inputs](int r) { return static_cast<const Stored *>(inputs[r]); };
    if (n == 2) {
        const Stored *a = at(0);
        const Stored *b = at(1);
#pragma GCC ivdep
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = Type::store(join<op>(Type::load(a[i]), Type::load(b[i])));
        return;
    }
    alignas(64) Sum sums[blockElements];
    for (std::int64_t begin = 0; begin < count; begin += blockElements) {
        const std::int64_t size = std::min(blockElements, count - begin);
        const Stored *first = at(0) + begin;
        for (std::int64_t i = 0; i < size; ++i)
            sums[i] = Type::load(first[i]);
        for (int r = 1; r < n; ++r) {
            const Stored *next = at(r) + begin;
            for (std::int64_t i = 0; i < size; ++i)
                sums[i] = join<op>(sums[i], Type::load(next[i]));
        }
        for (std::int64_t i = 0; i < size; ++i)
            out[begin + i] = Type::store(sums[i]);
    }
}

#define RANKYARD_REDUCE(name, Type)                                                                          \
    RANKYARD_CLONES void sum##name(const void *const *inputs, int n, void *output, std::int64_t count)       \
    {                                                                                                        \
        reduceAs<Type, ReduceOp::Sum>(inputs, n, output, count);                                             \
    }                                                                                                        \
    RANKYARD_CLONES void max##name(const void *const *inputs, int n, void *output, std::int64_t count)       \
    {                                                                                                        \
        reduceAs<Type, ReduceOp::Max>(inputs, n, output, count);                                             \
    }

RANKYARD_REDUCE(F64, Plain<double>)
RANKYARD_REDUCE(F32, Plain<float>)
RANKYARD_REDUCE(BF16, BFloat16)
RANKYARD_REDUCE(F16, Half)
RANKYARD_REDUCE(I64, Plain<std::int64_t>)
RANKYARD_REDUCE(I32, Plain<std::int32_t>)

using Function = void (*)(const void *const *, int, void *, std::int64_t);

Function functionFor(DType type, ReduceOp op)
{
    const bool sum = op == ReduceOp::Sum;
    switch (type) {
    case DType::F64:
        return sum ? sumF64 : maxF64;
    case DType::F32:
        return sum ? sumF32 : maxF32;
    case DType::BF16:
        return sum ? sumBF16 : maxBF16;
    case DType::F16:
        return sum ? sumF16 : maxF16;
    case DType::I64:
        return sum ? sumI64 : maxI64;
    case DType::I32:
        return sum ? sumI32 : maxI32;
    default:
        return nullptr;
    }
}

} // namespace

bool canReduce(DType type) { return functionFor(type, ReduceOp::Sum) != nullptr; }

void reduce(DType type, ReduceOp op, const void *const *inputs, int inputCount, void *output,
            std::int64_t count)
{
    if (count == 0) // an empty slice may have no address
        return;
    if (inputCount == 1)
        std::memmove(output, inputs[0], static_cast<std::size_t>(count) * bytesOf(type));
    else
        functionFor(type, op)(inputs, inputCount, output, count);
}

} // namespace rankyard::comm
