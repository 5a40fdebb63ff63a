// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/comm/segment.h"

#include <cstdint>
#include <string>
#include <vector>

namespace rankyard::comm {

/// What an operation waits for, for messages.
struct Awaited {
    int peer = -1; ///< rank in the group
    Verb verb = Verb::None;
    std::uint64_t sequence = 0;
};

/// Sleeping, waking and liveness among the ranks of a host group. Owned by a communicator, used from its
/// thread.
///
/// A waiter spins for a few µs, yields up to 20 µs, then sleeps on its own bell; who changes a counter rings
/// the bells of those who sleep (flag and counters are sequentially consistent, so no ring is lost). While it
/// sleeps it looks every `poll` whether the awaited peer still lives.
class PeerWatch
{
public:
    PeerWatch(Segment segment, const HostGroup &group);

    /// Opens a pidfd for each peer process. A peer that is dead already is an error.
    Status open();

    /// After a counter of this rank has changed.
    void notify();
    void setState(RankState state, std::uint64_t sequence = 0);
    void heartbeat();

    /// One wait: forget what was seen of the peers before.
    void begin();
    /// Progress was made: the next pause() spins again.
    void moved() { m_idleSince = 0; }
    /// Nothing can be done before `awaited` acts: spins, yields or arms the sleep. True: look once more, then
    /// sleep().
    bool pause();
    /// Sleeps on the bell that pause() has armed; returns early when somebody rings. Errors: see check().
    Status sleep(const Awaited &awaited);
    void disarm();

    /// The awaited peer is dead, gone or failed (looked up at most every `poll`).
    Status check(const Awaited &awaited);

private:
    struct Peer {
        Fd pidfd;
        int pid = 0;
        std::uint64_t signature = 0;
        std::int64_t since = 0; ///< of the signature
    };

    bool isDead(const Peer &peer) const;
    Status checkNow(const Awaited &awaited);
    Status checkHang(const Awaited &awaited, std::int64_t now);
    std::uint64_t signatureOf(int peer) const;
    std::string nameOf(int peer) const;
    Error failure(const Awaited &awaited, std::string what) const;

    Segment m_segment;
    std::string m_group;
    int m_rank;
    std::vector<int> m_ranks;
    Timeouts m_timeouts;
    std::vector<Peer> m_peers;
    std::int64_t m_idleSince = 0;
    std::int64_t m_lastCheck = 0;
    std::uint32_t m_bell = 0;
};

} // namespace rankyard::comm
