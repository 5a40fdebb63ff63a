// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"
#include "tests/engine/plan/jobs.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace rankyard::plan {

namespace {

std::int64_t up(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

std::int64_t bytesOfKind(const MemoryReport &report, MemoryKind kind)
{
    return report.bytes[static_cast<std::size_t>(kind)];
}
std::int64_t liveOfKind(const MemoryReport &report, MemoryKind kind)
{
    return report.live[static_cast<std::size_t>(kind)];
}

} // namespace

/// Bytes of parameters, gradients and optimizer: 4P, 4P, 8P/dp; in bf16 2P, 4P, 12P/dp (ZeRO paper, section 3).
TEST(Memory, ModelStates)
{
    for (const DType compute : {DType::F32, DType::BF16, DType::F64}) {
        for (const std::int64_t dp : {1, 2, 3, 4}) {
            for (const std::int64_t zero : {0, 1}) {
                spec::JobSpec job = largeJob();
                job.model.layers = 2;
                job.layout.dp = dp;
                job.batch.global = dp;
                job.zero.stage = zero;
                job.precision.compute = compute;
                const auto plan = makePlan(job);
                ASSERT_TRUE(plan) << plan.error().text();
                const std::int64_t p = compute == DType::BF16 ? 2 : compute == DType::F64 ? 8 : 4;
                const std::int64_t state = compute == DType::F64 ? 8 : 4;
                std::int64_t params = 0, grads = 0, optimizer = 0, numel = 0;
                for (const Bucket &bucket :
                     plan->programs[0].buckets) { // what padding and alignment add is counted, not guessed
                    numel += bucket.numel;
                    params += up(bucket.padded * p);
                    grads += up(bucket.padded * state);
                    optimizer += (compute == DType::BF16 ? 3 : 2) * up(bucket.padded / bucket.slices * state);
                }
                const MemoryReport report = memoryOf(*plan, 0);
                EXPECT_EQ(bytesOfKind(report, MemoryKind::Params), params);
                EXPECT_EQ(bytesOfKind(report, MemoryKind::Grads), grads);
                EXPECT_EQ(bytesOfKind(report, MemoryKind::Optimizer), optimizer);
                const double ideal = static_cast<double>(numel)
                    * (compute == DType::BF16 ? 12.0 : 2.0 * static_cast<double>(state))
                    / (zero == 1 ? static_cast<double>(dp) : 1);
                EXPECT_NEAR(static_cast<double>(optimizer), ideal, 1e-4 * ideal);
                EXPECT_NEAR(static_cast<double>(params), static_cast<double>(numel * p),
                            1e-4 * static_cast<double>(params));
            }
        }
    }
}

/// What a layer keeps for its backward, by the table of units.h: x, n, qkv, o and the core's lse; x, n, u, a; both norms' statistics.
std::int64_t savedBytes(const spec::JobSpec &job, std::int64_t e, std::int64_t s)
{
    const std::int64_t t = job.batch.micro * job.model.seq;
    const std::int64_t h = job.model.hidden;
    const std::int64_t f = job.model.ffnSize();
    const std::int64_t attention = up(t * h * e) + up(t * h * e) + up(t * 2 * s) + up(3 * t * h * e)
        + up(t * h * e) + up(job.model.heads * t * s);
    const std::int64_t mlp = up(t * h * e) + up(t * h * e) + up(t * 2 * s) + 2 * up(t * f * e);
    return job.model.layers * (attention + mlp);
}

TEST(Memory, Activations)
{
    for (const DType compute : {DType::F32, DType::BF16, DType::F64}) {
        for (const std::int64_t m : {1, 4}) {
            spec::JobSpec job = smallJob(2, 1, m);
            job.model = {};
            job.precision.compute = compute;
            const auto e = static_cast<std::int64_t>(bytesOf(compute));
            const std::int64_t s = compute == DType::F64 ? 8 : 4;
            const std::int64_t t = job.batch.micro * job.model.seq;
            const std::int64_t residual = up(t * job.model.hidden * e);
            // At the loss: what the layers keep, tokens and labels, the head's input, norm, statistics and gradient.
            const std::int64_t head = residual + residual + up(t * 2 * s) + residual + 2 * up(t * 4);
            // At the input op of the last `up`: no `a`, no labels, no norm output; the gradients of the residual, of u and of n.
            const std::int64_t wide = up(t * job.model.ffnSize() * e);
            const std::int64_t last = -wide + residual + up(t * 4) + wide + residual - residual;
            const MemoryReport report = memoryOf(*makePlan(job), 0);
            const std::int64_t expected = savedBytes(job, e, s) + std::max(head, last);
            EXPECT_EQ(liveOfKind(report, MemoryKind::Activations), expected)
                << "the peak does not grow with the micro-batches";
            EXPECT_LE(static_cast<double>(bytesOfKind(report, MemoryKind::Activations)),
                      1.03 * static_cast<double>(expected));
        }
    }
}

TEST(Memory, LogitsAreAChunkOnly)
{
    for (const bool in16bit : {false, true}) {
        spec::JobSpec job = largeJob();
        job.precision.compute = DType::BF16;
        job.precision.lossIn16bit = in16bit;
        const MemoryReport report = memoryOf(*makePlan(job), 0);
        const std::int64_t stats = (2 + 12 * 12 + 2 + 3) * 8;
        EXPECT_EQ(bytesOfKind(report, MemoryKind::Workspace),
                  up(stats) + up(lossChunkTokens(job) * 50257 * (in16bit ? 2 : 4)));
        EXPECT_LT(bytesOfKind(report, MemoryKind::Workspace), 1024 * 50257 * 4 / 4);
    }
}

TEST(Memory, RealJobsPackTightly)
{
    std::vector<spec::JobSpec> jobs = {largeJob(), spec::JobSpec()};
    jobs.push_back(largeJob());
    jobs.back().precision.compute = DType::BF16;
    jobs.push_back(largeJob());
    jobs.back().layout.dp = 8;
    jobs.back().batch.micro = 4;
    for (const spec::JobSpec &job : jobs) {
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const MemoryReport report = memoryOf(*plan, 0);
        for (std::size_t kind = 0; kind < report.bytes.size(); ++kind)
            EXPECT_LE(static_cast<double>(report.bytes[kind]), 1.001 * static_cast<double>(report.live[kind]))
                << nameOf(static_cast<MemoryKind>(kind));
        EXPECT_GE(report.peak, report.liveAtOnce);
    }
}

/// DESIGN 1.5: for 1,000 random legal layouts the program verifies and the arenas are at most 1.03 of what is alive.
TEST(Memory, ThousandRandomJobs)
{
    std::mt19937_64 random(42);
    double worst = 1;
    std::int64_t exact = 0;
    std::int64_t arenas = 0;
    for (int i = 0; i < 1000 / sanitizerShare; ++i) {
        const spec::JobSpec job = randomJob(random);
        const auto plan = makePlan(job); // verifies
        ASSERT_TRUE(plan) << plan.error().text();
        const MemoryReport report = memoryOf(*plan, 0);
        for (std::size_t kind = 0; kind < report.bytes.size(); ++kind) {
            if (report.bytes[kind] == 0)
                continue;
            const double ratio =
                static_cast<double>(report.bytes[kind]) / static_cast<double>(report.live[kind]);
            EXPECT_GE(report.bytes[kind], report.live[kind]);
            EXPECT_LE(ratio, 1.03) << "job " << i << ", " << nameOf(static_cast<MemoryKind>(kind));
            worst = std::max(worst, ratio);
            exact += report.bytes[kind] == report.live[kind] ? 1 : 0;
            ++arenas;
        }
    }
    std::printf("%d random jobs: worst arena / live %.4f; %ld of %ld arenas exact\n", 1000 / sanitizerShare,
                worst, static_cast<long>(exact), static_cast<long>(arenas));
}

/// Odd worlds and sizes: padding is less than a slice a bucket, and a rank may own nothing but padding.
TEST(Memory, OddSizes)
{
    for (const std::int64_t dp : {3, 5}) {
        for (const std::int64_t bytes : {1, 8, 40, 1000, 26214400}) {
            spec::JobSpec job = smallJob(dp, 1, 2);
            job.model.hidden = 6;
            job.model.heads = 3;
            job.model.vocab = 257;
            job.model.ffn = 7;
            job.zero.bucketBytes = bytes;
            const auto plan = makePlan(job);
            ASSERT_TRUE(plan) << plan.error().text();
            for (const Bucket &bucket : plan->programs[0].buckets) {
                EXPECT_EQ(bucket.padded % dp, 0);
                EXPECT_LT(bucket.padded - bucket.numel, dp);
            }
        }
    }
    spec::JobSpec tiny = smallJob(5, 1, 1); // buckets of one and two elements over five ranks
    tiny.model.hidden = 1;
    tiny.model.heads = 1;
    tiny.model.ffn = 1;
    tiny.model.vocab = 2;
    tiny.zero.bucketBytes = 4;
    const auto plan = makePlan(tiny);
    ASSERT_TRUE(plan) << plan.error().text();
    EXPECT_TRUE(std::any_of(plan->programs[0].buckets.begin(), plan->programs[0].buckets.end(),
                            [](const Bucket &b) { return b.numel == 1 && b.padded == 5; }));
    const OrderedJson report = tensorReport(*plan);
    for (const auto &tensor : report["tensors"]) {
        std::int64_t covered = 0;
        for (const auto &range : tensor["ranges"]) {
            EXPECT_EQ(range[0], std::min<std::int64_t>(covered, tensor["numel"].get<std::int64_t>()));
            covered = range[1].get<std::int64_t>();
        }
        EXPECT_EQ(covered, tensor["numel"]) << "the ranks' ranges tile the tensor; padding is in none";
    }
}

TEST(Memory, StateHasOnePlaceInAllPrograms)
{
    const auto plan = makePlan(smallJob());
    const StepProgram &train = plan->program(ProgramKind::Train, 0);
    const StepProgram &eval = plan->program(ProgramKind::Eval, 0);
    EXPECT_EQ(train.arenas, eval.arenas);
    for (std::size_t i = 0; i < train.tensors.size(); ++i)
        EXPECT_EQ(train.buffer(train.tensors[i].param).offset, eval.buffer(eval.tensors[i].param).offset);
    for (const Arena &arena : train.arenas)
        EXPECT_EQ(arena.shared, arena.kind == MemoryKind::Params || arena.kind == MemoryKind::Grads);
    const auto alone = makePlan(smallJob(1));
    for (const Arena &arena : alone->programs[0].arenas)
        EXPECT_FALSE(arena.shared);
}

} // namespace rankyard::plan
