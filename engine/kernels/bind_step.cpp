// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/reduce.h"
#include "engine/kernels/bind.h"
#include "engine/kernels/convert.h"
#include "engine/plan/shard.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rankyard::kernels {

namespace {

/// Neighbouring elements of this rank's slice of a bucket that are treated alike.
struct Piece {
    const plan::Tensor *tensor;
    Range elements;
};

const plan::Bucket *bucketOf(const Binder &b)
{
    const auto &buckets = b.context.program->buckets;
    const auto index = static_cast<std::size_t>(b.op.chunk);
    return b.op.chunk >= 0 && index < buckets.size() ? &buckets[index] : nullptr;
}

/// The slice's elements, neighbours joined by `alike`.
template<typename Alike>
std::vector<Piece> piecesOf(const Binder &b, bool ownedOnly, Alike alike)
{
    std::vector<Piece> pieces;
    for (const plan::ShardRange &range :
         plan::shardOf(*b.context.program, b.context.plan->grid, b.context.rank, b.op.chunk)) {
        const Piece piece{&b.context.program->tensors[static_cast<std::size_t>(range.tensor)],
                          {range.at, range.at + range.end - range.begin}};
        if (ownedOnly && !range.owned)
            continue;
        if (!pieces.empty() && alike(*pieces.back().tensor, *piece.tensor)
            && pieces.back().elements.end == piece.elements.begin)
            pieces.back().elements.end = piece.elements.end;
        else
            pieces.push_back(piece);
    }
    return pieces;
}

/// Operands of equal types and sizes, whatever the compute type is; of an op with rows they have these at least.
Status requireAlike(const Binder &b)
{
    if (b.op.reads.size() != 1 || b.op.writes.size() != 1 || !b.read(0) || !b.write(0))
        return b.missing("needs one buffer to read and one to write");
    const plan::Buffer &from = b.readBuffer(0), &to = b.writeBuffer(0);
    const std::int64_t rows = (b.op.rowEnd - b.op.rowBegin) * static_cast<std::int64_t>(bytesOf(from.dtype));
    if (from.dtype != to.dtype
        || (rows > 0 ? std::min(from.bytes, to.bytes) != rows : from.bytes != to.bytes))
        return b.missing("the two buffers differ in type or size");
    return {};
}

/// Where element 0 of the slice would be: an operand that has an op's rows only stands for them.
std::byte *sliceBase(const plan::Op &op, const plan::Buffer &buffer, void *address)
{
    const std::int64_t rows = op.rowEnd - op.rowBegin;
    const bool staged = rows > 0 && plan::numelOf(buffer.shape) == rows;
    return static_cast<std::byte *>(address)
        - (staged ? op.rowBegin * static_cast<std::int64_t>(bytesOf(buffer.dtype)) : 0);
}

} // namespace

BindResult bindGradNorm(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    RY_TRY(b.require(1, 1));
    const plan::Bucket *bucket = bucketOf(b);
    if (!bucket)
        return b.missing("names no bucket of the program");
    RY_ASSIGN(const GradientStorage storage, b.storageOf(b.readBuffer(0).dtype));
    std::vector<Piece> pieces =
        piecesOf(b, true, [](const plan::Tensor &one, const plan::Tensor &two) { return one.id == two.id; });
    device.reserve(64);
    return b.make([&device, table = b.table, storage, pieces = std::move(pieces),
                   size = static_cast<std::int64_t>(bytesOf(b.readBuffer(0).dtype)),
                   gradient = static_cast<const std::byte *>(b.read(0)),
                   stats = static_cast<double *>(b.write(0)),
                   extra = b.writeBuffer(0).shape[0] - plan::statsSlots](exec::StepState &) {
        struct Sums {
            double squares, nonFinite;
        };
        for (const Piece &piece : pieces) {
            const std::byte *first = gradient + piece.elements.begin * size;
            const int parts = piece.elements.size() < 32768 ? 1 : device.team().size();
            if (parts == 1) {
                table->sumSquares[storage](first, piece.elements.size(), stats + piece.tensor->index,
                                           stats + extra + plan::StatsNonFinite);
                continue;
            }
            device.team().run([&](int thread) {
                const Range range = share(piece.elements.size(), parts, thread, 64);
                auto *sums = reinterpret_cast<Sums *>(device.scratch(thread));
                *sums = {};
                table->sumSquares[storage](first + range.begin * size, range.size(), &sums->squares,
                                           &sums->nonFinite);
            });
            for (int thread = 0; thread < parts; ++thread) {
                const auto *sums = reinterpret_cast<const Sums *>(device.scratch(thread));
                stats[piece.tensor->index] += sums->squares;
                stats[extra + plan::StatsNonFinite] += sums->nonFinite;
            }
        }
    });
}

namespace {

BindResult bindConversion(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    RY_TRY(b.require(1, 1));
    const plan::Buffer &from = b.readBuffer(0), &to = b.writeBuffer(0);
    const std::int64_t count = plan::numelOf(from.shape);
    if (!device.converts() || !canConvert(from.dtype) || !canConvert(to.dtype)
        || count != plan::numelOf(to.shape))
        return b.missing(std::string("no conversion from ") + nameOf(from.dtype) + " to " + nameOf(to.dtype));
    return b.make(
        [&device, conversion = Conversion{from.dtype, b.read(0), to.dtype, b.write(0), count, op.accumulate}](
            exec::StepState &) { device.convert(conversion); });
}

} // namespace

BindResult bindAdd(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const auto typeOf = [&](const std::vector<plan::BufferId> &ids) {
        return ids.empty() ? DType::F32 : context.program->buffer(ids[0]).dtype;
    };
    if (typeOf(op.reads) != typeOf(op.writes))
        return bindConversion(device, context, op);
    if (!op.accumulate)
        return bindCopy(device, context, op);
    const Binder b(device, context, op);
    RY_TRY(requireAlike(b));
    const DType type = b.readBuffer(0).dtype;
    if (!comm::canReduce(type))
        return b.missing(std::string("no sums of ") + nameOf(type));
    return b.make([&device, type, from = b.read(0), to = b.write(0),
                   count = b.readBuffer(0).bytes / static_cast<std::int64_t>(bytesOf(type))](
                      exec::StepState &) { device.add(type, from, to, count); });
}

BindResult bindCopy(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    RY_TRY(requireAlike(b));
    const auto size = static_cast<std::int64_t>(bytesOf(b.readBuffer(0).dtype));
    const std::int64_t first = op.rowBegin * size;
    const std::int64_t bytes = op.rowEnd > op.rowBegin ? op.rowEnd * size - first : b.readBuffer(0).bytes;
    const std::byte *from = sliceBase(op, b.readBuffer(0), b.read(0)) + first;
    std::byte *to = sliceBase(op, b.writeBuffer(0), b.write(0)) + first;
    const auto &arenas = context.program->arenas;
    if (op.stream == plan::Stream::Copy
        && std::any_of(arenas.begin(), arenas.end(), [](const plan::Arena &arena) { return arena.disk; })) {
        RY_ASSIGN(auto beside,
                  device.bindFileCopy({from, to, bytes, b.readBuffer(0).disk, b.writeBuffer(0).disk}));
        if (beside)
            return beside;
    }
    return b.make([&device, from, to, bytes](exec::StepState &) { device.copy(to, from, bytes); });
}

BindResult bindOptimizer(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    RY_TRY(b.require(1, 3));
    const plan::Bucket *bucket = bucketOf(b);
    if (!bucket)
        return b.missing("names no bucket of the program");
    RY_ASSIGN(const GradientStorage storage, b.storageOf(b.readBuffer(0).dtype));
    const bool master = op.writes.size() > 3;
    const DType acc = b.compute == DType::F64 ? DType::F64 : DType::F32;
    if (b.writeBuffer(1).dtype != acc || b.writeBuffer(2).dtype != acc
        || (master && b.writeBuffer(3).dtype != acc) || master == (b.compute == acc))
        return b.missing(std::string("no kernel for a master copy in ") + nameOf(b.writeBuffer(1).dtype));
    // Neighbours with the same decay are one range: the pass goes over few long pieces.
    std::vector<Piece> pieces = piecesOf(
        b, false, [](const plan::Tensor &one, const plan::Tensor &two) { return one.decay == two.decay; });
    for (Piece &piece : pieces) {
        if (op.rowEnd > op.rowBegin) // a sub-group of the slice
            piece.elements = {std::max(piece.elements.begin, op.rowBegin),
                              std::max(std::min(piece.elements.end, op.rowEnd), op.rowBegin)};
    }
    std::erase_if(pieces, [](const Piece &piece) { return piece.elements.size() <= 0; });
    struct Places {
        std::byte *grad, *param, *exp1, *exp2, *master;
    };
    const auto written = [&](std::size_t i) { return sliceBase(op, b.writeBuffer(i), b.write(i)); };
    const Places at{sliceBase(op, b.readBuffer(0), b.read(0)), written(0), written(1), written(2),
                    master ? written(3) : nullptr};
    return b.make([&device, table = b.table, storage, pieces = std::move(pieces), at, rule = b.job.optimizer,
                   gradBytes = static_cast<std::int64_t>(bytesOf(b.readBuffer(0).dtype)),
                   paramBytes = static_cast<std::int64_t>(b.computeBytes()),
                   accBytes = static_cast<std::int64_t>(b.accBytes())](exec::StepState &state) {
        if (state.overflow)
            return;
        const double step = static_cast<double>(state.update());
        Adam adam;
        adam.gradFactor = state.gradFactor;
        adam.beta1 = rule.beta1;
        adam.beta2 = rule.beta2;
        adam.eps = rule.eps;
        adam.stepSize = state.lr / (1 - std::pow(rule.beta1, step));
        adam.rootCorrection = 1 / std::sqrt(1 - std::pow(rule.beta2, step));
        const int threads = device.team().size();
        device.team().run([&](int thread) {
            const FlushSubnormals flush(accBytes == 4);
            for (const Piece &piece : pieces) {
                const Range range = share(piece.elements.size(), threads, thread, 64);
                const std::int64_t first = piece.elements.begin + range.begin;
                Adam part = adam;
                part.count = range.size();
                part.shrink = piece.tensor->decay ? 1 - state.lr * rule.weightDecay : 1;
                part.grad = at.grad + first * gradBytes;
                part.param = at.param + first * paramBytes;
                part.exp1 = at.exp1 + first * accBytes;
                part.exp2 = at.exp2 + first * accBytes;
                part.master = at.master ? at.master + first * accBytes : nullptr;
                if (part.count > 0)
                    table->adam[storage](part);
            }
        });
    });
}

} // namespace rankyard::kernels
