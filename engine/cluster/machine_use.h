// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/nvml.h"

#include <filesystem>
#include <optional>

namespace rankyard::cluster {

/// Of one device, now. Negative: not known.
struct DeviceUse {
    double busy = -1;  ///< part of the time since the last reading; of a GPU: of the last second
    double bytes = -1; ///< memory in use, of GPUs and of the machine
    double watts = -1;
    bool known() const { return busy >= 0 || bytes >= 0; }
};

/// Reads how busy the devices of this machine are: cores, NUMA nodes and the machine from /proc/stat and /proc/meminfo, GPUs from the
/// driver. One thread at a time.
class UseReader
{
public:
    /// `machine`: as thisMachine() gives it. `proc`: another folder for tests.
    explicit UseReader(const Node &machine, std::optional<Nvml> nvml = {},
                       std::filesystem::path proc = "/proc");

    /// By device of the machine. Busy shares are since the call before; the first has none for processors.
    std::vector<DeviceUse> read();

private:
    struct Times {
        double busy = 0;
        double all = 0;
    };
    std::vector<Times> processorTimes() const;
    void addProcessors(std::vector<DeviceUse> &use);
    void addMemory(std::vector<DeviceUse> &use) const;

    Node m_machine;
    std::optional<Nvml> m_nvml;
    std::filesystem::path m_proc;
    std::vector<Times> m_before; ///< [0]: all processors together
};

} // namespace rankyard::cluster
