// SPDX-License-Identifier: GPL-3.0-or-later
// Shards inside blocks of ranks.
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"
#include "tests/engine/long.h"

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

TEST(Blocks, GiveWhatOneRankGives)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    struct Case {
        int dp, cp, shard;
    };
    for (const Case &c : {Case{4, 1, 2}, {6, 1, 3}, {6, 1, 2}, {2, 3, 3}, {4, 1, 4}}) {
        for (const int zero : {1, 2, 3}) {
            spec::JobSpec job = layoutJob(zero == 2 ? "llama" : "gpt2");
            job.layout.dp = c.dp;
            job.layout.cp = c.cp;
            job.zero.shard = c.shard;
            job.zero.stage = zero;
            job.zero.persistenceThreshold = 50;
            job.batch.global = 2 * c.dp;
            job.batch.micro = 1;
            job.offload.optimizer = c.dp == 6 ? "cpu" : "none";
            expectParity(job,
                         "dp " + std::to_string(c.dp) + " shard " + std::to_string(c.shard) + " zero "
                             + std::to_string(zero),
                         4);
        }
    }
    spec::JobSpec job = layoutJob("llama");
    job.layout.dp = 4;
    job.layout.tp = 2;
    job.layout.sequenceParallel = true;
    job.model.kvHeads = 1;
    job.zero.stage = 1;
    job.zero.shard = 2;
    job.batch.global = 8;
    expectParity(job, "with sequence parallelism", 4);
    job.compression.mode = "int8";
    expectParity(job, "compressed inside a block", 4);
    job.compression.mode = "none";
    job.comm.algorithm = "ring";
    expectParity(job, "round a block", 4);
    job.layout.dp = 2;
    job.layout.pp = 2;
    job.layout.tp = 1;
    job.layout.sequenceParallel = false;
    job.layout.cp = 2;
    job.model.tied = true;
    expectParity(job, "with a pipeline", 4);
}

/// State is divided by the block's size, not by all replicas; what crosses blocks is a shard of the gradient.
TEST(Blocks, EffectOnArenasAndTraffic)
{
    spec::JobSpec job = layoutJob();
    job.layout.dp = 6;
    job.batch.global = 12;
    job.batch.micro = 1;
    job.zero.stage = 1;
    job.zero.bucketBytes = 1 << 30;
    std::int64_t numel = 0;
    for (const int shard : {0, 2, 3}) {
        job.zero.shard = shard;
        const auto plan = plan::makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const plan::StepProgram &program = plan->program(plan::ProgramKind::Train, 0);
        ASSERT_EQ(program.buckets.size(), 1u);
        numel = program.buckets[0].numel;
        const std::int64_t n = shard == 0 ? 6 : shard, own = (numel + n - 1) / n;
        const auto arenas = Arenas::make(*plan, 0);
        ASSERT_TRUE(arenas) << arenas.error().text();
        EXPECT_EQ(arenas->bytes()[static_cast<std::size_t>(plan::MemoryKind::Optimizer)],
                  2 * ((8 * own + 63) / 64 * 64));
        runSteps(*plan, 1, [&](ThreadRank &rank) {
            for (const plan::Group &group : program.groups) {
                if (group.name == "replicas") {
                    EXPECT_EQ(
                        rank.executor->recent(0)->groups[static_cast<std::size_t>(group.id)].figures.payload,
                        8 * own);
                }
            }
        });
    }
}
