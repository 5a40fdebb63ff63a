// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>

namespace rankyard::exec::test {

/// Calls of malloc and its kin by the calling thread so far; −1 where they cannot be counted (sanitizers).
std::int64_t allocationsOfThisThread();

} // namespace rankyard::exec::test
