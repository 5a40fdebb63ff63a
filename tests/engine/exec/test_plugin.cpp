// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/gpu_environment.h"
#include "engine/exec/plugin.h"

#include "engine/spec/environment.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

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

TEST(GpuEnvironment, NamesThePortsThatAreUp)
{
    const fs::path root = fs::temp_directory_path() / ("hcas-" + std::to_string(::getpid()));
    const auto port = [&](const char *name, const char *state) {
        fs::create_directories(root / name);
        std::ofstream(root / name / "state") << state << "\n";
    };
    port("mlx5_1/ports/1", "4: ACTIVE");
    port("mlx5_0/ports/2", "4: ACTIVE");
    port("mlx5_0/ports/1", "1: DOWN");
    port("mlx5_2/ports/1", "2: INIT");
    const std::vector<std::string> found = activeHcas(root);
    fs::remove_all(root);
    EXPECT_EQ(found, (std::vector<std::string>{"mlx5_0:2", "mlx5_1:1"}));
    EXPECT_TRUE(activeHcas(root).empty()); // nothing there
    const auto defaults = gpuDefaults(found);
    EXPECT_NE(std::find(defaults.begin(), defaults.end(),
                        std::pair<std::string, std::string>("NCCL_IB_HCA", "=mlx5_0:2,mlx5_1:1")),
              defaults.end());
    for (const auto &[name, value] : defaults)
        EXPECT_TRUE(spec::checkVariable(name, value).ok()) << name; // a job may set them too
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
