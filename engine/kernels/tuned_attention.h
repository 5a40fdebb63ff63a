// SPDX-License-Identifier: GPL-3.0-or-later
// Attention, one (sequence, head) at a time, as products of the micro kernel on packed keys and values. Forward keeps a
// strip of scores of maxRows queries in the first-level cache and only its log-sum-exp in memory; backward makes the
// probabilities again (Dao et al. 2022). Keys behind the diagonal block are neither multiplied nor read.
#pragma once

#include "engine/kernels/tuned_dropout.h"
#include "engine/kernels/tuned_gemm.h"

namespace rankyard::kernels {
namespace {

/// How probabilities are stored between products: as the packed operands are.
template<typename T>
struct Stored {
    using Type = AccOf<T>;
};
#if RY_BF16
template<>
struct Stored<Bf16> {
    using Type = Bf16;
};
#endif
template<typename T>
using StoredOf = typename Stored<T>::Type;

template<typename T>
struct AttentionPlan {
    i64 queries, keys, size;
    bool causal;
    i64 keyColumns;  ///< keys in whole panels
    i64 headColumns; ///< size in whole panels
    i64 strip;       ///< elements from one row of scores to the next
    i64 rowBlock;    ///< queries whose probabilities backward keeps
    i64 headSteps, keySteps, rowSteps;

    explicit AttentionPlan(const Attention &a)
        : queries(a.queries),
          keys(a.keys),
          size(a.size),
          causal(a.causal)
    {
        constexpr i64 nr = panelColumns<T>, cacheBytes = 384 << 10;
        keyColumns = roundUp(keys, nr);
        headColumns = roundUp(size, nr);
        strip = keyColumns + 16;
        const i64 fit = cacheBytes / (2 * strip * static_cast<i64>(sizeof(StoredOf<T>))) / maxRows * maxRows;
        rowBlock = smaller(larger<i64>(fit, maxRows), roundUp(queries, maxRows));
        headSteps = stepsOf<T>(size);
        keySteps = stepsOf<T>(keys);
        rowSteps = stepsOf<T>(rowBlock);
    }

    /// Keys that the queries before `end` see.
    i64 seen(i64 end) const { return causal ? end : keys; }
};

/// Hands out pieces of the scratch, or with a null base only counts them.
struct Carver {
    char *base;
    i64 used = 0;

    template<typename U>
    U *take(i64 count)
    {
        U *piece = reinterpret_cast<U *>(base + used);
        used += roundUp(count * static_cast<i64>(sizeof(U)), 64);
        return piece;
    }
};

template<typename T>
struct AttentionScratch {
    StepOf<T> *keys;      ///< B of Q·Kᵀ
    StepOf<T> *values;    ///< forward: B of P·V; backward: B of dO·Vᵀ
    StepOf<T> *keyRows;   ///< backward: B of dS·K
    StepOf<T> *queryRows; ///< backward: B of dSᵀ·Q
    StepOf<T> *gradRows;  ///< backward: B of Pᵀ·dO
    StepOf<T> *left;      ///< a row block of A where it has to be packed
    AccOf<T> *scores, *products;
    StoredOf<T> *probabilities, *scoreGrads;
    AccOf<T> *tile, *dKeys, *dValues, *rowDots;

    AttentionScratch(const AttentionPlan<T> &p, char *base, i64 &bytes)
    {
        Carver carver{base};
        keys = carver.take<StepOf<T>>(p.keyColumns * p.headSteps);
        const i64 rows = p.headColumns * p.keySteps, columns = p.keyColumns * p.headSteps;
        values = carver.take<StepOf<T>>(larger(rows, columns));
        keyRows = carver.take<StepOf<T>>(rows);
        queryRows = carver.take<StepOf<T>>(p.headColumns * p.rowSteps);
        gradRows = carver.take<StepOf<T>>(p.headColumns * p.rowSteps);
        left = carver.take<StepOf<T>>(maxRows * larger(p.headSteps, p.rowSteps) + 16);
        scores = carver.take<AccOf<T>>(maxRows * p.strip);
        products = carver.take<AccOf<T>>(maxRows * p.strip);
        probabilities = carver.take<StoredOf<T>>(p.rowBlock * p.strip);
        scoreGrads = carver.take<StoredOf<T>>(p.rowBlock * p.strip);
        tile = carver.take<AccOf<T>>(maxRows * p.headColumns);
        dKeys = carver.take<AccOf<T>>((p.keys + maxRows) * p.headColumns);
        dValues = carver.take<AccOf<T>>((p.keys + maxRows) * p.headColumns);
        rowDots = carver.take<AccOf<T>>(p.rowBlock);
        bytes = carver.used;
    }
};

template<typename T>
i64 attentionScratch(const Attention &a)
{
    i64 bytes = 0;
    AttentionScratch<T>(AttentionPlan<T>(a), nullptr, bytes);
    return bytes;
}

/// B(k, j) = rows[j·ld + k], all of `count` rows.
template<typename T>
void packAllTurned(const T *rows, i64 ld, i64 count, i64 k, StepOf<T> *out)
{
    constexpr i64 nr = panelColumns<T>;
    for (i64 j = 0; j < count; j += nr)
        packTurned(rows + j * ld, ld, k, smaller(nr, count - j), out + j * stepsOf<T>(k));
}
/// B(k, j) = rows[k·ld + j], j < columns.
template<typename T>
void packAllStraight(const T *rows, i64 ld, i64 k, i64 columns, StepOf<T> *out)
{
    constexpr i64 nr = panelColumns<T>;
    for (i64 j = 0; j < columns; j += nr)
        packStraight(rows + j, ld, k, smaller(nr, columns - j), out + j * stepsOf<T>(k));
}

/// scores[rows, columns] = rows of A (k = size) times a packed B of `columns` columns.
template<typename T>
void stripProduct(const T *a, i64 lda, int rows, i64 k, const StepOf<T> *b, i64 columns, AccOf<T> *scores,
                  i64 strip, StepOf<T> *left)
{
    constexpr i64 nr = panelColumns<T>;
    const i64 steps = stepsOf<T>(k);
    const char *from = reinterpret_cast<const char *>(a);
    i64 stride = lda * static_cast<i64>(sizeof(T));
    if (!sameWhenPacked<T> || k % Packed<T>::width) {
        packRows(a, lda, k, rows, left, steps);
        from = reinterpret_cast<const char *>(left);
        stride = steps * static_cast<i64>(sizeof(StepOf<T>));
    }
    const auto kernel = Micro<StepOf<T>, true>::of(rows);
    for (i64 j = 0; j < columns; j += nr)
        kernel(steps, from, stride, b + j * steps, scores + j, strip, Start::Zero, nullptr);
}

/// tile[rows, headColumns] = stored probabilities (k keys) times a packed B whose panels hold `panelSteps` steps.
template<typename T>
void probabilityProduct(const AttentionPlan<T> &p, const StoredOf<T> *a, int rows, i64 k, const StepOf<T> *b,
                        AccOf<T> *tile)
{
    constexpr i64 nr = panelColumns<T>;
    const auto kernel = Micro<StepOf<T>, true>::of(rows);
    for (i64 d = 0; d < p.headColumns; d += nr)
        kernel(stepsOf<T>(k), reinterpret_cast<const char *>(a),
               p.strip * static_cast<i64>(sizeof(StoredOf<T>)), b + d * p.keySteps, tile + d, p.headColumns,
               Start::Zero, nullptr);
}

/// scores → e^(scale·(s − max)) as stored, zeros from `limit` to `end`; returns the sum, `top` is the largest scaled score.
template<typename T>
AccOf<T> softmaxRow(AccOf<T> *scores, StoredOf<T> *out, i64 limit, i64 end, AccOf<T> scale, AccOf<T> &top)
{
    using A = AccOf<T>;
    VecOf<T> best = splat<T>(-__builtin_inff());
    A rest = -__builtin_inff();
    constexpr i64 lanes = lanesOf<T>;
    i64 j = 0;
    for (; j + lanes <= limit; j += lanes)
        best = maximum(load(scores + j), best);
    for (; j < limit; ++j)
        rest = larger(rest, scores[j]);
    top = larger(largest(best), rest) * scale;
    VecOf<T> total{};
    A tail = 0;
    forLanes<A>(limit, [&](i64 i, auto part) {
        const VecOf<T> e = exponential(part.get(scores + i) * scale - top);
        if constexpr (sizeof(part) == sizeof(Whole))
            total += e;
        else
            for (i64 l = 0; l < limit - i; ++l)
                tail += e[l];
        part.put(out + i, e);
    });
    for (i64 i = limit; i < end; ++i)
        out[i] = StoredOf<T>{};
    return sum(total) + tail;
}

/// Drops of row `query`: its first `limit` keys.
template<typename S>
RY_INLINE void dropProbabilities(const Attention &a, i64 sequence, i64 head, i64 query, S *row, i64 limit)
{
    const Dropout &d = *a.dropout;
    const i64 at = sequence * a.rowsQ + query;
    const auto sample = static_cast<std::uint32_t>(d.sample[at] + d.firstSample);
    const auto position = static_cast<std::uint32_t>(d.position[at]);
    const std::uint32_t place = d.purpose + (static_cast<std::uint32_t>(a.firstHead + head) << 8);
    const i64 near = smaller(limit, a.keyBreak);
    for (int part = 0; part < 2; ++part) {
        S *keys = part == 0 ? row : row + near;
        forKept<S>(
            d, sample, position, place, a.keyOffset[part], part == 0 ? near : limit - near,
            [&](i64 i, auto lanes, auto factor) { lanes.put(keys + i, lanes.get(keys + i) * factor); });
    }
}

/// The rows of one sequence and key head.
template<typename T>
struct AttentionRows {
    i64 sequence, keyHead;
    const T *q, *k, *v; ///< of head 0
    i64 queryRow;       ///< first row of the sequence among a.tokens

    AttentionRows(const Attention &a, i64 pair)
        : sequence(pair / a.kvHeads),
          keyHead(pair % a.kvHeads),
          q(static_cast<const T *>(a.q) + sequence * a.rowsQ * a.ldQ),
          k(static_cast<const T *>(a.k) + sequence * a.rowsKv * a.ldKv + keyHead * a.size),
          v(static_cast<const T *>(a.v) + sequence * a.rowsKv * a.ldKv + keyHead * a.size),
          queryRow(sequence * a.rowsQ)
    {}
};

/// o = tile ÷ sum, or that merged into what earlier blocks of keys have given (o, lse): online softmax (Milakov & Gimelshein
/// 2018).
template<typename T>
void finishRow(const Attention &a, i64 size, const AccOf<T> *tile, AccOf<T> top, AccOf<T> total, T *o,
               AccOf<T> *lse)
{
    using A = AccOf<T>;
    const A mine = top + static_cast<A>(std::log(static_cast<double>(total)));
    A both = mine, keep = 0;
    if (a.merge) {
        const A most = larger(mine, *lse);
        both = most
            + static_cast<A>(std::log(std::exp(static_cast<double>(mine - most))
                                      + std::exp(static_cast<double>(*lse - most))));
        keep = static_cast<A>(std::exp(static_cast<double>(*lse - both)));
    }
    const A factor = static_cast<A>(std::exp(static_cast<double>(mine - both))) / total;
    *lse = both;
    forLanes<T>(size, [&](i64 d, auto part) {
        VecOf<T> value = part.get(tile + d) * factor;
        if (a.merge)
            value += part.get(o + d) * keep;
        part.put(o + d, value);
    });
}

template<typename T>
void attentionForwardPair(const Attention &a, i64 pair)
{
    using A = AccOf<T>;
    const AttentionPlan<T> p(a);
    i64 bytes = 0;
    const AttentionScratch<T> s(p, static_cast<char *>(a.scratch), bytes);
    const AttentionRows<T> at(a, pair);
    const A scale = 1 / static_cast<A>(std::sqrt(static_cast<double>(p.size)));
    packAllTurned(at.k, a.ldKv, p.keys, p.size, s.keys);
    packAllStraight(at.v, a.ldKv, p.keys, p.size, s.values);
    const i64 group = a.heads / a.kvHeads, blocks = (p.queries + maxRows - 1) / maxRows;
    for (i64 head = at.keyHead * group; head < (at.keyHead + 1) * group; ++head) {
        const T *q = at.q + head * p.size;
        T *o = static_cast<T *>(a.o) + at.queryRow * a.ldO + head * p.size;
        A *lse = static_cast<A *>(a.lse) + head * a.tokens + at.queryRow;
        for (i64 block = 0, row = 0; block < blocks; ++block) {
            const int rows = static_cast<int>(p.queries / blocks + (block < p.queries % blocks));
            const i64 keys = p.seen(row + rows), end = keys + keys % Packed<T>::width;
            stripProduct(q + row * a.ldQ, a.ldQ, rows, p.size, s.keys, keys, s.scores, p.strip, s.left);
            A sums[maxRows], tops[maxRows];
            for (int i = 0; i < rows; ++i) {
                const i64 limit = p.seen(row + i + 1);
                StoredOf<T> *stored = s.probabilities + i * p.strip;
                sums[i] = softmaxRow<T>(s.scores + i * p.strip, stored, limit, end, scale, tops[i]);
                if (a.dropout)
                    dropProbabilities(a, at.sequence, head, row + i, stored, limit);
            }
            probabilityProduct<T>(p, s.probabilities, rows, keys, s.values, s.tile);
            for (int i = 0; i < rows; ++i)
                finishRow<T>(a, p.size, s.tile + i * p.headColumns, tops[i], sums[i], o + (row + i) * a.ldO,
                             lse + row + i);
            row += rows;
        }
    }
}

/// Probabilities and the gradients of the scores of one row, zeros from `limit` to `end`.
template<typename T>
void scoreGradients(const AccOf<T> *scores, const AccOf<T> *dP, StoredOf<T> *probabilities,
                    StoredOf<T> *grads, i64 limit, i64 end, AccOf<T> scale, AccOf<T> lse, AccOf<T> dot)
{
    forLanes<AccOf<T>>(limit, [&](i64 i, auto part) {
        const VecOf<T> e = exponential(part.get(scores + i) * scale - lse);
        part.put(probabilities + i, e);
        part.put(grads + i, e * (part.get(dP + i) - dot) * scale);
    });
    for (i64 i = limit; i < end; ++i) {
        probabilities[i] = StoredOf<T>{};
        grads[i] = StoredOf<T>{};
    }
}

/// sums[key, headColumns] += Σ over rows from … count of stored[row, key]·b[row]: the products with turned probabilities.
template<typename T>
void turnedProduct(const AttentionPlan<T> &p, const StoredOf<T> *stored, i64 count, i64 keys, i64 firstRow,
                   const StepOf<T> *b, AccOf<T> *sums, StepOf<T> *left)
{
    constexpr i64 nr = panelColumns<T>, width = Packed<T>::width;
    const i64 blocks = (keys + maxRows - 1) / maxRows;
    for (i64 block = 0, key = 0; block < blocks; ++block) {
        const int rows = static_cast<int>(keys / blocks + (block < keys % blocks));
        // Queries before the first key of the block see none of it.
        const i64 from = p.causal ? larger<i64>(key - firstRow, 0) / width * width : 0, k = count - from;
        const StoredOf<T> *a = stored + from * p.strip + key;
        const char *operand = reinterpret_cast<const char *>(a);
        i64 stride = p.strip * static_cast<i64>(sizeof(StoredOf<T>));
        if constexpr (width == 2) {
            packColumns<StoredOf<T>>(a, p.strip, k, rows, p.strip - key - rows, left);
            operand = reinterpret_cast<const char *>(left);
            stride = rows * static_cast<i64>(sizeof(StepOf<T>));
        }
        const auto kernel = Micro<StepOf<T>, false>::of(rows);
        for (i64 d = 0; d < p.headColumns; d += nr)
            kernel(stepsOf<T>(k), operand, stride, b + d * stepsOf<T>(count) + from / width * nr,
                   sums + key * p.headColumns + d, p.headColumns, Start::Load, nullptr);
        key += rows;
    }
}

template<typename T>
struct AttentionBackward {
    using A = AccOf<T>;
    const Attention &a;
    const AttentionPlan<T> p;
    AttentionScratch<T> s;
    AttentionRows<T> at;
    A scale;
    i64 head = 0;
    const T *q = nullptr, *o = nullptr, *dO = nullptr; ///< of the head
    T *dq = nullptr;
    const A *lse = nullptr;

    AttentionBackward(const Attention &attention, i64 pair, i64 bytes = 0)
        : a(attention),
          p(attention),
          s(p, static_cast<char *>(attention.scratch), bytes),
          at(attention, pair),
          scale(1 / static_cast<A>(std::sqrt(static_cast<double>(p.size))))
    {}

    void run()
    {
        packAllTurned(at.k, a.ldKv, p.keys, p.size, s.keys);
        packAllTurned(at.v, a.ldKv, p.keys, p.size, s.values);
        packAllStraight(at.k, a.ldKv, p.keys, p.size, s.keyRows);
        std::memset(s.dKeys, 0, p.keys * p.headColumns * sizeof(A));
        std::memset(s.dValues, 0, p.keys * p.headColumns * sizeof(A));
        const i64 group = a.heads / a.kvHeads;
        for (head = at.keyHead * group; head < (at.keyHead + 1) * group; ++head) {
            q = at.q + head * p.size;
            const i64 first = at.queryRow * a.ldO + head * p.size;
            o = static_cast<const T *>(a.o) + first;
            dO = static_cast<const T *>(a.dO) + first;
            dq = static_cast<T *>(a.dq) + at.queryRow * a.ldQ + head * p.size;
            lse = static_cast<const A *>(a.lse) + head * a.tokens + at.queryRow;
            for (i64 row = 0; row < p.queries; row += p.rowBlock)
                rowsFrom(row, smaller(p.rowBlock, p.queries - row));
        }
        const i64 keyRow = at.sequence * a.rowsKv;
        for (i64 key = 0; key < p.keys; ++key) {
            const i64 place = (keyRow + key) * a.ldKv + at.keyHead * p.size;
            writeRow(s.dKeys + key * p.headColumns, static_cast<T *>(a.dk) + place, a.addKv);
            writeRow(s.dValues + key * p.headColumns, static_cast<T *>(a.dv) + place, a.addKv);
        }
    }

    void writeRow(const A *from, T *to, bool add) const
    {
        forLanes<T>(p.size, [&](i64 d, auto part) {
            part.put(to + d, add ? part.get(to + d) + part.get(from + d) : part.get(from + d));
        });
    }

    A dotOf(i64 row) const
    {
        VecOf<T> total{};
        const T *x = o + row * a.ldO, *y = dO + row * a.ldO;
        forLanes<T>(p.size, [&](i64 d, auto part) { total += part.get(x + d) * part.get(y + d); });
        return sum(total);
    }

    void rowsFrom(i64 begin, i64 count)
    {
        const i64 keysEnd = p.seen(begin + count);
        const i64 blocks = (count + maxRows - 1) / maxRows;
        for (i64 block = 0, done = 0; block < blocks; ++block) {
            const int rows = static_cast<int>(count / blocks + (block < count % blocks));
            const i64 row = begin + done, keys = p.seen(row + rows);
            StoredOf<T> *probabilities = s.probabilities + done * p.strip,
                        *grads = s.scoreGrads + done * p.strip;
            stripProduct(q + row * a.ldQ, a.ldQ, rows, p.size, s.keys, keys, s.scores, p.strip, s.left);
            stripProduct(dO + row * a.ldO, a.ldO, rows, p.size, s.values, keys, s.products, p.strip, s.left);
            for (int i = 0; i < rows; ++i) {
                const i64 limit = p.seen(row + i + 1);
                if (a.dropout)
                    dropProbabilities(a, at.sequence, head, row + i, s.products + i * p.strip, limit);
                scoreGradients<T>(s.scores + i * p.strip, s.products + i * p.strip,
                                  probabilities + i * p.strip, grads + i * p.strip, limit,
                                  smaller(roundUp(keysEnd, 2), p.strip), scale, lse[row + i], dotOf(row + i));
                if (a.dropout)
                    dropProbabilities(a, at.sequence, head, row + i, probabilities + i * p.strip, limit);
            }
            probabilityProduct<T>(p, grads, rows, keys, s.keyRows, s.tile);
            for (int i = 0; i < rows; ++i)
                writeRow(s.tile + i * p.headColumns, dq + (row + i) * a.ldQ, a.addQ);
            done += rows;
        }
        packAllStraight(q + begin * a.ldQ, a.ldQ, count, p.size, s.queryRows);
        packAllStraight(dO + begin * a.ldO, a.ldO, count, p.size, s.gradRows);
        turnedProduct<T>(p, s.probabilities, count, keysEnd, begin, s.gradRows, s.dValues, s.left);
        turnedProduct<T>(p, s.scoreGrads, count, keysEnd, begin, s.queryRows, s.dKeys, s.left);
    }
};

/// Calls kernel(a, pair) for each pair.
template<typename Kernel>
RY_INLINE void forPairs(const Attention &a, i64 begin, i64 end, Kernel kernel)
{
    for (i64 pair = begin; pair < end; ++pair) {
        kernel(a, pair);
        if (a.poll)
            a.poll(a.pollContext);
    }
}

template<typename T>
void attentionForward(const Attention &a, i64 begin, i64 end)
{
    forPairs(a, begin, end, attentionForwardPair<T>);
}

template<typename T>
void attentionBackward(const Attention &a, i64 begin, i64 end)
{
    forPairs(a, begin, end, [](const Attention &one, i64 pair) { AttentionBackward<T>(one, pair).run(); });
}

} // namespace
} // namespace rankyard::kernels
