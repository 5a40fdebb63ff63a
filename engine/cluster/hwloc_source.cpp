// SPDX-License-Identifier: GPL-3.0-or-later
// hwloc's view of a machine: this one, an XML file, or a synthetic description.
#include "engine/base/file.h"
#include "engine/cluster/build.h"
#include "engine/cluster/catalogue.h"
#include "engine/cluster/nvml.h"
#include "engine/cluster/sources.h"

#include <hwloc.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <unistd.h>

namespace rankyard::cluster {

namespace {

struct Destroy {
    void operator()(hwloc_topology *topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Result<Topology> makeTopology()
{
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0)
        return Error::fromErrno(errno, "hwloc cannot start", "hwloc");
    Topology topology(raw);
    hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    return topology;
}

bool isGpu(const hwloc_obj *pci)
{
    constexpr unsigned nvidia = 0x10de;
    constexpr unsigned amd = 0x1002;
    const unsigned vendor = pci->attr->pcidev.vendor_id;
    return pci->attr->pcidev.class_id >> 8 == 0x03 && (vendor == nvidia || vendor == amd);
}

bool isNic(const hwloc_obj *pci) { return pci->attr->pcidev.class_id >> 8 == 0x02; }

/// Builds the tree of devices; one object.
class Reader
{
public:
    explicit Reader(hwloc_topology *topology) : m_topology(topology) {}

    Node read()
    {
        const hwloc_obj *root = hwloc_get_root_obj(m_topology);
        const int machine = add(m_node, DeviceKind::Machine, "machine", -1);
        m_made[root] = machine;
        const char *model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(m_topology), "CPUModel");
        for (hwloc_obj *numa = nullptr;
             (numa = hwloc_get_next_obj_by_type(m_topology, HWLOC_OBJ_NUMANODE, numa));)
            addNuma(numa, model);
        for (hwloc_obj *pci = nullptr; (pci = hwloc_get_next_pcidev(m_topology, pci));) {
            if (isGpu(pci) || isNic(pci))
                addPci(pci);
        }
        addCores(m_node);
        m_node.type = model ? model : "machine";
        return std::move(m_node);
    }

private:
    void addNuma(hwloc_obj *numa, const char *model)
    {
        int parent = 0;
        hwloc_obj *package =
            hwloc_get_next_obj_covering_cpuset_by_type(m_topology, numa->cpuset, HWLOC_OBJ_PACKAGE, nullptr);
        if (package) {
            const auto [found, fresh] = m_made.try_emplace(package, 0);
            if (fresh) {
                found->second =
                    add(m_node, DeviceKind::Package, "package " + std::to_string(package->logical_index), 0);
                const char *own = hwloc_obj_get_info_by_name(package, "CPUModel");
                m_node.devices.back().model = own ? own : model ? model : "";
            }
            parent = found->second;
        }
        const int made = add(m_node, DeviceKind::Numa, "NUMA " + std::to_string(numa->logical_index), parent);
        Device &device = m_node.devices.back();
        device.bytes = static_cast<double>(numa->attr->numanode.local_memory);
        const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(m_topology, numa->cpuset, HWLOC_OBJ_CORE);
        device.cores = cores > 0 ? cores : std::max(0, hwloc_bitmap_weight(numa->cpuset));
        m_made[numa] = made;
    }

    /// What an I/O object hangs on: host bridges, and bridges with several devices below, which are switches; root ports and
    /// the downstream ports of a switch hold one each.
    int parentOf(hwloc_obj *object)
    {
        hwloc_obj *above = object->parent;
        while (above && above->type == HWLOC_OBJ_BRIDGE
               && above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI && above->io_arity < 2)
            above = above->parent;
        if (!above)
            return 0;
        if (const auto found = m_made.find(above); found != m_made.end())
            return found->second;
        if (above->type == HWLOC_OBJ_BRIDGE) {
            const bool host = above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
            const int parent = parentOf(above);
            const int made = add(m_node, host ? DeviceKind::Bridge : DeviceKind::Switch,
                                 (host ? "host bridge " : "PCIe switch ")
                                     + std::to_string(host ? m_bridges++ : m_switches++),
                                 parent);
            return m_made[above] = made;
        }
        // A processor object: the NUMA node that its cores are near to.
        for (const auto &[known, index] : m_made) {
            if (known->type == HWLOC_OBJ_NUMANODE && above->nodeset
                && hwloc_bitmap_weight(above->nodeset) == 1
                && hwloc_bitmap_isset(above->nodeset, known->os_index))
                return index;
        }
        return 0;
    }

    void addPci(hwloc_obj *pci)
    {
        const bool gpu = isGpu(pci);
        const int parent = parentOf(pci);
        std::string name = gpu ? "GPU " + std::to_string(m_gpus++) : "nic " + std::to_string(m_nics++);
        std::string model = pci->name ? pci->name : "";
        for (const hwloc_obj *os = pci->io_first_child; os; os = os->next_sibling) {
            if (os->type != HWLOC_OBJ_OS_DEVICE)
                continue;
            if (!gpu && os->name && os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
                name = os->name;
            if (!gpu && os->name && os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
                name = os->name;
            if (const char *told = hwloc_obj_get_info_by_name(const_cast<hwloc_obj *>(os), "GPUModel"))
                model = told;
        }
        add(m_node, gpu ? DeviceKind::Gpu : DeviceKind::Nic, name, parent);
        Device &device = m_node.devices.back();
        if (!gpu)
            return;
        const GpuModel *known = findGpu(model);
        device.model = known ? known->name : model;
        device.bytes = known ? known->memoryBytes : 0;
        // hwloc tells GB/s; 0 when the link is asleep or not readable.
        const double rate = static_cast<double>(pci->attr->pcidev.linkspeed) * 1e9;
        m_node.pcieBandwidth = std::max({m_node.pcieBandwidth, rate, known ? known->pcieBandwidth : 0});
    }

    hwloc_topology *m_topology;
    Node m_node;
    std::map<const hwloc_obj *, int> m_made;
    int m_bridges = 0;
    int m_switches = 0;
    int m_gpus = 0;
    int m_nics = 0;
};

Result<Cluster> clusterOf(const Topology &topology, const std::string &name)
{
    if (hwloc_topology_load(topology.get()) != 0)
        return Error::make(Code::BadData, "hwloc cannot read this topology", name);
    Cluster cluster;
    cluster.name = name;
    cluster.types.push_back(Reader(topology.get()).read());
    cluster.groups.push_back({"node", 1, 0});
    if (cluster.types[0].of(DeviceKind::Gpu).size() > 1)
        cluster.notes.push_back("hwloc does not tell NVLink: read the text of nvidia-smi topo -m for it");
    return cluster;
}

/// Line rates that the kernel knows, in /sys/class/net/<nic>/speed as Mb/s.
void addRates(Node &node)
{
    for (Device &device : node.devices) {
        if (device.kind != DeviceKind::Nic)
            continue;
        std::ifstream speed("/sys/class/net/" + device.name + "/speed");
        double megabits = 0;
        if (speed >> megabits && megabits > 0)
            device.bandwidth = megabits * 1e6 / 8;
    }
}

/// "model name" of /proc/cpuinfo; empty when it is not told (ARM).
std::string processorName()
{
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    return {};
}

} // namespace

Result<Cluster> readHwlocXml(const std::string &text, const std::string &name)
{
    RY_ASSIGN(const Topology topology, makeTopology());
    if (hwloc_topology_set_xmlbuffer(topology.get(), text.c_str(), static_cast<int>(text.size()) + 1) != 0)
        return Error::make(Code::BadData, "this is no XML that hwloc 2 reads", name)
            .withHint("Write it with lstopo --of xml");
    return clusterOf(topology, name);
}

Result<Cluster> readSynthetic(const std::string &description, const std::string &name)
{
    RY_ASSIGN(const Topology topology, makeTopology());
    if (hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0)
        return Error::make(Code::BadData, "this is no description that hwloc understands", name)
            .withFound(description)
            .withExpected("package:2 numa:1 core:8 pu:2");
    return clusterOf(topology, name);
}

Result<Cluster> thisMachine()
{
    RY_ASSIGN(const Topology topology, makeTopology());
    RY_ASSIGN(Cluster cluster, clusterOf(topology, "local"));
    Node &node = cluster.types[0];
    cluster.notes.insert(cluster.notes.begin(), "Read from this machine by hwloc");
    addRates(node);
    if (const auto nvml = Nvml::open()) {
        addNvml(node, *nvml);
        if (!node.of(DeviceKind::Gpu).empty()) {
            std::erase_if(cluster.notes, [](const std::string &note) {
                return note.starts_with("hwloc does not tell NVLink");
            });
            cluster.notes.insert(cluster.notes.begin() + 1,
                                 "GPUs, their memory and NVLink as NVIDIA's driver tells them");
        }
    }
    if (const std::string model = processorName(); !model.empty()) {
        node.type = model;
        for (Device &device : node.devices) {
            if (device.kind == DeviceKind::Package && device.model.empty())
                device.model = model;
        }
    }
    char host[256] = "localhost";
    ::gethostname(host, sizeof host - 1);
    cluster.groups[0].prefix = host;
    return cluster;
}

} // namespace rankyard::cluster
