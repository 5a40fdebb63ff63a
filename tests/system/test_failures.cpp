// SPDX-License-Identifier: GPL-3.0-or-later
// What goes wrong while a run lives.
#include "tests/system/system_test.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace rankyard;
namespace fs = std::filesystem;

using Failures = SystemTest;

namespace {

/// The folder of this process's memory cgroup, version 1, where it is visible; else the mount's root.
fs::path ownMemoryGroup()
{
    std::ifstream in("/proc/self/cgroup");
    for (std::string line; std::getline(in, line);) {
        const std::size_t at = line.find(":memory:/");
        const fs::path folder = at == std::string::npos ? "" : "/sys/fs/cgroup/memory/" + line.substr(at + 9);
        if (!folder.empty() && fs::exists(folder / "cgroup.procs"))
            return folder;
    }
    return "/sys/fs/cgroup/memory";
}

std::vector<std::string> linesOf(const std::string &text)
{
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

} // namespace

TEST_F(Failures, KillNineOfAWorkerIsToldInThreeLines)
{
    double worst = 0;
    for (int round = 0; round < 3; ++round) {
        auto train = ctl({"train", job({{"/run/steps", 100000}}), "--json"});
        const auto pids = waitForWorkers(2);
        ASSERT_EQ(pids.size(), 2u) << train->errors();
        const std::int64_t before = round == 0 ? 0 : 1;
        ASSERT_TRUE(train->waitForError("r-"));
        ASSERT_TRUE(waitForStep(2 + before));
        const auto begin = std::chrono::steady_clock::now();
        ::kill(pids[static_cast<std::size_t>(round) % 2], SIGKILL);
        const int status = train->wait();
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        worst = std::max(worst, seconds);
        EXPECT_EQ(status, 4) << train->errors();
        EXPECT_TRUE(workers().empty());
        const auto lines = linesOf(train->errors());
        ASSERT_GE(lines.size(), 3u);
        EXPECT_NE(lines[lines.size() - 3].find("killed by SIGKILL"), std::string::npos) << train->errors();
        EXPECT_NE(lines[lines.size() - 3].find("rank "), std::string::npos);
        EXPECT_NE(lines[lines.size() - 2].find("last step "), std::string::npos);
        EXPECT_NE(lines[lines.size() - 2].find("loss "), std::string::npos);
        EXPECT_NE(lines[lines.size() - 1].find(".log"), std::string::npos);
        EXPECT_EQ(train->json()["error"]["code"], "rank-failed");
        EXPECT_EQ(train->json()["state"], "failed");
    }
    std::cout << "[ failure  ] worst of 3 from kill -9 to exit 4 with no process left: " << worst << " s\n";
    EXPECT_LT(worst, 2.0) << "0.5 s on a quiet machine";
}

TEST_F(Failures, AStoppedWorkerIsFoundByItsHeartbeat)
{
    set("RANKYARD_HANG_MS", "2000");
    auto train = ctl({"train", job({{"/run/steps", 100000}}), "--json"});
    const auto pids = waitForWorkers(2);
    ASSERT_EQ(pids.size(), 2u);
    ASSERT_TRUE(waitForStep(2));
    ::kill(pids[1], SIGSTOP);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(train->wait(), 4) << train->errors();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::cout << "[ failure  ] from SIGSTOP to exit 4: " << seconds << " s\n";
    EXPECT_LT(seconds, 15.0);
    EXPECT_NE(train->errors().find("stopped by a signal"), std::string::npos) << train->errors();
    EXPECT_TRUE(workers().empty());
}

TEST_F(Failures, ADeadAgentEndsItsRun)
{
    auto train = ctl({"train", job({{"/run/steps", 100000}, {"/run/checkpoint_every", 2}}), "--json"});
    const auto pids = waitForWorkers(2);
    ASSERT_EQ(pids.size(), 2u);
    ASSERT_TRUE(waitForStep(5));
    std::ifstream status("/proc/" + std::to_string(pids[0]) + "/status");
    int agent = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("PPid:", 0) == 0)
            agent = std::atoi(line.c_str() + 5);
    }
    ASSERT_GT(agent, 1);
    ::kill(agent, SIGKILL);
    EXPECT_EQ(train->wait(), 5) << train->errors();
    for (int i = 0; i < 1000 && !workers().empty(); ++i)
        ::usleep(2000);
    EXPECT_TRUE(workers().empty());
    // The next command that speaks to an agent learns what became of it, and the run can go on.
    auto attach = ctlDone({"attach", "last", "--json"});
    EXPECT_EQ(attach->wait(), 5);
    EXPECT_EQ(attach->json()["state"], "failed-resumable");
    const std::string run = attach->json()["run"];
    auto again = ctlDone({"train", "--resume", run, "--steps", "12", "--json"});
    const auto all = losses(again->json());
    if (again->wait() == 0) {
        // Every step is there, or the history says which ones died with the agent.
        std::size_t lost = 0;
        const Json history = ctlDone({"runs", "show", run, "--json"})->json();
        for (const auto &event : history["events"]) {
            if (event["kind"] == "gap")
                lost += event["detail"]["last_step"].get<std::size_t>()
                    - event["detail"]["first_step"].get<std::size_t>() + 1;
        }
        EXPECT_EQ(all.size() + lost, 12u) << history["events"];
    } else {
        EXPECT_EQ(again->wait(), 2) << "only when it had made more than 12 steps: " << again->errors();
    }
}

TEST_F(Failures, AFullDiskIsNamedAndNothingHangs)
{
    const fs::path small = m_dir / "small";
    fs::create_directories(small);
    if (::mount("none", small.c_str(), "tmpfs", 0, "size=600k") != 0)
        GTEST_SKIP() << "cannot mount a small tmpfs";
    auto train = ctl({"train", job({{"/run/steps", 30}, {"/run/checkpoint_every", 5}}), "--run-dir",
                      (small / "run").string(), "--json"});
    const int status = train->wait();
    const Json json = train->json();
    // Checkpoints do not fit; the steps are made nevertheless, and the end says what is missing.
    EXPECT_TRUE(status == 0 || status == 3) << status << "\n" << train->errors();
    EXPECT_EQ(losses(json).size(), 30u) << train->errors();
    if (status == 3) {
        EXPECT_NE(train->errors().find("No space left"), std::string::npos) << train->errors();
    }
    EXPECT_TRUE(workers().empty());
    for (int i = 0; i < 200 && ::umount2(small.c_str(), MNT_DETACH) != 0; ++i)
        ::usleep(10'000);
}

TEST_F(Failures, ACheckpointThatIsNotSavedDegradesTheRunUntilOneIs)
{
    const fs::path folder = m_dir / "kept";
    auto train = ctl({"train", job({{"/run/steps", 100000}, {"/run/checkpoint_every", 2}}), "--run-dir",
                      folder.string(), "--json"});
    const auto state = [&] { return ctlDone({"runs", "list", "--json"})->json()["runs"][0]["state"]; };
    const auto waitFor = [&](const char *wanted) {
        for (int i = 0; i < 1200 && state() != wanted; ++i)
            ::usleep(20'000);
        return state() == wanted;
    };
    ASSERT_TRUE(waitForStep(3)) << train->errors();
    ASSERT_TRUE(waitFor("running"));
    fs::rename(folder / "ckpt", folder / "away");
    std::ofstream(folder / "ckpt") << "a file where the folder was";
    EXPECT_TRUE(waitFor("degraded")) << train->errors();
    fs::remove(folder / "ckpt");
    EXPECT_TRUE(waitFor("running")) << train->errors();
    EXPECT_EQ(ctlDone({"stop", "last"})->wait(), 0);
    EXPECT_EQ(train->wait(), 6) << train->errors();
    EXPECT_NE(train->errors().find("checkpoint failed"), std::string::npos) << train->errors();
    bool told = false;
    const Json history = ctlDone({"runs", "show", "last", "--json"})->json();
    for (const auto &event : history["events"])
        told = told
            || (event["kind"] == "state" && event["detail"]["to"] == "degraded"
                && event["detail"]["cause"].get<std::string>().find("not saved") != std::string::npos);
    EXPECT_TRUE(told) << history["events"];
}

/// A static loss scale that overflows in every step trains nothing. The run goes on, and says so.
TEST_F(Failures, ARunWhoseEveryStepIsSkippedSaysSo)
{
    auto train = ctl(
        {"train",
         job({{"/run/steps", 40},
              {"/precision", {{"compute", "fp16"}, {"loss_scale", {{"mode", "static"}, {"value", 1e30}}}}}}),
         "--json"});
    EXPECT_EQ(train->wait(), 0) << train->errors();
    bool told = false;
    const Json history = ctlDone({"runs", "show", "last", "--json"})->json();
    for (const auto &event : history["events"])
        told = told
            || (event["kind"] == "state" && event["detail"]["to"] == "degraded"
                && event["detail"]["cause"].get<std::string>().find("the last 32 changed no parameter")
                    != std::string::npos);
    EXPECT_TRUE(told) << history["events"];
}

TEST_F(Failures, OutOfMemoryIsSaidWhenTheCgroupSaysSo)
{
    const fs::path own = ownMemoryGroup();
    const fs::path group = own / ("rankyard-test-" + std::to_string(::getpid()));
    std::error_code error;
    const auto write = [](const fs::path &file, const std::string &text) {
        std::ofstream out(file);
        out << text << std::flush;
        return static_cast<bool>(out);
    };
    const auto moveTo = [&](const fs::path &folder) {
        return write(folder / "cgroup.procs", std::to_string(::getpid()));
    };
    if (!fs::create_directory(group, error) || !write(group / "memory.limit_in_bytes", "400000000")
        || !moveTo(group)) {
        ::rmdir(group.c_str());
        GTEST_SKIP() << "no memory cgroup can be made here";
    }
    // The agent and all it starts live in the group: this process was in it when it started them, and leaves again.
    auto train = ctl({"train", job({{"/run/steps", 100000}}), "--json"});
    const auto pids = waitForWorkers(2);
    moveTo(own);
    ASSERT_EQ(pids.size(), 2u) << train->errors();
    ASSERT_TRUE(waitForStep(2));
    // Something else in the group takes the memory; the kernel is told to take a worker for it.
    for (const int pid : pids)
        write("/proc/" + std::to_string(pid) + "/oom_score_adj", "1000");
    const pid_t hog = ::fork();
    if (hog == 0) {
        moveTo(group);
        for (;;) {
            // Touched page by page: only a fault of the program itself calls the kernel's killer.
            auto *block = static_cast<volatile char *>(
                ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            for (int page = 0; page < 256; ++page)
                block[page * 4096] = 1;
            ::usleep(3000);
        }
    }
    const int status = train->wait(std::chrono::seconds(60));
    ::kill(hog, SIGKILL);
    ::waitpid(hog, nullptr, 0);
    EXPECT_EQ(status, 4);
    EXPECT_NE(train->errors().find("out of memory: the cgroup's limit of 381 MiB"), std::string::npos)
        << train->errors();
    endAgents();
    for (int i = 0; i < 500 && ::rmdir(group.c_str()) != 0; ++i)
        ::usleep(10'000);
}
