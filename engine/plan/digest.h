// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>
#include <string_view>

namespace rankyard::plan {

/// XXH3-128 of the bytes as 32 hex digits.
std::string digestOfText(std::string_view text);

} // namespace rankyard::plan
