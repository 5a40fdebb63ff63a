// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/gaps.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <utility>

namespace rankyard::plan {

namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

/// The free bytes below the top of an arena that grows: disjoint ranges that do not touch, by place and by size.
class Gaps
{
public:
    /// Takes `size` bytes: from the smallest gap that holds them, else from the top on, with the gap that may end there.
    std::int64_t take(std::int64_t size);
    /// Takes the range out of the gap that holds it.
    void take(std::int64_t begin, std::int64_t end);
    void free(std::int64_t begin, std::int64_t end);
    std::int64_t top() const { return m_top; }
    bool hasExactly(std::int64_t size) const
    {
        const auto fit = m_bySize.lower_bound({size, 0});
        return fit != m_bySize.end() && fit->first == size;
    }

private:
    using ByPlace = std::map<std::int64_t, std::int64_t>; ///< begin → end
    void insert(std::int64_t begin, std::int64_t end);
    void erase(ByPlace::iterator gap);

    ByPlace m_byPlace;
    std::set<std::pair<std::int64_t, std::int64_t>> m_bySize; ///< size, begin
    std::int64_t m_top = 0;
};

void Gaps::insert(std::int64_t begin, std::int64_t end)
{
    if (begin == end)
        return;
    m_byPlace.emplace(begin, end);
    m_bySize.emplace(end - begin, begin);
}

void Gaps::erase(ByPlace::iterator gap)
{
    m_bySize.erase({gap->second - gap->first, gap->first});
    m_byPlace.erase(gap);
}

std::int64_t Gaps::take(std::int64_t size)
{
    if (const auto fit = m_bySize.lower_bound({size, 0}); fit != m_bySize.end()) {
        const std::int64_t begin = fit->second;
        take(begin, begin + size);
        return begin;
    }
    std::int64_t begin = m_top;
    if (!m_byPlace.empty() && std::prev(m_byPlace.end())->second == m_top) {
        begin = std::prev(m_byPlace.end())->first;
        erase(std::prev(m_byPlace.end()));
    }
    m_top = begin + size;
    return begin;
}

void Gaps::take(std::int64_t begin, std::int64_t end)
{
    const auto gap = std::prev(m_byPlace.upper_bound(begin));
    const auto [from, to] = *gap;
    erase(gap);
    insert(from, begin);
    insert(end, to);
}

void Gaps::free(std::int64_t begin, std::int64_t end)
{
    if (begin == end)
        return;
    auto after = m_byPlace.lower_bound(begin);
    if (after != m_byPlace.end() && after->first == end) {
        end = after->second;
        erase(after);
        after = m_byPlace.lower_bound(begin);
    }
    if (after != m_byPlace.begin() && std::prev(after)->second == begin) {
        begin = std::prev(after)->first;
        erase(std::prev(after));
    }
    insert(begin, end);
}

/// One region of an arena, filled in program order.
class Region
{
public:
    Region(const std::vector<Item> &items, const std::vector<std::int32_t> &members, const LaneOrder &order);
    /// Puts the members' offsets, from `base` on, into `packing`; returns the bytes of the region.
    std::int64_t place(std::int64_t base, Packing &packing);

private:
    /// Bytes whose user is done in program order, but not yet on every lane.
    struct Pending {
        std::int64_t begin;
        std::int64_t end;
        OpId release;
    };
    void settle(OpId first);
    std::int64_t takeFor(const Item &item);

    const std::vector<Item> &m_items;
    const std::vector<std::int32_t> &m_members;
    const LaneOrder &m_order;
    std::array<OpId, laneCount> m_last;   ///< by lane: the last op that begins a member
    std::array<OpId, laneCount> m_latest; ///< so far
    std::vector<Pending> m_pending;
    Gaps m_gaps;
};

Region::Region(const std::vector<Item> &items, const std::vector<std::int32_t> &members,
               const LaneOrder &order)
    : m_items(items),
      m_members(members),
      m_order(order)
{
    m_last.fill(none);
    m_latest.fill(none);
    for (const std::int32_t member : members)
        m_last[at(order.lane(items[at(member)].first))] = items[at(member)].first;
}

/// Frees for good what the next op of every lane that still begins members comes after.
void Region::settle(OpId first)
{
    m_latest[at(m_order.lane(first))] = first;
    std::erase_if(m_pending, [&](const Pending &pending) {
        for (std::size_t lane = 0; lane < m_last.size(); ++lane) {
            if (m_last[lane] >= first
                && (m_latest[lane] == none || !m_order.before(pending.release, m_latest[lane])))
                return false;
        }
        m_gaps.free(pending.begin, pending.end);
        return true;
    });
}

/// What is pending may be taken by an op that comes after its release, though not by others: it is freed, and what is left of it
/// taken again.
std::int64_t Region::takeFor(const Item &item)
{
    if (m_pending.empty() || m_gaps.hasExactly(item.size))
        return m_gaps.take(item.size);
    std::vector<Pending> lent;
    std::erase_if(m_pending, [&](const Pending &pending) {
        if (!m_order.before(pending.release, item.first))
            return false;
        lent.push_back(pending);
        return true;
    });
    for (const Pending &pending : lent)
        m_gaps.free(pending.begin, pending.end);
    const std::int64_t begin = m_gaps.take(item.size);
    const std::int64_t end = begin + item.size;
    for (const Pending &pending : lent) {
        for (const auto &[from, to] : {std::pair{pending.begin, std::min(pending.end, begin)},
                                       std::pair{std::max(pending.begin, end), pending.end}}) {
            if (from < to) {
                m_gaps.take(from, to);
                m_pending.push_back({from, to, pending.release});
            }
        }
    }
    return begin;
}

std::int64_t Region::place(std::int64_t base, Packing &packing)
{
    using Ending = std::pair<OpId, std::int32_t>; // release, item
    std::priority_queue<Ending, std::vector<Ending>, std::greater<>> alive;
    for (const std::int32_t member : m_members) {
        const Item &item = m_items[at(member)];
        while (!alive.empty() && alive.top().first < item.first) {
            const auto [release, done] = alive.top();
            const std::int64_t begin = packing.offsets[at(done)] - base;
            m_pending.push_back({begin, begin + m_items[at(done)].size, release});
            alive.pop();
        }
        settle(item.first);
        packing.offsets[at(member)] = base + takeFor(item);
        alive.emplace(item.release, member);
    }
    return m_gaps.top();
}

/// The items of each class in a region of its own, class after class.
Packing inRegions(const std::vector<Item> &items, const LaneOrder &order, int classes,
                  const std::function<int(const Item &)> &classOf)
{
    Packing packing;
    packing.offsets.resize(items.size());
    std::vector<std::vector<std::int32_t>> members(at(classes));
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(items.size()); ++i)
        members[at(classOf(items[at(i)]))].push_back(i);
    for (const auto &list : members)
        packing.bytes += Region(items, list, order).place(packing.bytes, packing);
    return packing;
}

} // namespace

Packing packByGaps(const std::vector<Item> &items, const LaneOrder &order)
{
    std::int64_t largest = 0;
    for (const Item &item : items)
        largest = std::max(largest, item.size);
    Packing together = inRegions(items, order, 1, [](const Item &) { return 0; });
    // Statistics and the like would stay behind in the middle of large gaps.
    constexpr std::int64_t small = 8;
    Packing apart =
        inRegions(items, order, 2, [&](const Item &item) { return item.size * small < largest ? 1 : 0; });
    return together.bytes <= apart.bytes ? together : apart;
}

} // namespace rankyard::plan
