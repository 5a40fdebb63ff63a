// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/plan/step_program.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rankyard::probe {

/// What a collective of so many bytes took among so many ranks: median of several.
struct LinkSample {
    plan::OpKind kind = plan::OpKind::AllReduce; ///< AllReduce, AllGather, ReduceScatter, Send
    int ranks = 0;
    std::int64_t bytes = 0; ///< the whole tensor; of Send, the message
    double seconds = 0;
    std::string placement{}; ///< of the group: LinkGroup::placement
};

/// Ranks among which collectives are measured, and where they are.
struct LinkGroup {
    std::string placement; ///< "neighbours", "across memory nodes", "all"
    int ranks = 0;
    std::vector<int> cores{}; ///< one for each; empty: shared evenly, as an agent does
};

/// Two ranks on neighbouring cores, two on cores near different memory (where there are), and all `ranks` of them.
std::vector<LinkGroup> linkGroups(int ranks, const std::vector<std::vector<int>> &coresByMemory);

/// Collectives of 4 KiB to 32 MiB in those groups, on threads of this process. `stop` is asked between two sizes; then what was measured so
/// far comes back.
Result<std::vector<LinkSample>> measureLinks(const std::vector<LinkGroup> &groups,
                                             const std::function<bool()> &stop);

} // namespace rankyard::probe
