// SPDX-License-Identifier: GPL-3.0-or-later
// The planner's programs with the CPU's kernels, ranks as threads: any layout trains the model that one rank
// trains.
#include "engine/exec/init.h"
#include "tests/engine/exec/allocations.h"
#include "tests/engine/exec/synthetic_data.h"
#include "tests/engine/exec/toy.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

spec::JobSpec parityJob(int dp, int zero, DType type)
{
    spec::JobSpec job = tinyJob(dp);
    job.batch.global = 12;
    job.batch.micro = 1;
    job.zero.stage = dp > 1 ? zero : 0;
    job.precision.compute = job.precision.grad = job.precision.master = job.precision.reduce = type;
    job.optimizer.lr = 1e-2;
    job.lrSchedule.warmup = 5;
    job.lrSchedule.total = 20;
    return job;
}

struct Trace {
    std::vector<double> losses;
    std::vector<double> norms;
    double evalLoss = 0;
    bool operator==(const Trace &) const = default;
};

void setStep(StepState &state, const spec::JobSpec &job, std::int64_t step)
{
    state.step = step;
    state.lr = spec::learningRate(job, step);
    state.lossWeight = 1.0 / static_cast<double>(job.batch.global * job.model.seq);
}

std::unique_ptr<Device> oneThread() { return makeCpuDevice(1); }

Trace trainPlan(const plan::Plan &plan, int steps)
{
    std::vector<Trace> traces(static_cast<std::size_t>(plan.grid.world()));
    SyntheticData data(plan.job);
    onThreadRanks(plan, oneThread, data, [&](ThreadRank &rank) {
        ASSERT_TRUE(initialiseParameters(plan, *rank.arenas, rank.rank).ok());
        Trace &trace = traces[static_cast<std::size_t>(rank.rank)];
        for (int step = 1; step <= steps; ++step) {
            setStep(rank.executor->state(), plan.job, step);
            const Status status = rank.executor->run(plan::ProgramKind::Train, step - 1);
            ASSERT_TRUE(status.ok()) << status.error().text();
            trace.losses.push_back(rank.executor->state().loss);
            trace.norms.push_back(rank.executor->state().gradNorm);
        }
        ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Eval, 0).ok());
        trace.evalLoss = rank.executor->state().loss;
    });
    for (const Trace &trace : traces)
        EXPECT_EQ(trace, traces[0]);
    return traces[0];
}

Trace trainJob(const spec::JobSpec &job, int steps = 20)
{
    const auto plan = plan::makePlan(job);
    if (!plan.ok()) {
        ADD_FAILURE() << plan.error().text();
        return {};
    }
    return trainPlan(*plan, steps);
}

double worst(const std::vector<double> &a, const std::vector<double> &b)
{
    double error = a.size() == b.size() && !a.empty() ? 0 : 1;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        error = std::max(error, std::abs(a[i] - b[i]) / std::abs(b[i]));
    return error;
}

} // namespace

TEST(Parity, EveryLayoutInFp64AndFp32)
{
    for (const auto &[type, limit] : {std::pair(DType::F64, 1e-10), std::pair(DType::F32, 1e-5)}) {
        const Trace one = trainJob(parityJob(1, 0, type));
        ASSERT_FALSE(one.losses.empty());
        EXPECT_LT(one.losses.back(), 0.85 * one.losses.front());
        for (const int dp : {2, 3}) {
            for (const int zero : {0, 1}) {
                const Trace trace = trainJob(parityJob(dp, zero, type));
                EXPECT_LT(worst(trace.losses, one.losses), limit)
                    << nameOf(type) << " dp " << dp << " zero " << zero;
                EXPECT_LT(worst(trace.norms, one.norms), 10 * limit);
                EXPECT_LT(std::abs(trace.evalLoss - one.evalLoss) / one.evalLoss, limit);
            }
        }
    }
}

TEST(Parity, MicroBatchesBucketsAndOverlapDoNotMatter)
{
    const Trace one = trainJob(parityJob(1, 0, DType::F64), 6);
    for (const int micro : {2, 6}) {
        for (const std::int64_t bucket : {1, 1000, 1 << 30}) {
            spec::JobSpec job = parityJob(2, 1, DType::F64);
            job.batch.micro = micro;
            job.zero.bucketBytes = bucket;
            job.comm.overlapGrads = micro == 2;
            EXPECT_LT(worst(trainJob(job, 6).losses, one.losses), 1e-11) << micro << " " << bucket;
        }
    }
}

TEST(Parity, TwiceTheSameRunGivesTheSameBits)
{
    for (const DType type : {DType::F32, DType::F64})
        EXPECT_EQ(trainJob(parityJob(2, 1, type), 8), trainJob(parityJob(2, 1, type), 8));
}

TEST(Parity, ALostReductionOrASwapIsRefusedOrChangesTheLoss)
{
    const auto good = plan::makePlan(parityJob(2, 1, DType::F64));
    ASSERT_TRUE(good.ok());
    const Trace reference = trainPlan(*good, 4);
    // Without the last gradient reduction.
    plan::Plan plan = *good;
    plan::StepProgram *program = &plan.programs[0];
    const auto last = std::find_if(program->ops.rbegin(), program->ops.rend(),
                                   [](const plan::Op &op) { return op.kind == plan::OpKind::ReduceScatter; });
    const plan::OpId gone = last->id;
    program->ops.erase(std::next(last).base());
    for (plan::Op &op : program->ops) {
        op.id -= op.id > gone ? 1 : 0;
        std::erase(op.waits, gone);
        for (plan::OpId &wait : op.waits)
            wait -= wait > gone ? 1 : 0;
    }
    EXPECT_FALSE(plan::verify(*program).ok());
    EXPECT_GT(worst(trainPlan(plan, 4).losses, reference.losses), 1e-8);
    // Two ops that depend on each other, swapped.
    plan = *good;
    program = &plan.programs[0];
    const auto core = std::find_if(program->ops.begin(), program->ops.end(),
                                   [](const plan::Op &op) { return op.segment == plan::Segment::Core; });
    std::swap(core->id, std::prev(core)->id);
    std::iter_swap(core, std::prev(core));
    EXPECT_FALSE(plan::verify(*program).ok());
    EXPECT_GT(worst(trainPlan(plan, 4).losses, reference.losses), 1e-8);
}

TEST(Parity, ExecutedIsTheProgram)
{
    const auto plan = plan::makePlan(parityJob(2, 1, DType::F32));
    ASSERT_TRUE(plan.ok());
    SyntheticData data(plan->job);
    onThreadRanks(*plan, oneThread, data, [&](ThreadRank &rank) {
        for (const plan::ProgramKind kind : {plan::ProgramKind::Train, plan::ProgramKind::Eval}) {
            setStep(rank.executor->state(), plan->job, 1);
            ASSERT_TRUE(rank.executor->run(kind, 0).ok());
            const Execution &execution = *rank.executor->recent(0);
            const plan::StepProgram &program = plan->program(kind, rank.rank);
            std::array<std::vector<plan::OpId>, plan::streamCount> expected;
            std::vector<std::int64_t> payload(program.groups.size(), 0);
            for (const plan::Op &op : program.ops) {
                expected[static_cast<std::size_t>(op.stream)].push_back(op.id);
                if (op.group != plan::none)
                    payload[static_cast<std::size_t>(op.group)] += op.payload;
            }
            EXPECT_EQ(execution.order, expected);
            for (std::size_t g = 0; g < payload.size(); ++g)
                EXPECT_EQ(execution.groups[g].figures.payload, payload[g]);
        }
    });
}

TEST(Parity, AStepAllocatesNothing)
{
    if (allocationsOfThisThread() < 0)
        GTEST_SKIP() << "allocations cannot be counted here";
    for (const int dp : {1, 2}) {
        const auto plan = plan::makePlan(parityJob(dp, 1, DType::F32));
        ASSERT_TRUE(plan.ok());
        SyntheticData data(plan->job);
        onThreadRanks(*plan, oneThread, data, [&](ThreadRank &rank) {
            ASSERT_TRUE(initialiseParameters(*plan, *rank.arenas, rank.rank).ok());
            for (int step = 1; step <= 10; ++step) {
                const std::int64_t before = allocationsOfThisThread();
                setStep(rank.executor->state(), plan->job, step);
                ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, step - 1).ok());
                const std::int64_t made = allocationsOfThisThread() - before;
                if (step > 2) {
                    EXPECT_EQ(made, 0) << "step " << step << ", dp " << dp;
                }
            }
        });
    }
}
