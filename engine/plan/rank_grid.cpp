// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/plan.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

std::int64_t sizeOfAxis(const spec::Layout &layout, const std::string &name)
{
    return name == "tp" ? layout.tp
        : name == "cp"  ? layout.cp
        : name == "dp"  ? layout.dp
        : name == "pp"  ? layout.pp
                        : 1;
}

} // namespace

RankGrid::RankGrid(const spec::Layout &layout)
{
    const auto add = [&](const std::string &name) {
        const bool known =
            std::any_of(m_axes.begin(), m_axes.end(), [&](const Axis &axis) { return axis.name == name; });
        if (known || name.empty())
            return;
        const int size = static_cast<int>(std::max<std::int64_t>(1, sizeOfAxis(layout, name)));
        m_axes.push_back({name, size, m_world});
        m_world *= size;
    };
    std::size_t begin = 0;
    while (begin <= layout.order.size()) {
        const std::size_t end = std::min(layout.order.find('-', begin), layout.order.size());
        add(layout.order.substr(begin, end - begin));
        begin = end + 1;
    }
    for (const char *name : {"tp", "cp", "dp", "pp"})
        add(name);
}

int RankGrid::coordinate(int rank, const std::string &axis) const
{
    for (const Axis &a : m_axes) {
        if (a.name == axis)
            return rank / a.stride % a.size;
    }
    return 0;
}

std::vector<int> RankGrid::members(int rank, const std::vector<std::string> &axes) const
{
    std::vector<int> ranks = {rank};
    for (const Axis &axis : m_axes) {
        if (std::find(axes.begin(), axes.end(), axis.name) == axes.end())
            continue;
        std::vector<int> wider;
        for (const int member : ranks) {
            const int first = member - member / axis.stride % axis.size * axis.stride;
            for (int i = 0; i < axis.size; ++i)
                wider.push_back(first + i * axis.stride);
        }
        ranks = std::move(wider);
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

std::vector<int> RankGrid::members(int rank, const Group &group) const
{
    const std::vector<int> all = members(rank, group.axes);
    if (group.pick == Pick::All)
        return all;
    const auto own = static_cast<int>(std::find(all.begin(), all.end(), rank) - all.begin());
    const auto count = static_cast<int>(all.size());
    const int outer = count / std::max(1, group.size); // distance of an outer group's members
    std::vector<int> picked;
    for (int i = 0; i < count; ++i) {
        const bool in = group.pick == Pick::Inner ? i / group.size == own / group.size
            : group.pick == Pick::Outer           ? i % outer == own % outer
                                                  : i == 0 || i == count - 1;
        if (in)
            picked.push_back(all[static_cast<std::size_t>(i)]);
    }
    return std::find(picked.begin(), picked.end(), rank) == picked.end() ? std::vector<int>() : picked;
}

int RankGrid::indexIn(int rank, const Group &group) const
{
    const std::vector<int> all = members(rank, group);
    const auto found = std::find(all.begin(), all.end(), rank);
    return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

Role RankGrid::role(int rank) const { return {coordinate(rank, "pp")}; }

} // namespace rankyard::plan
