// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <bit>
#include <cstdint>

namespace rankyard::data {

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits.
constexpr std::uint64_t mix64(std::uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/// A pseudo-random bijection of [0, size) that needs no memory: an alternating Feistel network over the smallest power of two
/// ≥ size, walked along its cycle until the value is in range (Black and Rogaway, "Ciphers with arbitrary finite domains",
/// CT-RSA 2002): fewer than two rounds of the network on average. The same (size, seed, stream) gives the same order on
/// every machine and in every version: saved runs depend on it.
class Permutation
{
public:
    /// size ≥ 1. `stream` separates orders of one seed: epochs, validation.
    constexpr Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t stream)
        : m_size(static_cast<std::uint64_t>(size)),
          m_key(mix64(seed + golden) ^ mix64(stream * golden + 1))
    {
        const int bits = std::bit_width(m_size - 1);
        m_low = bits - bits / 2;
        m_lowMask = (1ULL << m_low) - 1;
        m_highMask = (1ULL << (bits / 2)) - 1;
    }

    constexpr std::int64_t operator()(std::int64_t index) const
    {
        auto value = static_cast<std::uint64_t>(index);
        do {
            value = shuffle(value);
        } while (value >= m_size);
        return static_cast<std::int64_t>(value);
    }

private:
    static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
    static constexpr int rounds = 4; ///< pairs of half-rounds

    constexpr std::uint64_t shuffle(std::uint64_t value) const
    {
        std::uint64_t low = value & m_lowMask;
        std::uint64_t high = value >> m_low;
        std::uint64_t key = m_key;
        for (int round = 0; round < rounds; ++round) {
            high ^= mix64(low + key) & m_highMask;
            key += golden;
            low ^= mix64(high + key) & m_lowMask;
            key += golden;
        }
        return high << m_low | low;
    }

    std::uint64_t m_size;
    std::uint64_t m_key;
    int m_low = 0;
    std::uint64_t m_lowMask = 0;
    std::uint64_t m_highMask = 0;
};

} // namespace rankyard::data
