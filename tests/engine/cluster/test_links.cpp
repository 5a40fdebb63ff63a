// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/catalogue.h"
#include "engine/cluster/sources.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace rankyard::cluster {
namespace {

Cluster preset(const char *id, int count)
{
    auto made = makePreset(id, count);
    EXPECT_TRUE(made) << (made ? "" : made.error().text());
    return std::move(made).value();
}

TEST(Links, DgxA100AsItsDataSheetSays)
{
    const Cluster cluster = preset("dgx-a100-80", 3);
    EXPECT_EQ(cluster.nodes(), 3);
    EXPECT_EQ(cluster.gpus(), 24);
    EXPECT_EQ(cluster.nics(), 24);
    const Node &node = cluster.types[0];
    EXPECT_EQ(node.cores(), 128);
    const std::vector<int> gpus = node.of(DeviceKind::Gpu);
    const std::vector<int> nics = node.of(DeviceKind::Nic);
    ASSERT_EQ(gpus.size(), 8u);
    // NVLink 3: 12 links of 25 GB/s a direction.
    EXPECT_EQ(linkIn(node, gpus[0], gpus[7]).path, Path::NvSwitch);
    EXPECT_DOUBLE_EQ(linkIn(node, gpus[0], gpus[7]).bandwidth, 12 * 25e9);
    // Two GPUs and two cards a switch, two switches a socket.
    EXPECT_EQ(linkIn(node, gpus[1], nics[0]).path, Path::OneSwitch);
    EXPECT_EQ(linkIn(node, gpus[0], nics[2]).path, Path::NumaNode);
    EXPECT_EQ(linkIn(node, gpus[0], nics[7]).path, Path::Sockets);
}

TEST(Links, BetweenNodesByLeafAndRail)
{
    const Cluster cluster = preset("dgx-a100-80", 45); // leaves of 20 nodes
    const Slots slots(cluster);
    EXPECT_EQ(slots.link(0, 3).path, Path::NvSwitch);
    EXPECT_EQ(slots.link(3, 8 + 3).path, Path::Leaf);
    EXPECT_DOUBLE_EQ(slots.link(3, 8 + 3).bandwidth, 25e9); // 200 Gb/s a GPU
    EXPECT_EQ(slots.link(3, 8 + 4).path, Path::Spine);      // another rail
    EXPECT_EQ(slots.link(3, 20 * 8 + 3).path, Path::Spine); // another leaf
    EXPECT_EQ(slots.nameOfNode(7), "node-07");
    EXPECT_EQ(slots.place(8 * 44 + 5).node, 44);
    EXPECT_EQ(slots.place(8 * 44 + 5).local, 5);
    EXPECT_EQ(slots.firstOf(45), 360);
}

TEST(Links, RackIsOneDomain)
{
    const Cluster cluster = preset("gb200-nvl72", 36);
    const Slots slots(cluster);
    EXPECT_EQ(slots.count(), 144);
    EXPECT_EQ(slots.link(0, 71).path, Path::NvSwitch);
    EXPECT_DOUBLE_EQ(slots.link(0, 71).bandwidth, 900e9);
    EXPECT_GE(slots.link(0, 72).path, Path::Leaf);
}

TEST(Links, WorstEqualsAScanOverAllPairs)
{
    std::mt19937 random(3);
    Cluster mixed = preset("dgx-h100", 5);
    const Cluster boxes = preset("pcie-a100", 3);
    mixed.types.push_back(boxes.types[0]);
    mixed.groups.push_back({"box-", 3, 1});
    mixed.fabric.leafNodes = 3;
    mixed.fabric.oversubscription = 2;
    for (const Cluster &cluster :
         {mixed, preset("dgx-a100-40", 41), preset("gb200-nvl72", 37), preset("cpu-host", 3)}) {
        const Slots slots(cluster);
        for (int round = 0; round < 300; ++round) {
            std::vector<int> all(static_cast<std::size_t>(slots.count()));
            std::iota(all.begin(), all.end(), 0);
            std::shuffle(all.begin(), all.end(), random);
            all.resize(1 + random() % std::min<std::size_t>(all.size(), 9));
            Link worst;
            for (const int a : all) {
                for (const int b : all) {
                    const Link link = slots.link(a, b);
                    if (link.path > worst.path
                        || (link.path == worst.path && link.bandwidth < worst.bandwidth))
                        worst = link;
                }
            }
            const Slots::Worst found = slots.worstOf(all);
            EXPECT_EQ(found.link.path, worst.path);
            EXPECT_EQ(slots.link(found.a, found.b), found.link);
        }
    }
}

TEST(Links, EmptyAndAlone)
{
    const Cluster cluster = preset("dgx-h100", 1);
    const Slots slots(cluster);
    EXPECT_EQ(slots.worstOf({}).link.path, Path::Self);
    EXPECT_EQ(slots.worstOf({5}).link.path, Path::Self);
    EXPECT_TRUE(slots.worstOf({0, 7}).island);
    EXPECT_EQ(slots.nameOfNode(0), "node");
}

TEST(Catalogue, NamesOfDrivers)
{
    const std::pair<const char *, const char *> pairs[] = {{"NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB"},
                                                           {"NVIDIA A100-PCIE-40GB", "A100 PCIe 40 GB"},
                                                           {"NVIDIA H100 80GB HBM3", "H100 SXM"},
                                                           {"NVIDIA H100 PCIe", "H100 PCIe"},
                                                           {"NVIDIA GeForce RTX 4090", "RTX 4090"},
                                                           {"Tesla V100-SXM2-32GB", "V100 SXM 32 GB"},
                                                           {"NVIDIA GB200", "GB200"},
                                                           {"NVIDIA B200", "B200"}};
    for (const auto &[given, expected] : pairs) {
        const GpuModel *found = findGpu(given);
        ASSERT_NE(found, nullptr) << given;
        EXPECT_STREQ(found->name, expected) << given;
    }
    EXPECT_EQ(findGpu("Matrox G200"), nullptr);
    // Dense bf16 of the A100: 108 SMs × 1024 FMA × 1.41 GHz × 2.
    EXPECT_NEAR(findGpu("A100 SXM 80 GB")->bf16, 108 * 1024 * 2 * 1.41e9, 2e12);
}

} // namespace
} // namespace rankyard::cluster
