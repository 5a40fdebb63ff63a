// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/comm/communicator.h"
#include "engine/plan/step_program.h"

#include <array>
#include <cstdint>
#include <vector>

namespace rankyard::exec {

/// Communication of one group in one run of a program.
struct GroupTotals {
    comm::Figures figures;
    std::int64_t activeNs = 0;  ///< from start to completion, summed over ops
    std::int64_t exposedNs = 0; ///< time that compute stood still for it
    std::int64_t operations = 0;
};

/// One run of a program: what was executed when. Preallocated; written in place.
struct Execution {
    std::int64_t step = 0; ///< of training: from 1
    plan::ProgramKind kind = plan::ProgramKind::Train;
    const plan::StepProgram *program = nullptr;
    std::int64_t beginNs = 0;
    std::int64_t endNs = 0;
    std::vector<std::int64_t> opBegin; ///< by op id, monotonic
    std::vector<std::int64_t> opEnd;
    std::array<std::vector<plan::OpId>, plan::streamCount>
        order;                       ///< op ids in the order in which they were issued, by stream
    std::vector<GroupTotals> groups; ///< by group id
};

} // namespace rankyard::exec
