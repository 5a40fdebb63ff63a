// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

/// Random numbers without state: a number is a function of a key and its place (DESIGN section 4), so every
/// layout that asks for the same place gets the same number.
namespace rankyard::exec {

using PhiloxBlock = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
/// 2011.
constexpr PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key)
{
    constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
    constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = multiplier0 * counter[0];
        const std::uint64_t product1 = multiplier1 * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(product0)};
        key[0] += weyl0;
        key[1] += weyl1;
    }
    return counter;
}

/// What numbers are for: places of different purposes never meet.
enum class Purpose : std::uint32_t { Init = 1, Dropout = 2 };

/// Four draws of N(0, 1) at block `block` of `stream`, by Box and Muller (1958). Uniforms are (x + ½) ·
/// 2^-32, never 0 or 1.
inline std::array<double, 4> normals(std::uint64_t seed, Purpose purpose, std::uint32_t stream,
                                     std::uint64_t block)
{
    const PhiloxBlock bits =
        philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), stream,
                static_cast<std::uint32_t>(purpose)},
               {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const auto uniform = [&bits](std::size_t i) { return (bits[i] + 0.5) * 0x1p-32; };
    std::array<double, 4> result{};
    for (std::size_t pair = 0; pair < 4; pair += 2) {
        const double radius = std::sqrt(-2 * std::log(uniform(pair)));
        const double angle = 2 * std::numbers::pi * uniform(pair + 1);
        result[pair] = radius * std::cos(angle);
        result[pair + 1] = radius * std::sin(angle);
    }
    return result;
}

} // namespace rankyard::exec
