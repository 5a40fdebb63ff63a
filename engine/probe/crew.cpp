// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/probe/crew.h"

#include <sched.h>

#include <filesystem>
#include <string>
#include <thread>

namespace rankyard::probe {

namespace {

std::vector<int> ownCores()
{
    cpu_set_t own;
    CPU_ZERO(&own);
    std::vector<int> cores;
    if (::sched_getaffinity(0, sizeof own, &own) != 0)
        return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &own))
            cores.push_back(core);
    }
    return cores;
}

void bindTo(const int *cores, int count)
{
    cpu_set_t mine;
    CPU_ZERO(&mine);
    for (int i = 0; i < count; ++i)
        CPU_SET(cores[i], &mine);
    ::sched_setaffinity(0, sizeof mine, &mine);
}

} // namespace

std::vector<std::vector<int>> coresByMemory()
{
    std::vector<int> left = ownCores();
    std::vector<std::vector<int>> nodes;
    for (int node = 0; !left.empty() && node < CPU_SETSIZE; ++node) {
        const std::string folder = "/sys/devices/system/node/node" + std::to_string(node) + "/cpu";
        std::vector<int> here, elsewhere;
        std::error_code none;
        for (const int core : left)
            (std::filesystem::exists(folder + std::to_string(core), none) ? here : elsewhere).push_back(core);
        if (!here.empty())
            nodes.push_back(std::move(here));
        left = std::move(elsewhere);
    }
    if (!left.empty())
        nodes.push_back(std::move(left));
    return nodes;
}

void bindToCores(int rank, int ranks)
{
    const std::vector<int> cores = ownCores();
    if (const int each = static_cast<int>(cores.size()) / ranks; each > 0)
        bindTo(cores.data() + rank * each, each);
}

Status crew(int ranks, const std::function<Status(int rank)> &body, const std::vector<int> &cores)
{
    std::vector<Status> states(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            if (cores.empty())
                bindToCores(rank, ranks);
            else
                bindTo(&cores[static_cast<std::size_t>(rank)], 1);
            states[static_cast<std::size_t>(rank)] = body(rank);
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    for (Status &state : states) {
        if (!state)
            return state;
    }
    return {};
}

} // namespace rankyard::probe
