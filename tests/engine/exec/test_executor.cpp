// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/vote.h"
#include "tests/engine/exec/toy.h"

#include <cmath>
#include <gtest/gtest.h>
#include <mutex>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

struct Step {
    double loss;
    double gradNorm;
    bool operator==(const Step &) const = default;
};

/// What every rank saw, by rank and step.
std::vector<std::vector<Step>> train(const plan::Plan &plan, int steps)
{
    const int world = plan.grid.world();
    std::vector<std::vector<Step>> seen(static_cast<std::size_t>(world));
    ToyData data(world);
    onThreadRanks(plan, toyDevice, data, [&](ThreadRank &rank) {
        StepState &state = rank.executor->state();
        for (int step = 1; step <= steps; ++step) {
            state.step = step;
            state.lr = 0.1;
            state.lossWeight = 1.0 / 12;
            const Status status = rank.executor->run(plan::ProgramKind::Train, step - 1);
            ASSERT_TRUE(status.ok()) << status.error().text();
            seen[static_cast<std::size_t>(rank.rank)].push_back({state.loss, state.gradNorm});
        }
    });
    return seen;
}

double worstLossError(const std::vector<Step> &a, const std::vector<Step> &b)
{
    double worst = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        worst = std::max(worst, std::abs(a[i].loss - b[i].loss) / std::abs(b[i].loss));
    return worst;
}

} // namespace

TEST(Executor, EveryLayoutGivesWhatOneRankGives)
{
    const auto one = train(toyPlan(1), 20)[0];
    EXPECT_LT(one.back().loss, one.front().loss);
    EXPECT_GT(one.front().gradNorm, 0.75); // so the clip factor was at work
    for (const int dp : {2, 3, 4}) {
        const auto ranks = train(toyPlan(dp), 20);
        for (const auto &rank : ranks) {
            EXPECT_LT(worstLossError(rank, one), 1e-12);
            EXPECT_EQ(rank, ranks[0]); // the same scalars on every rank, to the bit
        }
        EXPECT_EQ(train(toyPlan(dp), 20), ranks); // and in every run
    }
}

TEST(Executor, ExecutesTheProgramsOpsInOrder)
{
    const plan::Plan plan = toyPlan(2);
    const plan::StepProgram &program = plan.programs[0];
    ToyData data(2);
    onThreadRanks(plan, toyDevice, data, [&](ThreadRank &rank) {
        for (int step = 1; step <= 10; ++step) {
            rank.executor->state().step = step;
            ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, step - 1).ok());
            const Execution &execution = *rank.executor->recent(0);
            EXPECT_EQ(execution.step, step);
            for (int stream = 0; stream < plan::streamCount; ++stream) {
                std::vector<plan::OpId> expected;
                for (const plan::Op &op : program.ops) {
                    if (static_cast<int>(op.stream) == stream)
                        expected.push_back(op.id);
                }
                EXPECT_EQ(execution.order[static_cast<std::size_t>(stream)], expected);
            }
            for (const plan::Op &op : program.ops) {
                const auto id = static_cast<std::size_t>(op.id);
                EXPECT_GE(execution.opBegin[id], execution.beginNs);
                EXPECT_GE(execution.opEnd[id], execution.opBegin[id]);
                EXPECT_LE(execution.opEnd[id], execution.endNs);
                for (const plan::OpId wait : op.waits)
                    EXPECT_GE(execution.opBegin[id], execution.opEnd[static_cast<std::size_t>(wait)]);
            }
            // Payload: program = executed, exactly.
            std::vector<std::int64_t> payload(2, 0), operations(2, 0);
            for (const plan::Op &op : program.ops) {
                if (op.group != plan::none) {
                    payload[static_cast<std::size_t>(op.group)] += op.payload;
                    ++operations[static_cast<std::size_t>(op.group)];
                }
            }
            for (std::size_t group = 0; group < 2; ++group) {
                EXPECT_EQ(execution.groups[group].figures.payload, payload[group]);
                EXPECT_EQ(execution.groups[group].operations, operations[group]);
            }
        }
        EXPECT_EQ(rank.executor->recent(7)->step, 3);
        EXPECT_EQ(rank.executor->recent(8), nullptr);
    });
}

TEST(Executor, AProgramWithoutAReductionTrainsAnotherModel)
{
    const auto good = train(toyPlan(2), 5);
    plan::Plan plan = toyPlan(2);
    plan::StepProgram &program = plan.programs[0];
    const auto reduce = std::find_if(program.ops.begin(), program.ops.end(), [](const plan::Op &op) {
        return op.kind == plan::OpKind::ReduceScatter;
    });
    const plan::OpId gone = reduce->id;
    program.ops.erase(reduce);
    for (plan::Op &op : program.ops) {
        op.id -= op.id > gone ? 1 : 0;
        std::erase(op.waits, gone);
        for (plan::OpId &wait : op.waits)
            wait -= wait > gone ? 1 : 0;
    }
    EXPECT_GT(worstLossError(train(plan, 5)[0], good[0]), 1e-6);
}

TEST(Executor, DependentOpsInTheWrongOrderAreRefused)
{
    // The loss waits for a gather that now stands behind it.
    plan::Plan plan = toyPlan(2);
    plan::StepProgram &program = plan.programs[0];
    std::rotate(program.ops.begin() + 1, program.ops.begin() + 2, program.ops.begin() + 4);
    for (std::size_t i = 0; i < program.ops.size(); ++i)
        program.ops[i].id = static_cast<plan::OpId>(i);
    program.ops[2].waits = {0, 3};
    ToyData data(2);
    onThreadRanks(plan, toyDevice, data, [](ThreadRank &rank) {
        const Status status = rank.executor->run(plan::ProgramKind::Train, 0);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, Code::Internal);
        EXPECT_FALSE(rank.executor->run(plan::ProgramKind::Train, 0).ok());
    });
}

TEST(Executor, OverflowOnOneRankSkipsTheUpdateOnAll)
{
    const plan::Plan plan = toyPlan(3);
    const plan::StepProgram &program = plan.programs[0];
    ToyData data(3);
    onThreadRanks(plan, toyDevice, data, [&](ThreadRank &rank) {
        StepState &state = rank.executor->state();
        state.lr = 0.1;
        state.lossWeight = 1.0 / 12;
        auto *weights =
            reinterpret_cast<double *>(rank.arenas->address(program, program.buckets[0].paramSlice));
        ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, 0).ok());
        EXPECT_FALSE(state.overflow);
        const double before = weights[0];
        if (rank.rank == 1)
            state.lossScale = std::numeric_limits<double>::infinity();
        ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, 1).ok());
        EXPECT_TRUE(state.overflow);
        EXPECT_EQ(weights[0], before);
        state.lossScale = 1;
        ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, 2).ok());
        EXPECT_FALSE(state.overflow);
        EXPECT_NE(weights[0], before);
    });
}

TEST(Executor, OneRanksVoteIsSeenByAllAtTheSameStep)
{
    const plan::Plan plan = toyPlan(3);
    ToyData data(3);
    onThreadRanks(plan, toyDevice, data, [](ThreadRank &rank) {
        for (int step = 1; step <= 6; ++step) {
            Vote vote;
            vote.stop = step == 4 && rank.rank == 2;
            vote.checkpoint = step == 2;
            vote.pause = step == 5 && rank.rank != 0;
            rank.executor->state().vote = vote.encode();
            ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, step - 1).ok());
            const Vote decision = Vote::decode(rank.executor->state().vote);
            EXPECT_EQ(decision.stop, step == 4);
            EXPECT_EQ(decision.checkpoint, step == 2);
            EXPECT_EQ(decision.pause, step == 5);
        }
    });
}

TEST(Vote, ManyRanks)
{
    Vote all{true, true, true};
    const Vote decision = Vote::decode(all.encode() * 131071);
    EXPECT_TRUE(decision.stop && decision.checkpoint && decision.pause);
    Vote pause{false, false, true};
    const Vote only = Vote::decode(pause.encode() * 1000);
    EXPECT_TRUE(!only.stop && !only.checkpoint && only.pause);
    EXPECT_FALSE(Vote::decode(std::nan("")).stop);
}
