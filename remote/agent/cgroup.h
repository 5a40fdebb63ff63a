// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <filesystem>

namespace rankyard::agent {

/// The memory control group that this process is in, version 1 or 2.
struct MemoryCgroup {
    std::filesystem::path folder; ///< empty: there is none
    bool v1 = false;
};
MemoryCgroup memoryCgroup();

} // namespace rankyard::agent
