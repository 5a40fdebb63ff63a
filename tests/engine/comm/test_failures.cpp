// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/comm/harness.h"

#include <csignal>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace rankyard;
using namespace rankyard::comm;
using namespace rankyard::comm::test;

namespace {

std::unique_ptr<Communicator> joinProcess(HostGroup group, int rank, const std::vector<int> &pids)
{
    group.rank = rank;
    group.pids = pids;
    auto made = makeHostCommunicator(std::move(group));
    return made.ok() ? std::move(made).value() : nullptr;
}

bool contains(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

/// Ends the child with what went wrong on its standard error.
int complain(const Error &error)
{
    std::fprintf(stderr, "%s\n", error.text().c_str());
    return 1;
}

std::vector<int> exitCodes(const std::vector<int> &statuses)
{
    std::vector<int> codes;
    for (const int status : statuses)
        codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return codes;
}

} // namespace

TEST(Failures, RanksThatDisagreeAreNamedOnEachSide)
{
    struct Case {
        std::int64_t counts[2];
        DType types[2];
        ReduceOp ops[2];
    };
    const Case cases[] = {
        {{10, 11}, {DType::F32, DType::F32}, {ReduceOp::Sum, ReduceOp::Sum}},
        {{100000, 10}, {DType::F32, DType::F32}, {ReduceOp::Sum, ReduceOp::Sum}},
        {{10, 10}, {DType::F32, DType::F64}, {ReduceOp::Sum, ReduceOp::Sum}},
        {{10, 10}, {DType::F32, DType::F32}, {ReduceOp::Sum, ReduceOp::Max}},
    };
    for (const Case &c : cases) {
        onThreads(2, Mode::Pointers, [&c](int rank, Communicator &communicator) {
            std::vector<double> data(100000);
            auto ticket = communicator.allReduce(data.data(), c.counts[rank], c.types[rank], c.ops[rank]);
            ASSERT_TRUE(ticket.ok());
            const Status status = communicator.wait(*ticket);
            ASSERT_FALSE(status.ok());
            EXPECT_EQ(status.error().code, Code::RankFailed);
            EXPECT_TRUE(contains(status.error().text(), "operation 1")) << status.error().text();
            EXPECT_FALSE(communicator.barrier().ok()); // sticky
        });
    }
}

TEST(Failures, KindsThatDisagree)
{
    onThreads(2, Mode::Pointers, [](int rank, Communicator &communicator) {
        float data[4] = {};
        auto ticket = rank == 0 ? communicator.reduceScatter(data, 4, DType::F32)
                                : communicator.allGather(data, 4, DType::F32);
        const Status status = communicator.wait(*ticket);
        ASSERT_FALSE(status.ok());
        EXPECT_TRUE(contains(status.error().text(), "reduce-scatter of 4 fp32")) << status.error().text();
        EXPECT_TRUE(contains(status.error().text(), "all-gather of 4 fp32")) << status.error().text();
    });
}

TEST(Failures, MessageSizesThatDisagree)
{
    onThreads(2, Mode::Pointers, [](int rank, Communicator &communicator) {
        std::vector<char> data(1 << 20);
        auto ticket =
            rank == 0 ? communicator.send(data.data(), 1 << 20, 1) : communicator.receive(data.data(), 77, 0);
        const Status status = ticket.ok() ? communicator.wait(*ticket) : Status(ticket.error());
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, Code::RankFailed);
    });
}

TEST(Failures, BadArguments)
{
    onThreads(2, Mode::Pointers, [](int, Communicator &communicator) {
        float data[3] = {};
        EXPECT_FALSE(communicator.reduceScatter(data, 3, DType::F32).ok());
    });
    onThreads(2, Mode::Pointers, [](int, Communicator &communicator) {
        char data[4] = {};
        EXPECT_FALSE(communicator.allReduce(data, 4, DType::U8, ReduceOp::Sum).ok());
    });
    onThreads(2, Mode::Pointers, [](int rank, Communicator &communicator) {
        char data[4] = {};
        EXPECT_FALSE(communicator.send(data, 4, rank).ok());
    });
    HostGroup group = groupOf(2);
    group.segmentBytes = 100;
    EXPECT_FALSE(makeHostCommunicator(group).ok());
}

TEST(Failures, AThreadThatLeavesIsNamed)
{
    onThreads(3, Mode::Pointers, [](int rank, Communicator &communicator) {
        ASSERT_TRUE(communicator.barrier().ok());
        if (rank == 1)
            return; // destroys its communicator
        std::vector<float> data(50000);
        auto ticket = communicator.allReduce(data.data(), 50000, DType::F32, ReduceOp::Sum);
        const std::int64_t begin = monotonicNs();
        const Status status = communicator.wait(*ticket);
        ASSERT_FALSE(status.ok());
        EXPECT_LT(monotonicNs() - begin, 400'000'000);
        EXPECT_TRUE(contains(status.error().text(), "rank 11")
                    || contains(status.error().text(), "has failed"))
            << status.error().text();
    });
}

TEST(Failures, ARankMayLeaveWhenItsWorkIsDone)
{
    for (int i = 0; i < 20; ++i) {
        onThreads(3, i % 2 ? Mode::Pointers : Mode::Staged, [](int rank, Communicator &communicator) {
            std::vector<float> data(60000, 1);
            auto ticket = communicator.allReduce(data.data(), 60000, DType::F32, ReduceOp::Sum);
            if (rank == 2)
                ::usleep(1000);
            ASSERT_TRUE(communicator.wait(*ticket).ok());
            ASSERT_TRUE(communicator.barrier().ok());
        });
    }
}

TEST(Processes, ReduceStagedAndInSharedArenas)
{
    constexpr int size = 3;
    constexpr std::int64_t count = 250000;
    const HostGroup group = groupOf(size);
    const auto memory = sharedMemory(size * count * 4);
    const auto codes = exitCodes(onProcesses(size, [&](int rank, const std::vector<int> &pids) {
        HostGroup mine = group;
        SharedArena arena;
        arena.bytes = count * 4;
        for (int r = 0; r < size; ++r)
            arena.base.push_back(static_cast<std::byte *>(memory.get()) + r * count * 4);
        mine.arenas = {arena};
        const auto communicator = joinProcess(std::move(mine), rank, pids);
        if (!communicator || std::strcmp(communicator->backend(), "shm") != 0)
            return 2;
        std::vector<float> own(static_cast<std::size_t>(count));
        for (int round = 0; round < 6; ++round) {
            const bool shared = round % 2 == 0;
            float *data =
                shared ? reinterpret_cast<float *>(arena.base[static_cast<std::size_t>(rank)]) : own.data();
            const std::int64_t n = round < 2 ? 1000 : count - count % size;
            for (std::int64_t i = 0; i < n; ++i)
                data[i] = static_cast<float>((rank + 1) * (i % 100) + round);
            auto ticket = communicator->allReduce(data, n, DType::F32, ReduceOp::Sum);
            if (const Status status = communicator->wait(*ticket); !status)
                return complain(status.error());
            for (std::int64_t i = 0; i < n; ++i) {
                if (data[i] != static_cast<float>(6 * (i % 100) + 3 * round))
                    return 3;
            }
            if (n > 1000 && shared != (communicator->figures(*ticket).moved < 2 * n * 4))
                return 4; // direct moves less
        }
        return communicator->barrier().ok() ? 0 : 5;
    }));
    EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

TEST(Processes, AKilledPeerIsNamedAtOnce)
{
    for (const std::int64_t count : {10, 5000000}) {
        const HostGroup group = groupOf(2);
        const auto shared = sharedMemory(4096);
        auto *killedAt = static_cast<std::atomic<std::int64_t> *>(shared.get());
        const auto codes = exitCodes(onProcesses(
            2,
            [&](int rank, const std::vector<int> &pids) {
                const auto communicator = joinProcess(group, rank, pids);
                std::vector<float> data(static_cast<std::size_t>(count));
                for (;;) {
                    auto ticket = communicator->allReduce(data.data(), count, DType::F32, ReduceOp::Sum);
                    const Status status = ticket.ok() ? communicator->wait(*ticket) : Status(ticket.error());
                    if (status.ok())
                        continue;
                    const std::int64_t took = monotonicNs() - killedAt->load();
                    std::fprintf(stderr, "found after %.1f ms: %s\n", static_cast<double>(took) / 1e6,
                                 status.error().text().c_str());
                    const bool named = contains(status.error().text(), "rank 11 has died")
                        && contains(status.error().text(), "all-reduce");
                    return named && took < 500'000'000 ? 0 : 1;
                }
            },
            [&](const std::vector<int> &pids) {
                ::usleep(100000);
                killedAt->store(monotonicNs());
                ::kill(pids[1], SIGKILL); // not reaped before the test ends: a zombie counts as dead
            }));
        EXPECT_EQ(codes[0], 0);
        EXPECT_EQ(codes[1], -SIGKILL);
    }
}

TEST(Processes, AStoppedPeerIsFoundToHang)
{
    Timeouts timeouts;
    timeouts.hang = std::chrono::milliseconds(300);
    const HostGroup group = groupOf(2, timeouts);
    const auto codes = exitCodes(onProcesses(
        2,
        [&](int rank, const std::vector<int> &pids) {
            const auto communicator = joinProcess(group, rank, pids);
            float value = 1;
            for (;;) {
                auto ticket = communicator->allReduce(&value, 1, DType::F32, ReduceOp::Sum);
                const Status status = ticket.ok() ? communicator->wait(*ticket) : Status(ticket.error());
                if (!status)
                    return contains(status.error().text(), "rank 11 hangs") ? 0 : complain(status.error());
            }
        },
        [](const std::vector<int> &pids) {
            ::usleep(50000);
            ::kill(pids[1], SIGSTOP);
            ::usleep(800000);
            ::kill(pids[1], SIGKILL);
        }));
    EXPECT_EQ(codes[0], 0);
}

TEST(Processes, AHeartbeatKeepsAPeerAlive)
{
    Timeouts timeouts;
    timeouts.hang = std::chrono::milliseconds(200);
    const HostGroup group = groupOf(2, timeouts);
    const auto codes = exitCodes(onProcesses(2, [&](int rank, const std::vector<int> &pids) {
        const auto communicator = joinProcess(group, rank, pids);
        for (int i = 0; rank == 1 && i < 70; ++i) {
            ::usleep(10000);
            communicator->heartbeat();
        }
        const Status status = communicator->barrier();
        return status.ok() ? 0 : complain(status.error());
    }));
    EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(Processes, APeerThatIsGoneBeforeTheStart)
{
    const int pid = ::fork();
    if (pid == 0)
        ::_exit(0);
    ::waitpid(pid, nullptr, 0);
    HostGroup group = groupOf(2);
    group.pids = {0, pid};
    EXPECT_FALSE(makeHostCommunicator(group).ok());
}
