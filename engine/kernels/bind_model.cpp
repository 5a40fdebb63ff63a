// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

#include <cstring>

namespace rankyard::kernels {

using plan::Segment;
using plan::UnitKind;

namespace {

std::byte *rowsFrom(void *base, std::int64_t elements, std::size_t size)
{
    return static_cast<std::byte *>(base) + elements * static_cast<std::int64_t>(size);
}

/// Rows divided among the threads.
template<typename Work>
void forRows(CpuDevice &device, bool flush, std::int64_t rows, Work work)
{
    device.team().run([&](int thread) {
        const FlushSubnormals flushing(flush);
        const Range range = share(rows, device.team().size(), thread);
        if (range.size() > 0)
            work(range);
    });
}

/// y = x·Wᵀ [+ b] of rows tokens; W [out, in].
Gemm linear(const void *x, const void *w, const void *b, void *y, std::int64_t rows, std::int64_t in,
            std::int64_t out)
{
    Gemm g;
    g.m = rows;
    g.n = out;
    g.k = in;
    g.a = x;
    g.lda = in;
    g.b = w;
    g.ldb = in;
    g.bTransposed = true;
    g.c = y;
    g.ldc = out;
    g.bias = b;
    return g;
}

/// dx = dy·W
Gemm linearInput(const void *dy, const void *w, void *dx, std::int64_t rows, std::int64_t in,
                 std::int64_t out)
{
    Gemm g;
    g.m = rows;
    g.n = in;
    g.k = out;
    g.a = dy;
    g.lda = out;
    g.b = w;
    g.ldb = in;
    g.c = dx;
    g.ldc = in;
    return g;
}

/// dW (+)= dyᵀ·x
Gemm linearWeight(const void *dy, const void *x, void *dw, std::int64_t rows, std::int64_t in,
                  std::int64_t out, GradientStorage storage, bool accumulate)
{
    Gemm g;
    g.m = out;
    g.n = in;
    g.k = rows;
    g.a = dy;
    g.lda = out;
    g.aTransposed = true;
    g.b = x;
    g.ldb = in;
    g.c = dw;
    g.ldc = in;
    g.wide = storage == GradientStorage::Wide;
    g.accumulate = accumulate;
    return g;
}

BindResult bindGemm(const Binder &b, const Gemm &g)
{
    return b.make([product = TeamGemm(b.device, *b.table, g, b.computeBytes(), b.accBytes())](
                      exec::StepState &state) { product.run(state); });
}

BindResult bindLookup(const Binder &b)
{
    RY_TRY(b.require(2, 1));
    return b.make([device = &b.device, table = b.table, tokens = static_cast<const std::int32_t *>(b.read(0)),
                   weights = b.read(1), x = b.write(0), rows = b.tokens, width = b.hidden, vocab = b.vocab,
                   size = b.computeBytes()](exec::StepState &) {
        forRows(*device, false, rows, [&](Range r) {
            table->lookup(tokens + r.begin, weights, 0, vocab, rowsFrom(x, r.begin * width, size), r.size(),
                          width);
        });
    });
}

BindResult bindEmbeddingJoin(const Binder &b)
{
    RY_TRY(b.require(2, 1));
    const RowPlaces &places = b.device.places(0, b.tokens, b.seq, [](std::int64_t row) { return row; });
    return b.make([device = &b.device, table = b.table, positions = b.read(1), x = b.write(0),
                   rows = b.tokens, places = &places, width = b.hidden,
                   size = b.computeBytes()](exec::StepState &) {
        forRows(*device, size != 8, rows, [&](Range r) {
            table->addPositions(rowsFrom(x, r.begin * width, size), positions,
                                places->position.data() + r.begin, r.size(), width);
        });
    });
}

BindResult bindNorm(const Binder &b)
{
    RY_TRY(b.require(3, 2));
    return b.make([device = &b.device, table = b.table, x = b.read(0), w = b.read(1), bias = b.read(2),
                   n = b.write(0), stats = b.write(1), rows = b.tokens, width = b.hidden,
                   eps = b.job.model.normEps, size = b.computeBytes(),
                   acc = b.accBytes()](exec::StepState &) {
        forRows(*device, size != 8, rows, [&](Range r) {
            const std::int64_t at = r.begin * width;
            table->normForward[Layer](rowsFrom(x, at, size), w, bias, rowsFrom(n, at, size),
                                      rowsFrom(stats, 2 * r.begin, acc), r.size(), width, eps);
        });
    });
}

BindResult bindJoin(const Binder &b)
{
    RY_TRY(b.require(3, 1));
    return b.make([device = &b.device, table = b.table, x = b.read(0), bias = b.read(2), y = b.write(0),
                   rows = b.tokens, width = b.hidden, size = b.computeBytes()](exec::StepState &) {
        forRows(*device, size != 8, rows, [&](Range r) {
            const std::int64_t at = r.begin * width;
            table->join(rowsFrom(x, at, size), rowsFrom(y, at, size), bias, r.size(), width);
        });
    });
}

Attention attentionOf(const Binder &b, const void *qkv)
{
    Attention a;
    a.queries = a.keys = a.rowsQ = a.rowsKv = b.seq;
    a.heads = a.kvHeads = b.heads;
    a.size = b.job.model.headSize();
    a.sequences = b.tokens / b.seq;
    a.tokens = b.tokens;
    a.ldQ = a.ldKv = 3 * b.hidden;
    a.ldO = b.hidden;
    a.q = qkv;
    a.k = rowsFrom(const_cast<void *>(qkv), b.hidden, b.computeBytes());
    a.v = rowsFrom(const_cast<void *>(qkv), 2 * b.hidden, b.computeBytes());
    return a;
}

BindResult bindAttention(const Binder &b, Attention a, void (*kernel)(const Attention &, std::int64_t))
{
    b.device.reserve(b.table->attentionScratch(a));
    return b.make([device = &b.device, kernel, a, size = b.computeBytes()](exec::StepState &state) {
        device->team().run([&](int thread) {
            const FlushSubnormals flush(size != 8);
            Attention mine = a;
            mine.scratch = device->scratch(thread);
            const Range pairs = share(a.sequences * a.kvHeads, device->team().size(), thread);
            for (std::int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
                kernel(mine, pair);
                if (thread == 0 && state.poll)
                    state.poll();
            }
        });
    });
}

BindResult bindCoreForward(const Binder &b)
{
    RY_TRY(b.require(1, 2));
    Attention a = attentionOf(b, b.read(0));
    a.o = b.write(0);
    a.lse = b.write(1);
    return bindAttention(b, a, b.table->attentionForward);
}

BindResult bindCoreBackward(const Binder &b)
{
    RY_TRY(b.require(4, 1));
    Attention a = attentionOf(b, b.read(1));
    a.dO = b.read(0);
    a.o = b.read(2);
    a.lse = b.read(3);
    a.dq = b.write(0);
    a.dk = rowsFrom(b.write(0), b.hidden, b.computeBytes());
    a.dv = rowsFrom(b.write(0), 2 * b.hidden, b.computeBytes());
    return bindAttention(b, a, b.table->attentionBackward);
}

/// Head.loss over rows rowBegin … rowEnd: logits, softmax in place, and when training dn and dW from it.
BindResult bindLoss(const Binder &b)
{
    const bool training = b.context.program->kind == plan::ProgramKind::Train;
    RY_TRY(b.require(3, training ? 4 : 2));
    const plan::Buffer &logits = b.writeBuffer(training ? 3 : 1);
    const std::int64_t rows = b.op.rowEnd - b.op.rowBegin;
    const std::size_t size = b.computeBytes();
    RY_ASSIGN(const GradientStorage logitsType, b.storageOf(logits.dtype));
    const bool wide = logitsType == GradientStorage::Wide;
    if (logits.bytes < rows * b.vocab * static_cast<std::int64_t>(bytesOf(logits.dtype)))
        return b.missing("the buffer of logits is too small");
    const void *n = rowsFrom(b.read(0), b.op.rowBegin * b.hidden, size);
    SoftmaxLoss loss;
    loss.logits = b.context.address[static_cast<std::size_t>(logits.id)];
    loss.wide = wide;
    loss.ld = b.vocab;
    loss.labels = static_cast<const std::int32_t *>(b.read(2)) + b.op.rowBegin;
    loss.vocab = b.vocab;
    loss.backward = training;
    const plan::Buffer &stats = b.writeBuffer(0);
    double *sum = static_cast<double *>(b.write(0)) + stats.shape[0] - plan::statsSlots + plan::StatsLoss;

    Gemm forward = linear(n, b.read(1), nullptr, loss.logits, rows, b.hidden, b.vocab);
    forward.wide = wide;
    const TeamGemm product(b.device, *b.table, forward, size, b.accBytes());
    const auto softmax = [device = &b.device, table = b.table, rows, sum, size,
                          logitBytes = bytesOf(logits.dtype)](SoftmaxLoss all) {
        const int threads = device->team().size();
        device->team().run([&](int thread) {
            const FlushSubnormals flush(size != 8);
            const Range range = share(rows, threads, thread);
            SoftmaxLoss part = all;
            part.logits = rowsFrom(all.logits, range.begin * all.ld, logitBytes);
            part.labels += range.begin;
            part.rows = range.size();
            *reinterpret_cast<double *>(device->scratch(thread)) = table->softmaxLoss(part);
        });
        for (int thread = 0; thread < threads; ++thread)
            *sum += *reinterpret_cast<const double *>(device->scratch(thread));
    };
    b.device.reserve(64);
    if (!training) {
        return b.make([product, softmax, loss](exec::StepState &state) {
            product.run(state);
            softmax(loss);
        });
    }
    // dlogits begin where the logits' rows began: a narrower type leaves gaps.
    const std::int64_t ld = b.vocab * static_cast<std::int64_t>(bytesOf(logits.dtype) / size);
    RY_ASSIGN(const GradientStorage storage, b.gradient(2));
    Gemm input = linearInput(loss.logits, b.read(1), rowsFrom(b.write(1), b.op.rowBegin * b.hidden, size),
                             rows, b.hidden, b.vocab);
    input.lda = ld;
    Gemm weight = linearWeight(loss.logits, n, b.write(2), rows, b.hidden, b.vocab, storage, b.op.accumulate);
    weight.lda = ld;
    return b.make(
        [product, softmax, loss, input = TeamGemm(b.device, *b.table, input, size, b.accBytes()),
         weight = TeamGemm(b.device, *b.table, weight, size, b.accBytes())](exec::StepState &state) {
            product.run(state);
            SoftmaxLoss scaled = loss;
            scaled.scale = state.lossScale * state.lossWeight;
            softmax(scaled);
            input.run(state);
            weight.run(state);
        });
}

BindResult bindUp(const Binder &b)
{
    RY_TRY(b.require(3, 2));
    Gemm g = linear(b.read(0), b.read(1), b.read(2), b.write(0), b.tokens, b.hidden, b.ffn);
    g.gelu = b.write(1);
    return bindGemm(b, g);
}

/// Sums of the columns of a gradient [tokens, width] into a bias' gradient.
Result<ColumnSums> biasSums(const Binder &b, std::size_t place, std::int64_t width)
{
    RY_ASSIGN(const GradientStorage storage, b.gradient(place));
    return ColumnSums(b, {{b.write(place), storage, width}});
}

template<typename After>
BindResult bindColumnSum(const Binder &b, const void *x, std::int64_t width, std::size_t place, After after)
{
    RY_ASSIGN(ColumnSums sums, biasSums(b, place, width));
    return b.make([sums = std::move(sums), table = b.table, x, width, rows = b.tokens,
                   size = b.computeBytes(), after](exec::StepState &state) {
        sums.run(rows, [&](Range r, void **out) {
            table->columnSum(rowsFrom(const_cast<void *>(x), r.begin * width, size), width, r.size(), width,
                             out[0]);
        });
        after(state);
    });
}

BindResult bindJoinBackward(const Binder &b)
{
    RY_TRY(b.require(1, 1));
    return bindColumnSum(b, b.read(0), b.hidden, 0, [](exec::StepState &) {});
}

BindResult bindQkvBackward(const Binder &b)
{
    RY_TRY(b.require(2, 2));
    const Gemm g = linearInput(b.read(0), b.read(1), b.write(0), b.tokens, b.hidden, 3 * b.hidden);
    return bindColumnSum(b, b.read(0), 3 * b.hidden, 1,
                         [product = TeamGemm(b.device, *b.table, g, b.computeBytes(), b.accBytes())](
                             exec::StepState &state) { product.run(state); });
}

BindResult bindUpBackward(const Binder &b)
{
    RY_TRY(b.require(3, 3));
    RY_ASSIGN(ColumnSums sums, biasSums(b, 2, b.ffn));
    const Gemm g = linearInput(b.write(0), b.read(2), b.write(1), b.tokens, b.hidden, b.ffn);
    return b.make(
        [sums = std::move(sums), table = b.table, da = b.write(0), u = b.read(1), rows = b.tokens,
         width = b.ffn, size = b.computeBytes(),
         product = TeamGemm(b.device, *b.table, g, b.computeBytes(), b.accBytes())](exec::StepState &state) {
            sums.run(rows, [&](Range r, void **out) {
                const std::int64_t at = r.begin * width;
                table->geluBackward(rowsFrom(da, at, size), rowsFrom(u, at, size), out[0], r.size(), width);
            });
            product.run(state);
        });
}

BindResult bindNormBackward(const Binder &b)
{
    const bool head =
        b.op.unit.kind == UnitKind::Head; // nothing is added: the head is not on the residual stream
    RY_TRY(b.require(head ? 4 : 5, 3));
    RY_ASSIGN(const GradientStorage weight, b.gradient(1));
    RY_ASSIGN(const GradientStorage bias, b.gradient(2));
    ColumnSums sums(b, {{b.write(1), weight, b.hidden}, {b.write(2), bias, b.hidden}});
    return b.make([sums = std::move(sums), table = b.table, dn = b.write(0), x = b.read(1), stats = b.read(2),
                   w = b.read(3), dx = head ? nullptr : b.read(4), rows = b.tokens, width = b.hidden,
                   size = b.computeBytes(), acc = b.accBytes()](exec::StepState &) {
        sums.run(rows, [&](Range r, void **out) {
            const std::int64_t at = r.begin * width;
            table->normBackward[Layer](
                rowsFrom(dn, at, size), rowsFrom(x, at, size), rowsFrom(stats, 2 * r.begin, acc), w,
                dx ? rowsFrom(dx, at, size) : nullptr, out[0], out[1], r.size(), width);
        });
    });
}

/// dwpe: for each position the sum over the sequences.
BindResult bindPositionsBackward(const Binder &b)
{
    RY_TRY(b.require(1, 1));
    RY_ASSIGN(const GradientStorage storage, b.gradient(0));
    const std::int64_t gradBytes = static_cast<std::int64_t>(bytesOf(b.writeBuffer(0).dtype));
    b.device.reserve(b.hidden * static_cast<std::int64_t>(b.accBytes()));
    return b.make([device = &b.device, table = b.table, storage, gradBytes, dx = b.read(0), grad = b.write(0),
                   rows = b.tokens, seq = b.seq, width = b.hidden, size = b.computeBytes(),
                   acc = b.accBytes(), accumulate = b.op.accumulate](exec::StepState &) {
        device->team().run([&](int thread) {
            const FlushSubnormals flush(size != 8);
            const Range positions = share(seq, device->team().size(), thread);
            std::byte *sums = device->scratch(thread);
            for (std::int64_t p = positions.begin; p < positions.end; ++p) {
                std::memset(sums, 0, static_cast<std::size_t>(width) * acc);
                table->columnSum(rowsFrom(dx, p * width, size), seq * width, rows / seq, width, sums);
                table->writeGradient[storage](sums, static_cast<std::byte *>(grad) + p * width * gradBytes,
                                              width, accumulate);
            }
        });
    });
}

BindResult bindLookupBackward(const Binder &b)
{
    RY_TRY(b.require(2, 1));
    RY_ASSIGN(const GradientStorage storage, b.gradient(0));
    const std::size_t bytes = static_cast<std::size_t>(b.vocab * b.hidden) * bytesOf(b.writeBuffer(0).dtype);
    return b.make([device = &b.device, table = b.table, storage, bytes, dx = b.read(0),
                   tokens = static_cast<const std::int32_t *>(b.read(1)), grad = b.write(0), rows = b.tokens,
                   width = b.hidden, vocab = b.vocab, size = b.computeBytes(),
                   accumulate = b.op.accumulate](exec::StepState &) {
        if (!accumulate)
            std::memset(grad, 0, bytes);
        device->team().run([&](int thread) {
            const FlushSubnormals flush(size != 8);
            const Range columns = share(width, device->team().size(), thread, 16);
            table->scatterAdd[storage](tokens, dx, grad, 0, vocab, rows, width, columns.begin, columns.end);
        });
    });
}

BindResult bindWeight(const Binder &b, std::int64_t in, std::int64_t out)
{
    RY_TRY(b.require(2, 1));
    RY_ASSIGN(const GradientStorage storage, b.gradient(0));
    return bindGemm(
        b, linearWeight(b.read(0), b.read(1), b.write(0), b.tokens, in, out, storage, b.op.accumulate));
}

BindResult bindInput(const Binder &b, std::int64_t in, std::int64_t out)
{
    RY_TRY(b.require(2, 1));
    return bindGemm(b, linearInput(b.read(0), b.read(1), b.write(0), b.tokens, in, out));
}

BindResult bindLinear(const Binder &b, std::int64_t in, std::int64_t out, bool bias)
{
    RY_TRY(b.require(bias ? 3 : 2, 1));
    return bindGemm(b,
                    linear(b.read(0), b.read(1), bias ? b.read(2) : nullptr, b.write(0), b.tokens, in, out));
}

} // namespace

BindResult bindForward(CpuDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    switch (op.segment) {
    case Segment::Lookup:
        return bindLookup(b);
    case Segment::Join:
        return op.unit.kind == UnitKind::Embedding ? bindEmbeddingJoin(b) : bindJoin(b);
    case Segment::Norm:
        return bindNorm(b);
    case Segment::Qkv:
        return bindLinear(b, b.hidden, 3 * b.hidden, true);
    case Segment::Core:
        return bindCoreForward(b);
    case Segment::Out:
        return bindLinear(b, b.hidden, b.hidden, false);
    case Segment::Up:
        return bindUp(b);
    case Segment::Down:
        return bindLinear(b, b.ffn, b.hidden, false);
    case Segment::Loss:
        return bindLoss(b);
    default:
        return b.missing("no kernel");
    }
}

BindResult bindBackwardInput(CpuDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    switch (op.segment) {
    case Segment::Join:
        return op.unit.kind == UnitKind::Embedding ? bindPositionsBackward(b) : bindJoinBackward(b);
    case Segment::Norm:
        return bindNormBackward(b);
    case Segment::Qkv:
        return bindQkvBackward(b);
    case Segment::Core:
        return bindCoreBackward(b);
    case Segment::Out:
        return bindInput(b, b.hidden, b.hidden);
    case Segment::Up:
        return bindUpBackward(b);
    case Segment::Down:
        return bindInput(b, b.ffn, b.hidden);
    default:
        return b.missing("no kernel");
    }
}

BindResult bindBackwardWeight(CpuDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    switch (op.segment) {
    case Segment::Lookup:
        return bindLookupBackward(b);
    case Segment::Qkv:
        return bindWeight(b, b.hidden, 3 * b.hidden);
    case Segment::Out:
        return bindWeight(b, b.hidden, b.hidden);
    case Segment::Up:
        return bindWeight(b, b.hidden, b.ffn);
    case Segment::Down:
        return bindWeight(b, b.ffn, b.hidden);
    default:
        return b.missing("no kernel");
    }
}

} // namespace rankyard::kernels
