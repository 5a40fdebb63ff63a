// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rankyard {

/// Storage types of buffers and files.
enum class DType : std::uint8_t { F64, F32, BF16, F16, I64, I32, U16, U8 };

std::size_t bytesOf(DType type);
const char *nameOf(DType type); ///< "fp64" … "fp16", "i64", "i32", "u16", "u8"
bool dtypeFromName(const std::string &name, DType &type);

/// CLOCK_MONOTONIC in nanoseconds: the time of every span and record on this host.
std::int64_t monotonicNs();
/// CLOCK_REALTIME in nanoseconds since the epoch: for people, never for intervals.
std::int64_t wallNs();
/// The kernel's boot id, which says whose CLOCK_MONOTONIC it is. Empty when it cannot be read.
std::string bootId();

// For people; always the C locale's decimal point.
std::string formatBytes(double bytes);      ///< IEC: "23.4 GiB"
std::string formatCount(double count);      ///< "4.1 k", "13.9 M"
std::string formatDuration(double seconds); ///< "1 h 12 min", "9 min 40 s", "3.2 s", "14 ms"
std::string formatNumber(double value, int significant);
std::string formatPercent(double share,
                          int significant); ///< "42.3 %", "340 %"; what is too little to matter is "0 %"

} // namespace rankyard
