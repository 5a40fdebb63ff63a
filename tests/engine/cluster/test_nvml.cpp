// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/machine_use.h"
#include "engine/cluster/sources.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace rankyard::cluster {
namespace {

std::string fakeLibrary()
{
    return std::string(std::getenv("RANKYARD_BIN_DIR")) + "/fake-nvml/libnvidia-ml.so.1";
}

/// A variable for the time of a test.
struct Variable {
    const char *name;
    explicit Variable(const char *variable) : name(variable) { ::setenv(name, "1", 1); }
    ~Variable() { ::unsetenv(name); }
};

TEST(Nvml, GpusOfAMachine)
{
    const auto nvml = Nvml::open(fakeLibrary());
    ASSERT_TRUE(nvml) << nvml.error().text();
    const auto gpus = nvml->gpus();
    ASSERT_EQ(gpus.size(), 2U);
    EXPECT_EQ(gpus[1].name, "NVIDIA A100-SXM4-80GB");
    EXPECT_EQ(gpus[0].bytes, 85'899'345'920.0);
    EXPECT_EQ(gpus[0].pcie, 32e9); // generation 4: 2 GB/s a lane, 16 lanes
    const auto use = nvml->use();
    ASSERT_EQ(use.size(), 2U);
    EXPECT_EQ(use[0].busy, 0.87);
    EXPECT_EQ(use[0].bytes, 1e9);
    EXPECT_EQ(use[1].bytes, 2e9);
    EXPECT_EQ(use[0].watts, 312.5);
    EXPECT_LT(use[1].busy, 0); // this one does not tell
}

TEST(Nvml, BecomesPartOfANode)
{
    const auto nvml = Nvml::open(fakeLibrary());
    ASSERT_TRUE(nvml);
    auto made = readSynthetic("package:1 numa:1 core:4 pu:1", "box"); // no PCI: as in a container
    ASSERT_TRUE(made);
    Node &node = made->types[0];
    addNvml(node, *nvml);
    const std::vector<int> gpus = node.of(DeviceKind::Gpu);
    ASSERT_EQ(gpus.size(), 2U);
    EXPECT_TRUE(node.of(DeviceKind::Core).empty());
    EXPECT_EQ(node.devices[static_cast<std::size_t>(gpus[0])].model, "A100 SXM 80 GB");
    ASSERT_EQ(node.bonds.size(), 1U);
    EXPECT_EQ(node.bonds[0], (Bond{gpus[0], gpus[1], 2, 50e9}));
    EXPECT_EQ(linkIn(node, gpus[0], gpus[1]).path, Path::NvLink);
    const Variable withSwitch("RANKYARD_FAKE_NVSWITCH");
    addNvml(node, *nvml);
    EXPECT_TRUE(node.bonds.empty());
    EXPECT_EQ(node.switchLanes, 4);
    EXPECT_EQ(node.switchBandwidth, 100e9);
    EXPECT_EQ(linkIn(node, gpus[0], gpus[1]).path, Path::NvSwitch);
}

TEST(Nvml, IsNotThereOrDoesNotAnswer)
{
    const auto none = Nvml::open("libno-such-thing.so.7");
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Code::NotHere);
    EXPECT_FALSE(Nvml::open("libm.so.6")); // a library, but another
    const Variable broken("RANKYARD_FAKE_NVML_BROKEN");
    const auto dead = Nvml::open(fakeLibrary());
    ASSERT_FALSE(dead);
    EXPECT_EQ(dead.error().found, "NVML error 9");
}

TEST(MachineUse, SharesOfProcessorsAndMemory)
{
    const auto folder =
        std::filesystem::temp_directory_path() / ("rankyard use " + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const auto write = [&](const char *name, const std::string &text) {
        std::ofstream(folder / name) << text;
    };
    auto made = readSynthetic("package:1 numa:1 core:2 pu:2", "box");
    ASSERT_TRUE(made);
    UseReader reader(made->types[0], {}, folder);
    write(
        "stat",
        "cpu  100 0 0 300 0 0 0 0 0 0\ncpu0 25 0 0 75 0 0 0 0\ncpu1 25 0 0 75 0 0 0 0\ncpu2 25 0 0 75 0\ncpu3 25 0 0 75 0\nintr 5\n");
    write("meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   600 kB\n");
    const auto first = reader.read();
    EXPECT_LT(first[0].busy, 0); // since when?
    EXPECT_EQ(first[0].bytes, 400 * 1024);
    // Core 0 (processors 0 and 2): 30 + 10 of 40 + 40; core 1: 0 of 80.
    write(
        "stat",
        "cpu  140 0 0 420 0 0 0 0 0 0\ncpu0 55 0 0 85 0 0 0 0\ncpu1 25 0 0 105 10 0 0 0\ncpu2 35 0 0 105 0\ncpu3 25 0 0 115 0\nintr 5\n");
    const auto second = reader.read();
    const std::vector<int> cores = made->types[0].of(DeviceKind::Core);
    ASSERT_EQ(cores.size(), 2U);
    EXPECT_EQ(second[static_cast<std::size_t>(cores[0])].busy, 0.5);
    EXPECT_EQ(second[static_cast<std::size_t>(cores[1])].busy, 0.0);
    EXPECT_EQ(second[0].busy, 0.25);
    std::filesystem::remove_all(folder);
    EXPECT_FALSE(reader.read()[0].known()); // nothing to read: nothing known, no crash
}

} // namespace
} // namespace rankyard::cluster
