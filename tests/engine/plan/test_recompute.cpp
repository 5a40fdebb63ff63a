// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"
#include "tests/engine/long.h"
#include "tests/engine/plan/jobs.h"
#include "tests/engine/plan/mutate.h"

#include <gtest/gtest.h>

namespace rankyard::plan {

namespace {

spec::JobSpec recomputeJob(const char *mode)
{
    spec::JobSpec job = smallJob(1, 0, 1);
    job.model.layers = 8;
    job.model.hidden = 64;
    job.model.heads = 4;
    job.model.seq = 32;
    job.recompute.mode = mode;
    return job;
}

const StepProgram &train(const Plan &plan) { return plan.program(ProgramKind::Train, 0); }

std::int64_t liveOf(const spec::JobSpec &job)
{
    const auto plan = makePlan(job);
    EXPECT_TRUE(plan) << plan.error().text();
    return plan ? memoryOf(*plan, 0).live[static_cast<std::size_t>(MemoryKind::Activations)] : 0;
}

StepProgram relinked(const spec::JobSpec &job, StepProgram program)
{
    for (Op &op : program.ops)
        op.waits.clear(), op.releases.clear();
    dependPass({job, program});
    std::vector<StepProgram> programs = {std::move(program)};
    placePass(programs);
    return programs[0];
}

} // namespace

/// Ops of a recomputed layer: two norms and the activation; the core too; all of the layer but the last product.
TEST(Recompute, CountsOps)
{
    const auto count = [](const char *mode, std::int64_t every, std::optional<double> ratio) {
        spec::JobSpec job = recomputeJob(mode);
        job.recompute.every = every;
        job.recompute.ratio = ratio;
        const auto plan = makePlan(job);
        EXPECT_TRUE(plan) << plan.error().text();
        return countOps(train(*plan), OpKind::Recompute);
    };
    EXPECT_EQ(count("none", 1, {}), 0);
    EXPECT_EQ(count("selective", 1, {}), 8 * 3);
    EXPECT_EQ(count("attention", 1, {}), 8 * 4);
    EXPECT_EQ(count("full", 1, {}), 8 * 7) << "norm, qkv, core, out, join, norm, up";
    EXPECT_EQ(count("full", 2, {}), 4 * 7);
    EXPECT_EQ(count("full", 3, {}), 3 * 7) << "layers 0, 3, 6";
    EXPECT_EQ(count("full", 1, 0.5), 4 * 7) << "every second";
    EXPECT_EQ(count("full", 1, 0.25), 2 * 7);
    EXPECT_EQ(count("full", 1, 0.0), 0);
    EXPECT_EQ(count("full", 1, 1.0), 8 * 7);
}

/// Bytes a layer keeps, from the table of units.h: 10 + 2·F/H residuals of [T,H] and statistics; without n and a; without o; x alone.
TEST(Recompute, ActivationsOfALayer)
{
    const std::int64_t residual = 2 * 32 * 64 * 4;
    const std::int64_t stats = 2 * 32 * 2 * 4;
    const std::int64_t lse = 4 * 64 * 4;
    const auto perLayer = [](const char *mode) {
        spec::JobSpec more = recomputeJob(mode);
        more.model.layers = 12;
        return (liveOf(more) - liveOf(recomputeJob(mode))) / 4;
    };
    EXPECT_EQ(perLayer("none"), residual * (2 + 3 + 1 + 2 + 8) + 2 * stats + lse);
    EXPECT_EQ(perLayer("selective"), residual * (1 + 3 + 1 + 1 + 4) + lse);
    EXPECT_EQ(perLayer("attention"), residual * (1 + 3 + 1 + 4));
    EXPECT_EQ(perLayer("full"), residual);
    for (const char *mode : {"none", "selective", "attention", "full"})
        EXPECT_EQ(perLayer(mode), layerBytes(recomputeJob(mode), true).kept) << mode;
}

/// What is repeated: one forward of the layers but for the last product; selective at most 2 % of the FLOPs.
TEST(Recompute, CostsFlops)
{
    const auto flopsOf = [](const char *mode) {
        spec::JobSpec job = recomputeJob(mode);
        std::int64_t flops = 0;
        const auto plan = makePlan(job);
        for (const Op &op : train(*plan).ops)
            flops += op.flops;
        return flops;
    };
    const std::int64_t plain = flopsOf("none");
    const std::int64_t t = 64;
    const std::int64_t h = 64;
    EXPECT_EQ(flopsOf("selective"), plain);
    EXPECT_EQ(flopsOf("attention") - plain, 8 * 4 * t * 32 * h);
    EXPECT_EQ(flopsOf("full") - plain, 8 * (2 * t * h * (3 * h + h + 4 * h) + 4 * t * 32 * h));
}

TEST(Recompute, RepeatsTransfersOfTheTensorGroup)
{
    for (const bool rows : {false, true}) {
        spec::JobSpec job = recomputeJob("full");
        job.layout.tp = 2;
        job.layout.sequenceParallel = rows;
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        spec::JobSpec keep = job;
        keep.recompute.mode = "none";
        const auto sums = [](const Plan &p) {
            return countOps(train(p), OpKind::AllReduce) + countOps(train(p), OpKind::ReduceScatter);
        };
        EXPECT_EQ(sums(*plan) - sums(*makePlan(keep)), 8) << "attention's out, once a layer";
    }
}

/// Inputs that are gathered or fetched again run on lanes of their own, first in, first out: one that waited for a Recv could stand before
/// what the sender waits for.
TEST(Recompute, InputsComeBackInEverySchedule)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const char *family : {"gpt2", "llama"}) {
        for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
            for (const std::int64_t pp : {2, 3}) {
                for (const std::int64_t chunks : {1, 2, 3}) {
                    if (pp == 3 && !isLong())
                        continue;
                    const bool chunked = schedule == "interleaved" || schedule == "zbv";
                    if ((chunks > 1 && !chunked) || (schedule == "zbv" && chunks != 2))
                        continue;
                    for (const auto &[partition, toHost] :
                         {std::pair{true, false}, {false, true}, {true, true}}) {
                        spec::JobSpec job = recomputeJob("full");
                        job.model.family = family;
                        job.model.layers = pp * chunks + 1;
                        job.layout.tp = 2;
                        job.layout.pp = pp;
                        job.layout.schedule = schedule;
                        job.layout.virtualStages = chunks;
                        job.batch.global = job.batch.micro * 2 * pp;
                        job.recompute.partition = partition;
                        job.recompute.toHost = toHost;
                        const auto plan = makePlan(job, PlanDepth::Checked);
                        EXPECT_TRUE(plan) << family << ' ' << schedule << " pp " << pp << " virtual "
                                          << chunks << (partition ? " partition" : "")
                                          << (toHost ? " to_host" : "") << ": " << plan.error().text();
                    }
                }
            }
        }
    }
}

TEST(Recompute, FaultsAreFound)
{
    for (const char *mode : {"selective", "full"}) {
        spec::JobSpec job = recomputeJob(mode);
        job.model.layers = 2;
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        for (const Op &op : train(*plan).ops) {
            if (op.kind != OpKind::Recompute)
                continue;
            StepProgram program = train(*plan);
            removeOp(program, op.id);
            EXPECT_FALSE(verify(relinked(job, program))) << opName(op) << " dropped";
            program = train(*plan);
            insertCopy(program, op.id + 1, op);
            EXPECT_FALSE(verify(relinked(job, program))) << opName(op) << " twice";
        }
    }
}

// ---- Context parallelism ----

/// Forward cp − 1 shifts of keys and values a layer; backward the same again, and cp of their gradients.
TEST(Context, Ring)
{
    for (const std::int64_t cp : {2, 3, 5}) {
        spec::JobSpec job = smallJob(2, 1, 2);
        job.model.seq = 4 * cp;
        job.model.kvHeads = 1;
        job.layout.cp = cp;
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const std::int64_t m = 2;
        const std::int64_t layers = 2;
        EXPECT_EQ(countOps(train(*plan), OpKind::Shift), m * layers * (2 * (cp - 1) + cp));
        EXPECT_EQ(countOps(plan->program(ProgramKind::Eval, 0), OpKind::Shift), m * layers * (cp - 1));
        const std::int64_t kv = 2 * 4 * (2 * 4) * 4; // [T, 2·K·D] fp32
        EXPECT_EQ(trafficOf(*plan, 0).at("cp").payload, m * layers * (3 * cp - 2) * kv);
        EXPECT_EQ(train(*plan).groups[0].name, "dp-cp");
        EXPECT_EQ(train(*plan).groups[0].size, 2 * cp) << "gradients are summed over both";
        spec::JobSpec one = job;
        one.layout.cp = 1;
        const auto flops = [](const Plan &p) {
            std::int64_t sum = 0;
            for (const Op &op : train(p).ops)
                sum += op.flops;
            return sum;
        };
        EXPECT_EQ(flops(*plan) * cp, flops(*makePlan(one)));
    }
}

TEST(Context, FaultsAreFound)
{
    spec::JobSpec job = smallJob(1, 0, 1);
    job.model.seq = 12;
    job.layout.cp = 3;
    const auto plan = makePlan(job);
    ASSERT_TRUE(plan) << plan.error().text();
    int checked = 0;
    for (const Op &op : train(*plan).ops) {
        const bool ring =
            op.kind == OpKind::Shift || op.segment == Segment::Kv || op.segment == Segment::Core;
        if (!ring)
            continue;
        const auto broken = [&](auto change) {
            StepProgram program = train(*plan);
            change(program, program.ops[static_cast<std::size_t>(op.id)]);
            EXPECT_FALSE(verify(relinked(job, program))) << opName(op);
            ++checked;
        };
        broken([&](StepProgram &program, Op &) { removeOp(program, op.id); });
        if (op.kind == OpKind::Shift)
            broken([](StepProgram &, Op &o) { o.peer = -1; });
        else if (op.segment == Segment::Core) {
            broken([](StepProgram &, Op &o) { o.chunk = (o.chunk + 1) % 3; });
            broken([](StepProgram &, Op &o) { o.accumulate = !o.accumulate; });
        }
    }
    EXPECT_GT(checked, 40);
}

} // namespace rankyard::plan
