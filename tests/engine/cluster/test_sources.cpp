// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "engine/cluster/sources.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace rankyard::cluster {
namespace {

/// The middle of a DGX-like node: two sockets, a card beside each pair of GPUs; colours and old words mixed in.
const char *const dgx =
    "\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV4\tNV4\tNV4\tPXB\tSYS\t0-31\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tNV4\tNV4\tPXB\tSYS\t0-31\t0\t\tN/A\n"
    "GPU2\tNV4\tNV4\t X \tNV4\tSOC\tPIX\t32-63\t1\t\tN/A\n"
    "GPU3\tNV4\tNV4\tNV4\t X \tSYS\tPIX\t32-63\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSOC\tSYS\t X \tSYS\t\t\n"
    "NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \t\t\n"
    "\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";

TEST(TopoMatrix, TreeExplainsTheMatrix)
{
    const auto read = readTopoMatrix(dgx, "dgx", "NVIDIA A100-SXM4-40GB");
    ASSERT_TRUE(read) << read.error().text();
    const Node &node = read->types[0];
    const std::vector<int> gpus = node.of(DeviceKind::Gpu);
    const std::vector<int> nics = node.of(DeviceKind::Nic);
    ASSERT_EQ(gpus.size(), 4u);
    ASSERT_EQ(nics.size(), 2u);
    EXPECT_EQ(node.devices[static_cast<std::size_t>(nics[1])].name, "mlx5_1");
    EXPECT_EQ(linkIn(node, gpus[0], gpus[3]).path, Path::NvLink);
    EXPECT_EQ(linkIn(node, gpus[0], gpus[3]).lanes, 4);
    EXPECT_DOUBLE_EQ(linkIn(node, gpus[0], gpus[3]).bandwidth, 100e9);
    EXPECT_EQ(linkIn(node, gpus[0], nics[0]).path, Path::Switches);
    EXPECT_EQ(linkIn(node, gpus[2], nics[1]).path, Path::OneSwitch);
    EXPECT_EQ(linkIn(node, gpus[2], nics[0]).path, Path::Sockets);
    EXPECT_EQ(linkIn(node, nics[0], nics[1]).path, Path::Sockets);
    EXPECT_EQ(node.of(DeviceKind::Numa).size(), 2u);
    EXPECT_EQ(node.devices[static_cast<std::size_t>(gpus[0])].bytes, 40e9);
    EXPECT_TRUE(read->notes.empty()) << read->notes[0];
}

TEST(TopoMatrix, EveryLevelOfPcie)
{
    const auto read = readTopoMatrix("GPU0 GPU1 GPU2 GPU3 GPU4 CPU Affinity\n"
                                     "GPU0  X  PIX PXB PHB NODE 0-7\n"
                                     "GPU1 PIX  X  PXB PHB NODE 0-7\n"
                                     "GPU2 PXB PXB  X  PHB NODE 0-7\n"
                                     "GPU3 PHB PHB PHB  X  NODE 0-7\n"
                                     "GPU4 NODE NODE NODE NODE X 0-7\n",
                                     "box");
    ASSERT_TRUE(read) << read.error().text();
    const Node &node = read->types[0];
    const std::vector<int> gpus = node.of(DeviceKind::Gpu);
    const Path expected[5][5] = {
        {Path::Self, Path::OneSwitch, Path::Switches, Path::HostBridge, Path::NumaNode},
        {Path::OneSwitch, Path::Self, Path::Switches, Path::HostBridge, Path::NumaNode},
        {Path::Switches, Path::Switches, Path::Self, Path::HostBridge, Path::NumaNode},
        {Path::HostBridge, Path::HostBridge, Path::HostBridge, Path::Self, Path::NumaNode},
        {Path::NumaNode, Path::NumaNode, Path::NumaNode, Path::NumaNode, Path::Self}};
    for (std::size_t i = 0; i < 5; ++i) {
        for (std::size_t j = 0; j < 5; ++j)
            EXPECT_EQ(linkIn(node, gpus[i], gpus[j]).path, expected[i][j]) << i << ' ' << j;
    }
}

TEST(TopoMatrix, NvSwitchAmongEight)
{
    std::string text;
    for (int i = 0; i < 8; ++i)
        text += "GPU" + std::to_string(i) + "\t";
    text += "CPU Affinity\n";
    for (int i = 0; i < 8; ++i) {
        text += "GPU" + std::to_string(i);
        for (int j = 0; j < 8; ++j)
            text += i == j ? "\tX" : "\tNV18";
        text += "\t0-55\n";
    }
    const auto read = readTopoMatrix(text, "h100", "H100 SXM");
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_DOUBLE_EQ(read->types[0].switchBandwidth, 450e9);
    EXPECT_EQ(readTopoMatrix(text, "b200", "NVIDIA B200")->types[0].switchBandwidth, 900e9);
}

TEST(TopoMatrix, NonsenseIsNamed)
{
    const std::pair<const char *, const char *> wrong[] = {
        {"", "no header"},
        {"GPU0 GPU1\nGPU0 X PIX\n", "rows are missing"},
        {"GPU0 GPU1\nGPU0 X PIX\nGPU1 PXB X\n", "not symmetric"},
        {"GPU0 GPU1\nGPU0 X FOO\nGPU1 FOO X\n", "unknown kind"},
        {"GPU0 GPU1\nGPU1 X PIX\nGPU0 PIX X\n", "order"},
        {"GPU0 GPU1\nGPU0 PIX X\nGPU1 X PIX\n", "itself"},
        {"GPU0 GPU1\nGPU0 X\nGPU1 PIX X\n", "too short"},
    };
    for (const auto &[text, says] : wrong) {
        const auto read = readTopoMatrix(text, "m");
        ASSERT_FALSE(read) << text;
        EXPECT_NE(read.error().text().find(says), std::string::npos) << read.error().text();
    }
}

TEST(Hwloc, Synthetic)
{
    const auto read = openCluster("package:2 numa:2 core:8 pu:2");
    ASSERT_TRUE(read) << read.error().text();
    const Node &node = read->types[0];
    EXPECT_EQ(node.of(DeviceKind::Package).size(), 2u);
    EXPECT_EQ(node.of(DeviceKind::Numa).size(), 4u);
    EXPECT_EQ(node.cores(), 32);
    EXPECT_EQ(Slots(*read).kind(), DeviceKind::Core);
    EXPECT_EQ(Slots(*read).count(), 32);
    EXPECT_EQ(Slots(*read).link(0, 7).path, Path::Memory);
    EXPECT_EQ(Slots(*read).link(0, 8).path, Path::Sockets);
    EXPECT_FALSE(readSynthetic("package:two", "x"));
    EXPECT_FALSE(readHwlocXml("<topology>", "x"));
}

TEST(Hwloc, ThisMachine)
{
    const auto read = thisMachine();
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_GE(read->types[0].cores(), 1);
    EXPECT_GT(read->types[0].hostBytes(), 1e8);
}

TEST(ClusterFile, RoundTrips)
{
    for (const Preset &preset : presets()) {
        const auto made = makePreset(preset.id, 3);
        ASSERT_TRUE(made);
        const Json document = Json::parse(writeCluster(*made).dump());
        const auto again = readCluster(document, "file");
        ASSERT_TRUE(again) << again.error().text();
        EXPECT_EQ(*again, *made) << preset.id;
    }
    const auto matrix = readTopoMatrix(dgx, "dgx");
    EXPECT_EQ(*readCluster(Json::parse(writeCluster(*matrix).dump()), "f"), *matrix);
}

TEST(ClusterFile, PresetsByName)
{
    const auto document = Json::parse(R"({"schema": "rankyard/cluster/1", "name": "lab",
        "nodes": [{"preset": "dgx-a100-80", "count": 4, "name": "a-"}, {"preset": "cpu-host", "name": "head"}],
        "fabric": {"oversubscription": 3}})");
    const auto read = readCluster(document, "lab.json");
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(read->nodes(), 5);
    EXPECT_EQ(read->gpus(), 32);
    EXPECT_EQ(read->fabric.leafNodes, 20);
    EXPECT_EQ(read->fabric.oversubscription, 3);
    EXPECT_EQ(Slots(*read).nameOfNode(4), "head");
}

TEST(ClusterFile, ErrorsNameTheirPath)
{
    const std::pair<const char *, const char *> wrong[] = {
        {R"({"schema": "rankyard/cluster/2", "nodes": []})", "2"},
        {R"({"schema": "rankyard/job/1"})", "schema"},
        {R"({"schema": "rankyard/cluster/1", "nodes": []})", "nodes"},
        {R"({"schema": "rankyard/cluster/1", "nodes": [{"preset": "dgx-z1"}]})", "dgx-h100"},
        {R"({"schema": "rankyard/cluster/1", "nodes": [{"preset": "dgx-h100", "count": 0}]})",
         "nodes[0].count"},
        {R"({"schema": "rankyard/cluster/1", "nodes": [{"preset": "dgx-h100", "cuont": 2}]})",
         "nodes[0].cuont"},
        {R"({"schema": "rankyard/cluster/1", "nodes": [{"type": {"devices": [{"kind": "gpu"}]}}]})",
         "machine"},
        {R"({"schema": "rankyard/cluster/1", "nodes": [{"type": {"devices": [{"kind": "machine"},
             {"kind": "gpu", "name": "g", "parent": "nobody"}]}}]})",
         "nodes[0].type.devices[1].parent"},
    };
    for (const auto &[text, says] : wrong) {
        const auto read = readCluster(Json::parse(text), "f");
        ASSERT_FALSE(read) << text;
        EXPECT_NE(read.error().text().find(says), std::string::npos) << read.error().text();
    }
}

TEST(OpenCluster, ByWhatItIs)
{
    EXPECT_EQ(openCluster("dgx-h100 x 32")->gpus(), 256);
    EXPECT_EQ(openCluster("dgx-h100x1250")->gpus(), 10'000);
    EXPECT_FALSE(openCluster("dgx-h100x0"));
    const auto none = openCluster("/nowhere/at/all");
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Code::NotFound);
    const std::filesystem::path file = std::filesystem::temp_directory_path() / "rankyard-topo.txt";
    std::ofstream(file) << dgx;
    EXPECT_EQ(openCluster(file.string())->gpus(), 4);
    EXPECT_EQ(openCluster(file.string())->name, "rankyard-topo");
    std::ofstream(file) << "GPU0 GPU1\nGPU0 X FOO\nGPU1 FOO X\n";
    EXPECT_EQ(openCluster(file.string()).error().where, file.string() + ":2") << "the file as it is called";
    std::ofstream(file) << "<topology>";
    EXPECT_EQ(openCluster(file.string()).error().where, file.string());
    std::filesystem::remove(file);
}

} // namespace
} // namespace rankyard::cluster
