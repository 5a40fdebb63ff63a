// SPDX-License-Identifier: GPL-3.0-or-later
// Several processes on one store, and their sudden deaths.
#include "tests/engine/store/store_test.h"

#include <csignal>
#include <sys/wait.h>

using namespace rankyard;
using namespace rankyard::store;
using namespace rankyard::telemetry;

namespace {

class StoreProcesses : public StoreTest
{
protected:
    /// A child that ingests steps 1 … `last` of rank `rank`, `batch` at a time, from where the store stands, then exits 0.
    pid_t startWriter(const std::string &id, std::int32_t rank, std::int64_t last, std::int64_t batch)
    {
        const pid_t child = ::fork();
        if (child != 0)
            return child;
        auto store = RunStore::open(file());
        if (!store)
            ::_exit(10);
        std::uint64_t at = 0;
        for (const StreamPosition &position : *(*store)->positions(id)) {
            if (position.rank == rank)
                at = position.sequence;
        }
        while (at < static_cast<std::uint64_t>(last)) {
            std::vector<Record> records;
            for (std::int64_t k = 0; k < batch && at < static_cast<std::uint64_t>(last); ++k) {
                StepRecord step;
                step.step = static_cast<std::int64_t>(++at);
                step.loss = double(at % 7);
                records.push_back(samples::record(at, step, rank));
            }
            const auto status = (*store)->ingest(id, records);
            if (!status)
                ::_exit(11);
        }
        ::_exit(0);
    }

    static int wait(pid_t child)
    {
        int status = 0;
        ::waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }

    void checkWhole(const std::string &id, std::int32_t rank)
    {
        const auto rows = m_store->steps(id, rank, 0, 1'000'000);
        ASSERT_TRUE(rows);
        std::uint64_t position = 0;
        for (const StreamPosition &one : *m_store->positions(id)) {
            if (one.rank == rank)
                position = one.sequence;
        }
        ASSERT_EQ(rows->size(), position) << "rows and position are one transaction";
        for (std::size_t i = 0; i < rows->size(); ++i)
            ASSERT_EQ((*rows)[i].record.step, static_cast<std::int64_t>(i) + 1);
        if (position < 10)
            return;
        std::int64_t covered = 0;
        for (const SeriesPoint &point : *m_store->series(id, "loss", rank, 0, 1'000'000, 5)) {
            covered += point.stepEnd - point.stepBegin + 1;
            ASSERT_LE(point.max, 6.0);
        }
        ASSERT_EQ(covered, static_cast<std::int64_t>(position)) << "the pyramid is in the same transaction";
    }
};

} // namespace

TEST_F(StoreProcesses, TwoWriteAtOnceTheSameAndDifferentStreams)
{
    const std::string id = newRun();
    m_store.reset();
    const pid_t children[] = {startWriter(id, 0, 2000, 13), startWriter(id, 1, 2000, 7),
                              startWriter(id, 0, 2000, 17)};
    for (const pid_t child : children)
        EXPECT_EQ(wait(child), 0);
    m_store = open();
    checkWhole(id, 0);
    checkWhole(id, 1);
    EXPECT_EQ(m_store->steps(id, -1, 0, 1'000'000)->size(), 4000u);
}

TEST_F(StoreProcesses, SeveralCreateTheStoreAtOnce)
{
    m_store.reset();
    for (int round = 0; round < 10; ++round) {
        std::filesystem::remove_all(m_dir);
        std::vector<pid_t> children;
        for (int i = 0; i < 4; ++i) {
            const pid_t child = ::fork();
            if (child == 0)
                ::_exit(RunStore::open(file()) ? 0 : 1);
            children.push_back(child);
        }
        for (const pid_t child : children)
            EXPECT_EQ(wait(child), 0);
    }
}

TEST_F(StoreProcesses, AWriterKilledAtAnyMomentLosesAtMostItsLastBatch)
{
    const std::string id = newRun();
    std::mt19937_64 random(7);
    constexpr std::int64_t all = 4000;
    for (int round = 0; round < 40; ++round) {
        m_store.reset();
        const pid_t child = startWriter(id, 0, all, 5);
        ::usleep(static_cast<useconds_t>(random() % 20'000)); // a random moment is the point of the test
        ::kill(child, SIGKILL);
        const int code = wait(child);
        ASSERT_TRUE(code == -SIGKILL || code == 0) << code;
        m_store = open();
        checkWhole(id, 0);
    }
    m_store.reset();
    EXPECT_EQ(wait(startWriter(id, 0, all, 100)), 0);
    m_store = open();
    checkWhole(id, 0);
    EXPECT_EQ(m_store->steps(id, 0, 0, all)->size(), static_cast<std::size_t>(all));
}
