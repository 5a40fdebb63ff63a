// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/long.h"
#include "tests/engine/plan/jobs.h"
#include "tests/engine/plan/mutate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace rankyard::plan {

using testing::HasSubstr;

namespace {

constexpr auto kindOf = [](MemoryKind kind) { return static_cast<std::size_t>(kind); };

spec::JobSpec zeroJob(std::int64_t stage, std::int64_t dp, std::int64_t m)
{
    spec::JobSpec job = smallJob(dp, stage, m);
    job.model.layers = 6;
    job.model.hidden = 48;
    job.model.heads = 4;
    job.model.vocab = 101;
    job.zero.persistenceThreshold = 0;
    job.zero.bucketBytes = 20000;
    return job;
}

StepProgram relinked(const spec::JobSpec &job, StepProgram program)
{
    dependPass({job, program});
    std::vector<StepProgram> programs = {std::move(program)};
    placePass(programs);
    return programs[0];
}

StepProgram bare(StepProgram program)
{
    for (Op &op : program.ops)
        op.waits.clear(), op.releases.clear();
    return program;
}

} // namespace

/// Bytes of states ÷ d by stage (ZeRO paper, table 1): fp32 16 Ψ, 8 Ψ + 8 Ψ/d, 4 Ψ + 12 Ψ/d, 16 Ψ/d; bf16 with fp32 gradients 18 Ψ,
/// 6 Ψ + 12 Ψ/d, 2 Ψ + 16 Ψ/d, 18 Ψ/d.
TEST(Zero, StatesDividedByRanks)
{
    for (const DType compute : {DType::F32, DType::BF16}) {
        for (const std::int64_t d : {2, 3, 5, 8}) {
            for (const std::int64_t stage : {0, 1, 2, 3}) {
                spec::JobSpec job = zeroJob(stage, d, 2);
                job.precision.compute = compute;
                const auto plan = makePlan(job);
                ASSERT_TRUE(plan) << plan.error().text();
                double numel = 0;
                for (const Tensor &tensor : plan->programs[0].tensors)
                    numel += static_cast<double>(tensor.numel);
                const double p = compute == DType::BF16 ? 2 : 4;
                const double o = compute == DType::BF16 ? 12 : 8;
                const auto n = static_cast<double>(d);
                const auto &bytes = memoryOf(*plan, 0).bytes;
                const auto expect = [&](MemoryKind kind, double exact) {
                    EXPECT_NEAR(static_cast<double>(bytes[kindOf(kind)]), exact, 0.01 * exact + 4000)
                        << nameOf(kind) << " stage " << stage << " ranks " << d;
                };
                expect(MemoryKind::Params, p * numel / (stage >= 3 ? n : 1));
                expect(MemoryKind::Grads, 4 * numel / (stage >= 2 ? n : 1));
                expect(MemoryKind::Optimizer, o * numel / (stage >= 1 ? n : 1));
                EXPECT_EQ(bytes[kindOf(MemoryKind::Gathered)] > 0, stage == 3);
                EXPECT_EQ(bytes[kindOf(MemoryKind::Buckets)] > 0, stage >= 2);
            }
        }
    }
}

/// Reductions each micro-batch from stage 2 on; stage 3 gathers each unit forward and backward, 3 Ψ a micro-batch in all.
TEST(Zero, TrafficOfAStep)
{
    for (const std::int64_t m : {1, 3}) {
        const auto payload = [&](std::int64_t stage, OpKind kind, std::int64_t reuse) {
            spec::JobSpec job = zeroJob(stage, 4, m);
            job.zero.maxReuseDistance = reuse;
            const auto plan = makePlan(job);
            EXPECT_TRUE(plan) << plan.error().text();
            std::int64_t bytes = 0;
            for (const Op &op : plan->program(ProgramKind::Train, 0).ops)
                bytes += op.kind == kind ? op.payload : 0;
            return bytes;
        };
        const std::int64_t psi = payload(1, OpKind::ReduceScatter, 0);
        EXPECT_NEAR(static_cast<double>(payload(2, OpKind::ReduceScatter, 0)), static_cast<double>(m * psi),
                    1000.0 * static_cast<double>(m));
        EXPECT_NEAR(static_cast<double>(payload(3, OpKind::ReduceScatter, 0)), static_cast<double>(m * psi),
                    1000.0 * static_cast<double>(m));
        EXPECT_EQ(payload(2, OpKind::AllGather, 0), psi) << "once, at the head";
        // Every unit forward and backward; wte and wpe for the lookup and for the head, which shares wte.
        EXPECT_NEAR(static_cast<double>(payload(3, OpKind::AllGather, 0)), 2.0 * static_cast<double>(m * psi),
                    3000.0 * static_cast<double>(m));
        EXPECT_NEAR(static_cast<double>(payload(3, OpKind::AllGather, 1'000'000'000)),
                    static_cast<double>(psi), 1000)
            << "all stay: max_live and max_reuse_distance are larger than the model";
    }
}

/// What is gathered at once stays within max_live, whatever the prefetch budget would like, as long as a unit fits.
TEST(Zero, MaxLiveHolds)
{
    spec::JobSpec job = zeroJob(3, 3, 2);
    std::int64_t largest = 0;
    const auto whole = makePlan(job);
    for (const Bucket &bucket : whole->programs[0].buckets)
        largest = std::max(largest, bucket.padded);
    for (const std::int64_t live : {largest, 2 * largest, 3 * largest + 17, 6 * largest}) {
        for (const std::int64_t prefetch : {0, 30'000, 100'000'000}) {
            job.zero.maxLive = live;
            job.zero.prefetchBytes = prefetch;
            const auto plan = makePlan(job);
            ASSERT_TRUE(plan) << plan.error().text();
            EXPECT_LE(memoryOf(*plan, 0).live[kindOf(MemoryKind::Gathered)], live * 4 + 64 * 20)
                << "max_live " << live << " prefetch " << prefetch;
        }
    }
}

/// A gather is issued before its use by at least one unit, unless there is no budget; then right before it.
TEST(Zero, PrefetchIsIssuedBeforeUse)
{
    for (const bool ahead : {false, true}) {
        spec::JobSpec job = zeroJob(3, 2, 1);
        job.zero.maxReuseDistance = 0;
        job.zero.prefetchBytes = ahead ? 300'000 : 0;
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const StepProgram &train = plan->program(ProgramKind::Train, 0);
        int early = 0;
        int gathers = 0;
        for (const Op &op : train.ops) {
            if (op.kind != OpKind::AllGather || op.writes[0] == train.stats)
                continue;
            ++gathers;
            int computeBetween = 0;
            for (OpId id = op.id + 1; id < static_cast<OpId>(train.ops.size()); ++id) {
                const Op &other = train.op(id);
                const bool uses = std::any_of(other.reads.begin(), other.reads.end(), [&](BufferId read) {
                    return train.buffer(read).parent == op.writes[0];
                });
                if (uses)
                    break;
                computeBetween += other.stream == Stream::Compute && other.flops > 0;
            }
            early += computeBetween > 0;
        }
        EXPECT_GT(gathers, 12);
        EXPECT_EQ(early > gathers / 2, ahead);
        EXPECT_EQ(early == 0, !ahead);
    }
}

TEST(Zero, SmallTensorsStayWhole)
{
    spec::JobSpec job = zeroJob(3, 2, 1);
    job.zero.persistenceThreshold = 500; // norms and biases
    const auto plan = makePlan(job);
    ASSERT_TRUE(plan) << plan.error().text();
    for (const Tensor &tensor : plan->programs[0].tensors) {
        EXPECT_EQ(tensor.param != none, tensor.numel < 500) << tensor.name;
        EXPECT_EQ(tensor.grad, none) << "gradients of each micro-batch only";
    }
}

TEST(Zero, BucketsOfGradientsDoNotGrow)
{
    const auto live = [](std::int64_t m) {
        return memoryOf(*makePlan(zeroJob(2, 3, m)), 0).bytes[kindOf(MemoryKind::Buckets)];
    };
    EXPECT_EQ(live(3), live(8)) << "not with the micro-batches";
}

TEST(Zero, EveryReductionAndGatherIsChecked)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const std::int64_t stage : {2, 3}) {
        spec::JobSpec job = zeroJob(stage, 3, 2);
        job.model.layers = 1;
        job.zero.bucketBytes = 60000;
        job.zero.maxReuseDistance = 0;
        const StepProgram whole = bare(makePlan(job)->programs[0]);
        int checked = 0;
        for (const Op &op : whole.ops) {
            if (op.unit.kind != UnitKind::None || !isCollective(op.kind))
                continue;
            StepProgram program = whole;
            removeOp(program, op.id);
            EXPECT_FALSE(verify(relinked(job, program))) << opName(op) << " dropped";
            program = whole;
            insertCopy(program, op.id + 1, op);
            EXPECT_FALSE(verify(relinked(job, program))) << opName(op) << " twice";
            program = whole;
            program.ops[static_cast<std::size_t>(op.id)].accumulate = !op.accumulate;
            if (op.kind == OpKind::ReduceScatter) {
                EXPECT_FALSE(verify(relinked(job, program))) << opName(op) << " adds or not";
            }
            ++checked;
        }
        EXPECT_GE(checked, 10);
    }
}

/// No rank ever has the whole gradients of ZeRO 2, also where two buckets stay open for all of the backward: norms of sequence parallelism,
/// which are summed over the tensor group too, and a tied embedding. What is held does not grow with the layers but by their norms.
TEST(Zero, BucketsThatStayOpenKeepNoOtherInMemory)
{
    for (const bool sequence : {false, true}) {
        for (const bool tied : {false, true}) {
            const auto buckets = [&](std::int64_t layers) {
                spec::JobSpec job = smallJob(3, 2, 2);
                job.model.layers = layers;
                job.model.hidden = 64;
                job.model.heads = 4;
                job.model.tied = tied;
                job.layout.tp = 2;
                job.layout.sequenceParallel = sequence;
                job.zero.bucketBytes = 100'000; // a layer, or all norms
                const auto plan = makePlan(job, PlanDepth::Checked);
                EXPECT_TRUE(plan) << plan.error().text();
                return memoryOf(*plan, 0).bytes[static_cast<std::size_t>(MemoryKind::Buckets)];
            };
            const std::int64_t few = buckets(4), many = buckets(16);
            // 12 h² weights in a layer over two ranks, in fp32; norms and biases: 13 h.
            EXPECT_LT(many - few, 12 * 13 * 64 * 4 + 12 * 12 * 64 * 64 / 2 * 4 / 10)
                << (sequence ? "sequence parallel, " : "") << (tied ? "tied" : "untied");
        }
    }
}

} // namespace rankyard::plan
