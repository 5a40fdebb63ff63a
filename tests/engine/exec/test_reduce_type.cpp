// SPDX-License-Identifier: GPL-3.0-or-later
// Gradients summed in another type than they accumulate in.
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"
#include "tests/engine/long.h"

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

spec::JobSpec reduceJob(DType reduce, const std::string &family = "gpt2")
{
    spec::JobSpec job = layoutJob(family);
    job.precision.compute = reduce == DType::F16 ? DType::F16 : DType::F32;
    job.precision.grad = job.precision.master = DType::F32;
    job.precision.reduce = reduce;
    return job;
}

} // namespace

TEST(ReduceType, GivesWhatOneRankGivesThatRoundsAlike)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const DType type : {DType::BF16, DType::F16, DType::F64}) {
        for (const int dp : {2, 3, 5}) {
            for (const int zero : {0, 1, 2, 3}) {
                if (!isLong() && (dp + zero) % 3 != 0)
                    continue;
                spec::JobSpec job = reduceJob(type, zero == 2 ? "llama" : "gpt2");
                job.layout.dp = dp;
                job.zero.stage = zero;
                job.zero.persistenceThreshold = 50;
                job.batch.global = 4 * dp;
                job.comm.overlapGrads = dp != 3;
                expectParity(job,
                             std::string(nameOf(type)) + " dp " + std::to_string(dp) + " zero "
                                 + std::to_string(zero),
                             4);
            }
        }
    }
}

TEST(ReduceType, TogetherWithOtherAxes)
{
    spec::JobSpec job = reduceJob(DType::BF16, "llama");
    job.model.kvHeads = 1;
    job.layout.dp = 4;
    job.layout.tp = 2;
    job.zero.stage = 1;
    job.zero.shard = 2;
    job.batch.global = 8;
    job.offload.optimizer = "cpu";
    expectParity(job, "in blocks", 4);
    job.zero.stage = 2;
    job.batch.global = 16;
    expectParity(job, "in blocks, each micro-batch", 4);
    job.zero = spec::Zero();
    job.zero.bucketBytes = 6000;
    job.layout.tp = 1;
    job.layout.pp = 2;
    job.model.tied = true;
    for (const int dp : {1, 2}) {
        for (const char *schedule : {"1f1b", "zbv"}) {
            job.layout.dp = dp;
            job.layout.schedule = schedule;
            job.layout.virtualStages = schedule[0] == 'z' ? 2 : 1;
            job.zero.stage = dp == 2 && schedule[0] == '1' ? 1 : 0;
            expectParity(job, std::string("tied, ") + schedule + " dp " + std::to_string(dp), 4);
        }
    }
    job.layout = spec::Layout();
    job.layout.dp = 2;
    job.layout.tp = 2;
    job.layout.sequenceParallel = true;
    EXPECT_FALSE(checkParity(job, parityOptions(1))) << "cannot be told apart on one rank";
    EXPECT_TRUE(plan::makePlan(job)) << "but runs";
}

/// Two bytes for four: half of the payload; the arena has the copies of two buckets.
TEST(ReduceType, EffectOnPayload)
{
    for (const int zero : {0, 1, 2}) {
        std::int64_t payload[2] = {0, 0};
        for (const DType type : {DType::F32, DType::BF16}) {
            spec::JobSpec job = reduceJob(type);
            job.layout.dp = 3;
            job.zero.stage = zero;
            job.comm.overlapParams = false;
            const auto plan = plan::makePlan(job);
            ASSERT_TRUE(plan) << plan.error().text();
            const plan::StepProgram &program = plan->program(plan::ProgramKind::Train, 0);
            std::int64_t gathers = 0; // of parameters: in their own type
            for (const plan::Op &op : program.ops)
                gathers += op.kind == plan::OpKind::AllGather ? op.payload : 0;
            runSteps(*plan, 1, [&](ThreadRank &rank) {
                for (const plan::Group &group : program.groups) {
                    if (group.name == "dp" && rank.rank == 0)
                        payload[type == DType::BF16] = rank.executor->recent(0)
                                                           ->groups[static_cast<std::size_t>(group.id)]
                                                           .figures.payload
                            - gathers;
                }
            });
        }
        EXPECT_GT(payload[0], 0);
        EXPECT_EQ(payload[0], 2 * payload[1]) << "zero " << zero;
    }
}

TEST(ReduceType, AStepAllocatesNothing)
{
    spec::JobSpec job = reduceJob(DType::BF16);
    job.layout.dp = 2;
    job.zero.stage = 2;
    expectNoAllocations(job);
}
