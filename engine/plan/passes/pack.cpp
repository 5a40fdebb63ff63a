// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pack.h"

#include "engine/plan/passes/gaps.h"

#include <algorithm>
#include <utility>

namespace rankyard::plan {

namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

using Conflicts =
    std::vector<std::vector<std::int32_t>>; ///< by item: those that must not share bytes with it

Conflicts conflictsOf(const std::vector<Item> &items, const LaneOrder &order)
{
    Conflicts conflicts(items.size());
    std::array<bool, laneCount> used{};
    for (const Item &item : items)
        used[at(order.lane(item.first))] = true;
    std::array<OpId, laneCount> latest;
    latest.fill(none);
    std::vector<std::int32_t> alive;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(items.size()); ++i) {
        const OpId first = items[at(i)].first;
        latest[at(order.lane(first))] = first;
        std::erase_if(alive, [&](std::int32_t other) {
            const OpId release = items[at(other)].release;
            if (!order.before(release, first)) {
                conflicts[at(i)].push_back(other);
                conflicts[at(other)].push_back(i);
                return false;
            }
            // Forgotten once no lane that makes buffers here can still collide with it.
            for (std::size_t s = 0; s < used.size(); ++s) {
                if (used[s] && (latest[s] == none || !order.before(release, latest[s])))
                    return false;
            }
            return true;
        });
        alive.push_back(i);
    }
    return conflicts;
}

/// Pairs of items that are alive together in program order: a little below the number of conflicts.
std::size_t pairsAlive(const std::vector<Item> &items, std::size_t ops)
{
    std::vector<std::int32_t> ends(ops + 1, 0);
    std::size_t pairs = 0;
    std::size_t alive = 0;
    OpId passed = 0;
    for (const Item &item : items) {
        for (; passed < item.first; ++passed)
            alive -= at(ends[at(passed)]);
        pairs += alive++;
        ++ends[at(std::max(item.release, item.first))];
    }
    return pairs;
}

/// Places items in the given order, each into the smallest gap between its placed conflicts that holds it (`bestFit`), else
/// into the lowest.
Packing packInOrder(const std::vector<Item> &items, const Conflicts &conflicts,
                    const std::vector<std::int32_t> &order, bool bestFit)
{
    Packing packing;
    packing.offsets.assign(items.size(), -1);
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (const std::int32_t i : order) {
        const Item &item = items[at(i)];
        taken.clear();
        for (const std::int32_t other : conflicts[at(i)]) {
            if (const std::int64_t offset = packing.offsets[at(other)]; offset >= 0)
                taken.emplace_back(offset, offset + items[at(other)].size);
        }
        std::sort(taken.begin(), taken.end());
        std::int64_t place = -1;
        std::int64_t smallest = 0;
        std::int64_t end = 0;
        for (const auto &[from, to] : taken) {
            const std::int64_t gap = from - end;
            if (gap >= item.size && (place < 0 || (bestFit && gap < smallest))) {
                place = end;
                smallest = gap;
                if (!bestFit)
                    break;
            }
            end = std::max(end, to);
        }
        packing.offsets[at(i)] = place < 0 ? end : place;
        packing.bytes = std::max(packing.bytes, packing.offsets[at(i)] + item.size);
    }
    return packing;
}

/// Greedy packings in several orders, then repairs of the best: what sticks out at the top is placed earlier. Stops near
/// the live peak, or after a fixed amount of work, so that the result depends on the items only.
Packing search(const std::vector<Item> &items, const Conflicts &conflicts, std::int64_t live)
{
    std::size_t edges = items.size();
    for (const auto &list : conflicts)
        edges += list.size();
    std::vector<std::int32_t> bySize(items.size());
    for (std::size_t i = 0; i < items.size(); ++i)
        bySize[i] = static_cast<std::int32_t>(i);
    std::vector<std::int32_t> byLifetime = bySize;
    const std::vector<std::int32_t> byFirstUse = bySize;
    const auto lifetime = [&](std::int32_t i) { return items[at(i)].release - items[at(i)].first; };
    std::stable_sort(bySize.begin(), bySize.end(), [&](std::int32_t a, std::int32_t b) {
        return items[at(a)].size != items[at(b)].size ? items[at(a)].size > items[at(b)].size
                                                      : lifetime(a) > lifetime(b);
    });
    std::stable_sort(byLifetime.begin(), byLifetime.end(), [&](std::int32_t a, std::int32_t b) {
        return lifetime(a) != lifetime(b) ? lifetime(a) > lifetime(b) : items[at(a)].size > items[at(b)].size;
    });

    Packing best;
    std::vector<std::int32_t> bestOrder;
    const auto attempt = [&](const std::vector<std::int32_t> &order, bool bestFit) {
        Packing packing = packInOrder(items, conflicts, order, bestFit);
        if (bestOrder.empty() || packing.bytes < best.bytes) {
            best = std::move(packing);
            bestOrder = order;
        }
    };
    for (const auto *order : {&std::as_const(byLifetime), &std::as_const(bySize), &byFirstUse}) {
        for (const bool bestFit : {false, true}) {
            if (bestOrder.empty() || best.bytes > live)
                attempt(*order, bestFit);
        }
    }
    constexpr std::size_t workLimit = 3'000'000;
    std::vector<std::int32_t> order = bestOrder;
    Packing current = best;
    std::uint64_t state = 1;
    for (std::size_t work = edges; best.bytes > live + live / 512 && work < workLimit; work += edges) {
        auto moved = std::find_if(order.begin(), order.end(), [&](std::int32_t i) {
            return current.offsets[at(i)] + items[at(i)].size == current.bytes;
        });
        state = state * 6364136223846793005U + 1442695040888963407U; // Knuth's generator: the same anywhere
        if (moved == order.begin() || (state >> 61) == 0) // stuck, or once in eight: something else first
            moved = order.begin() + static_cast<std::ptrdiff_t>((state >> 33) % order.size());
        std::rotate(order.begin(), moved, moved + 1);
        current = packInOrder(items, conflicts, order, (state >> 60 & 1) != 0);
        if (current.bytes < best.bytes) {
            best = current;
            bestOrder = order;
        } else if ((state >> 40) % 64 == 0) { // lost: back to the best
            order = bestOrder;
        }
    }
    return best;
}

} // namespace

LaneOrder::LaneOrder(const StepProgram &program) : m_lanes(program.ops.size()), m_clocks(program.ops.size())
{
    std::array<OpId, laneCount> last;
    last.fill(none);
    for (const Op &op : program.ops) {
        const auto lane = static_cast<std::size_t>(laneOf(op));
        m_lanes[at(op.id)] = static_cast<std::uint8_t>(lane);
        auto &clock = m_clocks[at(op.id)];
        clock.fill(none);
        const auto join = [&](OpId done) {
            const auto &theirs = m_clocks[at(done)];
            for (std::size_t s = 0; s < clock.size(); ++s)
                clock[s] = std::max(clock[s], theirs[s]);
            OpId &own = clock[m_lanes[at(done)]];
            own = std::max(own, done);
        };
        if (last[lane] != none)
            join(last[lane]);
        for (const OpId wait : op.waits)
            join(wait);
        last[lane] = op.id;
    }
}

std::int64_t livePeak(const std::vector<Item> &items, std::size_t ops)
{
    std::vector<std::int64_t> change(ops + 1, 0);
    for (const Item &item : items) {
        change[at(item.first)] += item.size;
        change[at(item.release) + 1] -= item.size;
    }
    std::int64_t live = 0;
    std::int64_t peak = 0;
    for (const std::int64_t c : change) {
        live += c;
        peak = std::max(peak, live);
    }
    return peak;
}

std::int64_t heldPeak(const std::vector<Item> &items, const LaneOrder &order)
{
    std::int64_t peak = 0;
    std::int64_t held = 0;
    std::vector<std::int32_t> holding;
    std::array<OpId, laneCount> last; // by lane: the last op that begins an item
    last.fill(none);
    for (const Item &item : items)
        last[at(order.lane(item.first))] = item.first;
    std::array<OpId, laneCount> latest;
    latest.fill(none);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(items.size()); ++i) {
        const OpId first = items[at(i)].first;
        latest[at(order.lane(first))] = first;
        std::int64_t usable = 0; // by this op, though not yet by all
        std::erase_if(holding, [&](std::int32_t other) {
            const OpId release = items[at(other)].release;
            if (!order.before(release, first))
                return false;
            for (std::size_t lane = 0; lane < last.size(); ++lane) {
                if (last[lane] >= first && (latest[lane] == none || !order.before(release, latest[lane]))) {
                    usable += items[at(other)].size;
                    return false;
                }
            }
            held -= items[at(other)].size;
            return true;
        });
        holding.push_back(i);
        held += items[at(i)].size;
        peak = std::max(peak, held - usable);
    }
    return peak;
}

Packing pack(const std::vector<Item> &items, const LaneOrder &order)
{
    const std::int64_t live = livePeak(items, order.ops());
    constexpr std::size_t mostPairs = 400'000; // of which the search below makes a few passes
    if (pairsAlive(items, order.ops()) <= mostPairs)
        return search(items, conflictsOf(items, order), live);
    return packByGaps(items, order);
}

} // namespace rankyard::plan
