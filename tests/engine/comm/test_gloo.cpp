// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/gloo.h"

#include <gtest/gtest.h>
#include <thread>

using namespace rankyard;
using namespace rankyard::comm;

namespace {

void onGloo(int size, const std::function<void(int, Communicator &)> &body, Timeouts timeouts = {})
{
    const auto keys = makeMemoryKeyValue();
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
        threads.emplace_back([&, r] {
            GlooGroup group;
            group.name = "test";
            group.rank = r;
            for (int i = 0; i < size; ++i)
                group.ranks.push_back(10 + i);
            group.keys = keys;
            group.timeouts = timeouts;
            auto communicator = makeGlooCommunicator(group);
            ASSERT_TRUE(communicator.ok()) << communicator.error().text();
            body(r, **communicator);
        });
    }
    for (std::thread &thread : threads)
        thread.join();
}

} // namespace

TEST(KeyValue, InMemory)
{
    const auto keys = makeMemoryKeyValue();
    EXPECT_FALSE(keys->get("a", std::chrono::milliseconds(10)).ok());
    EXPECT_FALSE(*keys->has("a"));
    std::thread later([&] { EXPECT_TRUE(keys->set("a", "x").ok()); });
    EXPECT_EQ(*keys->get("a", std::chrono::seconds(5)), "x");
    later.join();
    EXPECT_EQ(*keys->add("n", 2), 2);
    EXPECT_EQ(*keys->add("n", 3), 5);
    EXPECT_TRUE(keys->remove("a").ok());
    EXPECT_FALSE(*keys->has("a"));
}

TEST(Gloo, CollectivesAndMessages)
{
    for (const int size : {2, 3}) {
        onGloo(size, [size](int rank, Communicator &communicator) {
            const std::int64_t each = 1001;
            std::vector<float> sum(static_cast<std::size_t>(each), static_cast<float>(rank + 1));
            std::vector<double> scatter(static_cast<std::size_t>(each * size), rank + 1);
            std::vector<float> gather(static_cast<std::size_t>(each * size), -1);
            std::fill_n(gather.begin() + each * rank, each, static_cast<float>(rank));
            auto a = communicator.allReduce(sum.data(), each, DType::F32, ReduceOp::Sum);
            auto b = communicator.reduceScatter(scatter.data(), each * size, DType::F64);
            auto c = communicator.allGather(gather.data(), each * size, DType::F32);
            ASSERT_TRUE(a.ok() && b.ok() && c.ok());
            while (!*communicator.advance(*c, 1))
                std::this_thread::yield();
            ASSERT_TRUE(communicator.wait(*b).ok());
            ASSERT_TRUE(communicator.wait(*a).ok());
            const float total = static_cast<float>(size * (size + 1) / 2);
            EXPECT_EQ(sum[1000], total);
            EXPECT_EQ(scatter[static_cast<std::size_t>(each * rank)], total);
            for (int r = 0; r < size; ++r)
                EXPECT_EQ(gather[static_cast<std::size_t>(each * r + 5)], static_cast<float>(r));
            EXPECT_EQ(communicator.figures(*a).wire, 2 * each * 4 * (size - 1) / size);
            int word = rank, got = -1;
            auto sent = communicator.send(&word, 4, (rank + 1) % size);
            auto received = communicator.receive(&got, 4, (rank + size - 1) % size);
            ASSERT_TRUE(communicator.wait(*received).ok() && communicator.wait(*sent).ok());
            EXPECT_EQ(got, (rank + size - 1) % size);
            EXPECT_TRUE(communicator.barrier().ok());
        });
    }
}

TEST(Gloo, APeerThatLeavesIsAnError)
{
    onGloo(2, [](int rank, Communicator &communicator) {
        ASSERT_TRUE(communicator.barrier().ok());
        if (rank == 1)
            return;
        std::vector<float> data(100000);
        auto ticket = communicator.allReduce(data.data(), 100000, DType::F32, ReduceOp::Sum);
        const Status status = ticket.ok() ? communicator.wait(*ticket) : Status(ticket.error());
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, Code::RankFailed);
        EXPECT_FALSE(communicator.barrier().ok());
    });
}
