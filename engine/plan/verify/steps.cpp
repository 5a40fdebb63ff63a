// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/steps.h"

#include "engine/plan/verify/checks.h"

#include <algorithm>

namespace rankyard::plan {

void Steps::begin(BufferId root, GroupId group, bool gradient)
{
    Slices slices;
    slices.size = m_program.groups[at(group)].size;
    slices.from.assign(at(slices.size), gradient ? Ranks{1} : Ranks{0});
    if (!gradient)
        slices.from[0] = slices.all();
    m_slices[root] = std::move(slices);
}

/// Those of a rank `by` places before, as this rank counts them.
Steps::Ranks Steps::rotated(Ranks ranks, std::int32_t by, std::int32_t size)
{
    Ranks result = 0;
    for (std::int32_t i = 0; i < size; ++i) {
        if ((ranks >> i & 1) != 0)
            result |= Ranks{1} << ((i - by) % size + size) % size;
    }
    return result;
}

Status Steps::apply(const Op &op)
{
    const Buffer &from = m_program.buffer(op.reads[0]), &to = m_program.buffer(op.writes[0]);
    if (op.kind == OpKind::Add) {
        const auto part = m_parts.find(from.id);
        const auto found = m_slices.find(to.parent);
        if (part == m_parts.end() || found == m_slices.end() || part->second.root != to.parent)
            return broken(op, "adds what has not come from a peer");
        Ranks &sum = found->second.from[found->second.at(to.sliceShift)];
        if (found->second.at(to.sliceShift) != at(part->second.slice))
            return broken(op, "adds to another slice than the one that has come");
        if ((sum & part->second.from) != 0)
            return broken(op, "adds the same rank's gradients a second time");
        sum |= part->second.from;
        m_parts.erase(part);
        return {};
    }
    const auto found = m_slices.find(from.parent);
    if (found == m_slices.end())
        return broken(op, "moves what is no slice of a bucket");
    Slices &slices = found->second;
    // What comes is the slice that the peer before calls by the same name.
    const auto slice = static_cast<std::int32_t>(slices.at(from.sliceShift - op.peer));
    const Ranks ranks = rotated(slices.from[slices.at(from.sliceShift)], op.peer, slices.size);
    if (to.parent == none) {
        if (!m_parts.try_emplace(to.id, Part{from.parent, slice, ranks}).second)
            return broken(op, "puts a part where one is that has not been added");
        return {};
    }
    if (to.parent != from.parent || slices.at(to.sliceShift) != at(slice) || ranks != slices.all())
        return broken(op, "passes on what is not the whole sum, or into another slice");
    if (slices.from[at(slice)] == slices.all())
        return broken(op, "brings a slice that is there");
    slices.from[at(slice)] = ranks;
    return {};
}

bool Steps::own(BufferId root) const
{
    const Slices &slices = m_slices.at(root);
    return slices.from[0] == slices.all();
}

bool Steps::whole(BufferId root) const
{
    const Slices &slices = m_slices.at(root);
    return std::all_of(slices.from.begin(), slices.from.end(),
                       [&](Ranks ranks) { return ranks == slices.all(); });
}

} // namespace rankyard::plan
