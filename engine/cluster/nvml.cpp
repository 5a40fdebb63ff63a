// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/nvml.h"

#include "engine/cluster/build.h"
#include "engine/cluster/catalogue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <optional>

namespace rankyard::cluster {

namespace {

// As nvml.h has them; the versions that are in drivers since 2019.
using Handle = void *;
struct MemoryInfo {
    unsigned long long total, free, used;
};
struct Utilization {
    unsigned gpu, memory;
};
struct PciInfo {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};
constexpr unsigned mostLinks = 18;
constexpr unsigned switchDevice = 2; // nvmlIntNvLinkDeviceType_t

/// One direction of a lane by NVLink's version: 20 GB/s, 25 from version 2 on, 50 from 5 on (NVIDIA's architecture papers).
double laneBandwidth(unsigned version) { return version >= 5 ? 50e9 : version >= 2 ? 25e9 : 20e9; }

/// One direction of a PCIe lane: 1 GB/s in generation 3, twice that with each further one.
double pcieLane(unsigned generation)
{
    constexpr double rates[] = {0, 0.25e9, 0.5e9, 1e9, 2e9, 4e9, 8e9};
    return generation < std::size(rates) ? rates[generation] : rates[6];
}

} // namespace

struct Nvml::Library {
    void *file = nullptr;
    int (*init)() = nullptr;
    int (*shutdown)() = nullptr;
    int (*count)(unsigned *) = nullptr;
    int (*handle)(unsigned, Handle *) = nullptr;
    int (*name)(Handle, char *, unsigned) = nullptr;
    int (*memory)(Handle, MemoryInfo *) = nullptr;
    int (*utilization)(Handle, Utilization *) = nullptr;
    int (*power)(Handle, unsigned *) = nullptr;
    int (*pci)(Handle, PciInfo *) = nullptr;
    int (*pcieGeneration)(Handle, unsigned *) = nullptr;
    int (*pcieWidth)(Handle, unsigned *) = nullptr;
    int (*linkState)(Handle, unsigned, unsigned *) = nullptr;
    int (*linkVersion)(Handle, unsigned, unsigned *) = nullptr;
    int (*linkPci)(Handle, unsigned, PciInfo *) = nullptr;
    int (*linkDevice)(Handle, unsigned, unsigned *) = nullptr;
    bool ready = false;
    std::vector<Handle> gpus;

    Library() = default;
    Library(const Library &) = delete;
    Library &operator=(const Library &) = delete;
    ~Library()
    {
        if (ready)
            shutdown();
        if (file)
            ::dlclose(file);
    }

    template<typename Function>
    void find(Function &function, const char *symbol)
    {
        void *found = ::dlsym(file, symbol);
        std::memcpy(&function, &found, sizeof found);
    }

    /// The switch or the GPU at the other end; none: nothing that is known.
    std::optional<int> otherEnd(Handle from, unsigned link, const std::vector<std::string> &buses) const
    {
        unsigned kind = 0;
        if (linkDevice && linkDevice(from, link, &kind) == 0 && kind == switchDevice)
            return -1;
        PciInfo remote{};
        if (!linkPci || linkPci(from, link, &remote) != 0)
            return std::nullopt;
        remote.busId[sizeof remote.busId - 1] = '\0';
        const auto found = std::find(buses.begin(), buses.end(), remote.busId);
        // Drivers before 2021 do not tell the kind: what is no GPU of this node is a switch.
        return found == buses.end() ? -1 : static_cast<int>(found - buses.begin());
    }
};

Result<Nvml> Nvml::open(const std::string &name)
{
    auto library = std::make_shared<Library>();
    library->file = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library->file)
        return Error::make(Code::NotHere, "NVIDIA's management library is not here", name);
    Library &l = *library;
    l.find(l.init, "nvmlInit_v2");
    l.find(l.shutdown, "nvmlShutdown");
    l.find(l.count, "nvmlDeviceGetCount_v2");
    l.find(l.handle, "nvmlDeviceGetHandleByIndex_v2");
    l.find(l.name, "nvmlDeviceGetName");
    l.find(l.memory, "nvmlDeviceGetMemoryInfo");
    l.find(l.utilization, "nvmlDeviceGetUtilizationRates");
    l.find(l.power, "nvmlDeviceGetPowerUsage");
    l.find(l.pci, "nvmlDeviceGetPciInfo_v3");
    l.find(l.pcieGeneration, "nvmlDeviceGetMaxPcieLinkGeneration");
    l.find(l.pcieWidth, "nvmlDeviceGetMaxPcieLinkWidth");
    l.find(l.linkState, "nvmlDeviceGetNvLinkState");
    l.find(l.linkVersion, "nvmlDeviceGetNvLinkVersion");
    l.find(l.linkPci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    l.find(l.linkDevice, "nvmlDeviceGetNvLinkRemoteDeviceType");
    if (!l.init || !l.shutdown || !l.count || !l.handle || !l.name || !l.memory)
        return Error::make(Code::NotHere, "NVIDIA's management library lacks what is needed", name);
    if (const int code = l.init(); code != 0)
        return Error::make(Code::NotHere, "NVIDIA's driver does not answer", name)
            .withFound("NVML error " + std::to_string(code));
    l.ready = true;
    unsigned count = 0;
    if (l.count(&count) != 0)
        count = 0;
    for (unsigned i = 0; i < count; ++i) {
        Handle handle = nullptr;
        if (l.handle(i, &handle) != 0) // one that has fallen off the bus still has its number
            handle = nullptr;
        l.gpus.push_back(handle);
    }
    return Nvml(std::move(library));
}

std::vector<Nvml::Gpu> Nvml::gpus() const
{
    const Library &l = *m_library;
    std::vector<Gpu> list;
    for (const Handle handle : l.gpus) {
        Gpu gpu;
        std::array<char, 128> name{};
        MemoryInfo memory{};
        unsigned generation = 0;
        unsigned width = 0;
        if (handle && l.name(handle, name.data(), name.size() - 1) == 0)
            gpu.name = name.data();
        if (handle && l.memory(handle, &memory) == 0)
            gpu.bytes = static_cast<double>(memory.total);
        if (handle && l.pcieGeneration && l.pcieWidth && l.pcieGeneration(handle, &generation) == 0
            && l.pcieWidth(handle, &width) == 0)
            gpu.pcie = width * pcieLane(generation);
        list.push_back(std::move(gpu));
    }
    return list;
}

std::vector<Nvml::Lanes> Nvml::lanes() const
{
    const Library &l = *m_library;
    std::vector<std::string> buses;
    for (const Handle handle : l.gpus) {
        PciInfo info{};
        const bool told = handle && l.pci && l.pci(handle, &info) == 0;
        info.busId[sizeof info.busId - 1] = '\0';
        buses.emplace_back(told ? info.busId : "");
    }
    std::map<std::pair<int, int>, Lanes> found;
    for (std::size_t i = 0; l.linkState && i < l.gpus.size(); ++i) {
        for (unsigned link = 0; l.gpus[i] && link < mostLinks; ++link) {
            unsigned active = 0;
            unsigned version = 2;
            if (l.linkState(l.gpus[i], link, &active) != 0 || active == 0)
                continue;
            const auto to = l.otherEnd(l.gpus[i], link, buses);
            if (!to)
                continue;
            if (l.linkVersion)
                l.linkVersion(l.gpus[i], link, &version);
            Lanes &lanes = found[{static_cast<int>(i), *to}];
            lanes.from = static_cast<int>(i);
            lanes.to = *to;
            ++lanes.count;
            lanes.bandwidth += laneBandwidth(version);
        }
    }
    std::vector<Lanes> list;
    for (const auto &[ends, lanes] : found)
        list.push_back(lanes);
    return list;
}

std::vector<Nvml::Use> Nvml::use() const
{
    const Library &l = *m_library;
    std::vector<Use> list;
    for (const Handle handle : l.gpus) {
        Use use;
        Utilization rates{};
        MemoryInfo memory{};
        unsigned milliwatts = 0;
        if (handle && l.utilization && l.utilization(handle, &rates) == 0)
            use.busy = std::min(100U, rates.gpu) / 100.0;
        if (handle && l.memory(handle, &memory) == 0)
            use.bytes = static_cast<double>(memory.used);
        if (handle && l.power && l.power(handle, &milliwatts) == 0)
            use.watts = milliwatts / 1000.0;
        list.push_back(use);
    }
    return list;
}

void addNvml(Node &node, const Nvml &nvml)
{
    const std::vector<Nvml::Gpu> gpus = nvml.gpus();
    std::vector<int> devices = node.of(DeviceKind::Gpu);
    if (devices.size() > gpus.size())
        return; // cards of another vendor are among them: which is which is not known
    // Cores are told one by one only where ranks run on them. They are the last devices.
    if (!gpus.empty())
        std::erase_if(node.devices, [](const Device &device) { return device.kind == DeviceKind::Core; });
    while (devices.size() < gpus.size())
        devices.push_back(add(node, DeviceKind::Gpu, "GPU " + std::to_string(devices.size()), 0));
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        Device &device = node.devices[static_cast<std::size_t>(devices[i])];
        const GpuModel *known = findGpu(gpus[i].name);
        device.model = known ? known->name : gpus[i].name;
        device.bytes = known ? known->memoryBytes : gpus[i].bytes;
        node.pcieBandwidth = std::max(node.pcieBandwidth, gpus[i].pcie);
    }
    node.bonds.clear();
    for (const Nvml::Lanes &lanes : nvml.lanes()) {
        if (lanes.to < 0) {
            node.switchLanes = std::max(node.switchLanes, lanes.count);
            node.switchBandwidth = std::max(node.switchBandwidth, lanes.bandwidth);
        } else if (lanes.from < lanes.to) {
            node.bonds.push_back({devices[static_cast<std::size_t>(lanes.from)],
                                  devices[static_cast<std::size_t>(lanes.to)], lanes.count, lanes.bandwidth});
        }
    }
}

} // namespace rankyard::cluster
