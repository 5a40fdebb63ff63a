// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/random.h"

#include <gtest/gtest.h>

using namespace rankyard::exec;

// Random123 1.14, tests/kat_vectors, "philox4x32 10".
TEST(Philox, KnownAnswers)
{
    EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    constexpr std::uint32_t ones = 0xffffffff;
    EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
              (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Normals, MomentsOfTheNormalDistribution)
{
    constexpr int blocks = 100000;
    double sums[4] = {};
    for (std::uint64_t block = 0; block < blocks; ++block) {
        for (const double x : normals(1234, Purpose::Init, 7, block)) {
            double power = 1;
            for (double &sum : sums)
                sum += power *= x;
        }
    }
    const double n = 4.0 * blocks;
    EXPECT_NEAR(sums[0] / n, 0, 0.008); // five standard errors of each moment
    EXPECT_NEAR(sums[1] / n, 1, 0.012);
    EXPECT_NEAR(sums[2] / n, 0, 0.031);
    EXPECT_NEAR(sums[3] / n, 3, 0.078);
}

TEST(Normals, PlacesDoNotMeet)
{
    const auto a = normals(1, Purpose::Init, 0, 0);
    EXPECT_EQ(a, normals(1, Purpose::Init, 0, 0));
    EXPECT_NE(a, normals(2, Purpose::Init, 0, 0));
    EXPECT_NE(a, normals(1, Purpose::Dropout, 0, 0));
    EXPECT_NE(a, normals(1, Purpose::Init, 1, 0));
    EXPECT_NE(a, normals(1, Purpose::Init, 0, 1));
    EXPECT_NE(a, normals(1, Purpose::Init, 0, std::uint64_t(1) << 32));
}
