// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/build_id.h"
#include "engine/base/units.h"

#include <gtest/gtest.h>

#include <string>

using namespace rankyard;

TEST(Units, Bytes)
{
    EXPECT_EQ(formatBytes(0), "0 B");
    EXPECT_EQ(formatBytes(1023), "1023 B");
    EXPECT_EQ(formatBytes(23.4 * (1 << 30)), "23.4 GiB");
    EXPECT_EQ(formatBytes(512.0 * (1 << 20)), "512 MiB");
}

TEST(Units, CountsAndDurations)
{
    EXPECT_EQ(formatCount(4123), "4.12 k");
    EXPECT_EQ(formatCount(12), "12");
    EXPECT_EQ(formatDuration(4320), "1 h 12 min");
    EXPECT_EQ(formatDuration(580), "9 min 40 s");
    EXPECT_EQ(formatDuration(0.0142), "14 ms");
    EXPECT_EQ(formatNumber(2.31049, 4), "2.31");
}

TEST(Units, TypesHaveNames)
{
    for (const DType type :
         {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U16, DType::U8}) {
        DType back{};
        ASSERT_TRUE(dtypeFromName(nameOf(type), back));
        EXPECT_EQ(back, type);
    }
    EXPECT_EQ(bytesOf(DType::BF16), 2u);
}

TEST(Units, BuildIdIsThere) { EXPECT_GT(std::string(buildId()).size(), 12u); }
