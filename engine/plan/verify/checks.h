// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"

#include <array>
#include <string>
#include <vector>

/// The verifier's parts, in the order in which verify() runs them; each relies on the ones before. None shares code with the
/// passes that it checks.
namespace rankyard::plan {

/// References in range, sizes and views consistent, tensors and buckets whole, ops complete for their kind. After it, every
/// index of the program may be used.
Status checkStructure(const StepProgram &program);

/// For each op and lane the last op that is known to be done when it starts: what FIFO order and waits say.
class Order
{
public:
    explicit Order(const StepProgram &program);
    bool before(OpId earlier, OpId later) const
    {
        return m_clocks[static_cast<std::size_t>(later)]
                       [static_cast<std::size_t>(m_lanes[static_cast<std::size_t>(earlier)])]
            >= earlier;
    }

private:
    std::vector<std::array<OpId, laneCount>> m_clocks;
    std::vector<int> m_lanes;
};

/// Every operand comes from where the table in units.h says, of the same micro-batch; every weight's gradient is complete.
Status checkOperands(const StepProgram &program);
/// Defined before use, reduced and gathered exactly once, conflicting accesses ordered, released once and not used after.
Status checkFlow(const StepProgram &program, const Order &order);
/// Updates cover every bucket once; what they work on is its state or a staged copy that goes home after.
Status checkStaging(const StepProgram &program);
/// No two buffers that may be alive together share bytes of an arena.
Status checkPlacement(const StepProgram &program, const Order &order);

Error broken(const Op &op, std::string what);
inline std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }
inline BufferId rootOf(const StepProgram &program, BufferId id)
{
    const BufferId parent = program.buffer(id).parent;
    return parent == none ? id : parent;
}

} // namespace rankyard::plan
