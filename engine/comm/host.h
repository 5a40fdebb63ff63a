// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/comm/communicator.h"
#include "engine/comm/peer_watch.h"
#include "engine/comm/segment.h"

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace rankyard::comm {

/// The communicator of ranks on one host: direct reduction in shared memory, for processes and for threads of
/// one process.
///
/// Every collective is published with a descriptor, in the same order on all ranks, and worked on in that
/// order. Three ways:
///   small   (≤ smallBytes) copied into the rank's slot in the segment at the start; everybody sums
///           everything; complete as soon as this rank has its result. One hand-shake.
///   direct  buffers that everybody can address: each rank reduces its slice from all buffers, in rank order,
///           and writes the sum into all of them; complete when all ranks are done. Two hand-shakes, no copy.
///   staged  the same over chunks that are copied through the segment, two in flight.
/// Send and receive: a FIFO per directed pair, direct where the receiver can address the buffer, else through
/// chunks.
///
/// One thread at a time. Allocates at construction and for errors only.
class HostCommunicator final : public Communicator
{
public:
    explicit HostCommunicator(HostGroup group);
    ~HostCommunicator() override;
    Status open();

    int rank() const override { return m_rank; }
    int size() const override { return m_size; }
    const char *backend() const override { return m_threads ? "threads" : "shm"; }

    Result<Ticket> allReduce(void *data, std::int64_t count, DType type, ReduceOp op) override;
    Result<Ticket> reduceScatter(void *data, std::int64_t count, DType type) override;
    Result<Ticket> allGather(void *data, std::int64_t count, DType type, UsedBytes used) override;
    Result<Ticket> send(const void *data, std::int64_t bytes, int peer, int channel) override;
    Result<Ticket> receive(void *data, std::int64_t bytes, int peer, int channel) override;
    Result<bool> advance(Ticket ticket, std::int64_t budget) override;
    Status wait(Ticket ticket) override;
    Figures figures(Ticket ticket) const override;
    void heartbeat() override { m_watch.heartbeat(); }

private:
    static constexpr std::uint64_t pairTicket = std::uint64_t(1) << 63;
    static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

    enum class Way : std::uint8_t { Unknown, Small, Direct, Staged };

    struct Collective {
        Descriptor descriptor;
        std::byte *data = nullptr;
        UsedBytes used = nullptr; ///< of an all-gather; null: all
        Way way = Way::Unknown;
        std::int64_t cursor =
            0; ///< direct: bytes of the own slice that are done; of all slices for all-gather
        std::int64_t chunks = 0; ///< staged: in all, copied in, reduced or read, copied out
        std::int64_t in = 0;
        std::int64_t read = 0;
        std::int64_t out = 0;
        std::uint64_t firstChunk = 0;
        Figures figures;
    };
    struct Message {
        Verb verb = Verb::None;
        int peer = -1;
        int channel = 0;
        std::byte *data = nullptr;
        std::int64_t bytes = 0;
        std::int64_t cursor = 0;
        bool published = false;
        bool done = true;
        std::uint64_t next =
            0; ///< the following message of the same direction, peer and channel, by ticket count
        Figures figures;
    };
    /// The FIFO of one direction, peer and channel: messages that are not done, first and last by ticket count (0:
    /// none).
    struct Queue {
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        std::uint64_t finished = 0; ///< messages before the first
        std::uint64_t chunks = 0;   ///< chunks of finished messages
    };
    /// What one round of progress may still do.
    struct Budget {
        std::int64_t bytes = 0;
        bool moved = false;
        void spend(std::int64_t count)
        {
            bytes -= count;
            moved = true;
        }
    };
    /// Bytes of an operation that belong to a rank: [begin, begin + size).
    struct Slice {
        std::int64_t begin = 0;
        std::int64_t size = 0;
    };

    Collective &collective(std::uint64_t sequence) { return m_collectives[sequence % figuresKept]; }
    Message &message(std::uint64_t count) { return m_messages[count % figuresKept]; }

    Result<Ticket> start(Verb verb, void *data, std::int64_t count, DType type, ReduceOp op,
                         UsedBytes used = nullptr);
    Result<Ticket> startMessage(Verb verb, std::byte *data, std::int64_t bytes, int peer, int channel);
    bool isComplete(Ticket ticket);
    Status progress(Budget &budget);
    Error fail(Error error);

    // Collectives (host.cpp)
    void publishWhatFits(Budget &budget);
    void publish(std::uint64_t sequence);
    Status progressCollectives(Budget &budget);
    Result<bool> matchFront(Budget &budget);
    void countUsed(Collective &op) const;
    Error mismatch(std::uint64_t sequence, int peer, const Descriptor &theirs) const;
    bool workFront(Budget &budget);
    void finishFront();
    void runSmall(Collective &op, std::uint64_t sequence);
    bool runDirect(Collective &op, Budget &budget);
    // Staged collectives (host_staged.cpp)
    bool runStaged(Collective &op, Budget &budget);
    bool copyIn(Collective &op, Budget &budget);
    bool readChunk(Collective &op, Budget &budget);
    bool copyOut(Collective &op, Budget &budget);
    Slice sliceOf(const Collective &op, int rank) const;
    Slice chunkOf(const Collective &op, std::int64_t chunk) const;
    bool reached(Counter RankControl::*counter, std::uint64_t value, Verb verb, std::uint64_t sequence);
    void locate(const void *data, Descriptor &descriptor) const;
    std::byte *resolve(const Descriptor &descriptor, int peer) const;

    // Send and receive (host_pairs.cpp)
    Status progressPairs(Budget &budget);
    Status progressQueue(Queue &queue, Budget &budget);
    bool advanceSend(Message &message, Queue &queue, Budget &budget);
    Result<bool> advanceReceive(Message &message, Queue &queue, Budget &budget);
    bool await(const Counter &counter, std::uint64_t value, const Message &message, std::uint64_t sequence);

    HostGroup m_group;
    int m_rank;
    int m_size;
    bool m_threads;
    Segment m_segment;
    PeerWatch m_watch;
    std::optional<Error> m_error;
    Awaited m_awaited;

    std::uint64_t m_started = 0; ///< collectives, by sequence
    std::uint64_t m_published = 0;
    std::uint64_t m_done = 0;    ///< own work finished
    std::uint64_t m_allDone = 0; ///< everybody's work finished
    std::uint64_t m_chunk = 0;   ///< staged chunks before the front operation
    std::vector<Collective> m_collectives;
    std::vector<const void *> m_inputs; ///< of the front operation, by rank
    std::vector<std::byte *> m_buffers;

    std::uint64_t m_messageCount = 0;
    std::vector<Message> m_messages;
    std::vector<Queue> m_sends; ///< by peer and channel
    std::vector<Queue> m_receives;
    int m_openPairs = 0;
};

} // namespace rankyard::comm
