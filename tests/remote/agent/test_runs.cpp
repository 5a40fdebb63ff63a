// SPDX-License-Identifier: GPL-3.0-or-later
// Runs from start to end, as the user wants them.
#include "engine/store/run_store.h"
#include "remote/agent/run_files.h"
#include "tests/remote/agent/agent_test.h"

#include <set>
#include <thread>

using namespace agenttest;
using telemetry::RunState;

using Runs = AgentTest;

namespace {

std::vector<std::int64_t> upTo(std::int64_t last)
{
    std::vector<std::int64_t> all;
    for (std::int64_t i = 1; i <= last; ++i)
        all.push_back(i);
    return all;
}

} // namespace

TEST_F(Runs, FromStartToEndWithEveryRecord)
{
    openMain();
    ASSERT_TRUE(m_session);
    const std::string run = start(request("plain", 60));
    const auto status = m_collector.waitForEnd(run);
    EXPECT_EQ(status.state, RunState::Finished);
    EXPECT_EQ(status.step, 60);
    EXPECT_EQ(status.steps, 60);
    EXPECT_EQ(status.world, 2);
    EXPECT_NEAR(status.loss, 10.0 / 60, 1e-12);
    EXPECT_FALSE(status.error);
    EXPECT_EQ(m_collector.holes(), 0);
    for (const int rank : {0, 1}) {
        EXPECT_EQ(m_collector.steps(run, rank), upTo(60));
        const auto lines = m_collector.lines(run, rank);
        EXPECT_EQ(std::count(lines.begin(), lines.end(), "rank " + std::to_string(rank) + " starts"), 1);
    }
    std::string states;
    for (const auto &event : m_collector.events(run, "state")) {
        RunState from{};
        RunState to{};
        ASSERT_TRUE(telemetry::runStateFromName(event.detail["from"], from));
        ASSERT_TRUE(telemetry::runStateFromName(event.detail["to"], to));
        EXPECT_TRUE(telemetry::canMove(from, to));
        states += std::string(telemetry::nameOf(to)) + " ";
    }
    EXPECT_EQ(states, "preflight starting running finished ");
    const auto exit = agent::readExitFile(runDir(run));
    ASSERT_TRUE(exit);
    EXPECT_EQ(exit->state, RunState::Finished);
    EXPECT_EQ(exit->ranks.size(), 2u);
    EXPECT_TRUE(fs::exists(runDir(run) / "job.json"));
    EXPECT_TRUE(fs::exists(runDir(run) / "program" / "train-0.json"));
    EXPECT_TRUE(processesOf(run).empty());
    const auto list = m_session->list();
    ASSERT_TRUE(list);
    ASSERT_EQ(list->size(), 1u);
    EXPECT_EQ((*list)[0].state, RunState::Finished);
    const auto described = m_session->describe(run);
    ASSERT_TRUE(described);
    EXPECT_EQ(described->second["name"], "plain");
}

TEST_F(Runs, StopsAtAStepBoundary)
{
    openMain();
    const std::string run = start(request("plain", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 5));
    ASSERT_TRUE(m_session->stop(run));
    const auto status = m_collector.waitForEnd(run);
    EXPECT_EQ(status.state, RunState::Stopped);
    EXPECT_FALSE(status.error);
    EXPECT_GE(status.step, 5);
    EXPECT_TRUE(m_session->stop(run)) << "what was wanted is so already";
    EXPECT_EQ(m_session->pause(run).error().code, Code::Usage);
    EXPECT_EQ(m_session->stop("r-20260101T000000-abcdef").error().code, Code::NotFound);
}

TEST_F(Runs, ASecondStopEndsItAtOnce)
{
    openMain();
    const std::string run = start(request("plain ignore_stop=1", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 2));
    ASSERT_TRUE(m_session->stop(run));
    ASSERT_TRUE(m_collector.waitForState(run, RunState::Stopping));
    ASSERT_TRUE(m_session->stop(run));
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Stopped);
    EXPECT_TRUE(processesOf(run).empty());
}

TEST_F(Runs, AStopThatIsIgnoredIsEnforced)
{
    set("RANKYARD_STOP_MS", "300");
    openMain();
    const std::string run = start(request("plain ignore_stop=1", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 2));
    ASSERT_TRUE(m_session->stop(run));
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Stopped);
    EXPECT_TRUE(processesOf(run).empty());
}

TEST_F(Runs, StopsWhileItStarts)
{
    openMain();
    const std::string run = start(request("plain never_ready=1", 10));
    ASSERT_TRUE(m_session->stop(run));
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Stopped);
}

TEST_F(Runs, PausesResumesAndSaves)
{
    openMain();
    const std::string run = start(request("plain step_ms=2", 400));
    ASSERT_TRUE(m_collector.waitForStep(run, 5));
    ASSERT_TRUE(m_session->pause(run));
    ASSERT_TRUE(m_collector.waitForState(run, RunState::Paused));
    EXPECT_EQ(m_session->pause(run).error().code, Code::Usage);
    ASSERT_TRUE(m_session->checkpoint(run));
    ASSERT_TRUE(m_session->resume(run));
    EXPECT_EQ(m_session->resume(run).error().code, Code::Usage);
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Finished);
    EXPECT_EQ(m_collector.steps(run, 0), upTo(400));
    EXPECT_GE(m_collector.events(run, "checkpoint").size(), 1u);
}

TEST_F(Runs, StopsWhilePaused)
{
    openMain();
    const std::string run = start(request("plain", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 2));
    ASSERT_TRUE(m_session->pause(run));
    ASSERT_TRUE(m_collector.waitForState(run, RunState::Paused));
    ASSERT_TRUE(m_session->stop(run));
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Stopped);
}

TEST_F(Runs, StartingAnIdTwiceIsOneStart)
{
    openMain();
    auto twice = request("plain", 20);
    twice.runId = store::makeRunId();
    Collector other;
    auto second = open(other);
    std::thread same([&] { EXPECT_TRUE(second->start(twice)); });
    EXPECT_EQ(start(twice), twice.runId);
    same.join();
    EXPECT_EQ(m_collector.waitForEnd(twice.runId).state, RunState::Finished);
    const auto again = m_session->start(twice);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->state, RunState::Finished) << "an ended run is not started again";
    EXPECT_EQ(m_collector.steps(twice.runId, 0), upTo(20));
    EXPECT_EQ(m_session->list()->size(), 1u);
}

TEST_F(Runs, ARunDirectoryInUseIsAnError)
{
    openMain();
    auto first = request("plain", 100'000);
    first.runDir = (m_dir / "mine").string();
    const std::string run = start(first);
    ASSERT_TRUE(m_collector.waitForStep(run, 1));
    EXPECT_TRUE(fs::exists(m_dir / "mine" / "job.json"));
    EXPECT_EQ(fs::canonical(runDir(run)), fs::canonical(m_dir / "mine"));
    const auto second = m_session->start(first);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::InUse);
    EXPECT_NE(second.error().text().find("live run"), std::string::npos) << second.error().text();
    ASSERT_TRUE(m_session->kill(run));
    m_collector.waitForEnd(run);
    const auto third = m_session->start(first);
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().found, run) << "an ended run is not mixed with another one either";
    EXPECT_EQ(m_session->remove("r-20260101T000000-abcdef").error().code, Code::NotFound);
    ASSERT_TRUE(writeFileAtomically(m_dir / "mine" / "notes.txt", "of the user"));
    ASSERT_TRUE(m_session->remove(run));
    EXPECT_TRUE(fs::exists(m_dir / "mine" / "notes.txt"));
    EXPECT_FALSE(fs::exists(m_dir / "mine" / "spool"));
    EXPECT_FALSE(fs::exists(fs::symlink_status(runDir(run))));
    const auto fourth = m_session->start(first);
    ASSERT_FALSE(fourth);
    EXPECT_EQ(fourth.error().found, "notes.txt");
}

TEST_F(Runs, ALiveRunIsNotRemoved)
{
    openMain();
    const std::string run = start(request("plain", 100'000));
    ASSERT_TRUE(m_collector.waitForStep(run, 1));
    EXPECT_EQ(m_session->remove(run).error().code, Code::InUse);
    ASSERT_TRUE(m_session->kill(run));
    m_collector.waitForEnd(run);
    ASSERT_TRUE(m_session->remove(run));
    EXPECT_FALSE(fs::exists(runDir(run)));
    EXPECT_TRUE(m_session->list()->empty());
}

TEST_F(Runs, WhatCannotRunLeavesNothingBehind)
{
    openMain();
    const auto refused = [&](const session::StartRequest &one, Code code) {
        const auto status = m_session->start(one);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, code) << status.error().text();
        EXPECT_TRUE(m_session->list()->empty());
    };
    auto one = request("plain", 10);
    one.job.data.train = "nothing";
    refused(one, Code::NotFound);
    one = request("plain", 10);
    one.job.model.vocab = 100;
    refused(one, Code::BadJob);
    one = request("plain", 10);
    one.job.batch.global = 3;
    refused(one, Code::BadJob);
    one = request("plain", 10);
    one.job.model.layers = 400;
    one.job.model.hidden = 32768;
    one.job.model.heads = 256;
    refused(one, Code::DoesNotFit);
    one = request("plain", 10);
    one.runDir = (m_dir / "corpus.bin" / "x").string();
    refused(one, Code::Io);
    one = request("plain", 10);
    one.runDir = (m_dir / "corpus.bin").string();
    refused(one, Code::InUse);
    one = request("plain", 10);
    one.resume = "r-20260101T000000-abcdef";
    refused(one, Code::NotFound);
    one = request("plain", 10);
    one.runId = "../../x";
    refused(one, Code::Usage);
    fs::resize_file(m_dir / "corpus.bin", 100);
    refused(request("plain", 10), Code::BadData);
}

TEST_F(Runs, NoStepsAreDoneAtOnce)
{
    openMain();
    const std::string run = start(request("plain", 0));
    const auto status = m_collector.waitForEnd(run);
    EXPECT_EQ(status.state, RunState::Finished);
    EXPECT_EQ(status.step, 0);
}

TEST_F(Runs, AMissingWorkerIsNamed)
{
    set("RANKYARD_WORKER", (m_dir / "no-worker").string());
    openMain();
    const auto status = m_session->start(request("plain", 10));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::NotHere);
    EXPECT_NE(status.error().text().find("no-worker"), std::string::npos);
    const auto list = m_session->list();
    ASSERT_EQ(list->size(), 1u);
    EXPECT_EQ((*list)[0].state, RunState::Failed);
}

TEST_F(Runs, SecretsDoNotReachWorkersAndAllowedVariablesDo)
{
    set("MY_SECRET_TOKEN", "canary");
    set("OMP_TEST_VALUE", "64(x2) ; $HOME 'q'");
    openMain();
    auto one = request("plain env=1", 5);
    const std::string run = start(one);
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Finished);
    const auto lines = m_collector.lines(run, 0);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "env OMP_TEST_VALUE=64(x2) ; $HOME 'q'"), 1);
    for (const std::string &line : lines)
        EXPECT_EQ(line.find("canary"), std::string::npos);
}

TEST_F(Runs, AFloodOfLinesNeitherStopsTheRunNorGetsLost)
{
    openMain();
    const std::string run = start(request("plain spew=100000", 20));
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Finished);
    EXPECT_EQ(m_collector.holes(), 0);
    const std::string log = readFile(runDir(run) / "log" / "1.log").value();
    EXPECT_NE(log.find("line 99999 of rank 1"), std::string::npos);
    EXPECT_LT(m_collector.lines(run, 1).size(), 90'000u);
}

TEST_F(Runs, WhatARankLeavesBehindEndsWithTheRun)
{
    openMain();
    const std::string run = start(request("plain orphan=1", 20));
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Finished);
    EXPECT_TRUE(processesOf(run).empty());
}

TEST_F(Runs, TwentyRunsTwoAtATimeAllEndClean)
{
    openMain();
    std::set<std::string> runs;
    std::vector<std::string> live;
    for (int i = 0; i < 20; ++i) {
        if (live.size() == 2) {
            EXPECT_EQ(m_collector.waitForEnd(live.front()).state, RunState::Finished);
            live.erase(live.begin());
        }
        live.push_back(start(request("plain step_ms=1", 3)));
        runs.insert(live.back());
    }
    for (const std::string &run : live)
        EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Finished);
    EXPECT_EQ(runs.size(), 20u);
    for (const std::string &run : runs) {
        EXPECT_EQ(m_collector.steps(run, 1), upTo(3));
        EXPECT_TRUE(processesOf(run).empty());
    }
    std::string descriptors;
    std::size_t count = 0;
    for (const auto &fd : fs::directory_iterator("/proc/" + std::to_string(m_agent) + "/fd")) {
        std::error_code error;
        descriptors += fs::read_symlink(fd.path(), error).string() + "\n";
        ++count;
    }
    EXPECT_LT(count, 20u) << "left open in the agent:\n" << descriptors;
}
