// SPDX-License-Identifier: GPL-3.0-or-later
// Attention by blocks of keys with the online softmax (Milakov & Gimelshein 2018; Dao et al. 2022): scores are never stored, sums are
// Acc. A warp has some rows, its 32 threads share the keys of a tile for the scores, and the columns of the head for the products.
// Backward computes the scores again: once by rows of queries for dq, once by rows of keys for dk and dv, so nothing is added by
// two threads, and equal runs are equal to the bit.
#pragma once

#include "engine/cuda/kernels/launch.h"

#include <type_traits>

namespace rankyard::cuda {

constexpr int attentionWarps = 4, rowsOfWarp = 4, tileRows = attentionWarps * rowsOfWarp;
constexpr i64 widestHead = 256;

/// Rows of a tile in shared memory lie so far apart that a column's are in different banks.
template<typename T>
RY_BOTH constexpr i64 paddedWidth(i64 size)
{
    return size + (sizeof(T) < 4 ? 2 : 1);
}

/// Factor of one probability under dropout (units.h): key `key` of the block for the query at `row` of the op's rows.
struct ProbabilityDrop {
    kernels::Dropout d;
    bool on = false;
    std::uint32_t firstHead = 0;
    i64 keyOffset[2] = {0, 0}, keyBreak = 0;

    template<typename A>
    RY_DEVICE A factor(i64 row, i64 head, i64 key) const
    {
        if (!on)
            return 1;
        const std::uint32_t place =
            static_cast<std::uint32_t>(key < keyBreak ? keyOffset[0] + key : keyOffset[1] + key - keyBreak);
        const Draws draws = dropDraws(d, place / 4, static_cast<std::uint32_t>(d.position[row]),
                                      static_cast<std::uint32_t>(d.sample[row] + d.firstSample),
                                      d.purpose + ((firstHead + static_cast<std::uint32_t>(head)) << 8));
        return draws.word[place % 4] >= d.threshold ? static_cast<A>(d.scale) : 0;
    }
};

/// A block's rows of one head of one sequence, and what all three kernels do alike.
template<typename T>
struct AttentionTile {
    using A = AccOf<T>;
    kernels::Attention a;
    ProbabilityDrop drop;

    RY_DEVICE A scale() const { return static_cast<A>(1 / sqrt(static_cast<double>(a.size))); }
    /// Keys that the queries before `row` see.
    RY_DEVICE i64 seen(i64 row) const { return a.causal ? smaller(a.keys, row) : a.keys; }
    RY_DEVICE i64 keyHead(i64 head) const { return head / (a.heads / a.kvHeads); }
    template<typename V>
    RY_DEVICE V *queryRow(V *base, i64 ld, i64 sequence, i64 head, i64 row) const
    {
        return base + (sequence * a.rowsQ + row) * ld + head * a.size;
    }
    template<typename V>
    RY_DEVICE V *keyRow(V *base, i64 sequence, i64 head, i64 row) const
    {
        return base + (sequence * a.rowsKv + row) * a.ldKv + head * a.size;
    }
    RY_DEVICE i64 lsePlace(i64 sequence, i64 head, i64 row) const
    {
        return head * a.tokens + sequence * a.rowsQ + row;
    }
    /// `rows` rows of `from` into shared memory as V, zeros from `valid` on.
    template<typename V>
    RY_DEVICE void load(Block &block, const T *from, i64 ld, i64 valid, int rows, V *to, i64 width) const
    {
        for (i64 i = block.thread(); i < rows * a.size; i += block.threads()) {
            const i64 row = i / a.size, column = i % a.size;
            V value{};
            if (row < valid) {
                if constexpr (std::is_same_v<V, T>)
                    value = from[row * ld + column];
                else
                    value = widen(from[row * ld + column]);
            }
            to[row * width + column] = value;
        }
    }
    /// Writes or adds this thread's columns of a row.
    template<int Columns>
    RY_DEVICE void store(const Block &block, const A *values, T *to, bool add) const
    {
        for (int c = 0; c < Columns; ++c) {
            const i64 column = block.lane() + warpSize * c;
            if (column < a.size)
                narrow(add ? values[c] + widen(to[column]) : values[c], to[column]);
        }
    }
    RY_DEVICE A dot(const A *row, const T *column) const
    {
        A sum = 0;
        for (i64 d = 0; d < a.size; ++d)
            sum += row[d] * static_cast<A>(widen(column[d]));
        return sum;
    }
    /// out[c] += Σ over the tile's rows of weight · row, for this thread's columns.
    template<int Columns>
    RY_DEVICE void addRows(const Block &block, const A *weights, const T *rows, A *out) const
    {
        const i64 width = paddedWidth<T>(a.size);
        for (int j = 0; j < warpSize; ++j) {
            const A weight = weights[j];
            for (int c = 0; c < Columns; ++c) {
                const i64 column = block.lane() + warpSize * c;
                if (column < a.size)
                    out[c] += weight * static_cast<A>(widen(rows[j * width + column]));
            }
        }
    }
};

/// The shared memory of a block: `own` tiles of its rows as Acc, `weights` of each row and key, two tiles of other rows as T.
template<typename T>
struct AttentionShared {
    using A = AccOf<T>;
    A *own, *weights;
    T *others[2];

    RY_DEVICE AttentionShared(Block &block, i64 size, int owns, int kinds)
        : own(reinterpret_cast<A *>(block.shared())),
          weights(own + owns * tileRows * size + block.warp() * kinds * rowsOfWarp * warpSize)
    {
        others[0] = reinterpret_cast<T *>(own + owns * tileRows * size
                                          + attentionWarps * kinds * rowsOfWarp * warpSize);
        others[1] = others[0] + warpSize * paddedWidth<T>(size);
    }
    static i64 bytes(i64 size, int owns, int kinds)
    {
        return static_cast<i64>(sizeof(A)) * (owns * tileRows * size + kinds * tileRows * warpSize)
            + 2 * static_cast<i64>(sizeof(T)) * warpSize * paddedWidth<T>(size);
    }
};

/// Blocks of queries, of a head, of a sequence.
template<typename T, int Columns>
struct AttentionForward {
    using A = AccOf<T>;
    static constexpr bool cooperative = true;
    AttentionTile<T> t;

    RY_DEVICE void operator()(Block &block) const
    {
        const kernels::Attention &a = t.a;
        const AttentionShared<T> s(block, a.size, 1, 1);
        const i64 head = block.y(), sequence = block.z(), first = block.x() * tileRows;
        const i64 own = block.warp() * rowsOfWarp, keyHead = t.keyHead(head);
        t.load(block, t.queryRow(static_cast<const T *>(a.q), a.ldQ, sequence, head, first), a.ldQ,
               a.queries - first, tileRows, s.own, a.size);
        A top[rowsOfWarp], total[rowsOfWarp] = {}, out[rowsOfWarp][Columns] = {};
        for (A &value : top)
            value = -infinity(A());
        const i64 limit = t.seen(first + tileRows);
        for (i64 from = 0; from < limit; from += warpSize) {
            block.sync();
            t.load(block, t.keyRow(static_cast<const T *>(a.k), sequence, keyHead, from), a.ldKv,
                   a.keys - from, warpSize, s.others[0], paddedWidth<T>(a.size));
            t.load(block, t.keyRow(static_cast<const T *>(a.v), sequence, keyHead, from), a.ldKv,
                   a.keys - from, warpSize, s.others[1], paddedWidth<T>(a.size));
            block.sync();
            for (int r = 0; r < rowsOfWarp; ++r)
                weigh(block, s, from + block.lane(), sequence, head, first + own + r, own + r, r, top[r],
                      total[r], out[r]);
            block.syncWarp();
            for (int r = 0; r < rowsOfWarp; ++r)
                t.template addRows<Columns>(block, s.weights + r * warpSize, s.others[1], out[r]);
        }
        for (int r = 0; r < rowsOfWarp; ++r) {
            if (first + own + r < a.queries)
                finish(block, sequence, head, first + own + r, top[r], total[r], out[r]);
        }
    }

private:
    /// The weight of one key for a row, and what the row has so far scaled to the new largest score.
    RY_DEVICE void weigh(Block &block, const AttentionShared<T> &s, i64 key, i64 sequence, i64 head, i64 row,
                         i64 ownRow, int r, A &top, A &total, A *out) const
    {
        const bool sees = row < t.a.queries && key < t.seen(row + 1);
        const A score = sees
            ? t.dot(s.own + ownRow * t.a.size, s.others[0] + block.lane() * paddedWidth<T>(t.a.size))
                * t.scale()
            : -infinity(A());
        const A most = larger(top, overWarp(block, score, Most()));
        const A weight = sees ? exponential(score - most) : 0;
        const A keep = top == -infinity(A()) ? 0 : exponential(top - most);
        total = total * keep + overWarp(block, weight, Plus());
        top = most;
        for (int c = 0; c < Columns; ++c)
            out[c] *= keep;
        s.weights[r * warpSize + block.lane()] =
            sees ? weight * t.drop.template factor<A>(sequence * t.a.rowsQ + row, head, key) : 0;
    }

    /// Of all keys, or merged with what earlier blocks of keys have given.
    RY_DEVICE void finish(Block &block, i64 sequence, i64 head, i64 row, A top, A total, A *out) const
    {
        const kernels::Attention &a = t.a;
        A *lse = static_cast<A *>(a.lse) + t.lsePlace(sequence, head, row);
        T *o = t.queryRow(static_cast<T *>(a.o), a.ldO, sequence, head, row);
        const A mine = top + static_cast<A>(log(static_cast<double>(total)));
        A both = mine, keep = 0;
        if (a.merge) {
            const A before = *lse, most = larger(mine, before);
            both = most
                + static_cast<A>(
                       log(exp(static_cast<double>(mine - most)) + exp(static_cast<double>(before - most))));
            keep = static_cast<A>(exp(static_cast<double>(before - both)));
        }
        const A factor = static_cast<A>(exp(static_cast<double>(mine - both))) / total;
        for (int c = 0; c < Columns; ++c) {
            const i64 column = block.lane() + warpSize * c;
            out[c] *= factor;
            if (a.merge && column < a.size)
                out[c] += widen(o[column]) * keep;
        }
        block.syncWarp(); // all have read it
        if (block.lane() == 0)
            *lse = both;
        t.template store<Columns>(block, out, o, false);
    }
};

/// dots [heads, tokens] = Σ o·dO of each row and head; a warp each.
template<typename T>
struct AttentionDots {
    static constexpr bool cooperative = true;
    AttentionTile<T> t;
    AccOf<T> *dots;
    RY_DEVICE void operator()(Block &block) const
    {
        const kernels::Attention &a = t.a;
        const i64 row = block.x() * attentionWarps + block.warp(), head = block.y(), sequence = block.z();
        if (row >= a.queries)
            return;
        const T *o = t.queryRow(static_cast<const T *>(a.o), a.ldO, sequence, head, row);
        const T *dO = t.queryRow(static_cast<const T *>(a.dO), a.ldO, sequence, head, row);
        AccOf<T> sum = 0;
        for (i64 d = block.lane(); d < a.size; d += warpSize)
            sum += widen(o[d]) * widen(dO[d]);
        sum = overWarp(block, sum, Plus());
        if (block.lane() == 0)
            dots[t.lsePlace(sequence, head, row)] = sum;
    }
};

/// dq: blocks of queries, of a head, of a sequence.
template<typename T, int Columns>
struct AttentionQueryGradient {
    static constexpr bool cooperative = true;
    AttentionTile<T> t;
    const AccOf<T> *dots;

    RY_DEVICE void operator()(Block &block) const
    {
        using A = AccOf<T>;
        const kernels::Attention &a = t.a;
        const AttentionShared<T> s(block, a.size, 2, 1);
        const i64 head = block.y(), sequence = block.z(), first = block.x() * tileRows;
        const i64 own = block.warp() * rowsOfWarp, keyHead = t.keyHead(head), width = paddedWidth<T>(a.size);
        A *grads = s.own + tileRows * a.size;
        t.load(block, t.queryRow(static_cast<const T *>(a.q), a.ldQ, sequence, head, first), a.ldQ,
               a.queries - first, tileRows, s.own, a.size);
        t.load(block, t.queryRow(static_cast<const T *>(a.dO), a.ldO, sequence, head, first), a.ldO,
               a.queries - first, tileRows, grads, a.size);
        A out[rowsOfWarp][Columns] = {};
        const i64 limit = t.seen(first + tileRows);
        for (i64 from = 0; from < limit; from += warpSize) {
            block.sync();
            t.load(block, t.keyRow(static_cast<const T *>(a.k), sequence, keyHead, from), a.ldKv,
                   a.keys - from, warpSize, s.others[0], width);
            t.load(block, t.keyRow(static_cast<const T *>(a.v), sequence, keyHead, from), a.ldKv,
                   a.keys - from, warpSize, s.others[1], width);
            block.sync();
            const i64 key = from + block.lane();
            for (int r = 0; r < rowsOfWarp; ++r) {
                const i64 row = first + own + r;
                A weight = 0;
                if (row < a.queries && key < t.seen(row + 1)) {
                    const i64 at = t.lsePlace(sequence, head, row);
                    const A score = t.dot(s.own + (own + r) * a.size, s.others[0] + block.lane() * width);
                    const A p = exponential(score * t.scale() - static_cast<const A *>(a.lse)[at]);
                    const A dP = t.dot(grads + (own + r) * a.size, s.others[1] + block.lane() * width)
                        * t.drop.template factor<A>(sequence * a.rowsQ + row, head, key);
                    weight = p * (dP - dots[at]) * t.scale();
                }
                s.weights[r * warpSize + block.lane()] = weight;
            }
            block.syncWarp();
            for (int r = 0; r < rowsOfWarp; ++r)
                t.template addRows<Columns>(block, s.weights + r * warpSize, s.others[0], out[r]);
        }
        for (int r = 0; r < rowsOfWarp; ++r) {
            if (first + own + r < a.queries)
                t.template store<Columns>(
                    block, out[r], t.queryRow(static_cast<T *>(a.dq), a.ldQ, sequence, head, first + own + r),
                    a.addQ);
        }
    }
};

/// dk and dv: blocks of keys, of a head of keys, of a sequence; over all heads of queries that share it.
template<typename T, int Columns>
struct AttentionKeyGradient {
    static constexpr bool cooperative = true;
    AttentionTile<T> t;
    const AccOf<T> *dots;

    RY_DEVICE void operator()(Block &block) const
    {
        using A = AccOf<T>;
        const kernels::Attention &a = t.a;
        const AttentionShared<T> s(block, a.size, 2, 2);
        const i64 keyHead = block.y(), sequence = block.z(), first = block.x() * tileRows;
        const i64 own = block.warp() * rowsOfWarp, group = a.heads / a.kvHeads;
        t.load(block, t.keyRow(static_cast<const T *>(a.k), sequence, keyHead, first), a.ldKv, a.keys - first,
               tileRows, s.own, a.size);
        t.load(block, t.keyRow(static_cast<const T *>(a.v), sequence, keyHead, first), a.ldKv, a.keys - first,
               tileRows, s.own + tileRows * a.size, a.size);
        A dk[rowsOfWarp][Columns] = {}, dv[rowsOfWarp][Columns] = {};
        const i64 begin = a.causal ? first / warpSize * warpSize : 0;
        for (i64 head = keyHead * group; head < (keyHead + 1) * group; ++head) {
            for (i64 from = begin; from < a.queries; from += warpSize) {
                block.sync();
                t.load(block, t.queryRow(static_cast<const T *>(a.q), a.ldQ, sequence, head, from), a.ldQ,
                       a.queries - from, warpSize, s.others[0], paddedWidth<T>(a.size));
                t.load(block, t.queryRow(static_cast<const T *>(a.dO), a.ldO, sequence, head, from), a.ldO,
                       a.queries - from, warpSize, s.others[1], paddedWidth<T>(a.size));
                block.sync();
                for (int r = 0; r < rowsOfWarp; ++r)
                    weigh(block, s, from + block.lane(), sequence, head, first + own + r, own + r, r);
                block.syncWarp();
                for (int r = 0; r < rowsOfWarp; ++r) {
                    t.template addRows<Columns>(block, s.weights + r * warpSize, s.others[1], dv[r]);
                    t.template addRows<Columns>(block, s.weights + (rowsOfWarp + r) * warpSize, s.others[0],
                                                dk[r]);
                }
            }
        }
        for (int r = 0; r < rowsOfWarp; ++r) {
            const i64 key = first + own + r;
            if (key >= a.keys)
                continue;
            t.template store<Columns>(block, dk[r], t.keyRow(static_cast<T *>(a.dk), sequence, keyHead, key),
                                      a.addKv);
            t.template store<Columns>(block, dv[r], t.keyRow(static_cast<T *>(a.dv), sequence, keyHead, key),
                                      a.addKv);
        }
    }

private:
    /// What a query has of a key: its dropped probability, for dv, and the gradient of its score, for dk.
    RY_DEVICE void weigh(Block &block, const AttentionShared<T> &s, i64 row, i64 sequence, i64 head, i64 key,
                         i64 ownKey, int r) const
    {
        using A = AccOf<T>;
        const kernels::Attention &a = t.a;
        const i64 width = paddedWidth<T>(a.size);
        A dropped = 0, gradient = 0;
        if (row < a.queries && key < t.seen(row + 1)) {
            const i64 at = t.lsePlace(sequence, head, row);
            const A score = t.dot(s.own + ownKey * a.size, s.others[0] + block.lane() * width);
            const A p = exponential(score * t.scale() - static_cast<const A *>(a.lse)[at]);
            const A factor = t.drop.template factor<A>(sequence * a.rowsQ + row, head, key);
            const A dP =
                t.dot(s.own + (tileRows + ownKey) * a.size, s.others[1] + block.lane() * width) * factor;
            dropped = p * factor;
            gradient = p * (dP - dots[at]) * t.scale();
        }
        s.weights[r * warpSize + block.lane()] = dropped;
        s.weights[(rowsOfWarp + r) * warpSize + block.lane()] = gradient;
    }
};

template<typename T>
AttentionTile<T> tileOf(const kernels::Attention &a)
{
    AttentionTile<T> t{a, {}};
    if (a.dropout)
        t.drop = {*a.dropout,
                  true,
                  static_cast<std::uint32_t>(a.firstHead),
                  {a.keyOffset[0], a.keyOffset[1]},
                  a.keyBreak};
    return t;
}

/// Calls f(the columns of a head that a thread has).
template<typename F>
void byColumns(const kernels::Attention &a, i64 begin, i64 end, F f)
{
    if (begin != 0 || end != a.sequences * a.kvHeads || a.size > widestHead)
        startFailed("attention of a part of the pairs, or of heads wider than 256");
    else if (a.size <= warpSize)
        f(std::integral_constant<int, 1>());
    else if (a.size <= 2 * warpSize)
        f(std::integral_constant<int, 2>());
    else if (a.size <= 4 * warpSize)
        f(std::integral_constant<int, 4>());
    else
        f(std::integral_constant<int, 8>());
}

constexpr int attentionThreads = attentionWarps * warpSize;

template<typename T>
i64 attentionScratch(const kernels::Attention &a)
{
    return a.heads * a.tokens * static_cast<i64>(sizeof(AccOf<T>));
}

inline i64 tilesOf(i64 rows, i64 tile) { return (rows + tile - 1) / tile; }

template<typename T>
void attentionForward(const kernels::Attention &a, i64 begin, i64 end)
{
    byColumns(a, begin, end, [&](auto columns) {
        launch({tilesOf(a.queries, tileRows), a.heads, a.sequences}, attentionThreads,
               AttentionShared<T>::bytes(a.size, 1, 1), AttentionForward<T, columns()>{tileOf<T>(a)});
    });
}

template<typename T>
void attentionBackward(const kernels::Attention &a, i64 begin, i64 end)
{
    AccOf<T> *dots = static_cast<AccOf<T> *>(a.scratch);
    byColumns(a, begin, end, [&](auto columns) {
        const AttentionTile<T> t = tileOf<T>(a);
        launch({tilesOf(a.queries, attentionWarps), a.heads, a.sequences}, attentionThreads, 0,
               AttentionDots<T>{t, dots});
        launch({tilesOf(a.queries, tileRows), a.heads, a.sequences}, attentionThreads,
               AttentionShared<T>::bytes(a.size, 2, 1), AttentionQueryGradient<T, columns()>{t, dots});
        launch({tilesOf(a.keys, tileRows), a.kvHeads, a.sequences}, attentionThreads,
               AttentionShared<T>::bytes(a.size, 2, 2), AttentionKeyGradient<T, columns()>{t, dots});
    });
}

} // namespace rankyard::cuda
