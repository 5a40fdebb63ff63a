// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace rankyard::predict {

/// The text of a file in tests/fixtures/published.
inline std::string publishedTable(const std::string &name)
{
    const char *source = std::getenv("RANKYARD_SOURCE_DIR");
    const auto text = readFile(std::string(source ? source : ".") + "/tests/fixtures/published/" + name);
    EXPECT_TRUE(text) << name;
    return text ? *text : std::string();
}

} // namespace rankyard::predict
