// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/sources.h"
#include "engine/predict/cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rankyard::predict {
namespace {

CostModel model(const char *preset, int nodes)
{
    const auto cluster = cluster::makePreset(preset, nodes);
    auto machine = machineOf(*cluster);
    auto constants = fittedCalibrations().of(machine->family);
    return CostModel(*machine, *constants);
}

TEST(Cost, MachineOfAPreset)
{
    const auto cluster = cluster::makePreset("dgx-a100-80", 4);
    const auto machine = machineOf(*cluster);
    ASSERT_TRUE(machine);
    EXPECT_EQ(machine->family, "A100");
    EXPECT_EQ(machine->island, 8);
    EXPECT_DOUBLE_EQ(machine->islandBandwidth, 300e9);
    EXPECT_DOUBLE_EQ(machine->networkBandwidth, 25e9);
    const auto rack = cluster::makePreset("gb200-nvl72", 18);
    EXPECT_EQ(machineOf(*rack)->island, 72);
    const auto hosts = cluster::makePreset("cpu-host", 2);
    ASSERT_FALSE(machineOf(*hosts));
    EXPECT_EQ(machineOf(*hosts).error().code, Code::NotHere);
}

TEST(Cost, AClusterFilesOwnFiguresGoBeforeTheDataSheets)
{
    auto cluster = *cluster::makePreset("dgx-a100-80", 4);
    cluster::Node &node = cluster.types.front();
    node.devices[static_cast<std::size_t>(node.of(cluster::DeviceKind::Gpu)[3])].bytes = 8e9;
    EXPECT_DOUBLE_EQ(machineOf(cluster)->memoryBytes, 8e9); // the least of a node's bounds its plan
    for (const int gpu : node.of(cluster::DeviceKind::Gpu))
        node.devices[static_cast<std::size_t>(gpu)].bytes = 0; // not told
    EXPECT_DOUBLE_EQ(machineOf(cluster)->memoryBytes, 80e9);

    // NVLink in pairs does not join all eight: their ring goes over PCIe. A chain of all does, at its ends' rate.
    node.switchBandwidth = 0;
    const std::vector<int> gpus = node.of(cluster::DeviceKind::Gpu);
    for (std::size_t i = 0; i < gpus.size(); i += 2)
        node.bonds.push_back({gpus[i], gpus[i + 1], 4, 100e9});
    EXPECT_DOUBLE_EQ(machineOf(cluster)->islandBandwidth, node.pcieBandwidth / 2);
    for (std::size_t i = 1; i + 1 < gpus.size(); i += 2)
        node.bonds.push_back({gpus[i], gpus[i + 1], 4, 50e9});
    EXPECT_DOUBLE_EQ(machineOf(cluster)->islandBandwidth, 100e9);
}

TEST(Cost, ABandwidthThatNobodyToldIsAskedForWhereItIsNeeded)
{
    auto cluster = *cluster::makePreset("dgx-a100-80", 4);
    cluster::Node &node = cluster.types.front();
    for (const int nic : node.of(cluster::DeviceKind::Nic))
        node.devices[static_cast<std::size_t>(nic)].bandwidth = 0;
    EXPECT_TRUE(costModelOf(cluster, {8, 0})); // within a node
    const auto across = costModelOf(cluster, {16, 0});
    ASSERT_FALSE(across);
    EXPECT_EQ(across.error().code, Code::NotHere);
    EXPECT_NE(across.error().text().find("between nodes"), std::string::npos) << across.error().text();
    EXPECT_FALSE(costModelOf(cluster));
}

TEST(Cost, ProductsAreSmoothAndNeverFasterThanThePeak)
{
    const CostModel cost = model("dgx-h100", 1);
    double before = 0;
    for (double m = 1; m < 40000; m *= 1.01) {
        const double seconds = cost.gemm(m, 4096, 4096, Precision::Bf16);
        EXPECT_GE(seconds, before) << m;
        if (before > 0) {
            EXPECT_LT(seconds / before, 1.011) << "a step at " << m;
        }
        EXPECT_GT(seconds, 2 * m * 4096 * 4096 / 989.5e12);
        before = seconds;
    }
}

TEST(Cost, ProductsWhoseSidesLackPowersOfTwoAreSlower)
{
    const CostModel cost = model("dgx-a100-80", 1);
    const double each = cost.constants().alignment;
    ASSERT_GT(each, 0);
    EXPECT_EQ(cost.alignment(4096, 14336), 1);
    EXPECT_EQ(cost.alignment(64, 192), 1);
    EXPECT_DOUBLE_EQ(cost.alignment(4096, 7200), 1 + each);      // 32 · 225
    EXPECT_DOUBLE_EQ(cost.alignment(1800, 14400), 1 + 3 * each); // 8 · 225
    EXPECT_DOUBLE_EQ(cost.alignment(14400, 1800), 1 + 3 * each);
    EXPECT_DOUBLE_EQ(cost.alignment(50257, 1024), 1 + 6 * each);
    const auto core = [&](double width, bool fused) {
        return cost.attention({4096, 2048, 8, width, fused, Precision::Bf16});
    };
    EXPECT_GT(core(112, false), 1.05 * core(112, true)); // 16 · 7, and scores in memory
    EXPECT_GT(core(108, false), 1.5 * core(112, false)); // 4 · 27: no tensor cores' rows at all
}

TEST(Cost, RingFormulas)
{
    const CostModel cost = model("dgx-a100-80", 4);
    const Calibration &c = cost.constants();
    const double S = 1e9;
    const Placement inside{8, 8};
    const double wire = S * 7 / 8 / (300e9 * c.island);
    EXPECT_NEAR(cost.collective(plan::OpKind::AllGather, S, inside), wire + c.islandLatency, 1e-9);
    EXPECT_NEAR(cost.collective(plan::OpKind::AllReduce, S, inside), 2 * (wire + c.islandLatency), 1e-9);
    EXPECT_EQ(cost.collective(plan::OpKind::AllReduce, S, {1, 1}), 0);
    // One member a node has one card; eight have eight, and are faster.
    EXPECT_GT(cost.busBandwidth({32, 8}), 4 * cost.busBandwidth({4, 1}));
    EXPECT_NEAR(cost.busBandwidth({4, 1}), 25e9 * c.network, 1);
}

TEST(Cost, PositivePartIsSmooth)
{
    EXPECT_NEAR(positivePart(5, 0.1), 5, 1e-3);
    EXPECT_NEAR(positivePart(-5, 0.1), 0, 1e-3);
    EXPECT_NEAR(positivePart(0, 0.1), 0.05, 1e-12);
}

TEST(Calibration, ReadsWhatItWrites)
{
    Calibration one;
    one.family = "A100";
    one.source = "probe of node-3";
    one.gemm = 0.5;
    one.peak = 3e14;
    const Calibrations both{{one}, {{"fsdp", {{&Calibration::network, 0.5}}}}};
    const OrderedJson written = writeCalibrations(both);
    const auto read = readCalibrations(*parseJson(dumpJson(written), "x"), "x");
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(*read, both);
    EXPECT_DOUBLE_EQ(read->of("A100", {"fsdp", "unknown"})->network, one.network / 2);
}

TEST(Calibration, NamesWhatIsWrong)
{
    const auto bad = [](const char *text) {
        const auto read = readCalibrations(*parseJson(text, "x"), "x");
        return read ? std::string("read") : read.error().where;
    };
    EXPECT_EQ(bad(R"({"schema": "rankyard/calibration/1", "devices": {"A100": {"gem": 1}}})"),
              "x.devices.A100.gem");
    EXPECT_EQ(bad(R"({"schema": "rankyard/calibration/1", "shared": {"gemm": 7}, "devices": {}})"),
              "x.shared.gemm");
    EXPECT_EQ(bad(R"({"schema": "rankyard/calibration/1", "shared": {"gemm": "1"}, "devices": {}})"),
              "x.shared.gemm");
    EXPECT_EQ(fittedCalibrations().devices.size(), 4u);
    EXPECT_FALSE(fittedCalibrations().of("abacus"));
}

} // namespace
} // namespace rankyard::predict
