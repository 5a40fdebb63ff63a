// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdlib>

namespace rankyard {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

/// RANKYARD_TEST_LONG is set: counts as large as they are worth.
inline bool isLong() { return std::getenv("RANKYARD_TEST_LONG") != nullptr; }

} // namespace rankyard

/// First in a test that plans or trains hundreds of layouts: the sanitizers make a dozen times as long of it, so there it runs with
/// RANKYARD_TEST_LONG only.
#define RANKYARD_LONG_WHEN_SANITIZED()                                                                       \
    if (::rankyard::sanitized && !::rankyard::isLong())                                                      \
    GTEST_SKIP() << "under the sanitizers with RANKYARD_TEST_LONG only"
