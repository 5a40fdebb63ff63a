// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pack.h"
#include "engine/plan/passes/pass.h"

#include <algorithm>
#include <map>
#include <utility>

namespace rankyard::plan {

namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

/// Persistent buffers first, one after the other, at the same place in every program; returns the bytes of each arena so far.
std::map<ArenaKey, std::int64_t> placePersistent(std::vector<StepProgram> &programs)
{
    std::map<ArenaKey, std::int64_t> ends;
    std::map<std::string, std::int64_t> offsets;
    for (StepProgram &program : programs) {
        for (Buffer &buffer : program.buffers) {
            if (buffer.parent != none)
                continue;
            std::int64_t &end = ends[arenaKeyOf(buffer)];
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
    const LaneOrder order(program);
    for (const auto &[key, items] : itemsOf(program)) {
        const Packing packing = pack(items, order);
        const std::int64_t base = bases.at(key);
        for (std::size_t i = 0; i < items.size(); ++i)
            program.buffers[at(items[i].buffer)].offset = base + packing.offsets[i];
        ends[key] = std::max(ends[key], base + packing.bytes);
    }
}

} // namespace

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
        items[arenaKeyOf(buffer)].push_back(item);
    }
    for (auto &[key, list] : items)
        std::stable_sort(list.begin(), list.end(),
                         [](const Item &a, const Item &b) { return a.first < b.first; });
    return items;
}

void placePass(std::vector<StepProgram> &programs)
{
    const std::map<ArenaKey, std::int64_t> bases = placePersistent(programs);
    std::map<ArenaKey, std::int64_t> ends = bases;
    for (StepProgram &program : programs)
        placeTransient(program, bases, ends);
    std::vector<Arena> arenas;
    for (const auto &[key, bytes] : ends)
        arenas.push_back({static_cast<ArenaId>(arenas.size()), key.kind, bytes, key.shared, key.disk});
    for (StepProgram &program : programs) {
        program.arenas = arenas;
        const auto arenaOf = [&](const Buffer &buffer) {
            const auto found = std::find_if(arenas.begin(), arenas.end(), [&](const Arena &arena) {
                return ArenaKey{arena.kind, arena.shared, arena.disk} == arenaKeyOf(buffer);
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
