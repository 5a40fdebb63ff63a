// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/record.h"
#include "engine/telemetry/run_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

using namespace rankyard::telemetry;

namespace {

constexpr int stateCount = static_cast<int>(RunState::Lost) + 1;

std::vector<RunState> allStates()
{
    std::vector<RunState> all;
    for (int i = 0; i < stateCount; ++i)
        all.push_back(static_cast<RunState>(i));
    return all;
}

} // namespace

TEST(RunStates, NamesRoundTrip)
{
    std::set<std::string> names;
    for (const RunState state : allStates()) {
        RunState back = RunState::Draft;
        EXPECT_TRUE(runStateFromName(nameOf(state), back));
        EXPECT_EQ(back, state);
        names.insert(nameOf(state));
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(stateCount));
    RunState untouched = RunState::Paused;
    EXPECT_FALSE(runStateFromName("walking", untouched));
    EXPECT_EQ(untouched, RunState::Paused);
}

TEST(RunStates, EndedRunsOnlyStartAgain)
{
    for (const RunState from : allStates()) {
        if (!isTerminal(from) || from == RunState::Lost)
            continue;
        for (const RunState to : allStates())
            EXPECT_EQ(canMove(from, to), to == RunState::Preflight) << nameOf(from) << " to " << nameOf(to);
    }
}

TEST(RunStates, EveryLiveStateCanFailStopAndBeLost)
{
    for (const RunState from : allStates()) {
        EXPECT_FALSE(canMove(from, from));
        EXPECT_FALSE(isLive(from) && isTerminal(from));
        if (!isLive(from))
            continue;
        for (const RunState to : {RunState::Failed, RunState::Stopped, RunState::Lost})
            EXPECT_TRUE(canMove(from, to)) << nameOf(from) << " to " << nameOf(to);
    }
}

TEST(RunStates, TheUsualLifeIsInTheTable)
{
    using enum RunState;
    const RunState life[] = {Draft,   Deploying, Preflight, Starting, Running,  Degraded,
                             Running, Pausing,   Paused,    Running,  Stopping, Finished};
    for (std::size_t i = 0; i + 1 < std::size(life); ++i)
        EXPECT_TRUE(canMove(life[i], life[i + 1])) << nameOf(life[i]) << " to " << nameOf(life[i + 1]);
    EXPECT_FALSE(canMove(Draft, Running));
    EXPECT_FALSE(canMove(Stopping, Running));
}

TEST(Metrics, EveryNameHasAValue)
{
    StepRecord step;
    step.loss = 2.5;
    step.overflow = true;
    step.memory[0] = 100;
    step.memory[2] = 20;
    step.comm = {{"dp", 10, 20, 5, 1.5, 0.5}, {"world", 1, 2, 3, 0.25, 0.25}};
    EXPECT_EQ(metric(step, "loss"), 2.5);
    EXPECT_EQ(metric(step, "overflow"), 1);
    EXPECT_EQ(metric(step, "memory.optimizer"), 20);
    EXPECT_EQ(metric(step, "memory.total"), 120);
    EXPECT_EQ(metric(step, "comm.exposed_ms"), 0.75);
    EXPECT_EQ(metric(step, "comm.wire"), 22);
    EXPECT_EQ(metric(step, "comm.dp.moved"), 5);
    EXPECT_EQ(metric(step, "comm.world.ms"), 0.25);
    for (const char *none : {"", "nothing", "comm.", "comm.tp.ms", "comm.dp.speed", "comm..ms"})
        EXPECT_TRUE(std::isnan(metric(step, none))) << none;
    std::vector<double> all;
    metrics(step, all);
    ASSERT_EQ(all.size(), metricNames().size());
    for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(all[i], metric(step, metricNames()[i])) << metricNames()[i];
    EXPECT_EQ(step.exposedMs(), 0.75);
}
