// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/convert.h"

#include "engine/base/float16.h"

#include <algorithm>

namespace rankyard::kernels {

namespace {

/// A type as stored, and the value that it stands for.
template<typename T>
struct Plain {
    using Stored = T;
    static T load(T value) { return value; }
    static T store(T value) { return value; }
};
template<bool brain>
struct Stored16 {
    using Stored = std::uint16_t;
    static float load(std::uint16_t bits) { return brain ? fromBFloat16(bits) : fromHalf(bits); }
    static std::uint16_t store(float value) { return brain ? toBFloat16(value) : toHalf(value); }
};

template<typename From, typename To>
void convertAs(const Conversion &c)
{
    const auto *from = static_cast<const typename From::Stored *>(c.from);
    auto *to = static_cast<typename To::Stored *>(c.to);
    using Value = decltype(To::load({}));
    if (c.accumulate) {
        for (std::int64_t i = 0; i < c.count; ++i)
            to[i] = To::store(static_cast<Value>(To::load(to[i]) + From::load(from[i])));
    } else {
        for (std::int64_t i = 0; i < c.count; ++i)
            to[i] = To::store(static_cast<Value>(From::load(from[i])));
    }
}

template<typename From>
void convertFrom(const Conversion &c)
{
    switch (c.toType) {
    case DType::F64:
        return convertAs<From, Plain<double>>(c);
    case DType::F32:
        return convertAs<From, Plain<float>>(c);
    case DType::BF16:
        return convertAs<From, Stored16<true>>(c);
    default:
        return convertAs<From, Stored16<false>>(c);
    }
}

} // namespace

bool canConvert(DType type)
{
    return type == DType::F64 || type == DType::F32 || type == DType::BF16 || type == DType::F16;
}

void convert(const Conversion &c)
{
    switch (c.fromType) {
    case DType::F64:
        return convertFrom<Plain<double>>(c);
    case DType::F32:
        return convertFrom<Plain<float>>(c);
    case DType::BF16:
        return convertFrom<Stored16<true>>(c);
    default:
        return convertFrom<Stored16<false>>(c);
    }
}

} // namespace rankyard::kernels
