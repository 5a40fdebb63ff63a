// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/units.h"
#include "engine/comm/communicator.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

/// The shared segment of a host group: what its ranks write for each other. All zero is its valid begin, so
/// nobody has to set it up. Every field has one writer; each writer's fields have their own cache lines.
namespace rankyard::comm {

constexpr std::size_t lineBytes = 128; ///< two lines: the neighbour is fetched along
constexpr std::int64_t smallBytes =
    65536; ///< an operation up to this is copied into the segment when it is started
constexpr std::int64_t chunkBytes = 262144; ///< larger ones outside shared arenas pass through in chunks
constexpr std::int64_t channelChunkBytes = 65536;
constexpr std::uint64_t slotCount =
    16; ///< operations that a rank may publish before the first is done everywhere
constexpr std::uint64_t figuresKept = 1024;

enum class Verb : std::uint8_t { None, AllReduce, ReduceScatter, AllGather, Send, Receive };
const char *nameOf(Verb verb);

/// Where a published buffer can be read.
enum class Place : std::uint8_t { Segment, Arena, Pointer, Private };

/// One published operation.
struct Descriptor {
    Verb verb = Verb::None;
    DType type = DType::F32;
    ReduceOp op = ReduceOp::Sum;
    Place place = Place::Private;
    std::int32_t arena = -1;
    std::int64_t count = 0;    ///< elements; bytes for Send and Receive
    std::uint64_t address = 0; ///< offset in the arena, or a pointer

    std::int64_t elementBytes() const { return static_cast<std::int64_t>(bytesOf(type)); }
    std::int64_t totalBytes() const { return count * elementBytes(); }
};

constexpr std::int64_t ceilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

enum class RankState : std::uint32_t { Absent, Present, Failed, Gone };

using Counter = std::atomic<std::uint64_t>;
static_assert(Counter::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

struct alignas(lineBytes) RankControl {
    // Written by the owner. Counters grow by one; the data that they announce is written before.
    Counter published; ///< collectives whose descriptor (and, if small, data) is there
    Counter done;      ///< collectives for which this rank reads and writes nobody's buffers any more
    Counter staged;    ///< chunks copied into this rank's staging area
    Counter consumed;  ///< chunks that this rank has read from everybody's staging area
    std::atomic<std::uint32_t> state;    ///< RankState
    std::atomic<std::uint32_t> failedAt; ///< low bits of the operation, when Failed

    alignas(lineBytes) Counter beat; ///< grows while the owner is at work elsewhere

    alignas(lineBytes) std::atomic<std::uint32_t> sleeping; ///< the owner is about to wait on `bell`

    alignas(lineBytes) std::atomic<std::uint32_t> bell; ///< written by everybody else: futex word

    alignas(lineBytes) Descriptor slots[slotCount];
};

/// One FIFO from one rank to another.
struct alignas(lineBytes) Channel {
    Counter sent;   ///< by the sender: messages published
    Counter staged; ///< chunks in the channel's two buffers
    Descriptor slots[slotCount];

    alignas(lineBytes) Counter received; ///< by the receiver: messages taken out
    Counter consumed;
};

/// Addresses in a mapped segment of `size` ranks: control blocks, channels (row: sender), small slots and
/// staging by rank, channel buffers. Pages that are never used are never touched, so they cost no memory.
class Segment
{
public:
    Segment(std::byte *base, int size) : m_base(base), m_size(size) {}

    RankControl &control(int rank) const;
    Channel &channel(int from, int to, int channel) const;
    std::byte *small(int rank, std::uint64_t sequence) const;
    std::byte *staging(int rank, std::uint64_t chunk) const;
    std::byte *channelBuffer(int from, int to, int channel, std::uint64_t chunk) const;

    static std::int64_t bytes(int size);

private:
    static constexpr std::int64_t smallArea = smallBytes * static_cast<std::int64_t>(slotCount);
    static constexpr std::int64_t rankArea = smallArea + 2 * chunkBytes;

    std::byte *at(std::int64_t offset) const { return m_base + offset; }
    std::int64_t dataBegin() const;

    std::byte *m_base;
    int m_size;
};

} // namespace rankyard::comm
