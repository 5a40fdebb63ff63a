// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/search/search.h"

namespace rankyard::search {

/// Weighs layouts of one job on one kind of device. Immutable; any thread.
class Scales
{
public:
    Scales(const spec::JobSpec &job, const predict::CostModel &cost);

    const predict::Capacity &capacity() const { return m_capacity; }
    /// Peak and margin; no time yet.
    Candidate memory(const Choice &choice, const predict::UnitTimes &unit, const predict::UnitMemory &memory,
                     const predict::PeakStages &stages) const;
    /// The same of a peak that is known.
    Candidate with(const Choice &choice, const predict::ClosedPeak &peak) const;
    /// Adds the time.
    void time(Candidate &candidate, const predict::UnitTimes &unit) const;
    /// Peak of the programs of `job`, which has the candidate's layout, in place of the closed form's.
    Status priceMemory(Candidate &candidate, const spec::JobSpec &job,
                       const std::stop_token &stop = {}) const;
    /// Time of the programs in place of the closed form's.
    Status priceTime(Candidate &candidate, const spec::JobSpec &job, const std::stop_token &stop = {}) const;
    /// What bounds it, and where its memory goes.
    std::string reason(const Candidate &candidate) const;

private:
    predict::Layout layoutOf(const Choice &choice) const;
    void setMargin(Candidate &candidate) const;
    double offloadSeconds(const Choice &choice, const predict::UnitTimes &unit) const;

    const spec::JobSpec &m_job;
    const predict::CostModel &m_cost;
    predict::Layout m_layout; ///< what choices do not decide
    predict::StateBytes m_state;
    predict::Capacity m_capacity;
    double m_flops; ///< of a step, model FLOPs
};

} // namespace rankyard::search
