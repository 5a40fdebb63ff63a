// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/cluster/cluster.h"

#include <memory>
#include <string>
#include <vector>

namespace rankyard::cluster {

/// NVIDIA's management library, opened at run time where a driver has brought it: names, memory, NVLink and live use of the GPUs.
/// What an older driver does not tell stays unknown. One thread at a time.
class Nvml
{
public:
    struct Gpu {
        std::string name; ///< "NVIDIA A100-SXM4-80GB"
        double bytes = 0; ///< of its memory
        double pcie = 0;  ///< bytes/s of its link to the host, one direction; 0: not told
    };
    /// Lanes between two GPUs, or from one to a switch.
    struct Lanes {
        int from = 0;
        int to = -1; ///< −1: an NVSwitch
        int count = 0;
        double bandwidth = 0; ///< of all of them, one direction
    };
    /// Negative: not told.
    struct Use {
        double busy = -1;  ///< part of the last second in which a kernel ran
        double bytes = -1; ///< memory in use
        double watts = -1;
    };

    /// NotHere: there is no such library, it lacks what is needed, or the driver does not answer.
    static Result<Nvml> open(const std::string &library = "libnvidia-ml.so.1");

    std::vector<Gpu> gpus() const;
    std::vector<Lanes> lanes() const;
    std::vector<Use> use() const; ///< by GPU; cheap, but up to milliseconds a GPU

private:
    struct Library;
    explicit Nvml(std::shared_ptr<const Library> library) : m_library(std::move(library)) {}
    std::shared_ptr<const Library> m_library;
};

/// Gives the GPUs of a node their names, memory and NVLink as the driver knows them; adds those that the topology did not show, as
/// in containers. GPU i is NVML's i: both count by PCI address.
void addNvml(Node &node, const Nvml &nvml);

} // namespace rankyard::cluster
