// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

#include <vector>

namespace rankyard::kernels {

BindResult bindLookup(const Binder &b)
{
    RY_TRY(b.require(2, 1));
    return b.make([device = &b.device, table = b.table, tokens = static_cast<const std::int32_t *>(b.read(0)),
                   weights = b.read(1), first = b.firstColumn(), count = b.columns(), x = b.write(0),
                   rows = b.readRows(0), width = b.split.hidden, size = b.computeBytes()](exec::StepState &) {
        forRows(*device, false, rows, [&](Range r) {
            table->lookup(tokens + r.begin, weights, first, count, rowsFrom(x, r.begin * width, size),
                          r.size(), width);
        });
    });
}

BindResult bindLookupBackward(const Binder &b)
{
    RY_TRY(b.require(2, 1));
    RY_ASSIGN(const GradientStorage storage, b.gradient(0));
    return b.make([device = &b.device, table = b.table, storage, dx = b.read(0),
                   tokens = static_cast<const std::int32_t *>(b.read(1)), grad = b.write(0),
                   bytes = b.writeBuffer(0).bytes, rows = b.readRows(1), width = b.split.hidden,
                   first = b.firstColumn(), count = b.columns(), size = b.computeBytes(),
                   accumulate = b.op.accumulate](exec::StepState &) {
        if (!accumulate)
            device->fill(grad, bytes);
        device->team().run([&](int thread) {
            const FlushSubnormals flush(size != 8);
            const Range columns = share(width, device->team().size(), thread, 16);
            table->scatterAdd[storage](tokens, dx, grad, first, count, rows, width, columns.begin,
                                       columns.end);
        });
    });
}

BindResult bindEmbeddingJoin(const Binder &b)
{
    RY_TRY(b.require(b.llama ? 1 : 2, 1));
    const RowPlaces &places = b.places(b.readRows(0));
    return b.make([device = &b.device, table = b.table, weights = b.llama ? nullptr : b.read(1),
                   x = b.write(0), rows = b.readRows(0), places = &places, width = b.split.hidden,
                   drops = b.drops(), drop = b.dropout(0, places), sample = SamplePlace(b),
                   size = b.computeBytes()](exec::StepState &state) {
        const Dropout all = sample.at(drop, state);
        forRows(*device, size != 8, rows, [&](Range r) {
            void *part = rowsFrom(x, r.begin * width, size);
            if (weights)
                table->addPositions(part, weights, places->position + r.begin, r.size(), width);
            if (drops)
                table->dropRows(all.from(r.begin), part, nullptr, nullptr, part, r.size(), width);
        });
    });
}

namespace {

/// The rows of a micro-batch by position, where kernels read them: those of p at rows[begin[p]] … rows[begin[p + 1]].
struct PositionRows {
    const std::int32_t *begin, *rows;

    PositionRows(KernelDevice &device, const RowPlaces &places, std::int64_t positions)
    {
        std::vector<std::int32_t> first(static_cast<std::size_t>(positions) + 1), order;
        for (std::int32_t p = 0; p < positions; ++p) {
            for (std::size_t row = 0; row < places.positions.size(); ++row) {
                if (places.positions[row] == p)
                    order.push_back(static_cast<std::int32_t>(row));
            }
            first[static_cast<std::size_t>(p) + 1] = static_cast<std::int32_t>(order.size());
        }
        begin = keepAll(device, first);
        rows = keepAll(device, order);
    }

private:
    static const std::int32_t *keepAll(KernelDevice &device, const std::vector<std::int32_t> &values)
    {
        return static_cast<const std::int32_t *>(
            device.keep(values.data(), static_cast<std::int64_t>(4 * values.size())));
    }
};

} // namespace

BindResult bindEmbeddingJoinBackward(const Binder &b)
{
    const bool drops = b.drops();
    RY_TRY(b.require(1, (drops ? 1 : 0) + (b.llama ? 0 : 1)));
    const RowPlaces &places = b.places(b.readRows(0));
    const auto mask = [device = &b.device, table = b.table, dx = b.read(0), rows = b.readRows(0),
                       width = b.split.hidden, drop = b.dropout(0, places), sample = SamplePlace(b),
                       size = b.computeBytes()](exec::StepState &state) {
        const Dropout all = sample.at(drop, state);
        forRows(*device, size != 8, rows, [&](Range r) {
            void *part = rowsFrom(dx, r.begin * width, size);
            table->dropRows(all.from(r.begin), part, nullptr, nullptr, part, r.size(), width);
        });
    };
    if (b.llama)
        return b.make(mask);
    const std::size_t place = drops ? 1 : 0;
    RY_ASSIGN(const GradientStorage storage, b.gradient(place));
    const std::int64_t gradBytes = static_cast<std::int64_t>(bytesOf(b.writeBuffer(place).dtype));
    b.device.reserve(b.split.hidden * static_cast<std::int64_t>(b.accBytes()));
    return b.make([device = &b.device, table = b.table, storage, gradBytes, mask, drops, dx = b.read(0),
                   grad = b.write(place), rows = PositionRows(b.device, places, b.job.model.seq),
                   all = b.job.model.seq, width = b.split.hidden, flush = b.computeBytes() != 8,
                   accumulate = b.op.accumulate](exec::StepState &state) {
        if (drops)
            mask(state);
        device->team().run([&](int thread) {
            const FlushSubnormals flushing(flush);
            const Range range = share(all, device->team().size(), thread);
            table->sumByPosition[storage](rows.begin + range.begin, rows.rows, dx,
                                          rowsFrom(grad, range.begin * width * gradBytes, 1), range.size(),
                                          width, accumulate, device->scratch(thread));
        });
    });
}

} // namespace rankyard::kernels
