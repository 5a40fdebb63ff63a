// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/probe/crew.h"

#include <sched.h>

#include <thread>
#include <vector>

namespace rankyard::probe {

void bindToCores(int rank, int ranks)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    if (::sched_getaffinity(0, sizeof own, &own) != 0)
        return;
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &own))
            cores.push_back(core);
    }
    const auto each = static_cast<int>(cores.size()) / ranks;
    if (each == 0)
        return;
    cpu_set_t mine;
    CPU_ZERO(&mine);
    for (int i = 0; i < each; ++i)
        CPU_SET(cores[static_cast<std::size_t>(rank * each + i)], &mine);
    ::sched_setaffinity(0, sizeof mine, &mine);
}

Status crew(int ranks, const std::function<Status(int rank)> &body)
{
    std::vector<Status> states(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            bindToCores(rank, ranks);
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
