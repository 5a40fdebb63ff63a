// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/segment.h"

namespace rankyard::comm {

namespace {

constexpr std::int64_t page = 4096;
constexpr std::int64_t roundUp(std::int64_t value, std::int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

} // namespace

const char *nameOf(Verb verb)
{
    static const char *const names[] = {"none",       "all-reduce", "reduce-scatter",
                                        "all-gather", "send",       "receive"};
    return names[static_cast<std::size_t>(verb)];
}

RankControl &Segment::control(int rank) const
{
    return *reinterpret_cast<RankControl *>(at(rank * static_cast<std::int64_t>(sizeof(RankControl))));
}

Channel &Segment::channel(int from, int to, int channel) const
{
    const std::int64_t begin = m_size * static_cast<std::int64_t>(sizeof(RankControl));
    return *reinterpret_cast<Channel *>(
        at(begin
           + ((from * m_size + to) * channelCount + channel) * static_cast<std::int64_t>(sizeof(Channel))));
}

std::int64_t Segment::dataBegin() const
{
    return roundUp(m_size * static_cast<std::int64_t>(sizeof(RankControl))
                       + m_size * m_size * channelCount * static_cast<std::int64_t>(sizeof(Channel)),
                   page);
}

std::byte *Segment::small(int rank, std::uint64_t sequence) const
{
    return at(dataBegin() + rank * rankArea + static_cast<std::int64_t>(sequence % slotCount) * smallBytes);
}

std::byte *Segment::staging(int rank, std::uint64_t chunk) const
{
    return at(dataBegin() + rank * rankArea + smallArea + static_cast<std::int64_t>(chunk % 2) * chunkBytes);
}

std::byte *Segment::channelBuffer(int from, int to, int channel, std::uint64_t chunk) const
{
    const std::int64_t fifo = (static_cast<std::int64_t>(from) * m_size + to) * channelCount + channel;
    return at(dataBegin() + m_size * rankArea
              + (fifo * 2 + static_cast<std::int64_t>(chunk % 2)) * channelChunkBytes);
}

std::int64_t Segment::bytes(int size)
{
    const Segment segment(nullptr, size);
    const std::int64_t fifos = static_cast<std::int64_t>(size) * size * channelCount;
    return segment.dataBegin() + size * rankArea + fifos * 2 * channelChunkBytes;
}

std::int64_t hostSegmentBytes(int size) { return Segment::bytes(size); }

} // namespace rankyard::comm
