// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/host_layout.h"

#include "engine/comm/communicator.h"
#include "engine/exec/arena.h"

#include <algorithm>

namespace rankyard::exec {

namespace {

/// Position in `hostRanks` is not needed, only whether all are there.
bool isSubset(const std::vector<int> &ranks, const std::vector<int> &hostRanks)
{
    return std::all_of(ranks.begin(), ranks.end(), [&hostRanks](int rank) {
        return std::find(hostRanks.begin(), hostRanks.end(), rank) != hostRanks.end();
    });
}

} // namespace

std::vector<GroupMembers> groupsOf(const plan::Plan &plan)
{
    std::vector<GroupMembers> groups;
    for (const plan::StepProgram &program : plan.programs) {
        for (const plan::Group &group : program.groups) {
            for (int rank = 0; rank < plan.grid.world(); ++rank) {
                if (plan.grid.role(rank) != program.role)
                    continue;
                GroupMembers members{group.name, plan.grid.members(rank, group)};
                if (members.ranks.size() > 1)
                    groups.push_back(std::move(members));
            }
        }
    }
    const auto less = [](const GroupMembers &a, const GroupMembers &b) {
        return a.name != b.name ? a.name < b.name : a.ranks < b.ranks;
    };
    std::sort(groups.begin(), groups.end(), less);
    const auto equal = [](const GroupMembers &a, const GroupMembers &b) {
        return a.name == b.name && a.ranks == b.ranks;
    };
    groups.erase(std::unique(groups.begin(), groups.end(), equal), groups.end());
    return groups;
}

Result<HostMemory> createHostMemory(const plan::Plan &plan, const std::vector<int> &hostRanks)
{
    HostMemory memory;
    for (const GroupMembers &group : groupsOf(plan)) {
        if (!isSubset(group.ranks, hostRanks))
            continue;
        RY_ASSIGN(Fd fd,
                  makeMemfd("rankyard-" + group.name,
                            comm::hostSegmentBytes(static_cast<int>(group.ranks.size()))));
        memory.segments.push_back({group.name, group.ranks, fd.get()});
        memory.fds.push_back(std::move(fd));
    }
    for (const int rank : hostRanks) {
        for (const plan::Arena &arena : plan.program(plan::ProgramKind::Train, rank).arenas) {
            if (!arena.shared || arena.bytes == 0)
                continue;
            RY_ASSIGN(Fd fd, makeMemfd("rankyard-" + std::string(plan::nameOf(arena.kind)), arena.bytes));
            memory.arenas.push_back({rank, arena.id, fd.get()});
            memory.fds.push_back(std::move(fd));
        }
    }
    return memory;
}

void fillHost(Bootstrap &bootstrap, const HostMemory &memory, const std::vector<int> &hostRanks)
{
    bootstrap.hostRanks = hostRanks;
    bootstrap.arenas = memory.arenas;
    bootstrap.segments.clear();
    for (const BootstrapSegment &segment : memory.segments) {
        if (std::find(segment.ranks.begin(), segment.ranks.end(), bootstrap.rank) != segment.ranks.end())
            bootstrap.segments.push_back(segment);
    }
}

} // namespace rankyard::exec
