// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/host.h"

#include <algorithm>
#include <cstring>

// Send and receive of the host communicator. Message k of a channel of a directed pair on one side is message k on the
// other.

namespace rankyard::comm {

namespace {

std::uint64_t chunksOf(std::int64_t bytes)
{
    return static_cast<std::uint64_t>((bytes + channelChunkBytes - 1) / channelChunkBytes);
}

} // namespace

Result<Ticket> HostCommunicator::send(const void *data, std::int64_t bytes, int peer, int channel)
{
    // Never written through: the queue holds both directions.
    return startMessage(Verb::Send, static_cast<std::byte *>(const_cast<void *>(data)), bytes, peer, channel);
}

Result<Ticket> HostCommunicator::receive(void *data, std::int64_t bytes, int peer, int channel)
{
    return startMessage(Verb::Receive, static_cast<std::byte *>(data), bytes, peer, channel);
}

Result<Ticket> HostCommunicator::startMessage(Verb verb, std::byte *data, std::int64_t bytes, int peer,
                                              int channel)
{
    if (m_error)
        return *m_error;
    if (channel < 0 || channel >= channelCount)
        return fail(Error::make(Code::Internal, "there is no such channel", nameOf(verb))
                        .withFound(std::to_string(channel)));
    if (peer < 0 || peer >= m_size || peer == m_rank || bytes < 0)
        return fail(Error::make(Code::Internal, "there is no such peer in the group", nameOf(verb))
                        .withFound(std::to_string(peer)));
    const std::uint64_t count = m_messageCount + 1;
    if (!message(count).done)
        return fail(Error::make(Code::Internal, "too many messages under way", m_group.name));
    m_messageCount = count;
    Message &added = message(count);
    added = Message{};
    added.verb = verb;
    added.peer = peer;
    added.channel = channel;
    added.data = data;
    added.bytes = bytes;
    added.done = false;
    added.figures.payload = bytes;
    added.figures.wire = verb == Verb::Send ? bytes : 0;
    Queue &queue =
        (verb == Verb::Send ? m_sends : m_receives)[static_cast<std::size_t>(peer * channelCount + channel)];
    (queue.last == 0 ? queue.first : message(queue.last).next) = count;
    queue.last = count;
    ++m_openPairs;
    m_watch.heartbeat();
    Budget budget{channelChunkBytes, false};
    if (auto status = progressQueue(queue, budget); !status)
        return fail(status.error());
    return Ticket{pairTicket + count};
}

Status HostCommunicator::progressPairs(Budget &budget)
{
    for (Queue &queue : m_receives)
        RY_TRY(progressQueue(queue, budget));
    for (Queue &queue : m_sends)
        RY_TRY(progressQueue(queue, budget));
    return {};
}

Status HostCommunicator::progressQueue(Queue &queue, Budget &budget)
{
    while (queue.first != 0 && budget.bytes > 0) {
        Message &front = message(queue.first);
        bool done = false;
        if (front.verb == Verb::Send) {
            done = advanceSend(front, queue, budget);
        } else {
            RY_ASSIGN(done, advanceReceive(front, queue, budget));
        }
        if (!done)
            return {};
        front.done = true;
        ++queue.finished;
        queue.first = front.next;
        if (queue.first == 0)
            queue.last = 0;
        --m_openPairs;
        budget.moved = true;
    }
    return {};
}

bool HostCommunicator::await(const Counter &counter, std::uint64_t value, const Message &message,
                             std::uint64_t sequence)
{
    if (counter.load(std::memory_order_seq_cst) >= value)
        return true;
    m_awaited = {message.peer, message.verb, sequence};
    return false;
}

bool HostCommunicator::advanceSend(Message &message, Queue &queue, Budget &budget)
{
    Channel &channel = m_segment.channel(m_rank, message.peer, message.channel);
    const std::uint64_t sequence = queue.finished + 1;
    Descriptor &slot = channel.slots[sequence % slotCount];
    if (!message.published) {
        if (sequence > slotCount && !await(channel.received, sequence - slotCount, message, sequence))
            return false;
        Descriptor descriptor;
        descriptor.verb = Verb::Send;
        descriptor.type = DType::U8;
        descriptor.count = message.bytes;
        if (message.bytes > channelChunkBytes)
            locate(message.data, descriptor);
        slot = descriptor;
        message.published = true;
        channel.sent.store(sequence, std::memory_order_seq_cst);
        budget.moved = true;
        m_watch.notify();
    }
    if (slot.place != Place::Private)
        return await(channel.received, sequence, message, sequence); // the receiver reads the buffer itself
    while (message.cursor < message.bytes) {
        const std::uint64_t chunk =
            queue.chunks + static_cast<std::uint64_t>(message.cursor / channelChunkBytes);
        if (budget.bytes <= 0 || (chunk >= 2 && !await(channel.consumed, chunk - 1, message, sequence)))
            return false;
        const std::int64_t size = std::min(channelChunkBytes, message.bytes - message.cursor);
        std::memcpy(m_segment.channelBuffer(m_rank, message.peer, message.channel, chunk),
                    message.data + message.cursor, static_cast<std::size_t>(size));
        message.cursor += size;
        message.figures.moved += size;
        budget.spend(size);
        channel.staged.store(chunk + 1, std::memory_order_seq_cst);
        m_watch.notify();
    }
    queue.chunks += chunksOf(message.bytes);
    return true;
}

Result<bool> HostCommunicator::advanceReceive(Message &message, Queue &queue, Budget &budget)
{
    Channel &channel = m_segment.channel(message.peer, m_rank, message.channel);
    const std::uint64_t sequence = queue.finished + 1;
    if (!await(channel.sent, sequence, message, sequence))
        return false;
    const Descriptor &slot = channel.slots[sequence % slotCount];
    if (slot.count != message.bytes)
        return Error::make(Code::RankFailed,
                           "sender and receiver disagree on message " + std::to_string(sequence)
                               + " of group " + m_group.name,
                           "rank " + std::to_string(m_group.ranks[static_cast<std::size_t>(m_rank)]))
            .withFound(std::to_string(slot.count) + " bytes sent by rank "
                       + std::to_string(m_group.ranks[static_cast<std::size_t>(message.peer)]))
            .withExpected(std::to_string(message.bytes));
    const bool direct = slot.place != Place::Private;
    const std::byte *from = direct ? resolve(slot, message.peer) : nullptr;
    while (message.cursor < message.bytes) {
        const std::uint64_t chunk =
            queue.chunks + static_cast<std::uint64_t>(message.cursor / channelChunkBytes);
        if (budget.bytes <= 0 || (!direct && !await(channel.staged, chunk + 1, message, sequence)))
            return false;
        const std::int64_t size = std::min(channelChunkBytes, message.bytes - message.cursor);
        const std::byte *source = direct
            ? from + message.cursor
            : m_segment.channelBuffer(message.peer, m_rank, message.channel, chunk);
        std::memcpy(message.data + message.cursor, source, static_cast<std::size_t>(size));
        message.cursor += size;
        message.figures.moved += size;
        budget.spend(size);
        if (!direct) {
            channel.consumed.store(chunk + 1, std::memory_order_seq_cst);
            m_watch.notify();
        }
    }
    if (!direct)
        queue.chunks += chunksOf(message.bytes);
    channel.received.store(sequence, std::memory_order_seq_cst);
    m_watch.notify();
    return true;
}

} // namespace rankyard::comm
