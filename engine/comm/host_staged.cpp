// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/host.h"
#include "engine/comm/reduce.h"

#include <algorithm>
#include <cstring>

// Collectives over chunks that are copied through the segment, two in flight.

namespace rankyard::comm {

/// Bytes that chunk `chunk` covers: of the buffer for all-reduce, else of each rank's slice.
HostCommunicator::Slice HostCommunicator::chunkOf(const Collective &op, std::int64_t chunk) const
{
    const std::int64_t total = op.descriptor.totalBytes();
    const Verb verb = op.descriptor.verb;
    const std::int64_t extent = verb == Verb::AllReduce ? total : total / m_size;
    // A reduce-scatter's chunk holds a piece for every rank.
    const std::int64_t size =
        verb == Verb::ReduceScatter ? std::max<std::int64_t>(64, chunkBytes / m_size / 64 * 64) : chunkBytes;
    const std::int64_t begin = std::min(extent, chunk * size);
    return {begin, std::min(extent, begin + size) - begin};
}

bool HostCommunicator::runStaged(Collective &op, Budget &budget)
{
    for (;;) {
        const bool moved = copyIn(op, budget) | readChunk(op, budget) | copyOut(op, budget);
        if (op.read == op.chunks && op.out == op.chunks)
            return true;
        if (!moved || budget.bytes <= 0)
            return false;
    }
}

bool HostCommunicator::copyIn(Collective &op, Budget &budget)
{
    if (op.in == op.chunks || op.in - op.out >= 2)
        return false;
    const std::uint64_t chunk = op.firstChunk + static_cast<std::uint64_t>(op.in);
    const Verb verb = op.descriptor.verb;
    // The buffer is free when everybody has read what it held two chunks ago.
    if (chunk >= 2 && !reached(&RankControl::consumed, chunk - 1, verb, m_done + 1))
        return false;
    std::byte *to = m_segment.staging(m_rank, chunk);
    const Slice part = chunkOf(op, op.in);
    const std::int64_t slice = sliceOf(op, m_rank).size;
    const int pieces = verb == Verb::ReduceScatter ? m_size : 1;
    for (int r = 0; r < pieces; ++r) {
        const std::int64_t from = verb == Verb::AllReduce ? 0 : slice * (pieces > 1 ? r : m_rank);
        std::memcpy(to + r * part.size, op.data + from + part.begin, static_cast<std::size_t>(part.size));
    }
    ++op.in;
    op.figures.moved += part.size * pieces;
    budget.spend(part.size * pieces);
    m_segment.control(m_rank).staged.store(chunk + 1, std::memory_order_seq_cst);
    m_watch.notify();
    return true;
}

bool HostCommunicator::readChunk(Collective &op, Budget &budget)
{
    if (op.read == op.in)
        return false;
    const std::uint64_t chunk = op.firstChunk + static_cast<std::uint64_t>(op.read);
    const Verb verb = op.descriptor.verb;
    if (!reached(&RankControl::staged, chunk + 1, verb, m_done + 1))
        return false;
    const Slice part = chunkOf(op, op.read);
    const std::int64_t slice = sliceOf(op, m_rank).size;
    if (verb == Verb::AllGather) {
        for (int r = 0; r < m_size; ++r) {
            if (r != m_rank)
                std::memcpy(op.data + slice * r + part.begin, m_segment.staging(r, chunk),
                            static_cast<std::size_t>(part.size));
        }
        op.figures.moved += part.size * (m_size - 1);
    } else {
        // All-reduce: this rank's piece of the chunk, into everybody's staging. Reduce-scatter: the piece for
        // this rank.
        const std::int64_t piece = ceilDiv(ceilDiv(part.size, 64), m_size) * 64;
        const std::int64_t begin =
            verb == Verb::AllReduce ? std::min(part.size, piece * m_rank) : part.size * m_rank;
        const std::int64_t size =
            verb == Verb::AllReduce ? std::min(part.size, begin + piece) - begin : part.size;
        for (int r = 0; r < m_size; ++r)
            m_inputs[static_cast<std::size_t>(r)] = m_segment.staging(r, chunk) + begin;
        std::byte *to = verb == Verb::AllReduce ? m_segment.staging(m_rank, chunk) + begin
                                                : op.data + slice * m_rank + part.begin;
        reduce(op.descriptor.type, op.descriptor.op, m_inputs.data(), m_size, to,
               size / op.descriptor.elementBytes());
        op.figures.moved += size * (m_size - 1);
        for (int r = 0; verb == Verb::AllReduce && r < m_size; ++r) {
            if (r != m_rank && size > 0) {
                std::memcpy(m_segment.staging(r, chunk) + begin, to, static_cast<std::size_t>(size));
                op.figures.moved += size;
            }
        }
    }
    ++op.read;
    if (verb != Verb::AllReduce)
        op.out = op.read;
    budget.spend(part.size * m_size);
    m_segment.control(m_rank).consumed.store(chunk + 1, std::memory_order_seq_cst);
    m_watch.notify();
    return true;
}

bool HostCommunicator::copyOut(Collective &op, Budget &budget)
{
    if (op.out == op.read)
        return false;
    const std::uint64_t chunk = op.firstChunk + static_cast<std::uint64_t>(op.out);
    if (!reached(&RankControl::consumed, chunk + 1, op.descriptor.verb, m_done + 1))
        return false;
    const Slice part = chunkOf(op, op.out);
    std::memcpy(op.data + part.begin, m_segment.staging(m_rank, chunk), static_cast<std::size_t>(part.size));
    ++op.out;
    op.figures.moved += part.size;
    budget.spend(part.size);
    return true;
}

} // namespace rankyard::comm
