// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

using rankyard::data::Permutation;

TEST(Permutation, IsABijectionForEverySize)
{
    for (const std::int64_t size :
         {1, 2, 3, 4, 5, 7, 8, 9, 13, 31, 64, 65, 97, 1000, 1023, 1025, 4097, 99991}) {
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
            const Permutation order(size, seed, 5);
            std::vector<bool> seen(static_cast<std::size_t>(size));
            for (std::int64_t i = 0; i < size; ++i) {
                const std::int64_t at = order(i);
                ASSERT_GE(at, 0);
                ASSERT_LT(at, size);
                ASSERT_FALSE(seen[static_cast<std::size_t>(at)]) << size << ' ' << i;
                seen[static_cast<std::size_t>(at)] = true;
            }
        }
    }
}

TEST(Permutation, LargeSizesStayInRange)
{
    for (const std::int64_t size :
         {(std::int64_t(1) << 40) + 1, std::int64_t(1) << 62, std::int64_t(0x7fffffffffffffff)}) {
        const Permutation order(size, 7, 0);
        for (std::int64_t i = 0; i < 1000; ++i) {
            EXPECT_GE(order(i), 0);
            EXPECT_LT(order(i), size);
        }
        EXPECT_NE(order(0), order(size - 1));
    }
}

TEST(Permutation, SeedAndStreamChangeTheOrder)
{
    const std::int64_t size = 1000;
    const Permutation a(size, 1, 0);
    const Permutation b(size, 2, 0);
    const Permutation c(size, 1, 1);
    int ab = 0;
    int ac = 0;
    int fixed = 0;
    for (std::int64_t i = 0; i < size; ++i) {
        ab += a(i) == b(i);
        ac += a(i) == c(i);
        fixed += a(i) == i;
    }
    // Each count is about 1 for random permutations.
    EXPECT_LT(ab, 10);
    EXPECT_LT(ac, 10);
    EXPECT_LT(fixed, 10);
}

/// Every element of a small domain lands everywhere about equally often over the seeds.
TEST(Permutation, IsEvenOverSeeds)
{
    constexpr int size = 11;
    constexpr int seeds = 22000;
    int counts[size][size] = {};
    for (int seed = 0; seed < seeds; ++seed) {
        const Permutation order(size, static_cast<std::uint64_t>(seed), 0);
        for (int i = 0; i < size; ++i)
            ++counts[i][order(i)];
    }
    double chi = 0;
    const double expected = static_cast<double>(seeds) / size;
    for (const auto &row : counts) {
        for (const int count : row)
            chi += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi, 100 + 6 * std::sqrt(200.0)); // 100 degrees of freedom, six sigma
}

/// Neighbours do not stay neighbours: the mean distance of a random order is a third of the size.
TEST(Permutation, ScattersNeighbours)
{
    const std::int64_t size = 30011;
    const Permutation order(size, 1234, 0);
    double sum = 0;
    for (std::int64_t i = 1; i < size; ++i)
        sum += std::fabs(static_cast<double>(order(i) - order(i - 1)));
    EXPECT_NEAR(sum / static_cast<double>(size) / static_cast<double>(size), 1.0 / 3, 0.02);
}

/// Saved runs continue with the same samples: these values, from an independent implementation in Python, are a contract.
TEST(Permutation, GoldenValues)
{
    const Permutation order(1000, 1234, 0);
    const std::vector<std::int64_t> found = {order(0), order(1), order(2), order(999)};
    EXPECT_EQ(found, (std::vector<std::int64_t>{544, 533, 263, 369}));
}
