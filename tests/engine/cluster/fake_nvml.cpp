// SPDX-License-Identifier: GPL-3.0-or-later
// A library with NVML's symbols: two GPUs that two lanes join, with four lanes each to a switch when RANKYARD_FAKE_NVSWITCH is set.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct PciInfo {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};
bool withSwitch() { return std::getenv("RANKYARD_FAKE_NVSWITCH") != nullptr; }
std::uintptr_t indexOf(void *device) { return reinterpret_cast<std::uintptr_t>(device) - 1; }
void busOf(std::uintptr_t index, PciInfo *info)
{
    std::memset(info, 0, sizeof *info);
    std::snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", static_cast<unsigned>(0x3b + index));
}
bool s_ready = false;

} // namespace

extern "C" {
int nvmlInit_v2()
{
    s_ready = std::getenv("RANKYARD_FAKE_NVML_BROKEN") == nullptr;
    return s_ready ? 0 : 9; // NVML_ERROR_DRIVER_NOT_LOADED
}
int nvmlShutdown()
{
    s_ready = false;
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return s_ready ? 0 : 1;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = reinterpret_cast<void *>(static_cast<std::uintptr_t>(index) + 1);
    return index < 2 ? 0 : 2;
}
int nvmlDeviceGetName(void *, char *name, unsigned length)
{
    std::snprintf(name, length, "NVIDIA A100-SXM4-80GB");
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    memory[0] = 85'899'345'920ULL;
    memory[2] = (indexOf(device) + 1) * 1'000'000'000ULL;
    memory[1] = memory[0] - memory[2];
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
    if (indexOf(device) == 1)
        return 3; // NVML_ERROR_NOT_SUPPORTED
    rates[0] = 87;
    rates[1] = 30;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *, unsigned *milliwatts)
{
    *milliwatts = 312'500;
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *device, PciInfo *info)
{
    busOf(indexOf(device), info);
    return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void *, unsigned *generation)
{
    *generation = 4;
    return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void *, unsigned *width)
{
    *width = 16;
    return 0;
}
int nvmlDeviceGetNvLinkState(void *, unsigned link, unsigned *active)
{
    *active = link < (withSwitch() ? 4U : 2U) ? 1 : 0;
    return link < 12 ? 0 : 2;
}
int nvmlDeviceGetNvLinkVersion(void *, unsigned, unsigned *version)
{
    *version = 3;
    return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *, unsigned, unsigned *kind)
{
    *kind = withSwitch() ? 2 : 0;
    return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned, PciInfo *info)
{
    busOf(1 - indexOf(device), info);
    return 0;
}
}
