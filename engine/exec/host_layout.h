// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/exec/bootstrap.h"
#include "engine/plan/plan.h"

#include <cstdint>
#include <string>
#include <vector>

/// The shared memory that the ranks of one host need, from the plan: what an agent creates and hands to its
/// workers.
namespace rankyard::exec {

/// One process group: equal names are groups of one plan::Group with different members.
struct GroupMembers {
    std::string name;
    std::vector<int> ranks; ///< global ranks, in group order
};

/// Every group of two ranks and more that the plan's programs use, each once; by name, then by first rank.
std::vector<GroupMembers> groupsOf(const plan::Plan &plan);

/// Memfds by descriptor, for the ranks `hostRanks` of this host. Move-only: closing it here leaves the
/// workers' copies.
struct HostMemory {
    std::vector<BootstrapSegment> segments; ///< of groups that lie wholly on this host
    std::vector<BootstrapArena> arenas;
    std::vector<Fd> fds; ///< owners of the descriptors above, close-on-exec
};

/// Creates and sizes the memfds. The worker's own descriptors must be made inheritable after fork (clear
/// FD_CLOEXEC).
Result<HostMemory> createHostMemory(const plan::Plan &plan, const std::vector<int> &hostRanks);

/// The part of it that `rank` needs: its segments, and all arenas.
void fillHost(Bootstrap &bootstrap, const HostMemory &memory, const std::vector<int> &hostRanks);

} // namespace rankyard::exec
