// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <atomic>
#include <cstdint>

namespace rankyard::data::test {
/// Calls of operator new in this process so far.
extern std::atomic<std::int64_t> allocations;
} // namespace rankyard::data::test
