// SPDX-License-Identifier: GPL-3.0-or-later
// Resident memory of ranks as the kernel counts it, with a process a rank; and what a killed one leaves behind.
#include "tests/engine/exec/mini_agent.h"
#include "tests/engine/exec/toy.h"
#include "tests/engine/long.h"

#include "engine/plan/plan.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

/// Memory of a process that is no file's, pages that several map divided among them: bytes.
std::int64_t residentOf(int pid)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
    std::int64_t bytes = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:"))
            bytes += 1024 * std::stoll(line.substr(line.find(':') + 1));
    }
    return bytes;
}

class WorkerMemory : public testing::Test
{
protected:
    void SetUp() override { writeCorpus(m_folder.path() / "corpus", 20000, 37); }

    /// 3.2 M parameters on two ranks.
    MiniAgent agent(std::int64_t steps)
    {
        MiniAgent result;
        result.job = tinyJob(2);
        result.job.precision = {};
        result.job.model.layers = 4;
        result.job.model.hidden = 256;
        result.job.model.heads = 4;
        result.job.model.seq = 64;
        result.job.batch.micro = 4;
        result.job.batch.global = 8;
        result.job.zero.stage = 0;
        result.job.zero.persistenceThreshold = 1000;
        result.job.zero.bucketBytes = 1 << 20;
        result.job.zero.maxLive = 1000000;
        result.job.data.train = "corpus";
        result.job.run.steps = steps;
        result.job.run.evalEvery = 0;
        result.job.run.checkpointEvery = 0;
        result.folder = m_folder.path();
        std::filesystem::remove_all(m_folder.path() / "ckpt"); // of the run before
        return result;
    }

    struct Bytes {
        std::int64_t resident = 0, planned = 0;
    };
    /// Of both ranks in the third step, by the kernel and by the plan. The run would go on: were a rank at its end meanwhile, the pages that
    /// both map would count as the other's. It ends with both once they are counted.
    Bytes bytesOf(void (*change)(spec::JobSpec &job, const std::string &folder))
    {
        MiniAgent one = agent(100000);
        change(one.job, m_folder.path().string());
        Bytes bytes;
        one.onNews = [&](MiniAgent &self, int rank, const std::string &kind, std::int64_t step) {
            if (rank != 0 || kind != "step" || step != 3)
                return;
            for (const int pid : self.pids)
                bytes.resident += residentOf(pid);
            for (const int pid : self.pids)
                ::kill(pid, SIGKILL);
        };
        one.run();
        EXPECT_GT(bytes.resident, 0) << "smaps_rollup has no Pss_Anon";
        const auto plan = plan::makePlan(one.job);
        EXPECT_TRUE(plan) << plan.error().text();
        for (int rank = 0; rank < 2; ++rank)
            bytes.planned += plan::memoryOf(*plan, rank).peak;
        return bytes;
    }

    TemporaryFolder m_folder;
};

} // namespace

/// What a strategy saves in the plan it saves in the kernel's books: within a megabyte and three hundredths.
TEST_F(WorkerMemory, EffectOnResidentBytes)
{
    if (sanitized)
        GTEST_SKIP() << "shadow memory is in the books too";
    const Bytes plain = bytesOf([](spec::JobSpec &, const std::string &) {});
    struct Case {
        const char *name;
        void (*change)(spec::JobSpec &job, const std::string &folder);
    };
    const Case cases[] = {
        {"zero 1", [](spec::JobSpec &j, const std::string &) { j.zero.stage = 1; }},
        {"zero 2", [](spec::JobSpec &j, const std::string &) { j.zero.stage = 2; }},
        {"zero 3", [](spec::JobSpec &j, const std::string &) { j.zero.stage = 3; }},
        {"full recomputation", [](spec::JobSpec &j, const std::string &) { j.recompute.mode = "full"; }},
        {"states in files",
         [](spec::JobSpec &j, const std::string &folder) {
             j.offload.optimizer = "nvme";
             j.offload.nvmePath = folder;
             j.zero.subGroup = 100000;
         }},
    };
    for (const Case &c : cases) {
        if (!isLong() && &c != &cases[0] && &c != &cases[2])
            continue; // a second and a half each
        const Bytes with = bytesOf(c.change);
        const std::int64_t saved = plain.resident - with.resident, planned = plain.planned - with.planned;
        std::printf("%s: saves %.1f MB of resident memory, %.1f by the plan\n", c.name, 1e-6 * saved,
                    1e-6 * planned);
        EXPECT_GT(planned, 4'000'000) << c.name;
        EXPECT_NEAR(static_cast<double>(saved), static_cast<double>(planned),
                    1e6 + 0.03 * static_cast<double>(planned))
            << c.name;
    }
}

/// The NVMe tier's files have no name: a rank that is killed leaves none behind, and the next run starts.
TEST_F(WorkerMemory, AKilledRankLeavesNoFile)
{
    const std::filesystem::path tier = m_folder.path() / "tier";
    std::filesystem::create_directory(tier);
    MiniAgent one = agent(100000);
    one.job.offload.optimizer = "nvme";
    one.job.offload.nvmePath = tier.string();
    one.onNews = [&](MiniAgent &self, int rank, const std::string &kind, std::int64_t step) {
        if (rank == 0 && kind == "step" && step == 3)
            ::kill(self.pids[1], SIGKILL);
    };
    const auto killed = one.run();
    EXPECT_EQ(killed[1].exitCode(), -SIGKILL);
    EXPECT_EQ(killed[0].exitCode(), 4);
    EXPECT_TRUE(std::filesystem::is_empty(tier));
    MiniAgent next = agent(3);
    next.job.offload = one.job.offload;
    for (const RankOutcome &rank : next.run())
        EXPECT_EQ(rank.exitCode(), 0) << rank.error().text();
    EXPECT_TRUE(std::filesystem::is_empty(tier));
}
