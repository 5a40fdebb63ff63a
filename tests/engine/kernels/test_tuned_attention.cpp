// SPDX-License-Identifier: GPL-3.0-or-later
// Tuned attention against the plain one: whole sequences, shared heads of keys, dropout, and blocks as a ring sees them.
#include "tests/engine/kernels/tuned_fixture.h"

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

namespace {

using reference::AttentionShape;

void *moved(Storage &values, std::int64_t elements)
{
    return static_cast<char *>(values.data()) + elements * static_cast<std::int64_t>(bytesOf(values.type()));
}

/// On whole sequences of qkv [tokens, width()].
Attention wholeOf(const AttentionShape &s, std::int64_t batch, Storage &qkv)
{
    Attention a;
    a.queries = a.keys = a.rowsQ = a.rowsKv = s.seq;
    a.heads = s.heads;
    a.kvHeads = s.kvHeads;
    a.size = s.size;
    a.sequences = batch;
    a.tokens = batch * s.seq;
    a.ldQ = a.ldKv = s.width();
    a.ldO = s.heads * s.size;
    a.q = qkv.data();
    a.k = moved(qkv, s.heads * s.size);
    a.v = moved(qkv, (s.heads + s.kvHeads) * s.size);
    return a;
}

void run(Attention a, void (*kernel)(const Attention &, std::int64_t, std::int64_t),
         std::int64_t (*scratchOf)(const Attention &))
{
    ScratchArea scratch(scratchOf(a));
    a.scratch = scratch.data();
    kernel(a, 0, a.sequences * a.kvHeads);
}

} // namespace

TEST_P(Tuned, Attention)
{
    struct Shape {
        std::int64_t batch;
        AttentionShape shape;
    };
    for (const auto &[batch, s] : {Shape{1, {1, 1, 1, 1}},
                                   {2, {5, 1, 1, 3}},
                                   {1, {16, 3, 3, 8}},
                                   {2, {33, 2, 2, 5}},
                                   {1, {100, 1, 1, 64}},
                                   {1, {257, 2, 2, 16}},
                                   {1, {700, 1, 1, 40}},
                                   {2, {33, 6, 2, 5}},
                                   {1, {90, 4, 1, 16}}}) {
        for (const bool drop : {false, true}) {
            const std::int64_t tokens = batch * s.seq;
            const auto count = static_cast<std::size_t>(tokens * s.heads * s.size);
            Storage qkv = random(static_cast<std::size_t>(tokens * s.width()), 1), o(type(), count);
            Storage lse(acc(), static_cast<std::size_t>(s.heads * tokens));
            Storage dO = random(count, 2), dqkv(type(), qkv.size());
            std::vector<std::int32_t> sample, position;
            for (std::int64_t t = 0; t < tokens; ++t) {
                sample.push_back(static_cast<std::int32_t>(t / s.seq));
                position.push_back(static_cast<std::int32_t>(t % s.seq));
            }
            const Dropout dropout{{3, 4}, 2, 0x40000000, 4.0 / 3, sample.data(), position.data(), 70};
            Attention a = wholeOf(s, batch, qkv);
            reference::Factor factor;
            if (drop) {
                a.dropout = &dropout;
                a.firstHead = 5;
                factor = [&, seq = s.seq](std::int64_t token, std::int64_t head, std::int64_t key) {
                    return reference::dropFactor(dropout, static_cast<std::uint32_t>(70 + token / seq),
                                                 static_cast<std::uint32_t>(token % seq),
                                                 static_cast<std::uint32_t>(5 + head),
                                                 static_cast<std::uint32_t>(key));
                };
            }
            a.o = o.data();
            a.lse = lse.data();
            run(a, table().attentionForward, table().attentionScratch);
            const std::string what =
                "seq " + std::to_string(s.seq) + " size " + std::to_string(s.size) + (drop ? " dropped" : "");
            const auto wanted = reference::attention(qkv.values(), s, factor);
            expectClose(o.values(), wanted.o, 4 * bound(16), what + " o");
            expectClose(lse.values(), wanted.lse, 8 * bound(16, acc()), what + " lse");

            a.dO = dO.data();
            a.dq = dqkv.data();
            a.dk = moved(dqkv, s.heads * s.size);
            a.dv = moved(dqkv, (s.heads + s.kvHeads) * s.size);
            run(a, table().attentionBackward, table().attentionScratch);
            expectClose(dqkv.values(), reference::attentionGradients(dO.values(), qkv.values(), s, factor),
                        4 * bound(16), what + " dqkv");
        }
    }
}

/// A sequence in four chunks; queries of chunk c against the keys of one chunk after the other, the own one first, merged; the
/// keys' gradients added up over the chunks of queries.
TEST_P(Tuned, AttentionOfMergedBlocks)
{
    constexpr std::int64_t chunk = 19, chunks = 4, batch = 2;
    const AttentionShape s{chunk * chunks, 4, 2, 6};
    const std::int64_t tokens = batch * s.seq;
    const auto count = static_cast<std::size_t>(tokens * s.heads * s.size);
    Storage qkv = random(static_cast<std::size_t>(tokens * s.width()), 1), o(type(), count),
            dO = random(count, 2);
    Storage lse(acc(), static_cast<std::size_t>(s.heads * tokens)), dqkv(type(), qkv.size());
    std::vector<std::int32_t> sample, position;
    for (std::int64_t t = 0; t < tokens; ++t) {
        sample.push_back(static_cast<std::int32_t>(t / s.seq));
        position.push_back(static_cast<std::int32_t>(t % s.seq));
    }
    Attention whole = wholeOf(s, batch, qkv);
    whole.queries = whole.keys = chunk;
    whole.o = o.data();
    whole.lse = lse.data();
    whole.dO = dO.data();
    whole.dq = dqkv.data();
    whole.dk = moved(dqkv, s.heads * s.size);
    whole.dv = moved(dqkv, (s.heads + s.kvHeads) * s.size);
    const auto block = [&](std::int64_t queries, std::int64_t keys, Dropout &dropout) {
        const auto at = [&](const void *p, std::int64_t row, std::int64_t ld, std::size_t size) {
            return static_cast<char *>(const_cast<void *>(p)) + row * ld * static_cast<std::int64_t>(size);
        };
        const std::size_t size = bytesOf(type());
        Attention a = whole;
        a.causal = queries == keys;
        a.merge = a.addQ = queries != keys;
        a.addKv = true;
        a.q = at(a.q, queries * chunk, a.ldQ, size);
        a.dq = at(a.dq, queries * chunk, a.ldQ, size);
        a.o = at(a.o, queries * chunk, a.ldO, size);
        a.dO = at(a.dO, queries * chunk, a.ldO, size);
        a.lse = at(a.lse, queries * chunk, 1, bytesOf(acc()));
        for (const void **p : {&a.k, &a.v})
            *p = at(*p, keys * chunk, a.ldKv, size);
        for (void **p : {&a.dk, &a.dv})
            *p = at(*p, keys * chunk, a.ldKv, size);
        dropout = Dropout{{3, 4},
                          2,
                          0x40000000,
                          4.0 / 3,
                          sample.data() + queries * chunk,
                          position.data() + queries * chunk,
                          70};
        a.dropout = &dropout;
        a.keyBreak = 7; // anywhere: the offsets go on
        a.keyOffset[0] = keys * chunk;
        a.keyOffset[1] = keys * chunk + 7;
        return a;
    };
    const reference::Factor factor = [&](std::int64_t token, std::int64_t head, std::int64_t key) {
        Dropout dropout;
        block(0, 0, dropout);
        return reference::dropFactor(dropout, static_cast<std::uint32_t>(70 + token / s.seq),
                                     static_cast<std::uint32_t>(token % s.seq),
                                     static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(key));
    };
    Dropout dropout;
    for (std::int64_t queries = 0; queries < chunks; ++queries) {
        for (std::int64_t keys = queries; keys >= 0; --keys)
            run(block(queries, keys, dropout), table().attentionForward, table().attentionScratch);
    }
    const auto wanted = reference::attention(qkv.values(), s, factor);
    expectClose(o.values(), wanted.o, 8 * bound(16), "o");
    expectClose(lse.values(), wanted.lse, 8 * bound(16, acc()), "lse");
    for (std::int64_t queries = 0; queries < chunks; ++queries) {
        for (std::int64_t keys = queries; keys >= 0; --keys)
            run(block(queries, keys, dropout), table().attentionBackward, table().attentionScratch);
    }
    expectClose(dqkv.values(), reference::attentionGradients(dO.values(), qkv.values(), s, factor),
                8 * bound(16), "dqkv");
}
