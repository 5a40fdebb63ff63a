// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/plugin.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>

using namespace rankyard;
using namespace rankyard::exec;
namespace fs = std::filesystem;

namespace {

fs::path binaries()
{
    const char *folder = std::getenv("RANKYARD_BIN_DIR");
    return folder ? folder : ".";
}

} // namespace

TEST(Plugin, OfAnotherVersionIsRefusedWithBoth)
{
    const auto other = openPlugin(binaries() / "libother_plugin.so");
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, Code::NotHere);
    EXPECT_EQ(other.error().found, "ABI 999");
    EXPECT_EQ(other.error().expected, "ABI " + std::to_string(Device::abi));
}

TEST(Plugin, WhatIsNoneIsSaidToBeNone)
{
    EXPECT_EQ(openPlugin(binaries() / "nowhere.so").error().code, Code::NotFound);
    const auto broken = openPlugin("/proc/self/exe"); // cannot be loaded as a library
    ASSERT_FALSE(broken.ok());
    EXPECT_EQ(broken.error().code, Code::NotHere);
}

TEST(Plugin, WithoutOneTheRanksComputeOnTheCpu)
{
    Bootstrap bootstrap;
    bootstrap.threads = 2;
    const auto chosen = chooseDevice(bootstrap, "/nowhere");
    ASSERT_TRUE(chosen.ok()) << chosen.error().text();
    EXPECT_EQ(chosen->device->queue(), nullptr);
    EXPECT_TRUE(chosen->note.empty()) << chosen->note;
}
