// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/init.h"
#include "tests/engine/exec/allocations.h"
#include "tests/engine/exec/synthetic_data.h"
#include "tests/engine/exec/toy.h"

#include <gtest/gtest.h>

namespace rankyard::exec::test {

/// Odd where it may be: a vocabulary that no number of ranks divides, parameters of odd sizes.
inline spec::JobSpec layoutJob(const std::string &family = "gpt2")
{
    spec::JobSpec job;
    job.model.family = family;
    job.model.layers = 3;
    job.model.hidden = 24;
    job.model.heads = 6;
    job.model.seq = 12;
    job.model.vocab = 37;
    job.model.ffn = 60;
    if (family == "llama") {
        job.model.tied = false;
        job.model.kvHeads = 3;
    }
    job.batch.global = 12;
    job.batch.micro = 2;
    job.zero.bucketBytes = 6000;
    job.precision.compute = job.precision.grad = job.precision.master = job.precision.reduce = DType::F64;
    job.optimizer.lr = 1e-2;
    job.lrSchedule.warmup = 5;
    job.lrSchedule.total = 20;
    job.data.train = "none";
    return job;
}

/// Prepares the state for a step of a job.
inline void setStep(StepState &state, const spec::JobSpec &job, std::int64_t step)
{
    state.step = step;
    state.lr = spec::learningRate(job, step);
    state.lossWeight = 1.0 / static_cast<double>(job.batch.global * job.model.seq);
}

/// Runs steps of a job's plan on thread ranks; after(rank) on each rank's thread at the end.
inline void runSteps(const plan::Plan &plan, int steps, const std::function<void(ThreadRank &)> &after)
{
    SyntheticData data(plan.job);
    onThreadRanks(
        plan, [] { return makeCpuDevice(1); }, data,
        [&](ThreadRank &rank) {
            ASSERT_TRUE(initialiseParameters(plan, *rank.arenas, rank.rank).ok());
            for (int step = 1; step <= steps; ++step) {
                setStep(rank.executor->state(), plan.job, step);
                const Status status = rank.executor->run(plan::ProgramKind::Train, step - 1);
                ASSERT_TRUE(status.ok()) << status.error().text();
            }
            after(rank);
        });
}

/// Losses of the first steps, as rank 0 saw them.
inline std::vector<double> lossesOf(const plan::Plan &plan, int steps)
{
    std::vector<double> losses;
    SyntheticData data(plan.job);
    onThreadRanks(
        plan, [] { return makeCpuDevice(1); }, data,
        [&](ThreadRank &rank) {
            ASSERT_TRUE(initialiseParameters(plan, *rank.arenas, rank.rank).ok());
            for (int step = 1; step <= steps; ++step) {
                setStep(rank.executor->state(), plan.job, step);
                const Status status = rank.executor->run(plan::ProgramKind::Train, step - 1);
                ASSERT_TRUE(status.ok()) << status.error().text();
                if (rank.rank == 0)
                    losses.push_back(rank.executor->state().loss);
            }
        });
    return losses;
}

/// After two steps no step of the job allocates.
inline void expectNoAllocations(const spec::JobSpec &job)
{
    if (allocationsOfThisThread() < 0)
        GTEST_SKIP() << "allocations cannot be counted here";
    const auto plan = plan::makePlan(job);
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    runSteps(*plan, 2, [&](ThreadRank &rank) {
        for (int step = 3; step <= 8; ++step) {
            const std::int64_t before = allocationsOfThisThread();
            setStep(rank.executor->state(), plan->job, step);
            ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, step - 1).ok());
            EXPECT_EQ(allocationsOfThisThread() - before, 0) << "step " << step;
        }
    });
}

} // namespace rankyard::exec::test
