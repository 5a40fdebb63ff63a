// SPDX-License-Identifier: GPL-3.0-or-later
// What a client has in its store after what it lived through.
#include "tests/remote/agent/agent_test.h"

#include <atomic>
#include <cmath>
#include <sys/wait.h>
#include <thread>

using namespace agenttest;
using telemetry::RunState;

namespace {

class RunServices : public AgentTest
{
protected:
    void SetUp() override
    {
        AgentTest::SetUp();
        m_file = m_dir / "data" / "rankyard" / "runs.sqlite";
    }

    std::unique_ptr<session::RunService> service(session::RunService::Callbacks callbacks = {})
    {
        auto opened = session::RunService::open(m_file, std::move(callbacks));
        EXPECT_TRUE(opened) << opened.error().text();
        if (!opened)
            return nullptr;
        m_agent = (*opened)->session().agent().pid;
        return std::move(*opened);
    }

    std::unique_ptr<store::RunStore> openStore()
    {
        auto opened = store::RunStore::open(m_file);
        EXPECT_TRUE(opened);
        return std::move(*opened);
    }

    void expectSteps(const std::string &run, std::int64_t count)
    {
        auto store = openStore();
        for (const int rank : {0, 1}) {
            const auto rows = store->steps(run, rank, 0, 1'000'000);
            ASSERT_TRUE(rows);
            ASSERT_EQ(rows->size(), static_cast<std::size_t>(count));
            for (std::size_t i = 0; i < rows->size(); ++i) {
                ASSERT_EQ((*rows)[i].record.step, static_cast<std::int64_t>(i) + 1);
                ASSERT_EQ((*rows)[i].record.loss, 10.0 / static_cast<double>(i + 1));
            }
        }
    }

    fs::path m_file;
};

} // namespace

TEST_F(RunServices, StoresEverythingBeforeItSaysEnded)
{
    std::atomic<int> changed{0};
    session::RunService::Callbacks callbacks;
    callbacks.changed = [&](const std::string &) { ++changed; };
    auto one = service(std::move(callbacks));
    ASSERT_TRUE(one);
    const auto run = one->start(request("plain step_ms=2", 300));
    ASSERT_TRUE(run) << run.error().text();
    const auto status = one->waitUntilEnded(*run, {});
    ASSERT_TRUE(status);
    EXPECT_EQ(status->state, RunState::Finished);
    expectSteps(*run, 300);
    auto store = openStore();
    const auto info = store->run(*run);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->state, RunState::Finished);
    EXPECT_EQ(info->step, 300);
    EXPECT_EQ(info->steps, 300);
    EXPECT_EQ(info->world, 2);
    EXPECT_EQ(info->name, "plain step_ms=2");
    EXPECT_GT(info->endedNs, info->startedNs);
    EXPECT_NEAR(info->bestLoss, 11.0 / 300, 1e-12);
    EXPECT_EQ(store->evals(*run)->size(), 6u);
    EXPECT_GE(store->hellos(*run)->size(), 3u);
    EXPECT_EQ(store->events(*run)->back().detail["to"], "finished");
    EXPECT_FALSE(store->logs(*run, 0, 100)->empty());
    EXPECT_GT(changed.load(), 2);
    EXPECT_TRUE(one->follow(*run)) << "following an ended run is harmless";
}

TEST_F(RunServices, WaitingCanBeGivenUp)
{
    auto one = service();
    const auto run = one->start(request("plain", 100'000));
    ASSERT_TRUE(run);
    int looks = 0;
    const auto given = one->waitUntilEnded(*run, [&] { return ++looks > 3; });
    ASSERT_FALSE(given);
    EXPECT_EQ(given.error().code, Code::Stopped);
    EXPECT_EQ(one->waitUntilEnded("r-20260101T000000-abcdef", {}).error().code, Code::NotFound);
    ASSERT_TRUE(one->session().stop(*run));
    const auto ended = one->waitUntilEnded(*run, {});
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->state, RunState::Stopped);
    EXPECT_EQ(openStore()->run(*run)->state, RunState::Stopped);
}

TEST_F(RunServices, AStopWhileTheRunStartsIsSeenToEndIt)
{
    auto one = service();
    for (int i = 0; i < 30; ++i) {
        auto request = this->request("plain", 100'000);
        request.runId = store::makeRunId();
        std::thread stopper([&] { // as soon as the agent knows the run
            while (!one->session().stop(request.runId))
                std::this_thread::yield();
        });
        const auto run = one->start(request);
        stopper.join();
        if (!run)
            continue; // called off before it was a run
        const auto begin = std::chrono::steady_clock::now();
        const auto late = [&] { return std::chrono::steady_clock::now() - begin > std::chrono::seconds(30); };
        const auto ended = one->waitUntilEnded(*run, late);
        ASSERT_TRUE(ended) << "the end of the run was never seen";
        EXPECT_EQ(ended->state, RunState::Stopped);
    }
}

TEST_F(RunServices, AClientThatLeftBeforeTheFirstRecordIsCaughtUpLater)
{
    std::string run;
    {
        auto one = service();
        run = *one->start(request("plain never_ready=1", 5)); // tells nothing of its steps
    }
    EXPECT_NE(openStore()->run(run)->state, RunState::Draft);
    auto two = service();
    ASSERT_TRUE(two->session().stop(run));
    const auto ended = two->waitUntilEnded(run, {});
    ASSERT_TRUE(ended) << "the second client does not follow it: " << ended.error().text();
    EXPECT_EQ(openStore()->run(run)->state, RunState::Stopped);
}

TEST_F(RunServices, AKilledClientsStoreCatchesUpLater)
{
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        auto one = session::RunService::open(m_file, {});
        const auto run = one ? (*one)->start(request("plain step_ms=2", 500)) : Result<std::string>(Error{});
        if (!run)
            ::_exit(1);
        auto store = store::RunStore::open(m_file);
        while ((*store)->run(*run)->step < 20)
            ::usleep(1000);
        [[maybe_unused]] const ssize_t n = ::write(pipe[1], run->data(), run->size());
        ::pause();
        ::_exit(0);
    }
    ::close(pipe[1]);
    char text[64] = {};
    ASSERT_EQ(::read(pipe[0], text, sizeof text), 24);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);
    auto one = service();
    ASSERT_TRUE(one);
    ASSERT_TRUE(one->follow(text));
    const auto status = one->waitUntilEnded(text, {});
    ASSERT_TRUE(status);
    EXPECT_EQ(status->state, RunState::Finished);
    expectSteps(text, 500);
}

TEST_F(RunServices, TwoClientsOfOneStoreDoNotDisturbEachOther)
{
    auto one = service();
    auto two = service();
    const auto run = one->start(request("plain step_ms=1", 1000));
    ASSERT_TRUE(run);
    ASSERT_TRUE(two->follow(*run));
    std::thread other([&] {
        const auto status = two->waitUntilEnded(*run, {});
        ASSERT_TRUE(status);
        EXPECT_EQ(status->state, RunState::Finished);
    });
    const auto status = one->waitUntilEnded(*run, {});
    other.join();
    ASSERT_TRUE(status);
    expectSteps(*run, 1000);
}

TEST_F(RunServices, TheAgentsDeathIsToldAndLearnedLater)
{
    std::atomic<bool> lost{false};
    session::RunService::Callbacks callbacks;
    callbacks.lost = [&](const Error &) { lost = true; };
    auto one = service(std::move(callbacks));
    const auto run = one->start(request("plain", 100'000));
    ASSERT_TRUE(run);
    auto store = openStore();
    while (store->run(*run)->step < 5)
        ::usleep(1000);
    endAgent(SIGKILL);
    const auto status = one->waitUntilEnded(*run, {});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::NodeFailed);
    one.reset();
    EXPECT_TRUE(lost);
    EXPECT_FALSE(telemetry::isTerminal(store->run(*run)->state));
    // The next client asks about what the store takes for live, without being told to.
    auto two = service();
    ASSERT_TRUE(two);
    const auto after = two->waitUntilEnded(*run, {});
    ASSERT_TRUE(after);
    EXPECT_EQ(after->state, RunState::Failed);
    EXPECT_EQ(store->run(*run)->state, RunState::Failed);
    EXPECT_EQ(store->run(*run)->error->code, Code::NodeFailed);
}

TEST_F(RunServices, ARunWhoseFolderIsGoneIsLost)
{
    auto one = service();
    const auto run = one->start(request("plain", 5));
    ASSERT_TRUE(run);
    ASSERT_TRUE(one->waitUntilEnded(*run, {}));
    ASSERT_TRUE(openStore()->setState(*run, RunState::Running));
    fs::remove_all(runDir(*run));
    one.reset();
    auto two = service();
    EXPECT_EQ(openStore()->run(*run)->state, RunState::Lost);
    EXPECT_EQ(two->follow(*run).error().code, Code::NotFound);
}

TEST_F(RunServices, AMissingAgentIsNamed)
{
    set("RANKYARD_LIBEXEC", m_dir.string());
    const auto opened = session::RunService::open(m_file, {});
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Code::NotHere);
    EXPECT_NE(opened.error().text().find("rankyard-agent"), std::string::npos);
    // Something that is no agent.
    ASSERT_TRUE(writeFileAtomically(m_dir / "rankyard-agent",
                                    "#!/bin/sh\necho welcome to this host\necho it is broken >&2\n"));
    fs::permissions(m_dir / "rankyard-agent", fs::perms::owner_all);
    const auto noise = session::RunService::open(m_file, {});
    ASSERT_FALSE(noise);
    EXPECT_EQ(noise.error().code, Code::NodeFailed);
    EXPECT_NE(noise.error().text().find("it is broken"), std::string::npos) << noise.error().text();
}
