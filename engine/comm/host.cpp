// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/host.h"

#include "engine/comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace rankyard::comm {

namespace {

constexpr std::int64_t blockBytes = 32768; ///< of one buffer: stays in the nearest cache between two uses

std::string describe(const Descriptor &descriptor)
{
    return std::string(nameOf(descriptor.verb)) + " of " + std::to_string(descriptor.count) + " "
        + rankyard::nameOf(descriptor.type) + (descriptor.op == ReduceOp::Max ? " (max)" : "");
}

std::int64_t wireBytes(Verb verb, std::int64_t payload, std::int64_t n)
{
    return verb == Verb::AllReduce ? ringAllReduceBytes(payload, n) : ringSliceBytes(payload, n);
}

} // namespace

std::int64_t ringAllReduceBytes(std::int64_t payload, std::int64_t ranks)
{
    return 2 * payload * (ranks - 1) / ranks;
}
std::int64_t ringSliceBytes(std::int64_t payload, std::int64_t ranks)
{
    return payload * (ranks - 1) / ranks;
}

HostCommunicator::HostCommunicator(HostGroup group)
    : m_group(std::move(group)),
      m_rank(m_group.rank),
      m_size(static_cast<int>(m_group.ranks.size())),
      m_threads(true),
      m_segment(static_cast<std::byte *>(m_group.segment), m_size),
      m_watch(m_segment, m_group),
      m_collectives(figuresKept),
      m_inputs(m_group.ranks.size()),
      m_buffers(m_group.ranks.size()),
      m_messages(figuresKept),
      m_sends(m_group.ranks.size() * channelCount),
      m_receives(m_group.ranks.size() * channelCount)
{
    for (std::size_t r = 0; r < m_group.pids.size(); ++r)
        m_threads = m_threads && (static_cast<int>(r) == m_rank || m_group.pids[r] == 0);
}

Status HostCommunicator::open()
{
    RY_TRY(m_watch.open());
    m_watch.setState(RankState::Present);
    return {};
}

HostCommunicator::~HostCommunicator()
{
    m_watch.setState(RankState::Gone, m_done + 1);
    if (!m_threads)
        return;
    // The owner may free buffers that a peer thread is reading just now: such a read is short, so give it its
    // time.
    std::uint64_t lent = m_published;
    while (lent > 0 && m_published - lent < slotCount && collective(lent).descriptor.place == Place::Segment)
        --lent;
    const std::int64_t deadline = monotonicNs() + 200'000'000;
    for (int r = 0; r < m_size; ++r) {
        const RankControl &peer = m_segment.control(r);
        const auto mayRead = [&] {
            return peer.state.load(std::memory_order_acquire)
                == static_cast<std::uint32_t>(RankState::Present)
                && peer.done.load(std::memory_order_acquire) < lent;
        };
        while (r != m_rank && mayRead() && monotonicNs() < deadline)
            ::usleep(50);
    }
}

Error HostCommunicator::fail(Error error)
{
    if (!m_error) {
        m_error = std::move(error);
        m_watch.setState(RankState::Failed, m_done + 1);
    }
    return *m_error;
}

// ----------------------------------------------------------------------------------------------------- start

Result<Ticket> HostCommunicator::allReduce(void *data, std::int64_t count, DType type, ReduceOp op)
{
    return start(Verb::AllReduce, data, count, type, op);
}

Result<Ticket> HostCommunicator::reduceScatter(void *data, std::int64_t count, DType type)
{
    return start(Verb::ReduceScatter, data, count, type, ReduceOp::Sum);
}

Result<Ticket> HostCommunicator::allGather(void *data, std::int64_t count, DType type, UsedBytes used)
{
    return start(Verb::AllGather, data, count, type, ReduceOp::Sum, used);
}

Result<Ticket> HostCommunicator::start(Verb verb, void *data, std::int64_t count, DType type, ReduceOp op,
                                       UsedBytes used)
{
    if (m_error)
        return *m_error;
    if (count < 0 || (verb != Verb::AllReduce && count % m_size != 0))
        return fail(
            Error::make(Code::Internal, "the count is not a multiple of the group's size", nameOf(verb))
                .withFound(std::to_string(count)));
    if (verb != Verb::AllGather && !canReduce(type))
        return fail(Error::make(Code::Internal, "a type that cannot be summed", nameOf(verb))
                        .withFound(rankyard::nameOf(type)));
    if (m_started - m_done >= figuresKept - slotCount)
        return fail(Error::make(Code::Internal, "too many operations under way", m_group.name));
    Collective &op_ = collective(++m_started);
    op_ = Collective{};
    op_.data = static_cast<std::byte *>(data);
    op_.used = used;
    op_.descriptor.verb = verb;
    op_.descriptor.type = type;
    op_.descriptor.op = op;
    op_.descriptor.count = count;
    op_.figures.payload = op_.descriptor.totalBytes();
    op_.figures.wire = wireBytes(verb, op_.figures.payload, m_size);
    m_watch.heartbeat();
    Budget budget{unlimited, false};
    publishWhatFits(budget);
    return Ticket{m_started};
}

void HostCommunicator::locate(const void *data, Descriptor &descriptor) const
{
    const auto *at = static_cast<const std::byte *>(data);
    for (std::size_t a = 0; a < m_group.arenas.size(); ++a) {
        const std::byte *base = m_group.arenas[a].base[static_cast<std::size_t>(m_rank)];
        if (at >= base && at < base + m_group.arenas[a].bytes) {
            descriptor.place = Place::Arena;
            descriptor.arena = static_cast<std::int32_t>(a);
            descriptor.address = static_cast<std::uint64_t>(at - base);
            return;
        }
    }
    descriptor.place = m_threads ? Place::Pointer : Place::Private;
    descriptor.address = reinterpret_cast<std::uint64_t>(data);
}

std::byte *HostCommunicator::resolve(const Descriptor &descriptor, int peer) const
{
    if (descriptor.place == Place::Arena)
        return m_group.arenas[static_cast<std::size_t>(descriptor.arena)].base[static_cast<std::size_t>(peer)]
            + descriptor.address;
    return reinterpret_cast<std::byte *>(descriptor.address);
}

/// A slot and its small data are free when everybody is done with the operation that used them before.
void HostCommunicator::publishWhatFits(Budget &budget)
{
    while (m_published < m_started) {
        const std::uint64_t next = m_published + 1;
        if (next > m_done + slotCount
            || (next > slotCount && !reached(&RankControl::done, next - slotCount, Verb::None, next)))
            return;
        publish(next);
        budget.moved = true;
    }
}

void HostCommunicator::publish(std::uint64_t sequence)
{
    Collective &op = collective(sequence);
    const std::int64_t bytes = op.descriptor.totalBytes();
    if (bytes <= smallBytes) {
        op.descriptor.place = Place::Segment;
        const Slice own = op.descriptor.verb == Verb::AllGather ? sliceOf(op, m_rank) : Slice{0, bytes};
        if (own.size > 0)
            std::memcpy(m_segment.small(m_rank, sequence), op.data + own.begin,
                        static_cast<std::size_t>(own.size));
        op.figures.moved += own.size;
    } else {
        locate(op.data, op.descriptor);
    }
    RankControl &own = m_segment.control(m_rank);
    own.slots[sequence % slotCount] = op.descriptor;
    own.published.store(sequence, std::memory_order_seq_cst);
    m_published = sequence;
    m_watch.notify();
}

// ------------------------------------------------------------------------------------------------ completion

bool HostCommunicator::isComplete(Ticket ticket)
{
    if (ticket.sequence >= pairTicket) {
        const std::uint64_t count = ticket.sequence - pairTicket;
        return m_messageCount - count >= figuresKept || message(count).done;
    }
    if (ticket.sequence > m_done)
        return false;
    if (m_started - ticket.sequence >= figuresKept)
        return true;
    // Only a direct operation's buffer may still be in use by others.
    const Way way = collective(ticket.sequence).way;
    if (way != Way::Direct || ticket.sequence <= m_allDone)
        return true;
    if (!reached(&RankControl::done, ticket.sequence, collective(ticket.sequence).descriptor.verb,
                 ticket.sequence))
        return false;
    m_allDone = std::max(m_allDone, ticket.sequence);
    return true;
}

Status HostCommunicator::progress(Budget &budget)
{
    if (m_error)
        return *m_error;
    m_awaited = {};
    if (m_done < m_started) {
        if (auto status = progressCollectives(budget); !status)
            return fail(status.error());
    }
    if (m_openPairs > 0) {
        if (auto status = progressPairs(budget); !status)
            return fail(status.error());
    }
    return {};
}

Result<bool> HostCommunicator::advance(Ticket ticket, std::int64_t budgetBytes)
{
    m_watch.heartbeat();
    Budget budget{budgetBytes, false};
    RY_TRY(progress(budget));
    if (isComplete(ticket))
        return true;
    if (budget.moved)
        return false;
    // The peer may have acted and gone between the look at its counters and the look at itself: look at them
    // once more.
    if (auto status = m_watch.check(m_awaited); !status) {
        RY_TRY(progress(budget));
        if (isComplete(ticket))
            return true;
        if (!budget.moved)
            return fail(status.error());
    }
    return false;
}

Status HostCommunicator::wait(Ticket ticket)
{
    m_watch.begin();
    for (;;) {
        Budget budget{unlimited, false};
        RY_TRY(progress(budget));
        if (isComplete(ticket))
            return {};
        if (budget.moved) {
            m_watch.moved();
            continue;
        }
        if (!m_watch.pause())
            continue;
        RY_TRY(progress(budget)); // whoever acted before the bell was armed does not ring it
        const bool complete = isComplete(ticket);
        if (complete || budget.moved) {
            m_watch.disarm();
            if (complete)
                return {};
            m_watch.moved();
            continue;
        }
        m_watch.heartbeat(); // who waits is alive; that all wait for each other is for the run's watch to see
        const Status status = m_watch.sleep(m_awaited);
        if (status.ok())
            continue;
        RY_TRY(progress(budget));
        if (!isComplete(ticket) && !budget.moved)
            return fail(status.error());
    }
}

Figures HostCommunicator::figures(Ticket ticket) const
{
    if (ticket.sequence >= pairTicket)
        return m_messages[(ticket.sequence - pairTicket) % figuresKept].figures;
    return m_collectives[ticket.sequence % figuresKept].figures;
}

// ------------------------------------------------------------------------------------------------------ work

/// Whether the counter of every rank is at least `value`; if not, the first that is behind is awaited.
bool HostCommunicator::reached(Counter RankControl::*counter, std::uint64_t value, Verb verb,
                               std::uint64_t sequence)
{
    for (int r = 0; r < m_size; ++r) {
        if (r != m_rank && (m_segment.control(r).*counter).load(std::memory_order_seq_cst) < value) {
            m_awaited = {r, verb, sequence};
            return false;
        }
    }
    return true;
}

Status HostCommunicator::progressCollectives(Budget &budget)
{
    publishWhatFits(budget);
    while (m_done < m_published && budget.bytes > 0) {
        RY_ASSIGN(const bool matched, matchFront(budget));
        if (!matched || !workFront(budget))
            return {};
        countUsed(collective(m_done + 1));
        finishFront();
        publishWhatFits(budget);
    }
    return {};
}

/// Of a gather whose slices are partly in use, the figures of what is.
void HostCommunicator::countUsed(Collective &op) const
{
    if (!op.used)
        return;
    op.figures.payload = 0;
    for (int r = 0; r < m_size; ++r) {
        const Slice slice = sliceOf(op, r);
        op.figures.payload += op.used(op.data + slice.begin, slice.size);
    }
    op.figures.wire = wireBytes(op.descriptor.verb, op.figures.payload, m_size);
}

Result<bool> HostCommunicator::matchFront(Budget &budget)
{
    const std::uint64_t sequence = m_done + 1;
    Collective &op = collective(sequence);
    if (op.way != Way::Unknown)
        return true;
    if (!reached(&RankControl::published, sequence, op.descriptor.verb, sequence))
        return false;
    bool direct = true;
    for (int r = 0; r < m_size; ++r) {
        const Descriptor &theirs = m_segment.control(r).slots[sequence % slotCount];
        if (theirs.verb != op.descriptor.verb || theirs.count != op.descriptor.count
            || theirs.type != op.descriptor.type || theirs.op != op.descriptor.op)
            return mismatch(sequence, r, theirs);
        direct = direct && (theirs.place == Place::Arena || theirs.place == Place::Pointer);
        m_buffers[static_cast<std::size_t>(r)] = r == m_rank ? op.data : resolve(theirs, r);
    }
    op.way = op.descriptor.totalBytes() <= smallBytes ? Way::Small : direct ? Way::Direct : Way::Staged;
    if (op.way == Way::Staged) {
        op.firstChunk = m_chunk;
        const std::int64_t slice = op.descriptor.totalBytes() / m_size;
        const bool whole = op.descriptor.verb == Verb::AllReduce;
        op.chunks =
            whole ? ceilDiv(op.descriptor.totalBytes(), chunkBytes) : ceilDiv(slice, chunkOf(op, 0).size);
    }
    budget.moved = true;
    return true;
}

Error HostCommunicator::mismatch(std::uint64_t sequence, int peer, const Descriptor &theirs) const
{
    const auto rankName = [this](int r) {
        return "rank " + std::to_string(m_group.ranks[static_cast<std::size_t>(r)]);
    };
    const Descriptor &own = m_collectives[sequence % figuresKept].descriptor;
    return Error::make(Code::RankFailed,
                       "ranks disagree on operation " + std::to_string(sequence) + " of group "
                           + m_group.name,
                       rankName(m_rank))
        .withFound(rankName(m_rank) + ": " + describe(own) + ", " + rankName(peer) + ": " + describe(theirs));
}

bool HostCommunicator::workFront(Budget &budget)
{
    Collective &op = collective(m_done + 1);
    switch (op.way) {
    case Way::Small:
        runSmall(op, m_done + 1);
        budget.spend(op.descriptor.totalBytes() * m_size);
        return true;
    case Way::Direct:
        return runDirect(op, budget);
    default:
        return runStaged(op, budget);
    }
}

void HostCommunicator::finishFront()
{
    m_chunk += static_cast<std::uint64_t>(collective(m_done + 1).chunks);
    ++m_done;
    m_segment.control(m_rank).done.store(m_done, std::memory_order_seq_cst);
    m_watch.notify();
}

/// All-reduce cuts the buffer into pieces of whole cache lines, the last ones possibly empty; the others into
/// equal ones.
HostCommunicator::Slice HostCommunicator::sliceOf(const Collective &op, int rank) const
{
    const std::int64_t total = op.descriptor.totalBytes();
    if (op.descriptor.verb != Verb::AllReduce)
        return {total / m_size * rank, total / m_size};
    const std::int64_t piece = ceilDiv(ceilDiv(total, 64), m_size) * 64;
    const std::int64_t begin = std::min(total, piece * rank);
    return {begin, std::min(total, begin + piece) - begin};
}

void HostCommunicator::runSmall(Collective &op, std::uint64_t sequence)
{
    const Slice own = sliceOf(op, m_rank);
    for (int r = 0; r < m_size; ++r) {
        const std::byte *theirs = m_segment.small(r, sequence);
        if (op.descriptor.verb == Verb::AllGather) {
            const Slice slice = sliceOf(op, r);
            if (r != m_rank && slice.size > 0) {
                std::memcpy(op.data + slice.begin, theirs, static_cast<std::size_t>(slice.size));
                op.figures.moved += slice.size;
            }
            continue;
        }
        m_inputs[static_cast<std::size_t>(r)] =
            op.descriptor.verb == Verb::ReduceScatter ? theirs + own.begin : theirs;
    }
    if (op.descriptor.verb == Verb::AllGather)
        return;
    const bool scatter = op.descriptor.verb == Verb::ReduceScatter;
    const std::int64_t bytes = scatter ? own.size : op.descriptor.totalBytes();
    reduce(op.descriptor.type, op.descriptor.op, m_inputs.data(), m_size, op.data + (scatter ? own.begin : 0),
           bytes / op.descriptor.elementBytes());
    op.figures.moved += bytes * (m_size - 1);
}

bool HostCommunicator::runDirect(Collective &op, Budget &budget)
{
    const bool gather = op.descriptor.verb == Verb::AllGather;
    const Slice own = sliceOf(op, m_rank);
    const std::int64_t end = gather ? own.size * m_size : own.size;
    while (op.cursor < end) {
        if (budget.bytes <= 0)
            return false;
        if (gather) {
            const auto r = static_cast<std::size_t>(op.cursor / own.size);
            const std::int64_t within = op.cursor % own.size;
            const std::int64_t used =
                op.used ? op.used(m_buffers[r] + op.cursor - within, own.size) : own.size;
            if (within >= used) {
                op.cursor += own.size - within;
                continue;
            }
            const std::int64_t size = std::min(8 * blockBytes, used - within);
            if (static_cast<int>(r) != m_rank) {
                std::memcpy(op.data + op.cursor, m_buffers[r] + op.cursor, static_cast<std::size_t>(size));
                op.figures.moved += size;
                budget.spend(size);
            }
            op.cursor += size;
            continue;
        }
        const std::int64_t size = std::min(blockBytes, own.size - op.cursor);
        const std::int64_t at = own.begin + op.cursor;
        for (std::size_t r = 0; r < m_buffers.size(); ++r)
            m_inputs[r] = m_buffers[r] + at;
        reduce(op.descriptor.type, op.descriptor.op, m_inputs.data(), m_size, op.data + at,
               size / op.descriptor.elementBytes());
        op.figures.moved += size * (m_size - 1);
        // Nobody but this rank reads this slice of any buffer, so the sum can go into all of them at once.
        for (int r = 0; op.descriptor.verb == Verb::AllReduce && r < m_size; ++r) {
            if (r == m_rank)
                continue;
            std::memcpy(m_buffers[static_cast<std::size_t>(r)] + at, op.data + at,
                        static_cast<std::size_t>(size));
            op.figures.moved += size;
        }
        op.cursor += size;
        budget.spend(size * m_size);
    }
    return true;
}

} // namespace rankyard::comm
