// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>

namespace rankyard::telemetry {

/// CRC-32C (Castagnoli, RFC 3720 B.4) of `size` bytes, continuing from `crc` (0 at the start). By SSE 4.2 where the processor
/// has it.
std::uint32_t crc32c(const void *data, std::size_t size, std::uint32_t crc = 0);
/// The same by tables: what the fast one is tested against.
std::uint32_t crc32cByTable(const void *data, std::size_t size, std::uint32_t crc = 0);

} // namespace rankyard::telemetry
