// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/base/units.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// One communicator over every back end: shared memory on one host, threads of one process, Gloo between
/// hosts, later NCCL.
namespace rankyard::comm {

/// FIFOs of messages in each direction between two ranks: a pipeline's, by what flows (plan::Channel).
constexpr int channelCount = 4;

enum class ReduceOp : std::uint8_t { Sum, Max };

/// Bytes of one operation on this rank: `payload` logical, `wire` by the algorithm's formula, `moved`
/// measured.
struct Figures {
    std::int64_t payload = 0;
    std::int64_t wire = 0;
    std::int64_t moved = 0;
};

/// Bytes that a rank sends in a ring (Thakur et al. 2005): of an all-reduce, and of a reduce-scatter or all-gather of `payload`
/// bytes in all.
std::int64_t ringAllReduceBytes(std::int64_t payload, std::int64_t ranks);
std::int64_t ringSliceBytes(std::int64_t payload, std::int64_t ranks);

/// How many bytes at the head of a slice say something; the others need not be moved.
using UsedBytes = std::int64_t (*)(const std::byte *slice, std::int64_t bytes);

/// An operation that was started: a number, nothing to release. 0 is no operation.
struct Ticket {
    /// Collectives: from 1, equal on all members for the same operation. Send and receive: their own count,
    /// from 2^63.
    std::uint64_t sequence = 0;
};

/// A process group as one of its ranks sees it. One thread at a time calls it. At most 1,024 operations are
/// under way. All members start the same operations in the same order; a mismatch is found by sequence
/// number, kind and size and reported on each side.
///
/// All operations are asynchronous: the start functions return at once; progress happens inside advance() and
/// wait(). The caller leaves the buffers alone in between. Errors are sticky: after one, everything fails
/// with it. A member that dies is an error in less than 0.5 s, one that makes no progress for
/// `Timeouts::hang` is an error too.
class Communicator
{
public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual const char *backend() const = 0; ///< "shm", "threads", "gloo", "single"

    /// In place over `count` elements. fp16/bf16 sums are accumulated in fp32, integers not supported but
    /// I32/I64.
    virtual Result<Ticket> allReduce(void *data, std::int64_t count, DType type, ReduceOp op) = 0;
    /// `count` elements in total, a multiple of size(). Slice rank() becomes the sum; the other slices are
    /// undefined after.
    virtual Result<Ticket> reduceScatter(void *data, std::int64_t count, DType type) = 0;
    /// `count` elements in total, a multiple of size(). Slice rank() goes to everybody. With `used`, payload and wire are those of the bytes in
    /// use, where the back end can leave out the others (shared memory, threads).
    virtual Result<Ticket> allGather(void *data, std::int64_t count, DType type,
                                     UsedBytes used = nullptr) = 0;
    /// To and from a peer, first in, first out within a channel: message k of a channel on one side is message k on the other.
    virtual Result<Ticket> send(const void *data, std::int64_t bytes, int peer, int channel = 0) = 0;
    virtual Result<Ticket> receive(void *data, std::int64_t bytes, int peer, int channel = 0) = 0;

    /// Does what can be done now without waiting, at most about `budget` bytes. True when this operation is
    /// complete.
    virtual Result<bool> advance(Ticket ticket, std::int64_t budget) = 0;
    /// Until complete. Never spins longer than 20 µs before it sleeps.
    virtual Status wait(Ticket ticket) = 0;
    /// Of a completed operation; kept for the last 1,024.
    virtual Figures figures(Ticket ticket) const = 0;
    /// Tells the peers that this rank is alive and at work. Call it at least once a second while computing;
    /// advance() and the start functions do it too. Costs one store.
    virtual void heartbeat() {}

    Status barrier();
};

/// Memory that all ranks of this host can address. `base[r]` is where rank r's part is mapped in this
/// process; equal offsets are equal places (programs are SPMD). Buffers inside it are read, and sums are
/// written, by peers in place, without staging.
struct SharedArena {
    std::vector<std::byte *> base; ///< by rank in the group
    std::int64_t bytes = 0;
};

struct Timeouts {
    std::chrono::milliseconds hang{10000};   ///< a live peer without progress and without heartbeat
    std::chrono::milliseconds start{120000}; ///< the same for a peer that has not made its communicator yet
    std::chrono::milliseconds poll{20};      ///< sleep between liveness checks while waiting
};

/// A group as one of its ranks sees it.
struct HostGroup {
    std::string name;       ///< for messages: "dp"
    int rank = 0;           ///< in the group
    std::vector<int> ranks; ///< global ranks by rank in the group: who is named in errors
    /// Mapped by every member, zero-filled at start, hostSegmentBytes(size) bytes.
    void *segment = nullptr;
    std::int64_t segmentBytes = 0;
    /// Process ids by rank in the group; 0: a thread of this process. All 0: addresses are valid everywhere,
    /// nothing is staged.
    std::vector<int> pids;
    std::vector<SharedArena> arenas; ///< the same on all members, in the same order; may be empty
    std::shared_ptr<void> keepAlive; ///< what must outlive the communicator
    Timeouts timeouts;
};

/// Bytes of the control and staging segment for a group of `size` ranks. Most of it is touched by large
/// unshared buffers only.
std::int64_t hostSegmentBytes(int size);

/// The shared-memory back end. A segment that is too small or a peer that is dead already is an error.
Result<std::unique_ptr<Communicator>> makeHostCommunicator(HostGroup group);

/// A group of one: everything completes at once, nothing moves.
std::unique_ptr<Communicator> makeSingleCommunicator();

/// n communicators for n threads of this process, for tests and thread ranks: the host back end over private
/// memory. A rank that destroys its communicator while peers still need it is a failed rank to them.
std::vector<std::unique_ptr<Communicator>> makeThreadCommunicators(int size, Timeouts timeouts = {});

} // namespace rankyard::comm
