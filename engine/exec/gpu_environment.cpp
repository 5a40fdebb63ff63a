// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/gpu_environment.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace rankyard::exec {

namespace fs = std::filesystem;

std::vector<std::string> activeHcas(const fs::path &root)
{
    std::vector<std::string> ports;
    std::error_code error;
    for (const auto &adaptor : fs::directory_iterator(root, error)) {
        for (const auto &port : fs::directory_iterator(adaptor.path() / "ports", error)) {
            std::string state;
            std::getline(std::ifstream(port.path() / "state"), state); // "4: ACTIVE"
            if (state.find("ACTIVE") != std::string::npos)
                ports.push_back(adaptor.path().filename().string() + ":" + port.path().filename().string());
        }
    }
    std::sort(ports.begin(), ports.end());
    return ports;
}

std::vector<std::pair<std::string, std::string>> gpuDefaults(const std::vector<std::string> &hcas)
{
    std::vector<std::pair<std::string, std::string>> all = {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                                            {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                                                            {"NCCL_DEBUG", "WARN"},
                                                            {"NCCL_RAS_ENABLE", "0"}};
    std::string list;
    for (const std::string &port : hcas)
        list += (list.empty() ? "=" : ",") + port; // "=": these names and no longer ones
    if (!list.empty())
        all.emplace_back("NCCL_IB_HCA", list);
    return all;
}

void setGpuDefaults()
{
    for (const auto &[name, value] : gpuDefaults(activeHcas()))
        ::setenv(name.c_str(), value.c_str(), 0); // what is set stays
}

Json gpuEnvironment()
{
    Json all = Json::object();
    for (char **at = environ; *at; ++at) {
        const std::string entry = *at;
        if (entry.starts_with("CUDA_") || entry.starts_with("NCCL_"))
            all[entry.substr(0, entry.find('='))] = entry.substr(std::min(entry.find('=') + 1, entry.size()));
    }
    return all;
}

} // namespace rankyard::exec
