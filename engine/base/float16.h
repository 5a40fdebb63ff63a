// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <bit>
#include <cstdint>

// Conversions between fp32 and the 16-bit types without branches, so that loops over them vectorise. Rounding
// is to nearest even; NaN stays NaN. Inlined by force, so that each copy of a loop for an instruction set has
// its own.
namespace rankyard {

#define RANKYARD_CONVERSION inline __attribute__((always_inline))

RANKYARD_CONVERSION float fromBFloat16(std::uint16_t bits)
{
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

RANKYARD_CONVERSION std::uint16_t toBFloat16(float value)
{
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const std::uint32_t quiet = bits >> 16 | 0x40u;
    return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// IEEE binary16, after F. Giesen, "float->half variants" (2012, public domain).

RANKYARD_CONVERSION float fromHalf(std::uint16_t half)
{
    const std::uint32_t shifted = (half & 0x7fffu) << 13;
    const float scaled = std::bit_cast<float>(shifted) * std::bit_cast<float>(0x77800000u); // · 2^112
    const std::uint32_t special = shifted | 0x7f800000u;
    const std::uint32_t bits = shifted >= 0x0f800000u ? special : std::bit_cast<std::uint32_t>(scaled);
    return std::bit_cast<float>(bits | (half & 0x8000u) << 16);
}

RANKYARD_CONVERSION std::uint16_t toHalf(float value)
{
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits & 0x80000000u;
    const std::uint32_t size = bits ^ sign;
    const std::uint32_t special = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const float denormal =
        std::bit_cast<float>(size) + std::bit_cast<float>(0x3f000000u); // + 0.5 rounds at 2^-24
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(denormal) - 0x3f000000u;
    const std::uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    const std::uint32_t finite = size < 0x38800000u ? tiny : normal;
    return static_cast<std::uint16_t>((size >= 0x47800000u ? special : finite) | sign >> 16);
}

#undef RANKYARD_CONVERSION

} // namespace rankyard
