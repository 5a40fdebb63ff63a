// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/step_program.h"

#include <cstdint>
#include <map>
#include <vector>

namespace rankyard::plan {

/// Who has contributed to which slice of a bucket while it is reduced or gathered in steps. All ranks do the same, so ranks and
/// slices are counted from one's own. Groups of up to 64 ranks.
class Steps
{
public:
    explicit Steps(const StepProgram &program) : m_program(program) {}

    bool knows(BufferId root) const { return m_slices.contains(root); }
    /// Begins with a gradient of this rank's own in all slices, or with this rank's slice of the parameters.
    void begin(BufferId root, GroupId group, bool gradient);
    /// A Shift or an Add of the bucket. An error when it adds twice, to another slice, or moves what is not whole.
    Status apply(const Op &op);
    bool own(BufferId root) const;   ///< this rank's slice is the sum over all
    bool whole(BufferId root) const; ///< all slices are

private:
    using Ranks = std::uint64_t; ///< bit i: the rank i places after this one
    struct Part {
        BufferId root = none;
        std::int32_t slice = 0;
        Ranks from = 0;
    };
    struct Slices {
        std::int32_t size = 0;
        std::vector<Ranks> from; ///< by slice
        Ranks all() const { return size == 64 ? ~Ranks{0} : (Ranks{1} << size) - 1; }
        std::size_t at(std::int32_t shift) const
        {
            return static_cast<std::size_t>((shift % size + size) % size);
        }
    };
    static Ranks rotated(Ranks ranks, std::int32_t by, std::int32_t size);

    const StepProgram &m_program;
    std::map<BufferId, Slices> m_slices;
    std::map<BufferId, Part> m_parts;
};

} // namespace rankyard::plan
