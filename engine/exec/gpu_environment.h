// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

/// The variables of CUDA and NCCL: what a rank sets by itself, and what holds in the end.
namespace rankyard::exec {

/// Ports of InfiniBand and RoCE adaptors that are up, "mlx5_0:1", by name: those of `root`/<adaptor>/ports/<port>/state that are ACTIVE.
std::vector<std::string> activeHcas(const std::filesystem::path &root = "/sys/class/infiniband");

/// What a rank on GPUs sets where neither the job nor its surroundings have: CUDA_DEVICE_ORDER=PCI_BUS_ID, so that numbers are those of
/// nvidia-smi; CUDA_DEVICE_MAX_CONNECTIONS=32, so that no two lanes of a program share a hardware queue, where one that waits for a peer
/// would hold up the other; NCCL_IB_HCA with the ports that are up, exactly; NCCL_DEBUG=WARN; NCCL_RAS_ENABLE=0, which else listens on a port.
std::vector<std::pair<std::string, std::string>> gpuDefaults(const std::vector<std::string> &hcas);

/// Sets them in this process. Before it has threads.
void setGpuDefaults();

/// Every CUDA_* and NCCL_* of this process by name: for the run's record.
Json gpuEnvironment();

} // namespace rankyard::exec
