// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/build.h"
#include "engine/cluster/catalogue.h"
#include "engine/cluster/sources.h"

#include <algorithm>
#include <string>

namespace rankyard::cluster {

namespace {

constexpr double gigabit = 1e9 / 8;
constexpr double GiB = 1024.0 * 1024 * 1024;

/// A box of GPUs as data sheets tell it.
struct Box {
    const char *id;
    const char *what;
    const char *gpu; ///< in the catalogue; null: none
    const char *cpu;
    int gpus;
    int packages;
    int cores;      ///< of a package
    double hostGiB; ///< of the node
    int switches;   ///< PCIe switches of a node
    int nics;
    double nicGbps;
    bool nvSwitch;
    int lanes;       ///< of NVLink to the NVSwitch
    int domainNodes; ///< that share an NVLink domain
    int leafNodes;   ///< under one set of rail leaves; 0: one switch joins all
};

// DGX: NVIDIA's user guides; leaves of 20 and 32 nodes: the scalable units of its SuperPOD reference architectures for A100 and
// H100. GB200 NVL72: 18 trays of 4 GPUs and 2 Grace in one domain, 400 Gb/s a GPU. p4d, p5: AWS instance pages (EFA 4 × 100
// and 32 × 100 Gb/s).
constexpr Box boxes[] = {
    {"dgx-a100-40", "DGX A100, 8 × A100 SXM 40 GB, 8 × 200 Gb/s", "A100 SXM 40 GB", "EPYC 7742", 8, 2, 64,
     1024, 4, 8, 200, true, 12, 1, 20},
    {"dgx-a100-80", "DGX A100, 8 × A100 SXM 80 GB, 8 × 200 Gb/s", "A100 SXM 80 GB", "EPYC 7742", 8, 2, 64,
     2048, 4, 8, 200, true, 12, 1, 20},
    {"dgx-h100", "DGX H100, 8 × H100 SXM, 8 × 400 Gb/s", "H100 SXM", "Xeon 8480C", 8, 2, 56, 2048, 4, 8, 400,
     true, 18, 1, 32},
    {"dgx-h200", "DGX H200, 8 × H200 SXM, 8 × 400 Gb/s", "H200 SXM", "Xeon 8480C", 8, 2, 56, 2048, 4, 8, 400,
     true, 18, 1, 32},
    {"dgx-b200", "DGX B200, 8 × B200, 8 × 400 Gb/s", "B200", "Xeon 8570", 8, 2, 56, 2048, 4, 8, 400, true, 18,
     1, 32},
    {"gb200-nvl72", "GB200 NVL72 tray, 4 × GB200; 18 trays are one NVLink domain", "GB200", "Grace", 4, 2, 72,
     960, 0, 4, 400, true, 18, 18, 0},
    {"p4d", "AWS p4d.24xlarge, 8 × A100 SXM 40 GB, 4 × 100 Gb/s", "A100 SXM 40 GB", "Xeon 8275CL", 8, 2, 24,
     1152, 4, 4, 100, true, 12, 1, 0},
    {"p5", "AWS p5.48xlarge, 8 × H100 SXM, 32 × 100 Gb/s", "H100 SXM", "EPYC 7R13", 8, 2, 48, 2048, 4, 32,
     100, true, 18, 1, 0},
    {"pcie-a100", "PCIe box, 8 × A100 PCIe 80 GB, no NVLink, 2 × 200 Gb/s", "A100 PCIe 80 GB", "EPYC 7763", 8,
     2, 64, 1024, 4, 2, 200, false, 0, 1, 0},
    {"pcie-l40s", "PCIe box, 8 × L40S, 2 × 200 Gb/s", "L40S", "EPYC 9354", 8, 2, 32, 768, 4, 2, 200, false, 0,
     1, 0},
    {"pcie-4090", "Workstation, 4 × RTX 4090, 10 Gb/s", "RTX 4090", "Threadripper PRO 5965WX", 4, 1, 24, 256,
     0, 1, 10, false, 0, 1, 0},
    {"cpu-host", "CPU host, 2 × 32 cores, 256 GiB, 25 Gb/s", nullptr, "x86-64", 0, 2, 32, 256, 0, 1, 25,
     false, 0, 1, 0},
};

/// Packages hold one NUMA node each; switches, GPUs and NICs are spread over them evenly.
Node nodeOf(const Box &box)
{
    Node node;
    node.type = std::string(box.what).substr(0, std::string(box.what).find(','));
    const GpuModel *gpu = box.gpu ? findGpu(box.gpu) : nullptr;
    const int machine = add(node, DeviceKind::Machine, "machine", -1);
    std::vector<int> hubs; // what GPUs and NICs hang on
    std::vector<int> bridges;
    for (int p = 0; p < box.packages; ++p) {
        const int package = add(node, DeviceKind::Package, "package " + std::to_string(p), machine);
        node.devices.back().model = box.cpu;
        const int numa = add(node, DeviceKind::Numa, "NUMA " + std::to_string(p), package);
        node.devices.back().cores = box.cores;
        node.devices.back().bytes = box.hostGiB * GiB / box.packages;
        bridges.push_back(numa);
    }
    for (int s = 0; s < box.switches; ++s) {
        const int numa = bridges[static_cast<std::size_t>(s * box.packages / box.switches)];
        const int bridge = add(node, DeviceKind::Bridge, "host bridge " + std::to_string(s), numa);
        hubs.push_back(add(node, DeviceKind::Switch, "PCIe switch " + std::to_string(s), bridge));
    }
    if (hubs.empty())
        hubs = bridges;
    const auto hub = [&hubs](int i, int of) {
        return hubs[static_cast<std::size_t>(i) * hubs.size() / static_cast<std::size_t>(of)];
    };
    for (int i = 0; i < box.gpus; ++i) {
        add(node, DeviceKind::Gpu, "GPU " + std::to_string(i), hub(i, box.gpus));
        node.devices.back().model = gpu->name;
        node.devices.back().bytes = gpu->memoryBytes;
    }
    for (int i = 0; i < box.nics; ++i) {
        add(node, DeviceKind::Nic, (box.nics > 1 ? "nic " : "nic") + (box.nics > 1 ? std::to_string(i) : ""),
            hub(i, box.nics));
        node.devices.back().bandwidth = box.nicGbps * gigabit;
    }
    addCores(node);
    if (gpu) {
        node.pcieBandwidth = gpu->pcieBandwidth;
        node.switchBandwidth = box.nvSwitch ? gpu->linkBandwidth : 0;
        node.switchLanes = box.lanes;
    }
    return node;
}

} // namespace

int add(Node &node, DeviceKind kind, std::string name, int parent)
{
    Device device;
    device.kind = kind;
    device.name = std::move(name);
    device.parent = parent;
    node.devices.push_back(std::move(device));
    return static_cast<int>(node.devices.size()) - 1;
}

void addCores(Node &node)
{
    if (!node.of(DeviceKind::Gpu).empty())
        return;
    int number = 0;
    for (const int numa : node.of(DeviceKind::Numa)) {
        for (int i = 0; i < node.devices[static_cast<std::size_t>(numa)].cores; ++i)
            add(node, DeviceKind::Core, "core " + std::to_string(number++), numa);
    }
}

const std::vector<Preset> &presets()
{
    static const std::vector<Preset> all = [] {
        std::vector<Preset> list;
        for (const Box &box : boxes)
            list.push_back({box.id, box.what});
        return list;
    }();
    return all;
}

std::string presetIds()
{
    std::string ids;
    for (const Preset &preset : presets())
        ids += (ids.empty() ? "" : ", ") + std::string(preset.id);
    return ids;
}

Result<Cluster> makePreset(std::string_view id, int count)
{
    const auto *box =
        std::find_if(std::begin(boxes), std::end(boxes), [&](const Box &each) { return id == each.id; });
    if (box == std::end(boxes)) {
        return Error::make(Code::NotFound, "no preset of this name", std::string(id))
            .withExpected(presetIds());
    }
    if (count < 1 || count > 1'000'000)
        return Error::make(Code::Usage, "a cluster has between one and a million nodes", std::string(id))
            .withFound(std::to_string(count));
    Cluster cluster;
    cluster.name = std::string(id) + (count > 1 ? " × " + std::to_string(count) : "");
    cluster.types.push_back(nodeOf(*box));
    cluster.groups.push_back({count > 1 ? "node-" : "node", count, 0});
    cluster.fabric.domainNodes = box->domainNodes;
    cluster.fabric.leafNodes = box->leafNodes;
    cluster.fabric.rails = box->leafNodes > 0;
    cluster.notes.push_back("From data sheets, not measured");
    return cluster;
}

} // namespace rankyard::cluster
