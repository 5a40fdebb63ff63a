// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

namespace rankyard::kernels {

namespace {

TeamGemm teamGemm(const Binder &b, const Gemm &g)
{
    return TeamGemm(b.device, *b.table, g, b.computeBytes(), b.accBytes());
}

BindResult bindGemm(const Binder &b, const Gemm &g)
{
    return b.make([product = teamGemm(b, g)](exec::StepState &state) { product.run(state); });
}

/// Turns queries and keys of qkv [T, W] by their positions.
auto rotation(const Binder &b, void *qkv, const void *angles, bool back)
{
    const RowPlaces &places = b.places(b.split.tokens);
    return [device = &b.device, rotate = b.table->rotate, qkv, back, places = &places, rows = b.split.tokens,
            ld = b.split.qkvWidth(), heads = b.split.heads + b.split.keyHeads, width = b.split.headSize,
            angles, size = b.computeBytes()] {
        forRows(*device, size != 8, rows, [&](Range r) {
            rotate(rowsFrom(qkv, r.begin * ld, size), ld, angles, places->position + r.begin, r.size(), heads,
                   width, back);
        });
    };
}

/// a = silu(gate)·up or gelu(u), rows of u divided among the threads.
auto activation(const Binder &b, const void *u, void *a)
{
    return [device = &b.device, table = b.table, llama = b.llama, u, a, rows = b.split.tokens,
            width = b.split.ffn, size = b.computeBytes()] {
        forRows(*device, size != 8, rows, [&](Range r) {
            void *to = rowsFrom(a, r.begin * width, size);
            if (llama)
                table->swigluForward(rowsFrom(u, r.begin * 2 * width, size), to, r.size(), width);
            else
                table->geluForward(rowsFrom(u, r.begin * width, size), to, r.size() * width);
        });
    };
}

} // namespace

BindResult bindProduct(const Binder &b)
{
    RY_TRY(b.require(2, 1));
    return bindGemm(
        b, linear(b.read(0), b.read(1), nullptr, b.write(0), b.split.tokens, b.readWidth(1), b.readRows(1)));
}

BindResult bindProductInput(const Binder &b)
{
    RY_TRY(b.require(2, 1));
    return bindGemm(
        b, linearInput(b.read(0), b.read(1), b.write(0), b.split.tokens, b.readWidth(1), b.readRows(1)));
}

BindResult bindProductWeight(const Binder &b)
{
    RY_TRY(b.require(2, 1));
    RY_ASSIGN(const GradientStorage storage, b.gradient(0));
    return bindGemm(b,
                    linearWeight(b.read(0), b.read(1), b.write(0), b.split.tokens, b.readWidth(1),
                                 b.readWidth(0), storage, b.op.accumulate));
}

BindResult bindQkv(const Binder &b)
{
    RY_TRY(b.require(b.llama ? 2 : 3, 1));
    const Gemm g = linear(b.read(0), b.read(1), b.llama ? nullptr : b.read(2), b.write(0), b.split.tokens,
                          b.split.hidden, b.split.qkvWidth());
    if (!b.llama)
        return bindGemm(b, g);
    RY_ASSIGN(const void *angles, b.device.angles(b.job.model, b.compute));
    return b.make(
        [product = teamGemm(b, g), turn = rotation(b, b.write(0), angles, false)](exec::StepState &state) {
            product.run(state);
            turn();
        });
}

BindResult bindQkvBackward(const Binder &b)
{
    RY_TRY(b.require(2, 2));
    const std::int64_t width = b.split.qkvWidth();
    if (b.llama) {
        RY_ASSIGN(const void *angles, b.device.angles(b.job.model, b.compute));
        const Gemm g = linearInput(b.write(0), b.read(1), b.write(1), b.split.tokens, b.split.hidden, width);
        return b.make(
            [turn = rotation(b, b.write(0), angles, true), product = teamGemm(b, g)](exec::StepState &state) {
                turn();
                product.run(state);
            });
    }
    RY_ASSIGN(const GradientStorage storage, b.gradient(1));
    ColumnSums sums(b, {{b.write(1), storage, width}});
    const Gemm g = linearInput(b.read(0), b.read(1), b.write(0), b.split.tokens, b.split.hidden, width);
    return b.make([sums = std::move(sums), table = b.table, dqkv = b.read(0), width, rows = b.split.tokens,
                   size = b.computeBytes(), product = teamGemm(b, g)](exec::StepState &state) {
        sums.run(rows, [&](Range r, void **out) {
            table->columnSum(rowsFrom(dqkv, r.begin * width, size), width, r.size(), width, out[0]);
        });
        product.run(state);
    });
}

BindResult bindUp(const Binder &b)
{
    RY_TRY(b.require(b.llama ? 2 : 3, 2));
    Gemm g = linear(b.read(0), b.read(1), b.llama ? nullptr : b.read(2), b.write(0), b.split.tokens,
                    b.split.hidden, b.readRows(1));
    if (!b.llama) {
        g.gelu = b.write(1);
        return bindGemm(b, g);
    }
    return b.make(
        [product = teamGemm(b, g), act = activation(b, b.write(0), b.write(1))](exec::StepState &state) {
            product.run(state);
            act();
        });
}

BindResult bindActivation(const Binder &b)
{
    RY_TRY(b.require(1, 1));
    return b.make([act = activation(b, b.read(0), b.write(0))](exec::StepState &) { act(); });
}

BindResult bindUpBackward(const Binder &b)
{
    RY_TRY(b.require(3, b.llama ? 2 : 3));
    const std::int64_t width = b.split.ffn;
    const Gemm g =
        linearInput(b.write(0), b.read(2), b.write(1), b.split.tokens, b.split.hidden, b.readRows(2));
    if (b.llama) {
        return b.make([device = &b.device, table = b.table, da = b.read(0), u = b.write(0), width,
                       rows = b.split.tokens, size = b.computeBytes(),
                       product = teamGemm(b, g)](exec::StepState &state) {
            forRows(*device, size != 8, rows, [&](Range r) {
                void *part = rowsFrom(u, r.begin * 2 * width, size);
                table->swigluBackward(rowsFrom(da, r.begin * width, size), part, part, r.size(), width);
            });
            product.run(state);
        });
    }
    RY_ASSIGN(const GradientStorage storage, b.gradient(2));
    ColumnSums sums(b, {{b.write(2), storage, width}});
    return b.make([sums = std::move(sums), table = b.table, da = b.write(0), u = b.read(1), width,
                   rows = b.split.tokens, size = b.computeBytes(),
                   product = teamGemm(b, g)](exec::StepState &state) {
        sums.run(rows, [&](Range r, void **out) {
            const std::int64_t at = r.begin * width;
            table->geluBackward(rowsFrom(da, at, size), rowsFrom(u, at, size), out[0], r.size(), width);
        });
        product.run(state);
    });
}

} // namespace rankyard::kernels
