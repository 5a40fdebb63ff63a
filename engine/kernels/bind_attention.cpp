// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

namespace rankyard::kernels {

namespace {

/// The block of a core op: which queries see which keys. Without context parallelism, and for a rank's own keys, the diagonal;
/// of an earlier rank's keys everybody sees the first half, of a later rank's the second half of the queries sees all.
struct Block {
    std::int64_t length; ///< rows of a sequence on this rank
    std::int64_t half;
    std::int64_t source; ///< context rank whose keys these are
    bool diagonal, early;

    explicit Block(const Binder &b)
        : length(b.job.model.seq / b.job.layout.cp),
          half(length / 2),
          source(b.op.chunk > 0
                     ? (b.contextRank - b.op.chunk % b.job.layout.cp + b.job.layout.cp) % b.job.layout.cp
                     : b.contextRank),
          diagonal(source == b.contextRank),
          early(source < b.contextRank)
    {}
    std::int64_t firstQuery() const { return diagonal || early ? 0 : half; }
};

/// The rows and heads of this rank, moved to the block's first query; k and v stand at the sequence's first row.
Attention attentionOf(const Binder &b, const Block &block, const void *qkv, const void *k, const void *v,
                      std::int64_t ldKv)
{
    const plan::Split &split = b.split;
    const std::int64_t ranks = b.job.layout.cp;
    Attention a;
    a.queries = block.length - block.firstQuery();
    a.keys = block.early && !block.diagonal ? block.half : block.length;
    a.causal = block.diagonal;
    a.merge = !block.diagonal;
    a.heads = split.heads;
    a.kvHeads = split.keyHeads;
    a.size = split.headSize;
    a.rowsQ = a.rowsKv = block.length;
    a.sequences = split.tokens / block.length;
    a.tokens = split.tokens;
    a.ldQ = split.qkvWidth();
    a.ldO = split.qWidth();
    a.ldKv = ldKv;
    a.q = rowsFrom(qkv, block.firstQuery() * a.ldQ, b.computeBytes());
    a.k = k;
    a.v = v;
    a.firstHead = b.tensorRank * split.heads;
    if (ranks > 1) {
        a.keyBreak = block.half;
        a.keyOffset[0] = block.source * block.half;
        a.keyOffset[1] = (2 * ranks - 1 - block.source) * block.half;
    }
    return a;
}

void atFirstQuery(const Binder &b, const Block &block, Attention &a, void *o, void *lse)
{
    a.o = rowsFrom(o, block.firstQuery() * a.ldO, b.computeBytes());
    a.lse = rowsFrom(lse, block.firstQuery(), b.accBytes());
}

BindResult bindBlock(const Binder &b, const Block &block, Attention a,
                     void (*kernel)(const Attention &, std::int64_t, std::int64_t),
                     std::function<void()> before = {})
{
    b.device.reserve(b.table->attentionScratch(a));
    Dropout drop = b.dropout(static_cast<std::uint32_t>(3 * b.op.unit.layer + 1), b.places(b.split.tokens));
    drop = drop.from(block.firstQuery());
    return b.make([device = &b.device, kernel, a, drop, drops = b.drops(), sample = SamplePlace(b), before,
                   size = b.computeBytes()](exec::StepState &state) {
        if (before)
            before();
        const Dropout now = sample.at(drop, state);
        device->team().run([&](int thread) {
            const FlushSubnormals flush(size != 8);
            Attention mine = a;
            mine.dropout = drops ? &now : nullptr;
            mine.scratch = device->scratch(thread);
            const Range pairs = share(a.sequences * a.kvHeads, device->team().size(), thread);
            if (thread == 0 && state.poll) {
                mine.poll = [](void *context) { static_cast<exec::StepState *>(context)->poll(); };
                mine.pollContext = &state;
            }
            if (pairs.size() > 0)
                kernel(mine, pairs.begin, pairs.end);
        });
    });
}

/// Columns of rows copied from one matrix to another.
BindResult bindColumns(const Binder &b, const void *from, std::int64_t ldFrom, void *to, std::int64_t ldTo)
{
    const auto size = static_cast<std::int64_t>(b.computeBytes());
    return b.make([device = &b.device, from, to, fromStride = ldFrom * size, toStride = ldTo * size,
                   rows = b.split.tokens, bytes = b.split.kvWidth() * size](exec::StepState &) {
        device->copyRows(to, toStride, from, fromStride, bytes, rows);
    });
}

} // namespace

BindResult bindKeyValues(const Binder &b)
{
    RY_TRY(b.require(1, 1));
    return bindColumns(b, rowsFrom(b.read(0), b.split.qWidth(), b.computeBytes()), b.split.qkvWidth(),
                       b.write(0), b.split.kvWidth());
}

BindResult bindKeyValuesBackward(const Binder &b)
{
    RY_TRY(b.require(1, 1));
    return bindColumns(b, b.read(0), b.split.kvWidth(),
                       rowsFrom(b.write(0), b.split.qWidth(), b.computeBytes()), b.split.qkvWidth());
}

BindResult bindCore(const Binder &b)
{
    const bool ring = b.op.reads.size() > 1;
    RY_TRY(b.require(ring ? 2 : 1, 2));
    const Block block(b);
    const std::size_t size = b.computeBytes();
    const std::int64_t keys = b.split.kvWidth() / 2;
    const void *k = ring ? b.read(1) : rowsFrom(b.read(0), b.split.qWidth(), size);
    Attention a = attentionOf(b, block, b.read(0), k, rowsFrom(k, keys, size),
                              ring ? b.split.kvWidth() : b.split.qkvWidth());
    atFirstQuery(b, block, a, b.write(0), b.write(1));
    return bindBlock(b, block, a, b.table->attentionForward);
}

BindResult bindCoreBackward(const Binder &b)
{
    const bool ring = b.op.reads.size() > 4;
    RY_TRY(b.require(ring ? 5 : 4, ring ? 2 : 1));
    const Block block(b);
    const std::size_t size = b.computeBytes(), first = ring ? 3 : 2;
    const std::int64_t keys = b.split.kvWidth() / 2;
    const void *k = ring ? b.read(2) : rowsFrom(b.read(1), b.split.qWidth(), size);
    Attention a = attentionOf(b, block, b.read(1), k, rowsFrom(k, keys, size),
                              ring ? b.split.kvWidth() : b.split.qkvWidth());
    atFirstQuery(b, block, a, b.read(first), b.read(first + 1));
    a.dO = rowsFrom(b.read(0), block.firstQuery() * a.ldO, size);
    a.dq = rowsFrom(b.write(0), block.firstQuery() * a.ldQ, size);
    a.dk = ring ? b.write(1) : rowsFrom(b.write(0), b.split.qWidth(), size);
    a.dv = rowsFrom(a.dk, keys, size);
    if (!ring || (block.diagonal && !b.op.accumulate))
        return bindBlock(b, block, a, b.table->attentionBackward);
    // A block off the diagonal covers a part of the rows: what it does not add to has to begin with zeros.
    a.addQ = a.addKv = true;
    if (b.op.accumulate)
        return bindBlock(b, block, a, b.table->attentionBackward);
    return bindBlock(b, block, a, b.table->attentionBackward,
                     [device = &b.device, dqkv = b.write(0), dkv = b.write(1), rows = b.split.tokens,
                      stride = a.ldQ * static_cast<std::int64_t>(size),
                      q = b.split.qWidth() * static_cast<std::int64_t>(size),
                      all = b.split.tokens * b.split.kvWidth() * static_cast<std::int64_t>(size)] {
                         device->fillRows(dqkv, stride, q, rows);
                         device->fill(dkv, all);
                     });
}

} // namespace rankyard::kernels
