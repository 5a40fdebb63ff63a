// SPDX-License-Identifier: GPL-3.0-or-later
// Gradients as codes: parity with one rank that applies the codec, and the payload.
#include "engine/exec/init.h"
#include "engine/plan/codec.h"
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"
#include "tests/engine/long.h"

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

TEST(Compression, GivesWhatOneRankGivesWithTheSameCodec)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const char *mode : {"fp16", "int8", "adaptive", "topk"}) {
        for (const int dp : {2, 3, 5}) {
            for (const int zero : {0, 1}) {
                spec::JobSpec job = layoutJob(zero == 0 ? "gpt2" : "llama");
                job.layout.dp = dp;
                job.zero.stage = zero;
                job.batch.global = 4 * dp; // two micro-batches
                job.compression.mode = mode;
                job.compression.density = 0.3;
                job.compression.block = 50;
                job.compression.errorFeedback = dp != 3;
                job.comm.overlapGrads = dp != 5;
                expectParity(
                    job, std::string(mode) + " dp " + std::to_string(dp) + " zero " + std::to_string(zero),
                    isLong() ? 20 : 6);
            }
        }
    }
}

/// Each rank of the tensor group and each stage encodes its own part; copies stay equal because they are not compressed.
TEST(Compression, TogetherWithTensorAndPipelineParallelism)
{
    for (const char *family : {"gpt2", "llama"}) {
        for (const char *schedule : {"1f1b", "zbv"}) {
            for (const bool sequence : {false, true}) {
                spec::JobSpec job = layoutJob(family);
                job.layout.dp = 2;
                job.layout.tp = 2;
                job.layout.pp = 2;
                job.layout.schedule = schedule;
                job.layout.virtualStages = schedule[0] == 'z' ? 2 : 1;
                job.layout.sequenceParallel = sequence;
                job.model.tied = true; // on both ends of the pipeline
                if (job.model.kvHeads)
                    job.model.kvHeads = 1; // and each rank has a copy
                job.zero.stage = sequence ? 1 : 0;
                job.compression.mode = sequence ? "topk" : "int8";
                job.compression.density = 0.2;
                expectParity(job, std::string(family) + " " + schedule, 6);
            }
        }
    }
}

/// A density of one sends everything: the plain one rank is the reference, over context ranks too.
TEST(Compression, TopOfEverythingIsExact)
{
    spec::JobSpec job = layoutJob();
    job.layout.dp = 2;
    job.layout.cp = 3;
    job.compression.mode = "topk";
    job.compression.density = 1;
    const auto plan = plan::makePlan(job);
    ASSERT_TRUE(plan) << plan.error().text();
    const auto emulated = checkParity(*plan, parityOptions(3));
    ASSERT_FALSE(emulated);
    EXPECT_EQ(emulated.error().where, "layout.cp");
    const auto one = plan::makePlan(oneRankJob(job));
    ASSERT_TRUE(one) << one.error().text();
    const std::vector<double> got = lossesOf(*plan, 4), wanted = lossesOf(*one, 4);
    for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(got.at(i), wanted[i], 1e-11 * wanted[i]);
}

/// What goes over the wire is the code, and not the gradient; adaptive sends as many bytes as the form that it takes.
TEST(Compression, EffectOnPayload)
{
    struct Case {
        const char *mode;
        double threshold;
        char form; ///< none, fp16, int8, top
    };
    for (const Case &c : {Case{"none", 0, 'n'}, Case{"fp16", 0, 'f'}, Case{"int8", 0, 'i'},
                          Case{"topk", 0, 't'}, Case{"adaptive", 0, 'f'}, Case{"adaptive", 1e30, 'i'}}) {
        SCOPED_TRACE(std::string(c.mode) + " " + std::to_string(c.threshold));
        spec::JobSpec job = layoutJob();
        job.layout.dp = 3;
        job.compression.mode = c.mode;
        job.compression.density = 0.1;
        job.compression.threshold = c.threshold;
        job.precision.compute = job.precision.grad = job.precision.master = job.precision.reduce = DType::F32;
        const auto plan = plan::makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const plan::StepProgram &program = plan->program(plan::ProgramKind::Train, 0);
        std::int64_t wanted = 0;
        for (const plan::Bucket &bucket : program.buckets) {
            const std::int64_t n = bucket.numel;
            const std::int64_t code = c.form == 'f' ? 8 + 2 * n
                : c.form == 'i'                     ? 8 + 8 * ((n + 255) / 256) + n
                                                    : 8 + 8 * ((n + 9) / 10);
            wanted += c.form == 'n' ? 4 * n : 3 * ((code + 63) / 64 * 64);
        }
        SyntheticData data(job);
        onThreadRanks(
            *plan, [] { return makeCpuDevice(1); }, data,
            [&](ThreadRank &rank) {
                setStep(rank.executor->state(), job, 1);
                ASSERT_TRUE(initialiseParameters(*plan, *rank.arenas, rank.rank).ok());
                ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, 0).ok());
                const Execution &execution = *rank.executor->recent(0);
                for (const plan::Group &group : program.groups) {
                    if (group.name == "dp") {
                        EXPECT_EQ(execution.groups[static_cast<std::size_t>(group.id)].figures.payload,
                                  wanted);
                    }
                }
            });
    }
}

TEST(Compression, AStepAllocatesNothing)
{
    spec::JobSpec job = layoutJob();
    job.layout.dp = 2;
    job.compression.mode = "topk";
    expectNoAllocations(job);
}
