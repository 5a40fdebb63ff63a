// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

namespace rankyard::kernels {

namespace {

/// Of the join of an attention or MLP block (units.h).
std::uint32_t joinSite(const plan::Op &op)
{
    return static_cast<std::uint32_t>(3 * op.unit.layer
                                      + (op.unit.kind == plan::UnitKind::Attention ? 2 : 3));
}

} // namespace

BindResult bindNorm(const Binder &b)
{
    RY_TRY(b.require(b.llama ? 2 : 3, 2));
    const NormKind kind = b.llama ? Rms : Layer;
    return b.make([device = &b.device, forward = b.table->normForward[kind], x = b.read(0), w = b.read(1),
                   bias = b.llama ? nullptr : b.read(2), n = b.write(0), stats = b.write(1),
                   rows = b.readRows(0), width = b.split.hidden, kept = b.llama ? 1 : 2,
                   eps = b.job.model.normEps, size = b.computeBytes(),
                   acc = b.accBytes()](exec::StepState &) {
        forRows(*device, size != 8, rows, [&](Range r) {
            const std::int64_t at = r.begin * width;
            forward(rowsFrom(x, at, size), w, bias, rowsFrom(n, at, size),
                    rowsFrom(stats, kept * r.begin, acc), r.size(), width, eps);
        });
    });
}

BindResult bindNormBackward(const Binder &b)
{
    // The head is not on the residual stream: nothing is added.
    const bool head = b.op.unit.kind == plan::UnitKind::Head;
    RY_TRY(b.require(head ? 4 : 5, b.llama ? 2 : 3));
    RY_ASSIGN(const GradientStorage weight, b.gradient(1));
    std::vector<ColumnSums::Target> targets = {{b.write(1), weight, b.split.hidden}};
    if (!b.llama) {
        RY_ASSIGN(const GradientStorage bias, b.gradient(2));
        targets.push_back({b.write(2), bias, b.split.hidden});
    }
    ColumnSums sums(b, std::move(targets));
    return b.make([sums = std::move(sums), backward = b.table->normBackward[b.llama ? Rms : Layer],
                   dn = b.write(0), x = b.read(1), stats = b.read(2), w = b.read(3),
                   dx = head ? nullptr : b.read(4), rows = b.readRows(1), width = b.split.hidden,
                   kept = b.llama ? 1 : 2, size = b.computeBytes(), acc = b.accBytes()](exec::StepState &) {
        sums.run(rows, [&](Range r, void **out) {
            const std::int64_t at = r.begin * width;
            backward(rowsFrom(dn, at, size), rowsFrom(x, at, size), rowsFrom(stats, kept * r.begin, acc), w,
                     dx ? rowsFrom(dx, at, size) : nullptr, out[0], out[1], r.size(), width);
        });
    });
}

BindResult bindJoin(const Binder &b)
{
    RY_TRY(b.require(b.llama ? 2 : 3, 1));
    const RowPlaces &places = b.places(b.readRows(0));
    return b.make([device = &b.device, table = b.table, x = b.read(0), bias = b.llama ? nullptr : b.read(2),
                   y = b.write(0), rows = b.readRows(0), width = b.split.hidden, drops = b.drops(),
                   drop = b.dropout(joinSite(b.op), places), sample = SamplePlace(b),
                   size = b.computeBytes()](exec::StepState &state) {
        const Dropout all = sample.at(drop, state);
        forRows(*device, size != 8, rows, [&](Range r) {
            const std::byte *from = rowsFrom(x, r.begin * width, size);
            std::byte *to = rowsFrom(y, r.begin * width, size);
            if (drops)
                table->dropRows(all.from(r.begin), to, bias, from, to, r.size(), width);
            else
                table->join(from, to, bias, r.size(), width);
        });
    });
}

BindResult bindJoinBackward(const Binder &b)
{
    const bool drops = b.drops();
    RY_TRY(b.require(1, (drops ? 1 : 0) + (b.llama ? 0 : 1)));
    const RowPlaces &places = b.places(b.readRows(0));
    const auto mask = [device = &b.device, table = b.table, dx = b.read(0), dy = drops ? b.write(0) : nullptr,
                       rows = b.readRows(0), width = b.split.hidden, drop = b.dropout(joinSite(b.op), places),
                       sample = SamplePlace(b), size = b.computeBytes()](exec::StepState &state) {
        const Dropout all = sample.at(drop, state);
        forRows(*device, size != 8, rows, [&](Range r) {
            table->dropRows(all.from(r.begin), rowsFrom(dx, r.begin * width, size), nullptr, nullptr,
                            rowsFrom(dy, r.begin * width, size), r.size(), width);
        });
    };
    if (b.llama)
        return b.make(mask);
    const std::size_t place = drops ? 1 : 0;
    RY_ASSIGN(const GradientStorage storage, b.gradient(place));
    ColumnSums sums(b, {{b.write(place), storage, b.split.hidden}});
    return b.make([mask, drops, sums = std::move(sums), table = b.table, dy = drops ? b.write(0) : b.read(0),
                   rows = b.readRows(0), width = b.split.hidden,
                   size = b.computeBytes()](exec::StepState &state) {
        if (drops)
            mask(state);
        sums.run(rows, [&](Range r, void **out) {
            table->columnSum(rowsFrom(dy, r.begin * width, size), width, r.size(), width, out[0]);
        });
    });
}

} // namespace rankyard::kernels
