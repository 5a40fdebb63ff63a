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

/// One communicator over every back end: shared memory on one host, threads of one process, Gloo between hosts, later NCCL.
namespace rankyard::comm {

enum class ReduceOp : std::uint8_t { Sum, Max };

/// Bytes of one operation on this rank: `payload` logical, `wire` by the algorithm's formula, `moved` measured.
struct Figures {
    std::int64_t payload = 0;
    std::int64_t wire = 0;
    std::int64_t moved = 0;
};

/// An operation that was started. Owned by the communicator; valid until the communicator's next operation with the same ticket
/// slot: the caller finishes it with wait() or a true from advance() exactly once.
struct Ticket {
    std::uint64_t sequence = 0; ///< per group, from 1; equal on all members for the same operation
};

/// A process group as one of its ranks sees it. One thread at a time calls it. All members start the same operations in the
/// same order; a mismatch is found by sequence number, kind and size and reported on each side.
///
/// All operations are asynchronous: the start functions return at once; progress happens inside advance() and wait(). The caller
/// leaves the buffers alone in between. Errors are sticky: after one, everything fails with it.
/// A member that dies is an error in less than 0.5 s, one that makes no progress for `hangTimeout` is an error too.
class Communicator
{
public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual const char *backend() const = 0; ///< "shm", "threads", "gloo", "single"

    /// In place over `count` elements. fp16/bf16 sums are accumulated in fp32, integers not supported but I32/I64.
    virtual Result<Ticket> allReduce(void *data, std::int64_t count, DType type, ReduceOp op) = 0;
    /// `count` elements in total, a multiple of size(). Slice rank() becomes the sum; the other slices are undefined after.
    virtual Result<Ticket> reduceScatter(void *data, std::int64_t count, DType type) = 0;
    /// `count` elements in total, a multiple of size(). Slice rank() goes to everybody.
    virtual Result<Ticket> allGather(void *data, std::int64_t count, DType type) = 0;
    virtual Result<Ticket> send(const void *data, std::int64_t bytes, int peer) = 0;
    virtual Result<Ticket> receive(void *data, std::int64_t bytes, int peer) = 0;

    /// Does what can be done now without waiting, at most about `budget` bytes. True when this operation is complete.
    virtual Result<bool> advance(Ticket ticket, std::int64_t budget) = 0;
    /// Until complete. Never spins longer than 20 µs before it sleeps.
    virtual Status wait(Ticket ticket) = 0;
    /// Of a completed operation; kept for the last 1,024.
    virtual Figures figures(Ticket ticket) const = 0;

    Status barrier();
};

/// Memory that all ranks of this host can address. `base[r]` is where rank r's part is mapped in this process; equal offsets are
/// equal places (programs are SPMD). Buffers inside it are read by peers in place, without staging.
struct SharedArena {
    std::vector<std::byte *> base; ///< by rank in the host group
    std::int64_t bytes = 0;
};

struct Timeouts {
    std::chrono::milliseconds hang {10000}; ///< a live peer without progress
    std::chrono::milliseconds poll {20};    ///< sleep between liveness checks while waiting
};

/// Bytes of the control and staging segment for a group of `size` ranks.
std::int64_t hostSegmentBytes(int size);

/// The shared-memory back end. `segment` is mapped by every rank, zero-filled at start. `peers` are process ids by rank in the
/// group, 0 for ranks that are threads of this process. `arenas` may be empty.
Result<std::unique_ptr<Communicator>> makeHostCommunicator(int rank, int size, void *segment, std::int64_t segmentBytes,
                                                           std::vector<int> peers, std::vector<SharedArena> arenas,
                                                           Timeouts timeouts = {});

/// A group of one: everything completes at once, nothing moves.
std::unique_ptr<Communicator> makeSingleCommunicator();

/// n communicators for n threads of this process, for tests and thread ranks: the host back end over private memory.
std::vector<std::unique_ptr<Communicator>> makeThreadCommunicators(int size, Timeouts timeouts = {});

} // namespace rankyard::comm
