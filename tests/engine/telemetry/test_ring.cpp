// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

using rankyard::telemetry::Ring;

TEST(Ring, KeepsOrderAndCountsWhatItCannotTake)
{
    Ring<int> ring(5);
    EXPECT_EQ(ring.capacity(), 8u);
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(ring.push(i), i < 8);
    EXPECT_EQ(ring.dropped(), 2u);
    int value = -1;
    for (int i = 0; i < 8; ++i) {
        ASSERT_TRUE(ring.pop(value));
        EXPECT_EQ(value, i);
    }
    EXPECT_FALSE(ring.pop(value));
    EXPECT_TRUE(ring.push(11));
    std::vector<int> drained;
    EXPECT_EQ(ring.drain([&](int &&one) { drained.push_back(one); }), 1u);
    EXPECT_EQ(drained, std::vector<int>{11});
}

TEST(Ring, MovesWhatIsNotCopied)
{
    Ring<std::unique_ptr<int>> ring(4);
    EXPECT_TRUE(ring.push(std::make_unique<int>(3)));
    std::unique_ptr<int> value;
    ASSERT_TRUE(ring.pop(value));
    EXPECT_EQ(*value, 3);
}

TEST(Ring, TwoThreadsLoseNothingButWhatWasCounted)
{
    constexpr std::uint64_t count = 1'000'000;
    Ring<std::uint64_t> ring(1024);
    std::thread producer([&ring] {
        for (std::uint64_t i = 1; i <= count; ++i)
            ring.push(i);
        while (!ring.push(count + 1))
            std::this_thread::yield();
    });
    std::uint64_t seen = 0;
    std::uint64_t last = 0;
    bool ordered = true;
    while (last != count + 1) {
        ring.drain([&](std::uint64_t &&value) {
            ordered = ordered && value > last;
            last = value;
            ++seen;
        });
    }
    producer.join();
    EXPECT_TRUE(ordered);
    EXPECT_GE(seen + ring.dropped(), count + 1);
}
