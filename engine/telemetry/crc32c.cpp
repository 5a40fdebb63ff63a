// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace rankyard::telemetry {

namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables makeTables()
{
    Tables tables{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t crc = i;
        for (int k = 0; k < 8; ++k)
            crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
        tables[0][i] = crc;
    }
    for (std::size_t t = 1; t < 8; ++t) {
        for (std::size_t i = 0; i < 256; ++i)
            tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xff];
    }
    return tables;
}

constexpr Tables tables = makeTables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t bySse(const unsigned char *at, std::size_t size,
                                                      std::uint32_t crc)
{
    std::uint64_t wide = ~crc;
    for (; size >= 8; size -= 8, at += 8) {
        std::uint64_t word;
        std::memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    auto narrow = static_cast<std::uint32_t>(wide);
    for (; size > 0; --size, ++at)
        narrow = _mm_crc32_u8(narrow, *at);
    return ~narrow;
}
#endif

} // namespace

/// Slicing by eight (Kounavis, Berry 2005).
std::uint32_t crc32cByTable(const void *data, std::size_t size, std::uint32_t crc)
{
    const auto *at = static_cast<const unsigned char *>(data);
    crc = ~crc;
    for (; size >= 8; size -= 8, at += 8) {
        std::uint32_t low;
        std::uint32_t high;
        std::memcpy(&low, at, 4);
        std::memcpy(&high, at + 4, 4);
        low ^= crc;
        crc = tables[7][low & 0xff] ^ tables[6][(low >> 8) & 0xff] ^ tables[5][(low >> 16) & 0xff]
            ^ tables[4][low >> 24] ^ tables[3][high & 0xff] ^ tables[2][(high >> 8) & 0xff]
            ^ tables[1][(high >> 16) & 0xff] ^ tables[0][high >> 24];
    }
    for (; size > 0; --size, ++at)
        crc = (crc >> 8) ^ tables[0][(crc ^ *at) & 0xff];
    return ~crc;
}

std::uint32_t crc32c(const void *data, std::size_t size, std::uint32_t crc)
{
#if defined(__x86_64__)
    static const bool fast = __builtin_cpu_supports("sse4.2");
    if (fast)
        return bySse(static_cast<const unsigned char *>(data), size, crc);
#endif
    return crc32cByTable(data, size, crc);
}

} // namespace rankyard::telemetry
