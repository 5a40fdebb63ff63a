// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/plan/step_program.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace rankyard::probe {

/// What a collective of so many bytes took among so many ranks: median of several.
struct LinkSample {
    plan::OpKind kind = plan::OpKind::AllReduce; ///< AllReduce, AllGather, ReduceScatter, Send
    int ranks = 0;
    std::int64_t bytes = 0; ///< the whole tensor; of Send, the message
    double seconds = 0;
};

/// Collectives of 4 KiB to 32 MiB among two ranks and among `ranks`, on threads of this process, bound to cores where there are enough.
/// `stop` is asked between two sizes; then what was measured so far comes back.
Result<std::vector<LinkSample>> measureLinks(int ranks, const std::function<bool()> &stop);

} // namespace rankyard::probe
