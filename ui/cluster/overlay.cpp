// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/overlay.h"

#include <utility>

namespace rankyard::ui {

namespace {

constexpr std::pair<Overlay::Member, const char *> axes[] = {
    {Overlay::Tensor, "tp"}, {Overlay::Data, "dp"}, {Overlay::Pipeline, "pp"}};

} // namespace

Overlay::Overlay(const cluster::Slots &places, int tp, int pp, int dp)
{
    spec::Layout layout;
    layout.tp = tp;
    layout.pp = pp;
    layout.dp = dp;
    m_grid = std::make_shared<plan::RankGrid>(layout);
    m_world = m_grid->world();
    if (tp < 2 || m_world > places.count())
        return;
    for (int rank = 0; rank < m_world; ++rank) {
        // The first of each tensor group speaks for it.
        if (m_grid->coordinate(rank, "tp") != 0)
            continue;
        Group group{Tensor, "tp", m_grid->members(rank, std::vector<std::string>{"tp"}), {}};
        group.worst = places.worstOf(group.ranks);
        ++m_leaving.of;
        if (!group.worst.island && m_leaving.count++ == 0)
            m_leaving.first = std::move(group);
    }
}

std::vector<Overlay::Group> Overlay::groupsOf(const cluster::Slots &places, int rank) const
{
    std::vector<Group> groups;
    if (rank < 0 || rank >= m_world || m_world > places.count())
        return groups;
    for (const auto &[member, axis] : axes) {
        Group group{member, axis, m_grid->members(rank, std::vector<std::string>{axis}), {}};
        if (group.ranks.size() < 2)
            continue;
        group.worst = places.worstOf(group.ranks);
        groups.push_back(std::move(group));
    }
    return groups;
}

std::vector<std::uint8_t> Overlay::marks(const cluster::Slots &places, int rank) const
{
    std::vector<std::uint8_t> marks(static_cast<std::size_t>(places.count()), 0);
    for (const Group &group : groupsOf(places, rank)) {
        for (const int member : group.ranks)
            marks[static_cast<std::size_t>(member)] |= group.member;
    }
    return marks;
}

} // namespace rankyard::ui
