// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/step_program.h"

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

/// Where the transient buffers of one arena lie, so that those alive together share no byte and the arena stays small.
namespace rankyard::plan {

constexpr std::int64_t arenaAlignment = 64;
inline std::int64_t aligned(std::int64_t bytes)
{
    return (bytes + arenaAlignment - 1) / arenaAlignment * arenaAlignment;
}

/// A transient buffer of one arena: alive from its first use to its release.
struct Item {
    BufferId buffer = none;
    std::int64_t size = 0; ///< aligned
    OpId first = none;
    OpId release = none;
};

/// What is done before what, by lanes and waits. A buffer may take over bytes only where its first op is *ordered* after the
/// release: later in the program is not enough when the two stand on different lanes.
class LaneOrder
{
public:
    explicit LaneOrder(const StepProgram &program);

    int lane(OpId op) const { return m_lanes[static_cast<std::size_t>(op)]; }
    /// `earlier` is done when `later` starts.
    bool before(OpId earlier, OpId later) const
    {
        return m_clocks[static_cast<std::size_t>(later)][m_lanes[static_cast<std::size_t>(earlier)]]
            >= earlier;
    }
    std::size_t ops() const { return m_lanes.size(); }

private:
    std::vector<std::uint8_t> m_lanes;                 ///< by op
    std::vector<std::array<OpId, laneCount>> m_clocks; ///< by op and lane: the last op known to be done
};

struct Packing {
    std::vector<std::int64_t> offsets; ///< by item, multiples of arenaAlignment
    std::int64_t bytes = 0;
};

/// Offsets of `items`, which stand by first use. A small arena by greedy packings in several orders and repairs of the best: near
/// the live peak, in work that is bounded. A large one in program order with a list of gaps, as an allocator would at run time, in
/// O(n log n). Depends on nothing but its arguments.
Packing pack(const std::vector<Item> &items, const LaneOrder &order);

/// Most bytes alive at once in program order: no packing can do with less.
std::int64_t livePeak(const std::vector<Item> &items, std::size_t ops);
/// Most bytes that an op, when it begins an item, cannot know to be free: live ones, and those whose last user, on another lane,
/// may still be at work. Between livePeak and what a packing needs.
std::int64_t heldPeak(const std::vector<Item> &items, const LaneOrder &order);

/// What buffers of one arena have in common.
struct ArenaKey {
    MemoryKind kind = MemoryKind::Activations;
    bool shared = false;
    bool disk = false;
    auto operator<=>(const ArenaKey &) const = default;
};
inline ArenaKey arenaKeyOf(const Buffer &buffer) { return {buffer.kind, buffer.shared, buffer.disk}; }
/// The transient buffers of a program by arena, each list by first use.
std::map<ArenaKey, std::vector<Item>> itemsOf(const StepProgram &program);

} // namespace rankyard::plan
