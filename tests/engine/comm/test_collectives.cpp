// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/comm/harness.h"

#include "engine/comm/segment.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <thread>

using namespace rankyard;
using namespace rankyard::comm;
using namespace rankyard::comm::test;

namespace {

/// What rank r holds at i in operation `round`: small whole numbers, so that sums are exact in every type.
std::int64_t valueAt(int rank, std::int64_t i, int round = 0)
{
    return (rank * 31 + i * 7 + round * 13) % 50;
}

std::int64_t sumAt(int size, std::int64_t i, int round = 0)
{
    std::int64_t sum = 0;
    for (int r = 0; r < size; ++r)
        sum += valueAt(r, i, round);
    return sum;
}

const std::int64_t counts[] = {0, 1, 7, 1000, 8192, 8193, 40001, 300007};

void waitFor(Communicator &communicator, Result<Ticket> ticket)
{
    ASSERT_TRUE(ticket.ok()) << ticket.error().text();
    const Status status = communicator.wait(*ticket);
    ASSERT_TRUE(status.ok()) << status.error().text();
}

class Collectives : public testing::TestWithParam<std::tuple<int, Mode>>
{
protected:
    int size() const { return std::get<0>(GetParam()); }
    Mode mode() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives,
                         testing::Combine(testing::Values(1, 2, 3, 5, 8),
                                          testing::Values(Mode::Pointers, Mode::Staged)),
                         [](const auto &world) {
                             return std::to_string(std::get<0>(world.param))
                                 + (std::get<1>(world.param) == Mode::Pointers ? "Pointers" : "Staged");
                         });

} // namespace

TEST_P(Collectives, AllReduce)
{
    onThreads(size(), mode(), [this](int rank, Communicator &communicator) {
        int round = 0;
        for (const std::int64_t count : counts) {
            std::vector<double> data(static_cast<std::size_t>(count));
            for (std::int64_t i = 0; i < count; ++i)
                data[static_cast<std::size_t>(i)] = static_cast<double>(valueAt(rank, i, round));
            waitFor(communicator, communicator.allReduce(data.data(), count, DType::F64, ReduceOp::Sum));
            for (std::int64_t i = 0; i < count; ++i)
                ASSERT_EQ(data[static_cast<std::size_t>(i)], static_cast<double>(sumAt(size(), i, round)))
                    << count << " at " << i;
            ++round;
        }
    });
}

TEST_P(Collectives, ReduceScatter)
{
    onThreads(size(), mode(), [this](int rank, Communicator &communicator) {
        int round = 0;
        for (const std::int64_t each : counts) {
            const std::int64_t count = each * size();
            std::vector<float> data(static_cast<std::size_t>(count));
            for (std::int64_t i = 0; i < count; ++i)
                data[static_cast<std::size_t>(i)] = static_cast<float>(valueAt(rank, i, round));
            waitFor(communicator, communicator.reduceScatter(data.data(), count, DType::F32));
            for (std::int64_t i = each * rank; i < each * (rank + 1); ++i)
                ASSERT_EQ(data[static_cast<std::size_t>(i)], static_cast<float>(sumAt(size(), i, round)));
            ++round;
        }
    });
}

TEST_P(Collectives, AllGather)
{
    onThreads(size(), mode(), [this](int rank, Communicator &communicator) {
        int round = 0;
        for (const std::int64_t each : counts) {
            const std::int64_t count = each * size();
            std::vector<std::uint16_t> data(static_cast<std::size_t>(count), 9999);
            for (std::int64_t i = each * rank; i < each * (rank + 1); ++i)
                data[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(valueAt(rank, i, round));
            waitFor(communicator, communicator.allGather(data.data(), count, DType::U16));
            for (std::int64_t i = 0; i < count; ++i)
                ASSERT_EQ(data[static_cast<std::size_t>(i)], valueAt(static_cast<int>(i / each), i, round));
            ++round;
        }
    });
}

/// What a slice's first two bytes say is not in use stays as it was where nothing is staged, and is not counted anywhere.
TEST_P(Collectives, AllGatherOfWhatIsInUse)
{
    const UsedBytes used = [](const std::byte *slice, std::int64_t bytes) {
        std::uint16_t count = 0;
        if (bytes > 0)
            std::memcpy(&count, slice, sizeof count);
        return std::min<std::int64_t>(bytes, 2 * count);
    };
    onThreads(size(), mode(), [&](int rank, Communicator &communicator) {
        for (const std::int64_t each : {std::int64_t{7}, std::int64_t{4000}, std::int64_t{60000}}) {
            std::vector<std::uint16_t> data(static_cast<std::size_t>(each * size()), 9999);
            const auto countOf = [&](int r) { return 1 + each / (r + 2); };
            const auto own = static_cast<std::size_t>(each * rank);
            for (std::int64_t i = 0; i < each; ++i)
                data[own + static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(rank + 1);
            data[own] = static_cast<std::uint16_t>(countOf(rank));
            auto ticket = communicator.allGather(data.data(), each * size(), DType::U16, used);
            ASSERT_TRUE(ticket.ok());
            ASSERT_TRUE(communicator.wait(*ticket).ok());
            std::int64_t payload = 0;
            for (int r = 0; r < size(); ++r) {
                const std::uint16_t *theirs = data.data() + each * r;
                payload += 2 * countOf(r);
                ASSERT_EQ(theirs[0], countOf(r));
                for (std::int64_t i = 1; i < countOf(r); ++i)
                    ASSERT_EQ(theirs[i], r + 1) << i;
            }
            EXPECT_EQ(communicator.figures(*ticket).payload, payload);
            EXPECT_EQ(communicator.figures(*ticket).wire, ringSliceBytes(payload, size()));
        }
    });
}

TEST_P(Collectives, ManyUnderWayAtOnce)
{
    // Sizes of all three ways, twice the number of slots, advanced in slices, finished out of order.
    onThreads(size(), mode(), [this](int rank, Communicator &communicator) {
        constexpr int rounds = 40;
        std::vector<std::vector<float>> data;
        std::vector<Ticket> tickets;
        for (int round = 0; round < rounds; ++round) {
            const std::int64_t count = counts[round % 8];
            data.emplace_back(static_cast<std::size_t>(count));
            for (std::int64_t i = 0; i < count; ++i)
                data.back()[static_cast<std::size_t>(i)] = static_cast<float>(valueAt(rank, i, round));
            auto ticket = communicator.allReduce(data.back().data(), count, DType::F32, ReduceOp::Sum);
            ASSERT_TRUE(ticket.ok());
            EXPECT_EQ(ticket->sequence, static_cast<std::uint64_t>(round + 1));
            tickets.push_back(*ticket);
            ASSERT_TRUE(communicator.advance(*ticket, 10000).ok());
        }
        for (int round = rounds - 1; round >= 0; --round) {
            ASSERT_TRUE(communicator.wait(tickets[static_cast<std::size_t>(round)]).ok());
            const auto &result = data[static_cast<std::size_t>(round)];
            for (std::size_t i = 0; i < result.size(); ++i)
                ASSERT_EQ(result[i], static_cast<float>(sumAt(size(), static_cast<std::int64_t>(i), round)));
        }
    });
}

TEST_P(Collectives, EveryRankGetsTheSameBits)
{
    for (const DType type : {DType::F32, DType::BF16, DType::F16}) {
        for (const std::int64_t count : {1000, 200003}) {
            std::vector<std::vector<std::byte>> results(static_cast<std::size_t>(size()));
            onThreads(size(), mode(), [&](int rank, Communicator &communicator) {
                std::mt19937 random(static_cast<unsigned>(rank) + 1);
                std::vector<std::byte> data(static_cast<std::size_t>(count) * bytesOf(type));
                for (std::byte &byte : data)
                    byte = static_cast<std::byte>(random() & 0x3b); // finite in all three
                waitFor(communicator, communicator.allReduce(data.data(), count, type, ReduceOp::Sum));
                results[static_cast<std::size_t>(rank)] = data;
            });
            for (const auto &result : results)
                EXPECT_TRUE(result == results[0]);
        }
    }
}

TEST_P(Collectives, BuffersMayBeRewrittenAsSoonAsAnOperationIsComplete)
{
    // If an operation completed while a peer still read, the next round's values would leak into its sum.
    onThreads(size(), mode(), [this](int rank, Communicator &communicator) {
        std::vector<float> data(60000);
        for (int round = 0; round < 60; ++round) {
            const std::int64_t count = round % 3 == 0 ? 500 : 60000 / size() * size();
            for (std::int64_t i = 0; i < count; ++i)
                data[static_cast<std::size_t>(i)] = static_cast<float>(valueAt(rank, i, round));
            const bool scatter = round % 2 == 1 && count % size() == 0;
            waitFor(communicator,
                    scatter ? communicator.reduceScatter(data.data(), count, DType::F32)
                            : communicator.allReduce(data.data(), count, DType::F32, ReduceOp::Sum));
            const std::int64_t begin = scatter ? count / size() * rank : 0;
            const std::int64_t end = scatter ? begin + count / size() : count;
            for (std::int64_t i = begin; i < end; ++i)
                ASSERT_EQ(data[static_cast<std::size_t>(i)], static_cast<float>(sumAt(size(), i, round)));
        }
    });
}

TEST_P(Collectives, Barrier)
{
    std::atomic<int> arrived{0};
    onThreads(size(), mode(), [&](int, Communicator &communicator) {
        for (int round = 1; round <= 50; ++round) {
            ++arrived;
            ASSERT_TRUE(communicator.barrier().ok());
            ASSERT_GE(arrived.load(), round * size());
            ASSERT_TRUE(communicator.barrier().ok());
        }
    });
}

TEST_P(Collectives, Messages)
{
    if (size() == 1)
        return;
    // Each rank sends to the next and receives from the one before, in a mix of sizes, all posted at once.
    onThreads(size(), mode(), [this](int rank, Communicator &communicator) {
        const int next = (rank + 1) % size();
        const int before = (rank + size() - 1) % size();
        const std::int64_t sizes[] = {0, 1, 4096, 65536, 65537, 400001, 3};
        std::vector<std::vector<std::uint8_t>> out, in;
        std::vector<Ticket> tickets;
        for (int m = 0; m < 28; ++m) {
            const auto bytes = static_cast<std::size_t>(sizes[m % 7]);
            out.emplace_back(bytes);
            in.emplace_back(bytes);
            for (std::size_t i = 0; i < bytes; ++i)
                out.back()[i] = static_cast<std::uint8_t>(valueAt(rank, static_cast<std::int64_t>(i), m));
            auto sent = communicator.send(out.back().data(), sizes[m % 7], next);
            auto received = communicator.receive(in.back().data(), sizes[m % 7], before);
            ASSERT_TRUE(sent.ok() && received.ok());
            tickets.push_back(*received);
            tickets.push_back(*sent);
        }
        for (const Ticket ticket : tickets)
            ASSERT_TRUE(communicator.wait(ticket).ok());
        for (int m = 0; m < 28; ++m) {
            const auto &bytes = in[static_cast<std::size_t>(m)];
            for (std::size_t i = 0; i < bytes.size(); ++i)
                ASSERT_EQ(bytes[i], valueAt(before, static_cast<std::int64_t>(i), m));
        }
    });
}

/// What is sent on one channel last is received on it first, while the messages of another wait.
TEST_P(Collectives, ChannelsDoNotWaitForEachOther)
{
    if (size() == 1)
        return;
    onThreads(size(), mode(), [this](int rank, Communicator &communicator) {
        const int next = (rank + 1) % size(), before = (rank + size() - 1) % size();
        std::vector<std::vector<int>> out(8), in(8);
        std::vector<Ticket> sent, received;
        for (std::size_t m = 0; m < 8; ++m) {
            out[m].assign(m % 2 ? 3 : 50000, static_cast<int>(100 * m) + rank);
            in[m].assign(out[m].size(), -1);
        }
        const auto bytes = [](const std::vector<int> &v) {
            return static_cast<std::int64_t>(v.size() * sizeof(int));
        };
        for (std::size_t m = 8; m-- > 0;) {
            auto ticket =
                communicator.receive(in[m].data(), bytes(in[m]), before, static_cast<int>(m % channelCount));
            ASSERT_TRUE(ticket.ok());
            received.push_back(*ticket);
        }
        for (const std::size_t m :
             {4u, 5u, 6u, 7u, 0u, 1u, 2u, 3u}) { // within a channel in the order of the receives
            auto ticket =
                communicator.send(out[m].data(), bytes(out[m]), next, static_cast<int>(m % channelCount));
            ASSERT_TRUE(ticket.ok());
            sent.push_back(*ticket);
        }
        for (const Ticket ticket : received)
            ASSERT_TRUE(communicator.wait(ticket).ok());
        for (const Ticket ticket : sent)
            ASSERT_TRUE(communicator.wait(ticket).ok());
        for (std::size_t m = 0; m < 8; ++m)
            ASSERT_EQ(in[m], std::vector<int>(in[m].size(), static_cast<int>(100 * m) + before));
    });
}

TEST(Groups, TwoGroupsAtOnce)
{
    const HostGroup a = groupOf(2);
    const HostGroup b = groupOf(2);
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
        threads.emplace_back([&, r] {
            const auto first = join(a, r, Mode::Pointers);
            const auto second = join(b, r, Mode::Staged);
            for (int round = 0; round < 20; ++round) {
                std::vector<float> x(100000, static_cast<float>(r + 1)),
                    y(100000, static_cast<float>(10 * (r + 1)));
                auto tx = first->allReduce(x.data(), 100000, DType::F32, ReduceOp::Sum);
                auto ty = second->allReduce(y.data(), 100000, DType::F32, ReduceOp::Sum);
                bool xDone = false, yDone = false;
                while (!xDone || !yDone) {
                    xDone = xDone || *first->advance(*tx, 65536);
                    yDone = yDone || *second->advance(*ty, 65536);
                }
                ASSERT_EQ(x[99999], 3);
                ASSERT_EQ(y[0], 30);
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
}

TEST(Figures, PayloadWireMoved)
{
    onThreads(4, Mode::Pointers, [](int, Communicator &communicator) {
        std::vector<float> data(400000);
        auto ticket = communicator.allReduce(data.data(), 400000, DType::F32, ReduceOp::Sum);
        ASSERT_TRUE(communicator.wait(*ticket).ok());
        Figures figures = communicator.figures(*ticket);
        EXPECT_EQ(figures.payload, 1600000);
        EXPECT_EQ(figures.wire, 2 * 1600000 * 3 / 4);
        EXPECT_NEAR(static_cast<double>(figures.moved), 2 * 1600000 * 3 / 4,
                    3 * 64 * 8); // a slice read, a slice written, thrice
        ticket = communicator.allGather(data.data(), 400000, DType::F32);
        ASSERT_TRUE(communicator.wait(*ticket).ok());
        figures = communicator.figures(*ticket);
        EXPECT_EQ(figures.wire, 1200000);
        EXPECT_EQ(figures.moved, 1200000);
        ASSERT_TRUE(communicator.barrier().ok());
    });
}

TEST(Single, CompletesAtOnce)
{
    const auto communicator = makeSingleCommunicator();
    float value = 3;
    auto ticket = communicator->allReduce(&value, 1, DType::F32, ReduceOp::Sum);
    ASSERT_TRUE(ticket.ok());
    EXPECT_TRUE(*communicator->advance(*ticket, 1));
    EXPECT_EQ(value, 3);
    EXPECT_EQ(communicator->figures(*ticket).payload, 4);
    EXPECT_TRUE(communicator->barrier().ok());
    EXPECT_FALSE(communicator->send(&value, 4, 0).ok());
}

TEST(Threads, MadeTogether)
{
    auto communicators = makeThreadCommunicators(3);
    ASSERT_EQ(communicators.size(), 3u);
    std::vector<std::thread> threads;
    for (auto &communicator : communicators)
        threads.emplace_back([&communicator] { EXPECT_TRUE(communicator->barrier().ok()); });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_STREQ(communicators[0]->backend(), "threads");
}
