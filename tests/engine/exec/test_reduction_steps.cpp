// SPDX-License-Identifier: GPL-3.0-or-later
// Reductions written out in steps.
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"
#include "tests/engine/long.h"

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

TEST(Steps, GiveWhatTheLibraryGives)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const char *algorithm : {"ring", "direct"}) {
        for (const int dp : {2, 3, 5}) {
            for (const int zero : {0, 1}) {
                spec::JobSpec job = layoutJob(zero == 0 ? "gpt2" : "llama");
                job.layout.dp = dp;
                job.zero.stage = zero;
                job.batch.global = 4 * dp;
                job.comm.overlapGrads = dp != 3;
                const auto library = plan::makePlan(job);
                ASSERT_TRUE(library) << library.error().text();
                job.comm.algorithm = algorithm;
                const auto steps = plan::makePlan(job);
                ASSERT_TRUE(steps) << steps.error().text();
                const std::vector<double> got = lossesOf(*steps, 4), wanted = lossesOf(*library, 4);
                ASSERT_EQ(got.size(), 4u);
                for (std::size_t i = 0; i < got.size(); ++i)
                    EXPECT_NEAR(got[i], wanted[i], 1e-12 * wanted[i]) << algorithm << " dp " << dp;
                if (isLong() || zero == 1)
                    expectParity(job, std::string(algorithm) + " dp " + std::to_string(dp), 3);
            }
        }
    }
}

TEST(Steps, TogetherWithOtherAxes)
{
    for (const char *algorithm : {"ring", "direct"}) {
        for (const char *schedule : {"1f1b", "zbv"}) {
            spec::JobSpec job = layoutJob("llama");
            job.model.tied = true;
            job.model.kvHeads = 1;
            job.layout.dp = 2;
            job.layout.tp = 2;
            job.layout.pp = 2;
            job.layout.schedule = schedule;
            job.layout.virtualStages = schedule[0] == 'z' ? 2 : 1;
            job.layout.sequenceParallel = schedule[0] == 'z';
            job.zero.stage = schedule[0] == 'z' ? 0 : 1;
            job.comm.algorithm = algorithm;
            expectParity(job, std::string(algorithm) + " " + schedule, 4);
        }
        spec::JobSpec job = layoutJob();
        job.layout.dp = 2;
        job.layout.cp = 3;
        job.zero.stage = 1;
        job.comm.algorithm = algorithm;
        job.offload.optimizer = "cpu";
        expectParity(job, std::string(algorithm) + " with context ranks", 4);
    }
}

/// n − 1 steps to reduce and n − 1 to gather, each of one slice: 2·(n−1)/n of the bucket leave a rank.
TEST(Steps, EffectOnBytesSent)
{
    for (const char *algorithm : {"ring", "direct"}) {
        spec::JobSpec job = layoutJob();
        job.layout.dp = 3;
        job.zero.stage = 0;
        job.comm.algorithm = algorithm;
        const auto plan = plan::makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const plan::StepProgram &program = plan->program(plan::ProgramKind::Train, 0);
        std::int64_t bytes = 0;
        for (const plan::Bucket &bucket : program.buckets)
            bytes += 4 * (8 * bucket.padded / 3);
        runSteps(*plan, 1, [&](ThreadRank &rank) {
            const Execution &execution = *rank.executor->recent(0);
            for (const plan::Group &group : program.groups) {
                const GroupTotals &totals = execution.groups[static_cast<std::size_t>(group.id)];
                if (group.name != "dp")
                    continue;
                EXPECT_EQ(totals.figures.payload, bytes);
                EXPECT_EQ(totals.figures.wire, bytes);
                EXPECT_EQ(totals.operations, 4 * static_cast<std::int64_t>(program.buckets.size()));
            }
        });
    }
}
