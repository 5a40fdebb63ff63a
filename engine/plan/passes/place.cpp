// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace rankyard::plan {

namespace {

constexpr std::int64_t alignment = 64;

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }
std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

using ArenaKey = std::pair<MemoryKind, bool>;

// ---- When the bytes of a transient buffer are free again ----

/// A transient buffer of one arena: alive from its first use to its release.
struct Item {
    BufferId buffer = none;
    std::int64_t size = 0;
    OpId first = none;
    OpId release = none;
    std::vector<std::int32_t> conflicts; ///< items that must not share bytes with this one
};

using Clock = std::array<OpId, laneCount>;
std::size_t lane(const Op &op) { return static_cast<std::size_t>(laneOf(op)); }

/// For each op and lane: the last op that is known to be done when it starts.
std::vector<Clock> clocksOf(const StepProgram &program)
{
    std::vector<Clock> clocks(program.ops.size());
    Clock last;
    last.fill(none);
    for (const Op &op : program.ops) {
        Clock &clock = clocks[at(op.id)];
        clock.fill(none);
        const auto join = [&](OpId done) {
            const Clock &theirs = clocks[at(done)];
            for (std::size_t s = 0; s < clock.size(); ++s)
                clock[s] = std::max(clock[s], theirs[s]);
            OpId &own = clock[lane(program.op(done))];
            own = std::max(own, done);
        };
        OpId &previous = last[lane(op)];
        if (previous != none)
            join(previous);
        for (const OpId wait : op.waits)
            join(wait);
        previous = op.id;
    }
    return clocks;
}

bool before(const StepProgram &program, const std::vector<Clock> &clocks, OpId earlier, OpId later)
{
    return clocks[at(later)][lane(program.op(earlier))] >= earlier;
}

/// The transient buffers of each arena by first use. A buffer may take over bytes only where its first op is *ordered* after
/// the release: later in the program is not enough when the two stand on different lanes.
std::map<ArenaKey, std::vector<Item>> itemsOf(const StepProgram &program)
{
    std::vector<Item> all(program.buffers.size());
    for (const Op &op : program.ops) {
        for (const auto *list : {&op.reads, &op.writes}) {
            for (const BufferId id : *list) {
                const BufferId parent = program.buffer(id).parent; // a view's use is its root's
                OpId &first = all[at(parent == none ? id : parent)].first;
                first = first == none ? op.id : first;
            }
        }
        for (const BufferId id : op.releases)
            all[at(id)].release = op.id;
    }
    std::map<ArenaKey, std::vector<Item>> items;
    for (const Buffer &buffer : program.buffers) {
        Item &item = all[at(buffer.id)];
        if (buffer.persistent || buffer.parent != none || item.first == none)
            continue;
        item.buffer = buffer.id;
        item.size = aligned(buffer.bytes);
        items[{buffer.kind, buffer.shared}].push_back(item);
    }
    const std::vector<Clock> clocks = clocksOf(program);
    for (auto &[key, list] : items) {
        std::stable_sort(list.begin(), list.end(),
                         [](const Item &a, const Item &b) { return a.first < b.first; });
        std::array<bool, laneCount> used{};
        for (const Item &item : list)
            used[lane(program.op(item.first))] = true;
        std::array<OpId, laneCount> latest;
        latest.fill(none);
        std::vector<std::int32_t> alive;
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(list.size()); ++i) {
            const OpId first = list[at(i)].first;
            latest[lane(program.op(first))] = first;
            std::erase_if(alive, [&](std::int32_t other) {
                const OpId release = list[at(other)].release;
                if (!before(program, clocks, release, first)) {
                    list[at(i)].conflicts.push_back(other);
                    list[at(other)].conflicts.push_back(i);
                    return false;
                }
                // Forgotten once no lane that makes buffers here can still collide with it.
                for (std::size_t s = 0; s < used.size(); ++s) {
                    if (used[s] && (latest[s] == none || !before(program, clocks, release, latest[s])))
                        return false;
                }
                return true;
            });
            alive.push_back(i);
        }
    }
    return items;
}

/// Most bytes alive at once in program order: no placement can do with less.
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

// ---- Packing ----

struct Packing {
    std::vector<std::int64_t> offsets;
    std::int64_t bytes = 0;
};

/// Places items in the given order, each into the smallest gap between its placed conflicts that holds it (`bestFit`), else
/// into the lowest.
Packing packInOrder(const std::vector<Item> &items, const std::vector<std::int32_t> &order, bool bestFit)
{
    Packing packing;
    packing.offsets.assign(items.size(), -1);
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (const std::int32_t i : order) {
        const Item &item = items[at(i)];
        taken.clear();
        for (const std::int32_t other : item.conflicts) {
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
Packing pack(const std::vector<Item> &items, std::int64_t live)
{
    std::size_t edges = items.size();
    for (const Item &item : items)
        edges += item.conflicts.size();
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
        Packing packing = packInOrder(items, order, bestFit);
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
        current = packInOrder(items, order, (state >> 60 & 1) != 0);
        if (current.bytes < best.bytes) {
            best = current;
            bestOrder = order;
        } else if ((state >> 40) % 64 == 0) { // lost: back to the best
            order = bestOrder;
        }
    }
    return best;
}

// ---- Arenas ----

/// Persistent buffers first, one after the other, at the same place in every program; returns the bytes of each arena so far.
std::map<ArenaKey, std::int64_t> placePersistent(std::vector<StepProgram> &programs)
{
    std::map<ArenaKey, std::int64_t> ends;
    std::map<std::string, std::int64_t> offsets;
    for (StepProgram &program : programs) {
        for (Buffer &buffer : program.buffers) {
            if (buffer.parent != none)
                continue;
            std::int64_t &end = ends[{buffer.kind, buffer.shared}];
            if (!buffer.persistent)
                continue;
            const auto [found, isNew] = offsets.try_emplace(buffer.name, end);
            buffer.offset = found->second;
            if (isNew)
                end += aligned(buffer.bytes);
        }
    }
    return ends;
}

void placeTransient(StepProgram &program, const std::map<ArenaKey, std::int64_t> &bases,
                    std::map<ArenaKey, std::int64_t> &ends)
{
    for (const auto &[key, items] : itemsOf(program)) {
        const Packing packing = pack(items, livePeak(items, program.ops.size()));
        const std::int64_t base = bases.at(key);
        for (std::size_t i = 0; i < items.size(); ++i)
            program.buffers[at(items[i].buffer)].offset = base + packing.offsets[i];
        ends[key] = std::max(ends[key], base + packing.bytes);
    }
}

} // namespace

void placePass(std::vector<StepProgram> &programs)
{
    const std::map<ArenaKey, std::int64_t> bases = placePersistent(programs);
    std::map<ArenaKey, std::int64_t> ends = bases;
    for (StepProgram &program : programs)
        placeTransient(program, bases, ends);
    std::vector<Arena> arenas;
    for (const auto &[key, bytes] : ends)
        arenas.push_back({static_cast<ArenaId>(arenas.size()), key.first, bytes, key.second});
    for (StepProgram &program : programs) {
        program.arenas = arenas;
        const auto arenaOf = [&](const Buffer &buffer) {
            const auto found = std::find_if(arenas.begin(), arenas.end(), [&](const Arena &arena) {
                return arena.kind == buffer.kind && arena.shared == buffer.shared;
            });
            return found->id;
        };
        for (Buffer &buffer : program.buffers) {
            buffer.arena = arenaOf(buffer);
            if (buffer.parent != none)
                buffer.offset = program.buffer(buffer.parent).offset + buffer.viewOffset;
        }
    }
}

} // namespace rankyard::plan
