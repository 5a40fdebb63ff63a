// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

namespace rankyard::kernels {

namespace {

/// Where the sum of the losses goes.
double *lossSum(const Binder &b)
{
    return static_cast<double *>(b.write(0)) + b.writeBuffer(0).shape[0] - plan::statsSlots + plan::StatsLoss;
}

/// Calls work(rows, sum) on the rows of a chunk, divided among the threads, and adds up what they add to their sums.
template<typename Work>
void sumOverRows(KernelDevice &device, bool flush, std::int64_t rows, double *total, Work work)
{
    const int threads = device.team().size();
    if (threads == 1) {
        const FlushSubnormals flushing(flush);
        work(Range{0, rows}, total);
        return;
    }
    device.team().run([&](int thread) {
        const FlushSubnormals flushing(flush);
        auto *sum = reinterpret_cast<double *>(device.scratch(thread));
        *sum = 0;
        work(share(rows, threads, thread), sum);
    });
    double sum = 0;
    for (int thread = 0; thread < threads; ++thread)
        sum += *reinterpret_cast<const double *>(device.scratch(thread));
    if (total)
        *total += sum;
}

/// The chunk of tokens of an op of the head, and its products.
struct Chunk {
    std::int64_t rows, hidden, vocab;
    const void *n;
    const std::int32_t *labels;
    void *logits;
    std::size_t logitBytes;
    bool wide;

    /// Operands by their places; the error names what does not fit.
    static Result<Chunk> make(const Binder &b, std::size_t labels, const plan::Buffer &logits)
    {
        Chunk c{};
        c.rows = b.op.rowEnd - b.op.rowBegin;
        c.hidden = b.split.hidden;
        c.vocab = b.split.vocab;
        c.n = rowsFrom(b.read(0), b.op.rowBegin * c.hidden, b.computeBytes());
        c.labels = static_cast<const std::int32_t *>(b.read(labels)) + b.op.rowBegin;
        c.logits = b.context.address[static_cast<std::size_t>(logits.id)];
        c.logitBytes = bytesOf(logits.dtype);
        RY_ASSIGN(const GradientStorage type, b.storageOf(logits.dtype));
        c.wide = type == GradientStorage::Wide;
        if (logits.bytes < c.rows * c.vocab * static_cast<std::int64_t>(c.logitBytes))
            return b.missing("the buffer of logits is too small");
        return c;
    }
    TeamGemm product(const Binder &b) const
    {
        Gemm g = linear(n, b.read(1), nullptr, logits, rows, hidden, vocab);
        g.wide = wide;
        return TeamGemm(b.device, *b.table, g, b.computeBytes(), b.accBytes());
    }
    /// dlogits begin where the logits' rows began: a narrower type leaves gaps.
    std::int64_t gradientLd(const Binder &b) const
    {
        return vocab * static_cast<std::int64_t>(logitBytes / b.computeBytes());
    }
    TeamGemm input(const Binder &b, void *dn) const
    {
        Gemm g = linearInput(logits, b.read(1), rowsFrom(dn, b.op.rowBegin * hidden, b.computeBytes()), rows,
                             hidden, vocab);
        g.lda = gradientLd(b);
        return TeamGemm(b.device, *b.table, g, b.computeBytes(), b.accBytes());
    }
    TeamGemm weight(const Binder &b, void *dw, GradientStorage storage) const
    {
        Gemm g = linearWeight(logits, n, dw, rows, hidden, vocab, storage, b.op.accumulate);
        g.lda = gradientLd(b);
        return TeamGemm(b.device, *b.table, g, b.computeBytes(), b.accBytes());
    }
};

/// The whole vocabulary is on this rank.
BindResult bindWholeLoss(const Binder &b)
{
    const bool training = b.training();
    RY_TRY(b.require(3, training ? 4 : 2));
    RY_ASSIGN(const Chunk c, Chunk::make(b, 2, b.writeBuffer(training ? 3 : 1)));
    SoftmaxLoss loss;
    loss.logits = c.logits;
    loss.wide = c.wide;
    loss.ld = loss.vocab = c.vocab;
    loss.labels = c.labels;
    loss.backward = training;
    b.device.reserve(64);
    const auto softmax = [device = &b.device, table = b.table, c, sum = lossSum(b),
                          flush = b.computeBytes() != 8](const SoftmaxLoss &all) {
        sumOverRows(*device, flush, c.rows, sum, [&](Range r, double *partial) {
            SoftmaxLoss part = all;
            part.logits = rowsFrom(all.logits, r.begin * all.ld, c.logitBytes);
            part.labels += r.begin;
            part.rows = r.size();
            table->softmaxLoss(part, partial);
        });
    };
    if (!training) {
        return b.make([product = c.product(b), softmax, loss](exec::StepState &state) {
            product.run(state);
            softmax(loss);
        });
    }
    RY_ASSIGN(const GradientStorage storage, b.gradient(2));
    return b.make([product = c.product(b), softmax, loss, input = c.input(b, b.write(1)),
                   weight = c.weight(b, b.write(2), storage)](exec::StepState &state) {
        product.run(state);
        SoftmaxLoss scaled = loss;
        scaled.scale = state.lossScale * state.lossWeight;
        softmax(scaled);
        input.run(state);
        weight.run(state);
    });
}

ShardedLoss shardOf(const Binder &b, const Chunk &c, void *statistics)
{
    ShardedLoss s;
    s.logits = c.logits;
    s.wide = c.wide;
    s.ld = s.padded = c.vocab;
    s.labels = c.labels;
    s.rows = c.rows;
    s.firstColumn = b.firstColumn();
    s.columns = b.columns();
    s.statistics = statistics;
    return s;
}

ShardedLoss rowsOf(ShardedLoss s, Range r, std::size_t logitBytes, std::size_t accBytes)
{
    s.logits = s.logits ? rowsFrom(s.logits, r.begin * s.ld, logitBytes) : nullptr;
    s.labels += r.begin;
    s.rows = r.size();
    s.statistics = rowsFrom(s.statistics, 3 * r.begin, accBytes);
    return s;
}

/// The statistics of all tensor ranks are there.
BindResult bindShardedLoss(const Binder &b)
{
    const bool training = b.training();
    RY_TRY(b.require(training ? 4 : 2, training ? 4 : 1));
    const std::size_t parts = training ? 3 : 1;
    Chunk c{};
    c.rows = b.op.rowEnd - b.op.rowBegin;
    c.labels = static_cast<const std::int32_t *>(b.read(training ? 2 : 0)) + b.op.rowBegin;
    if (training) {
        RY_ASSIGN(c, Chunk::make(b, 2, b.writeBuffer(3)));
    }
    ShardedLoss loss = shardOf(b, c, b.read(parts));
    loss.parts = b.job.layout.tp;
    loss.partStride = plan::numelOf(b.readBuffer(parts).shape) / loss.parts;
    loss.backward = training;
    b.device.reserve(64);
    // Every tensor rank has the same sum, the first one tells it.
    double *sum = b.tensorRank == 0 ? lossSum(b) : nullptr;
    const auto merge = [device = &b.device, table = b.table, c, sum, acc = b.accBytes(),
                        flush = b.computeBytes() != 8](const ShardedLoss &all) {
        sumOverRows(*device, flush, c.rows, sum, [&](Range r, double *partial) {
            table->lossMerge(rowsOf(all, r, c.logitBytes, acc), partial);
        });
    };
    if (!training)
        return b.make([merge, loss](exec::StepState &) { merge(loss); });
    RY_ASSIGN(const GradientStorage storage, b.gradient(2));
    return b.make([merge, loss, input = c.input(b, b.write(1)),
                   weight = c.weight(b, b.write(2), storage)](exec::StepState &state) {
        ShardedLoss scaled = loss;
        scaled.scale = state.lossScale * state.lossWeight;
        merge(scaled);
        input.run(state);
        weight.run(state);
    });
}

} // namespace

BindResult bindLogits(const Binder &b)
{
    RY_TRY(b.require(3, 2));
    RY_ASSIGN(const Chunk c, Chunk::make(b, 2, b.writeBuffer(0)));
    return b.make([device = &b.device, table = b.table, product = c.product(b), c,
                   shard = shardOf(b, c, b.write(1)), acc = b.accBytes(),
                   flush = b.computeBytes() != 8](exec::StepState &state) {
        product.run(state);
        forRows(*device, flush, c.rows,
                [&](Range r) { table->lossStatistics(rowsOf(shard, r, c.logitBytes, acc)); });
    });
}

BindResult bindLoss(const Binder &b) { return b.job.layout.tp > 1 ? bindShardedLoss(b) : bindWholeLoss(b); }

} // namespace rankyard::kernels
