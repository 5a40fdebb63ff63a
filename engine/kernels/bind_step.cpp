// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

#include <algorithm>
#include <cmath>

namespace rankyard::kernels {

namespace {

/// Where a tensor lies in this rank's slice of its bucket; empty when it lies elsewhere.
struct Piece {
    plan::TensorId tensor;
    bool decay;
    Range elements;
};

const plan::Bucket *bucketOf(const Binder &b)
{
    const auto &buckets = b.context.program->buckets;
    const auto index = static_cast<std::size_t>(b.op.chunk);
    return b.op.chunk >= 0 && index < buckets.size() ? &buckets[index] : nullptr;
}

std::vector<Piece> piecesOf(const Binder &b, const plan::Bucket &bucket)
{
    const std::int64_t length = bucket.padded / bucket.slices;
    const std::int64_t begin = bucket.slices > 1 ? b.context.dpRank * length : 0;
    std::vector<Piece> pieces;
    for (const plan::TensorId id : bucket.tensors) {
        const plan::Tensor &tensor = b.context.program->tensors[static_cast<std::size_t>(id)];
        const Range range{std::max<std::int64_t>(tensor.offset - begin, 0),
                          std::min(tensor.offset + tensor.numel - begin, length)};
        if (range.size() > 0)
            pieces.push_back({id, tensor.decay, range});
    }
    return pieces;
}

} // namespace

BindResult bindGradNorm(CpuDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    RY_TRY(b.require(1, 1));
    const plan::Bucket *bucket = bucketOf(b);
    if (!bucket)
        return b.missing("names no bucket of the program");
    RY_ASSIGN(const GradientStorage storage, b.storageOf(b.readBuffer(0).dtype));
    // A bucket that every rank has whole is counted once.
    const bool counted = bucket->slices > 1 || bucket->group == plan::none || context.dpRank == 0;
    device.reserve(64);
    return b.make([&device, table = b.table, storage, counted, pieces = piecesOf(b, *bucket),
                   size = static_cast<std::int64_t>(bytesOf(b.readBuffer(0).dtype)),
                   gradient = static_cast<const std::byte *>(b.read(0)),
                   stats = static_cast<double *>(b.write(0)),
                   extra = b.writeBuffer(0).shape[0] - plan::statsSlots](exec::StepState &) {
        struct Sums {
            double squares;
            std::int64_t nonFinite;
        };
        if (!counted)
            return;
        const int threads = device.team().size();
        for (const Piece &piece : pieces) {
            const int parts = piece.elements.size() < 32768 ? 1 : threads;
            const auto work = [&](int thread) {
                const Range range = share(piece.elements.size(), parts, thread, 64);
                auto *sums = reinterpret_cast<Sums *>(device.scratch(thread));
                sums->squares = table->sumSquares[storage](
                    gradient + (piece.elements.begin + range.begin) * size, range.size(), &sums->nonFinite);
            };
            if (parts == 1)
                work(0);
            else
                device.team().run(work);
            for (int thread = 0; thread < parts; ++thread) {
                const auto *sums = reinterpret_cast<const Sums *>(device.scratch(thread));
                stats[piece.tensor] += sums->squares;
                stats[extra + plan::StatsNonFinite] += static_cast<double>(sums->nonFinite);
            }
        }
    });
}

BindResult bindOptimizer(CpuDevice &device, const exec::BindContext &context, const plan::Op &op)
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
    std::vector<Piece> pieces;
    for (const Piece &piece : piecesOf(b, *bucket)) {
        if (!pieces.empty() && pieces.back().decay == piece.decay
            && pieces.back().elements.end == piece.elements.begin)
            pieces.back().elements.end = piece.elements.end;
        else
            pieces.push_back(piece);
    }
    struct Places {
        std::byte *grad, *param, *exp1, *exp2, *master;
    };
    const auto place = [](void *p) { return static_cast<std::byte *>(p); };
    const Places at{place(b.read(0)), place(b.write(0)), place(b.write(1)), place(b.write(2)),
                    master ? place(b.write(3)) : nullptr};
    return b.make([&device, table = b.table, storage, pieces = std::move(pieces), at, rule = b.job.optimizer,
                   gradBytes = static_cast<std::int64_t>(bytesOf(b.readBuffer(0).dtype)),
                   paramBytes = static_cast<std::int64_t>(b.computeBytes()),
                   accBytes = static_cast<std::int64_t>(b.accBytes())](exec::StepState &state) {
        if (state.overflow)
            return;
        const double step = static_cast<double>(state.step);
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
                part.shrink = piece.decay ? 1 - state.lr * rule.weightDecay : 1;
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
