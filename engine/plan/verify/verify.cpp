// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/checks.h"

#include <algorithm>

namespace rankyard::plan {

Error broken(const Op &op, std::string what)
{
    return Error::make(Code::Internal, std::move(what), opName(op));
}

Order::Order(const StepProgram &program) : m_clocks(program.ops.size())
{
    m_lanes.reserve(program.ops.size());
    std::array<OpId, laneCount> last;
    last.fill(none);
    for (const Op &op : program.ops) {
        m_lanes.push_back(laneOf(op));
        auto &clock = m_clocks[at(op.id)];
        clock.fill(none);
        const auto afterOp = [&](OpId other) {
            for (std::size_t s = 0; s < clock.size(); ++s)
                clock[s] = std::max(clock[s], m_clocks[at(other)][s]);
            auto &own = clock[static_cast<std::size_t>(m_lanes[at(other)])];
            own = std::max(own, other);
        };
        OpId &previous = last[static_cast<std::size_t>(laneOf(op))];
        if (previous != none)
            afterOp(previous);
        for (const OpId wait : op.waits)
            afterOp(wait);
        previous = op.id;
    }
}

Status verify(const StepProgram &program)
{
    RY_TRY(checkStructure(program));
    const Order order(program);
    RY_TRY(checkOperands(program));
    RY_TRY(checkFlow(program, order));
    RY_TRY(checkStaging(program));
    return checkPlacement(program, order);
}

} // namespace rankyard::plan
