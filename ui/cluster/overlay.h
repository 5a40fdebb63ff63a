// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"
#include "engine/plan/plan.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rankyard::ui {

/// A layout of ranks on the places of a cluster: which groups each rank is in, and what their worst links are. Rank r runs on slot
/// r. Any thread.
class Overlay
{
public:
    /// Bits of `groupsOf`.
    enum Member : std::uint8_t { Tensor = 1, Data = 2, Pipeline = 4 };
    struct Group {
        Member member = Tensor;
        std::string axis; ///< "tp"
        std::vector<int> ranks;
        cluster::Slots::Worst worst;
    };

    Overlay() = default;
    /// tp, pp, dp ≥ 1; their product may be less than there are places.
    Overlay(const cluster::Slots &places, int tp, int pp, int dp);

    bool isEmpty() const { return m_world == 0; }
    int world() const { return m_world; }
    /// The groups of `rank` that have more than one member.
    std::vector<Group> groupsOf(const cluster::Slots &places, int rank) const;
    /// For each slot in which groups of `rank` it is.
    std::vector<std::uint8_t> marks(const cluster::Slots &places, int rank) const;
    /// Tensor groups that leave their fast island: how many, of how many, and the first of them.
    struct Leaving {
        int count = 0;
        int of = 0;
        Group first;
    };
    const Leaving &leaving() const { return m_leaving; }

private:
    int m_world = 0;
    std::shared_ptr<const plan::RankGrid> m_grid;
    Leaving m_leaving;
};

} // namespace rankyard::ui
