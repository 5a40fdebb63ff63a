// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

#include <algorithm>
#include <cstring>

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
                   bytes = static_cast<std::size_t>(b.writeBuffer(0).bytes), rows = b.readRows(1),
                   width = b.split.hidden, first = b.firstColumn(), count = b.columns(),
                   size = b.computeBytes(), accumulate = b.op.accumulate](exec::StepState &) {
        if (!accumulate)
            std::memset(grad, 0, bytes);
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
                table->addPositions(part, weights, places->position.data() + r.begin, r.size(), width);
            if (drops)
                table->dropRows(all.from(r.begin), part, nullptr, nullptr, part, r.size(), width);
        });
    });
}

namespace {

/// The rows of a micro-batch, by position: every sequence has one, where this rank has it.
std::vector<std::vector<std::int64_t>> rowsByPosition(const RowPlaces &places, std::int64_t positions)
{
    std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(positions));
    for (std::size_t r = 0; r < places.position.size(); ++r)
        rows[static_cast<std::size_t>(places.position[r])].push_back(static_cast<std::int64_t>(r));
    return rows;
}

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
                   grad = b.write(place), rows = rowsByPosition(places, b.job.model.seq),
                   width = b.split.hidden, size = b.computeBytes(), acc = b.accBytes(),
                   accumulate = b.op.accumulate](exec::StepState &state) {
        if (drops)
            mask(state);
        device->team().run([&](int thread) {
            const FlushSubnormals flush(size != 8);
            const Range positions =
                share(static_cast<std::int64_t>(rows.size()), device->team().size(), thread);
            std::byte *sums = device->scratch(thread);
            for (std::int64_t p = positions.begin; p < positions.end; ++p) {
                std::memset(sums, 0, static_cast<std::size_t>(width) * acc);
                for (const std::int64_t row : rows[static_cast<std::size_t>(p)])
                    table->columnSum(rowsFrom(dx, row * width, size), width, 1, width, sums);
                table->writeGradient[storage](sums, static_cast<std::byte *>(grad) + p * width * gradBytes,
                                              width, accumulate);
            }
        });
    });
}

} // namespace rankyard::kernels
