// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/peer_watch.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rankyard::comm {

namespace {

constexpr std::int64_t spinNs = 6'000;
constexpr std::int64_t yieldNs = 20'000; ///< from the begin of the wait, spinning included

std::int64_t nanoseconds(std::chrono::milliseconds time) { return time.count() * 1'000'000; }

void relax()
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Not the private kinds of futex: the word lies in memory that processes share.
void futexWait(std::atomic<std::uint32_t> &word, std::uint32_t expected, std::int64_t timeoutNs)
{
    const timespec timeout{timeoutNs / 1'000'000'000, timeoutNs % 1'000'000'000};
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t *>(&word), FUTEX_WAIT, expected, &timeout, nullptr,
              0);
}

void futexWake(std::atomic<std::uint32_t> &word)
{
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t *>(&word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

} // namespace

PeerWatch::PeerWatch(Segment segment, const HostGroup &group)
    : m_segment(segment),
      m_group(group.name),
      m_rank(group.rank),
      m_ranks(group.ranks),
      m_timeouts(group.timeouts),
      m_peers(group.ranks.size())
{
    for (std::size_t r = 0; r < m_peers.size() && r < group.pids.size(); ++r)
        m_peers[r].pid = static_cast<int>(r) == m_rank ? 0 : group.pids[r];
}

Status PeerWatch::open()
{
    for (std::size_t r = 0; r < m_peers.size(); ++r) {
        Peer &peer = m_peers[r];
        if (peer.pid == 0)
            continue;
        peer.pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
        if (!peer.pidfd.valid() && errno != ENOSYS && errno != EPERM)
            return failure({static_cast<int>(r), Verb::None, 0}, "has died before the start");
    }
    return {};
}

void PeerWatch::notify()
{
    for (int r = 0; r < static_cast<int>(m_peers.size()); ++r) {
        if (r == m_rank)
            continue;
        RankControl &peer = m_segment.control(r);
        if (peer.sleeping.load(std::memory_order_seq_cst) != 0) {
            peer.bell.fetch_add(1, std::memory_order_seq_cst);
            futexWake(peer.bell);
        }
    }
}

void PeerWatch::setState(RankState state, std::uint64_t sequence)
{
    RankControl &own = m_segment.control(m_rank);
    own.failedAt.store(static_cast<std::uint32_t>(sequence), std::memory_order_relaxed);
    own.state.store(static_cast<std::uint32_t>(state), std::memory_order_seq_cst);
    notify();
}

void PeerWatch::heartbeat()
{
    Counter &beat = m_segment.control(m_rank).beat;
    beat.store(beat.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void PeerWatch::begin()
{
    m_idleSince = 0;
    for (Peer &peer : m_peers)
        peer.since = 0;
}

bool PeerWatch::pause()
{
    const std::int64_t now = monotonicNs();
    if (m_idleSince == 0)
        m_idleSince = now;
    if (now - m_idleSince < spinNs) {
        for (int i = 0; i < 16; ++i)
            relax();
        return false;
    }
    if (now - m_idleSince < yieldNs) {
        ::sched_yield();
        return false;
    }
    RankControl &own = m_segment.control(m_rank);
    own.sleeping.store(1, std::memory_order_seq_cst);
    m_bell = own.bell.load(std::memory_order_seq_cst);
    return true;
}

Status PeerWatch::sleep(const Awaited &awaited)
{
    futexWait(m_segment.control(m_rank).bell, m_bell, nanoseconds(m_timeouts.poll));
    disarm();
    return check(awaited);
}

void PeerWatch::disarm() { m_segment.control(m_rank).sleeping.store(0, std::memory_order_relaxed); }

Status PeerWatch::check(const Awaited &awaited)
{
    const std::int64_t now = monotonicNs();
    const std::int64_t poll = nanoseconds(m_timeouts.poll);
    if (now - m_lastCheck < poll)
        return {};
    // After a long gap (this process was stopped, or computed) what was seen of the peers says nothing about
    // them.
    if (now - m_lastCheck > 10 * poll) {
        for (Peer &peer : m_peers)
            peer.since = 0;
    }
    m_lastCheck = now;
    RY_TRY(checkNow(awaited));
    return checkHang(awaited, now);
}

bool PeerWatch::isDead(const Peer &peer) const
{
    if (peer.pid == 0)
        return false;
    if (!peer.pidfd.valid())
        return ::kill(peer.pid, 0) != 0 && errno == ESRCH;
    pollfd entry{peer.pidfd.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0; // readable once it has ended, reaped or not
}

Status PeerWatch::checkNow(const Awaited &awaited)
{
    const auto stateOf = [this](int r) {
        return static_cast<RankState>(m_segment.control(r).state.load(std::memory_order_seq_cst));
    };
    // Any dead member is named, not only the awaited one: who waits for a rank that waits for a dead rank
    // knows the cause. One that left before it ended is needed by nobody, unless it is awaited.
    for (int r = 0; r < static_cast<int>(m_peers.size()); ++r) {
        if (isDead(m_peers[static_cast<std::size_t>(r)])
            && (r == awaited.peer || stateOf(r) != RankState::Gone))
            return failure({r, awaited.verb, awaited.sequence}, "has died");
    }
    if (awaited.peer < 0)
        return {};
    const RankState state = stateOf(awaited.peer);
    if (state == RankState::Gone)
        return failure(awaited, "has left the group");
    if (state == RankState::Failed)
        return failure(awaited,
                       "has failed at operation "
                           + std::to_string(m_segment.control(awaited.peer).failedAt.load()));
    return {};
}

std::uint64_t PeerWatch::signatureOf(int peer) const
{
    // Every counter only grows, so the sum changes when any of them does.
    const RankControl &control = m_segment.control(peer);
    const auto get = [](const Counter &counter) { return counter.load(std::memory_order_relaxed); };
    std::uint64_t sum = get(control.published) + get(control.done) + get(control.staged)
        + get(control.consumed) + get(control.beat) + control.state.load(std::memory_order_relaxed);
    for (int other = 0; other < static_cast<int>(m_peers.size()); ++other) {
        for (int channel = 0; channel < channelCount; ++channel) {
            const Channel &out = m_segment.channel(peer, other, channel);
            const Channel &in = m_segment.channel(other, peer, channel);
            sum += get(out.sent) + get(out.staged) + get(in.received) + get(in.consumed);
        }
    }
    return sum;
}

Status PeerWatch::checkHang(const Awaited &awaited, std::int64_t now)
{
    if (awaited.peer < 0)
        return {};
    Peer &peer = m_peers[static_cast<std::size_t>(awaited.peer)];
    const std::uint64_t signature = signatureOf(awaited.peer);
    if (peer.since == 0 || signature != peer.signature) {
        peer.signature = signature;
        peer.since = now;
        return {};
    }
    const bool absent = m_segment.control(awaited.peer).state.load(std::memory_order_relaxed)
        == static_cast<std::uint32_t>(RankState::Absent);
    const auto limit = absent ? m_timeouts.start : m_timeouts.hang;
    if (now - peer.since < nanoseconds(limit))
        return {};
    return failure(awaited,
                   (absent ? "has not joined the group for " : "hangs: no progress for ")
                       + std::to_string(limit.count()) + " ms");
}

std::string PeerWatch::nameOf(int peer) const
{
    return "rank " + std::to_string(m_ranks[static_cast<std::size_t>(peer)]);
}

Error PeerWatch::failure(const Awaited &awaited, std::string what) const
{
    Error error = Error::make(Code::RankFailed, nameOf(awaited.peer) + " " + what, nameOf(awaited.peer));
    if (awaited.verb != Verb::None)
        error.found = "while waiting in " + std::string(comm::nameOf(awaited.verb)) + " "
            + std::to_string(awaited.sequence) + " of group " + m_group;
    return error;
}

} // namespace rankyard::comm
