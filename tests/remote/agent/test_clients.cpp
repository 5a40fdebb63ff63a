// SPDX-License-Identifier: GPL-3.0-or-later
// Clients that come and go.
#include "engine/telemetry/spool.h"
#include "engine/telemetry/wire.h"
#include "remote/agent/endpoint.h"
#include "remote/agent/run_files.h"
#include "tests/remote/agent/agent_test.h"

#include <random>
#include <set>
#include <sys/wait.h>
#include <thread>

using namespace agenttest;
using telemetry::RunState;

using Clients = AgentTest;

TEST_F(Clients, AClientKilledByNineDoesNotStopTheRunAndALaterOneCatchesUp)
{
    auto one = request("plain step_ms=2", 600);
    one.runId = store::makeRunId();
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        Collector collector;
        auto opened = session::Session::openLocal(collector.callbacks());
        if (!opened || !(*opened)->start(one) || !(*opened)->subscribe(one.runId, {})
            || !collector.waitForStep(one.runId, 10))
            ::_exit(1);
        [[maybe_unused]] const ssize_t n = ::write(pipe[1], "x", 1);
        ::pause();
        ::_exit(0);
    }
    ::close(pipe[1]);
    char ready = 0;
    ASSERT_EQ(::read(pipe[0], &ready, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);

    openMain();
    const auto list = m_session->list();
    ASSERT_EQ(list->size(), 1u);
    EXPECT_EQ((*list)[0].id, one.runId);
    ASSERT_TRUE(m_session->subscribe(one.runId, {}));
    EXPECT_EQ(m_collector.waitForEnd(one.runId).state, RunState::Finished);
    EXPECT_EQ(m_collector.holes(), 0);
    for (const int rank : {0, 1}) {
        const auto steps = m_collector.steps(one.runId, rank);
        ASSERT_EQ(steps.size(), 600u);
        for (std::size_t i = 0; i < steps.size(); ++i)
            ASSERT_EQ(steps[i], static_cast<std::int64_t>(i) + 1);
    }
}

TEST_F(Clients, ReconnectingAtRandomGivesEveryRecordOnce)
{
    openMain();
    const std::string run = start(request("plain step_ms=1", 1500));
    std::mt19937_64 random(11);
    std::vector<store::StreamPosition> from;
    std::map<std::int32_t, std::vector<std::int64_t>> steps;
    int connections = 0;
    for (bool ended = false; !ended; ++connections) {
        Collector collector;
        collector.continueFrom(run, from);
        auto opened = open(collector);
        ASSERT_TRUE(opened);
        ASSERT_TRUE(opened->subscribe(run, from));
        const std::size_t wanted = 1 + random() % 400;
        collector.waitFor([&] {
            std::size_t count = 0;
            for (const auto &[stream, records] : collector.m_streams[run])
                count += records.size();
            return count >= wanted || collector.m_caughtUp[run];
        });
        opened.reset(); // in the middle of whatever comes
        EXPECT_EQ(collector.holes(), 0);
        ended = collector.m_caughtUp[run];
        for (const int rank : {0, 1}) {
            for (const std::int64_t step : collector.steps(run, rank))
                steps[rank].push_back(step);
        }
        for (const store::StreamPosition &position : collector.positions(run)) {
            std::erase_if(from, [&](const auto &old) {
                return old.epoch == position.epoch && old.rank == position.rank;
            });
            from.push_back(position);
        }
    }
    EXPECT_GT(connections, 3);
    for (const int rank : {0, 1}) {
        ASSERT_EQ(steps[rank].size(), 1500u);
        for (std::size_t i = 0; i < 1500; ++i)
            ASSERT_EQ(steps[rank][i], static_cast<std::int64_t>(i) + 1);
    }
}

TEST_F(Clients, ASlowClientHoldsNobodyBack)
{
    openMain();
    Collector slow;
    auto callbacks = slow.callbacks();
    std::mutex mutex;
    std::unique_lock hold(mutex);
    callbacks.records = [&mutex](const std::string &, std::vector<telemetry::Record>) {
        const std::lock_guard wait(mutex);
    };
    auto second = session::Session::openLocal(std::move(callbacks));
    ASSERT_TRUE(second);
    const std::string run = start(request("plain step_ms=1 spew=3000", 800));
    ASSERT_TRUE((*second)->subscribe(run, {}));
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Finished);
    EXPECT_EQ(m_collector.holes(), 0);
    hold.unlock();
}

TEST_F(Clients, ManyAtOnceStartOneAgent)
{
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::set<int> pids;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            auto opened = session::Session::openLocal({});
            const std::lock_guard lock(mutex);
            EXPECT_TRUE(opened) << opened.error().text();
            if (opened)
                pids.insert((*opened)->agent().pid);
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    ASSERT_EQ(pids.size(), 1u);
    m_agent = *pids.begin();
}

TEST_F(Clients, AnIdleAgentLeavesAndTheNextClientStartsAnother)
{
    set("RANKYARD_AGENT_IDLE_MS", "200");
    openMain();
    const int first = m_agent;
    const auto at = agent::endpoint();
    ASSERT_TRUE(at);
    EXPECT_TRUE(fs::exists(at->socket()));
    m_session.reset();
    EXPECT_TRUE(waitForExit(first));
    EXPECT_FALSE(fs::exists(at->socket()));
    openMain();
    EXPECT_NE(m_agent, first);
    m_agent = 0;
    m_session.reset();
}

TEST_F(Clients, ARunKeepsTheAgentThere)
{
    set("RANKYARD_AGENT_IDLE_MS", "100");
    openMain();
    const std::string run = start(request("plain step_ms=4", 400));
    ASSERT_TRUE(m_collector.waitForStep(run, 1));
    const int agent = m_agent;
    m_session.reset();
    EXPECT_TRUE(waitForExit(agent, 60'000)) << "it leaves after the run";
    m_agent = 0;
    const auto status = readFile(runDir(run) / "exit.json");
    ASSERT_TRUE(status);
    EXPECT_NE(status->find("finished"), std::string::npos);
}

TEST_F(Clients, ARunUnderAnAgentOfAnotherBuildIsFollowedByItsFiles)
{
    // This test plays the other agent: it holds the folder's lock and writes the spool.
    const std::string run = store::makeRunId();
    const auto folder = agent::claimFolder(run, "");
    ASSERT_TRUE(folder);
    auto lock = agent::lockFolder(*folder);
    ASSERT_TRUE(lock);
    agent::RunFile file;
    file.id = run;
    file.epoch = 1;
    file.build = "other";
    ASSERT_TRUE(agent::writeRunFile(*folder, file));
    ASSERT_TRUE(writeFileAtomically(*folder / "job.json", "{}"));
    auto spool = telemetry::Spool::open(*folder / "spool", {1, 0});
    ASSERT_TRUE(spool);
    const auto append = [&](std::int64_t step) {
        telemetry::Record record;
        telemetry::StepRecord one;
        one.step = step;
        record.payload = one;
        (*spool)->append(record);
        (*spool)->flush();
    };
    append(1);
    openMain();
    ASSERT_EQ(m_session->list()->size(), 1u);
    EXPECT_EQ(m_session->list()->front().state, RunState::Running);
    ASSERT_TRUE(m_session->subscribe(run, {}));
    ASSERT_TRUE(m_collector.waitForStep(run, 1));
    EXPECT_EQ(m_session->stop(run).error().code, Code::NotHere);
    EXPECT_EQ(m_session->remove(run).error().code, Code::InUse);
    append(2);
    ASSERT_TRUE(m_collector.waitForStep(run, 2));
    append(3);
    agent::ExitFile exit;
    exit.id = run;
    exit.epoch = 1;
    exit.state = RunState::Finished;
    ASSERT_TRUE(agent::writeExitFile(*folder, exit));
    lock->reset();
    EXPECT_EQ(m_collector.waitForEnd(run).state, RunState::Finished);
    EXPECT_EQ(m_collector.steps(run, 0), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_F(Clients, BadRequestsAreAnsweredNotFatal)
{
    openMain();
    const auto at = agent::endpoint();
    auto raw = agent::connectTo(*at);
    ASSERT_TRUE(raw);
    std::string bytes;
    namespace wire = telemetry::wire;
    wire::appendFrame(bytes, {.type = wire::FrameType::Request}, "no json");
    wire::appendJson(bytes, wire::FrameType::Request, {{"id", 1}});
    wire::appendJson(bytes, wire::FrameType::Request, {{"id", 2}, {"method", "dance"}});
    wire::appendJson(bytes, wire::FrameType::Request,
                     {{"id", 3}, {"method", "start"}, {"params", {{"run", 7}, {"job", "x"}}}});
    wire::appendJson(bytes, wire::FrameType::Request,
                     {{"id", 4}, {"method", "subscribe"}, {"params", {{"run", "../.."}, {"from", {1, 2}}}}});
    wire::appendJson(bytes, wire::FrameType::Request,
                     {{"id", 5}, {"method", "describe"}, {"params", Json::array()}});
    wire::appendFrame(bytes, {.type = wire::FrameType::Ping, .sequence = 99}, "");
    ASSERT_TRUE(writeAll(raw->get(), bytes, "socket"));
    wire::FrameDecoder decoder;
    int errors = 0;
    for (bool done = false; !done;) {
        char block[4096];
        const ssize_t n = ::read(raw->get(), block, sizeof block);
        ASSERT_GT(n, 0);
        decoder.feed(std::string_view(block, static_cast<std::size_t>(n)));
        for (auto frame = decoder.next(); frame && *frame; frame = decoder.next()) {
            if ((*frame)->header.type == wire::FrameType::Reply)
                errors += wire::parseFrameJson(**frame)->contains("error");
            done = done || errors == 6;
        }
    }
    EXPECT_EQ(errors, 6);
    ASSERT_TRUE(writeAll(raw->get(), std::string(1000, '\xff'), "socket"));
    char block[4096];
    while (::read(raw->get(), block, sizeof block) > 0) {
    }
    EXPECT_TRUE(m_session->list()) << "the agent lives on";
}
