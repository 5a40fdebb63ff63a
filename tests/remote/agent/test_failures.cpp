// SPDX-License-Identifier: GPL-3.0-or-later
// Ranks and agents that die, hang and lie.
#include "remote/agent/run_files.h"
#include "tests/remote/agent/agent_test.h"

#include <iostream>
#include <sys/prctl.h>
#include <sys/resource.h>

using namespace agenttest;
using telemetry::RunState;

using Failures = AgentTest;

TEST_F(Failures, KillNineOfARankIsFoundAtOnceAndNothingIsLeft)
{
    openMain();
    double worst = 0;
    for (int round = 0; round < 5; ++round) {
        const std::string run = start(request("plain watch=1", 100'000));
        ASSERT_TRUE(m_collector.waitForStep(run, 3));
        const auto pids = m_session->describe(run)->first.pids;
        ASSERT_EQ(pids.size(), 2u);
        const auto begin = std::chrono::steady_clock::now();
        ::kill(pids[1], SIGKILL);
        ASSERT_TRUE(m_collector.waitForState(run, RunState::Failed));
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        worst = std::max(worst, seconds);
        EXPECT_TRUE(isGone(pids[0]));
        EXPECT_TRUE(processesOf(run).empty());
        const auto status = m_collector.waitForEnd(run);
        ASSERT_TRUE(status.error);
        EXPECT_EQ(status.error->code, Code::RankFailed);
        EXPECT_EQ(status.error->where, "rank 1");
        EXPECT_NE(status.error->what.find("killed by SIGKILL"), std::string::npos);
        EXPECT_NE(status.error->what.find("pid " + std::to_string(pids[1])), std::string::npos);
        EXPECT_GE(status.step, 3);
        EXPECT_EQ(fs::path(status.logFile).filename(), "1.log");
        EXPECT_EQ(status.lastLines, std::vector<std::string>{"rank 1 starts"});
        EXPECT_EQ(m_collector.holes(), 0);
    }
    std::cout << "[ failure  ] worst of 5 from kill -9 to the failed state with no process left: " << worst
              << " s\n";
    RecordProperty("seconds", std::to_string(worst));
    EXPECT_LT(worst, 2.0) << "0.5 s on a quiet machine";
}

TEST_F(Failures, EachKindOfDeathHasItsWords)
{
    struct Case {
        const char *name;
        const char *found;
        const char *what;
        Code code = Code::RankFailed;
    };
    const Case cases[] = {
        {"segv=3:1", "", "SIGSEGV"},
        {"abort=3:0", "", "last lines"},
        {"exit7=3:1", "exit status 7", "ended before its work was done"},
        {"early=3:1", "exit status 0", "ended before its work was done"},
        {"kill=1:0", "", "unknown"},
        {"error=3:1", "", "cannot allocate 5.0 GiB", Code::DoesNotFit},
        {"garbage=3:1", "", "frame"},
        {"peer_error=3:0", "", "rank 1 hangs"},
    };
    openMain();
    for (const Case &one : cases) {
        const std::string run = start(request(std::string("plain watch=1 ") + one.name, 2000));
        const auto status = m_collector.waitForEnd(run);
        EXPECT_EQ(status.state, RunState::Failed) << one.name;
        ASSERT_TRUE(status.error) << one.name;
        EXPECT_EQ(status.error->code, one.code) << one.name << ": " << status.error->text();
        EXPECT_EQ(status.error->found, one.found) << one.name << ": " << status.error->text();
        EXPECT_NE(status.error->what.find(one.what), std::string::npos)
            << one.name << ": " << status.error->text();
        EXPECT_TRUE(processesOf(run).empty()) << one.name;
        const auto exit = agent::readExitFile(runDir(run));
        ASSERT_TRUE(exit);
        EXPECT_EQ(exit->error->text(), status.error->text());
        const auto events = m_collector.events(run, "state");
        ASSERT_FALSE(events.empty());
        EXPECT_EQ(events.back().detail["to"], "failed");
        EXPECT_TRUE(events.back().detail.contains("error"));
    }
}

TEST_F(Failures, AHungRankIsFoundByItsHeartbeat)
{
    set("RANKYARD_HANG_MS", "1500");
    openMain();
    for (const std::string name : {"freeze=3:1", "hang=3:1"}) {
        const std::string run = start(request("plain step_ms=20 " + name, 100'000));
        const auto status = m_collector.waitForEnd(run);
        EXPECT_EQ(status.state, RunState::Failed);
        ASSERT_TRUE(status.error);
        EXPECT_EQ(status.error->where, "rank 1") << status.error->text();
        EXPECT_NE(status.error->what.find("makes no progress"), std::string::npos);
        if (name[0] == 'f') {
            EXPECT_NE(status.error->what.find("stopped by a signal"), std::string::npos)
                << status.error->text();
        }
        EXPECT_TRUE(processesOf(run).empty());
    }
}

TEST_F(Failures, ARankThatWaitsForASlowOneIsNotHung)
{
    set("RANKYARD_HANG_MS", "1000");
    openMain();
    const std::string run = start(request("plain step_ms=20 saves=3:0 waits=3:1", 5));
    const auto status = m_collector.waitForEnd(run);
    EXPECT_EQ(status.state, RunState::Finished) << (status.error ? status.error->text() : "");
}

TEST_F(Failures, AnAgentThatWasStoppedForAWhileDoesNotBlameItsRanks)
{
    set("RANKYARD_HANG_MS", "1500");
    openMain();
    const std::string run = start(request("plain step_ms=20", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 2));
    ASSERT_EQ(::kill(m_agent, SIGSTOP), 0);
    ::poll(nullptr, 0, 2500); // longer than a rank may be silent
    ASSERT_EQ(::kill(m_agent, SIGCONT), 0);
    ASSERT_TRUE(m_collector.waitForStep(run, 120));
    ASSERT_TRUE(m_session->stop(run));
    const auto status = m_collector.waitForEnd(run);
    EXPECT_EQ(status.state, RunState::Stopped) << (status.error ? status.error->text() : "");
}

TEST_F(Failures, AFailureWhileStoppingIsTold)
{
    openMain();
    // The rank reports its error at the next step, after the stop was asked for.
    const std::string run = start(request("plain ignore_stop=1 step_ms=30 error=40:1", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 2));
    ASSERT_TRUE(m_session->stop(run));
    const auto status = m_collector.waitForEnd(run);
    EXPECT_EQ(status.state, RunState::Failed);
    ASSERT_TRUE(status.error);
    EXPECT_EQ(status.error->code, Code::DoesNotFit);
}

TEST_F(Failures, AWorkerOfAnotherBuildIsRefused)
{
    // A program that is no worker at all: it neither reads its document nor sends a frame.
    set("RANKYARD_WORKER", "/bin/false");
    openMain();
    const std::string run = start(request("plain", 10));
    const auto status = m_collector.waitForEnd(run);
    EXPECT_EQ(status.state, RunState::Failed);
    ASSERT_TRUE(status.error);
    EXPECT_EQ(status.error->found, "exit status 1");
}

TEST_F(Failures, ADeadAgentTakesItsRanksWithItAndTheNextOneSaysSo)
{
    openMain();
    const std::string run = start(request("plain", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 5));
    const auto pids = m_session->describe(run)->first.pids;
    const int first = m_agent;
    endAgent(SIGKILL);
    for (const int pid : pids)
        EXPECT_TRUE(waitForExit(pid));
    ASSERT_TRUE(m_collector.waitFor([&] { return m_collector.m_lost.has_value(); }));
    EXPECT_EQ(m_collector.lost()->code, Code::NodeFailed);
    EXPECT_EQ(m_session->stop(run).error().code, Code::NodeFailed);
    m_session.reset();

    Collector after;
    const auto from = m_collector.positions(run);
    after.continueFrom(run, from);
    m_session = open(after);
    ASSERT_TRUE(m_session);
    EXPECT_NE(m_agent, first);
    const auto list = m_session->list();
    ASSERT_EQ(list->size(), 1u);
    EXPECT_EQ((*list)[0].state, RunState::Failed);
    ASSERT_TRUE((*list)[0].error);
    EXPECT_EQ((*list)[0].error->code, Code::NodeFailed);
    EXPECT_GE((*list)[0].step, 5);
    ASSERT_TRUE(m_session->subscribe(run, from));
    ASSERT_TRUE(after.waitFor([&] { return after.m_caughtUp[run]; }));
    EXPECT_EQ(after.holes(), 0) << "from where the first one was, without a gap";
    const auto events = after.events(run, "state");
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back().detail["to"], "failed");
}

TEST_F(Failures, AFullDiskDoesNotStopTheTraining)
{
    openMain();
    const std::string run = start(request("plain step_ms=1", 1500));
    ASSERT_TRUE(m_collector.waitForStep(run, 20));
    // No file of the agent may grow beyond what it has: for it the disk is full.
    const std::int64_t size =
        static_cast<std::int64_t>(fs::file_size(*fs::directory_iterator(runDir(run) / "spool" / "1" / "0")));
    rlimit before{};
    rlimit small{static_cast<rlim_t>(size), RLIM_INFINITY};
    ASSERT_EQ(::prlimit(m_agent, RLIMIT_FSIZE, &small, &before), 0);
    ASSERT_TRUE(m_collector.waitForStep(run, 400)) << "a live client still gets them";
    rlimit free{RLIM_INFINITY, RLIM_INFINITY};
    ASSERT_EQ(::prlimit(m_agent, RLIMIT_FSIZE, &free, nullptr), 0);
    const auto status = m_collector.waitForEnd(run);
    EXPECT_EQ(status.state, RunState::Finished);
    EXPECT_EQ(status.step, 1500);
    EXPECT_EQ(m_collector.holes(), 0);
    Collector later;
    auto second = open(later);
    ASSERT_TRUE(second->subscribe(run, {}));
    ASSERT_TRUE(later.waitFor([&] { return later.m_caughtUp[run]; }));
    EXPECT_EQ(later.holes(), 0);
    EXPECT_EQ(later.steps(run, 0).size(), m_collector.steps(run, 0).size())
        << "what waited in memory was written when there was room";
}

TEST_F(Failures, TerminatingTheAgentStopsItsRuns)
{
    openMain();
    const std::string run = start(request("plain", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 3));
    const auto pids = m_session->describe(run)->first.pids;
    endAgent(SIGTERM);
    for (const int pid : pids)
        EXPECT_TRUE(isGone(pid));
    const auto exit = agent::readExitFile(runDir(run));
    ASSERT_TRUE(exit);
    EXPECT_EQ(exit->state, RunState::Stopped);
}
