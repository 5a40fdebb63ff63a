// SPDX-License-Identifier: GPL-3.0-or-later
// Tuned cross-entropy against the plain one, over a whole vocabulary and over one that ranks share.
#include "tests/engine/kernels/tuned_fixture.h"

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

namespace {

template<typename Loss>
double sumOf(void (*kernel)(const Loss &, double *), const Loss &loss)
{
    double sum = 1; // it is added to
    kernel(loss, &sum);
    return sum - 1;
}

} // namespace

TEST_P(Tuned, SoftmaxLoss)
{
    for (const bool wide : {true, false}) {
        for (const std::int64_t vocab : {1, 2, 61, 512}) {
            const std::vector<std::int32_t> labels = {0, static_cast<std::int32_t>(vocab - 1), -1,
                                                      static_cast<std::int32_t>(vocab / 2)};
            const auto count = labels.size() * static_cast<std::size_t>(vocab);
            Storage logits(wide ? acc() : type(), randomValues(count, 3, 4));
            Values wanted = logits.values();
            const double loss = reference::softmaxLoss(wanted, labels, vocab, 0.25);
            SoftmaxLoss s;
            s.wide = wide;
            s.ld = vocab;
            s.labels = labels.data();
            s.rows = static_cast<std::int64_t>(labels.size());
            s.vocab = vocab;
            Storage untouched = logits;
            s.logits = untouched.data();
            EXPECT_NEAR(sumOf(table().softmaxLoss, s), loss, std::abs(loss) * 8 * bound(1, acc()) + 1e-12);
            EXPECT_EQ(untouched.values(), logits.values());
            s.backward = true;
            s.scale = 0.25;
            s.logits = logits.data();
            EXPECT_NEAR(sumOf(table().softmaxLoss, s), loss, std::abs(loss) * 8 * bound(1, acc()) + 1e-12);
            // The narrower gradients begin where the rows of logits began.
            Storage gradients(type(), count);
            const std::size_t gap = bytesOf(logits.type()) / bytesOf(type());
            for (std::size_t r = 0; r < labels.size(); ++r)
                std::memcpy(static_cast<char *>(gradients.data())
                                + r * static_cast<std::size_t>(vocab) * bytesOf(type()),
                            static_cast<char *>(logits.data())
                                + r * static_cast<std::size_t>(vocab) * bytesOf(type()) * gap,
                            static_cast<std::size_t>(vocab) * bytesOf(type()));
            expectClose(gradients.values(), wanted, vocab == 1 ? 1e-6 : 4 * bound(1), "dlogits");
        }
    }
}

/// Ranks with equal numbers of columns, the last ones of them padding or nothing but padding.
TEST_P(Tuned, ShardedLossIsThatOfTheWholeVocabulary)
{
    for (const bool wide : {true, false}) {
        for (const auto &[vocab, ranks] :
             {std::pair<std::int64_t, std::int64_t>{61, 3}, {64, 2}, {5, 4}, {1, 2}}) {
            const std::int64_t columns = (vocab + ranks - 1) / ranks, rows = 4;
            const std::vector<std::int32_t> labels = {0, static_cast<std::int32_t>(vocab - 1), -1,
                                                      static_cast<std::int32_t>(vocab / 2)};
            const Storage whole(wide ? acc() : type(),
                                randomValues(static_cast<std::size_t>(rows * vocab), 3, 4));
            Values wanted = whole.values();
            const double loss = reference::softmaxLoss(wanted, labels, vocab, 0.25);
            Storage statistics(acc(), static_cast<std::size_t>(ranks * rows * 3));
            std::vector<Storage> logits;
            std::vector<ShardedLoss> shards;
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
                Storage mine(whole.type(), Values(static_cast<std::size_t>(rows * columns), 1e30));
                for (std::int64_t i = 0; i < rows * columns; ++i) {
                    const std::int64_t column = rank * columns + i % columns;
                    if (column < vocab)
                        mine.set(static_cast<std::size_t>(i),
                                 whole.get(static_cast<std::size_t>(i / columns * vocab + column)));
                }
                logits.push_back(mine);
            }
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
                ShardedLoss s;
                s.logits = logits[static_cast<std::size_t>(rank)].data();
                s.wide = wide;
                s.ld = s.padded = columns;
                s.labels = labels.data();
                s.rows = rows;
                s.firstColumn = rank * columns;
                s.columns = std::clamp<std::int64_t>(vocab - s.firstColumn, 0, columns);
                s.statistics = static_cast<char *>(statistics.data())
                    + rank * rows * 3 * static_cast<std::int64_t>(bytesOf(acc()));
                table().lossStatistics(s);
                s.statistics = statistics.data();
                s.parts = ranks;
                s.partStride = rows * 3;
                s.backward = true;
                s.scale = 0.25;
                shards.push_back(s);
            }
            Values got(wanted.size());
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
                Storage &mine = logits[static_cast<std::size_t>(rank)];
                EXPECT_NEAR(sumOf(table().lossMerge, shards[static_cast<std::size_t>(rank)]), loss,
                            std::abs(loss) * 8 * bound(1, acc()) + 1e-6 * (type() != DType::F64));
                for (std::int64_t i = 0; i < rows * columns; ++i) {
                    // Gradients begin where the rows of logits began.
                    Storage one(type(), 1);
                    std::memcpy(one.data(),
                                static_cast<char *>(mine.data())
                                    + i / columns * columns * static_cast<std::int64_t>(bytesOf(mine.type()))
                                    + i % columns * static_cast<std::int64_t>(bytesOf(type())),
                                bytesOf(type()));
                    const std::int64_t column = rank * columns + i % columns;
                    if (column < vocab)
                        got[static_cast<std::size_t>(i / columns * vocab + column)] = one.get(0);
                    else
                        EXPECT_EQ(one.get(0), 0) << "padding";
                }
            }
            if (vocab > 1)
                expectClose(got, wanted, 4 * bound(4), "dlogits of " + std::to_string(ranks) + " ranks");
            else
                EXPECT_LT(largest(got), 1e-6);
        }
    }
}

/// A NaN anywhere must reach the loss, not be dropped by a comparison.
TEST_P(Tuned, NanReachesTheLoss)
{
    for (const std::size_t place : {0u, 17u, 60u}) {
        Storage logits(acc(), randomValues(61, 5));
        logits.set(place, NAN);
        const std::int32_t label = 3;
        SoftmaxLoss s;
        s.logits = logits.data();
        s.ld = s.vocab = 61;
        s.labels = &label;
        s.rows = 1;
        EXPECT_TRUE(std::isnan(sumOf(table().softmaxLoss, s))) << place;
        Storage statistics(acc(), 3);
        ShardedLoss shard;
        shard.logits = logits.data();
        shard.ld = shard.columns = shard.padded = 61;
        shard.labels = &label;
        shard.rows = 1;
        shard.statistics = statistics.data();
        table().lossStatistics(shard);
        EXPECT_TRUE(std::isnan(sumOf(table().lossMerge, shard))) << place;
    }
}
