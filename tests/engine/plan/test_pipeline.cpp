// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/schedule.h"
#include "engine/plan/simulate.h"
#include "engine/plan/units.h"
#include "tests/engine/long.h"
#include "tests/engine/plan/jobs.h"
#include "tests/engine/plan/mutate.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <set>

namespace rankyard::plan {

namespace {

spec::JobSpec pipelineJob(const char *schedule, std::int64_t pp, std::int64_t m, std::int64_t chunks = 1)
{
    spec::JobSpec job = smallJob(1, 0, m);
    job.layout.pp = pp;
    job.layout.schedule = schedule;
    job.layout.virtualStages = chunks;
    job.model.layers = pp * chunks;
    job.layout.stages = std::vector<std::int64_t>(static_cast<std::size_t>(pp * chunks), 1);
    return job;
}

/// Every layer takes tf forward, tb for its inputs' gradients, tw for its weights'; all else takes no time.
struct LayerTimes {
    std::int64_t tf = 0, tb = 0, tw = 0;
    std::int64_t operator()(const StepProgram &, const Op &op) const
    {
        if (op.segment != Segment::Qkv || isTransfer(op.kind))
            return 0;
        return op.kind == OpKind::Forward || op.kind == OpKind::Recompute ? tf
            : op.kind == OpKind::BackwardInput                            ? tb
            : op.kind == OpKind::BackwardWeight                           ? tw
                                                                          : 0;
    }
};

Timeline timelineOf(const spec::JobSpec &job, const LayerTimes &times)
{
    const auto plan = makePlan(job, PlanDepth::Ordered);
    EXPECT_TRUE(plan) << plan.error().text();
    const auto timeline = simulate(*plan, ProgramKind::Train, times);
    EXPECT_TRUE(timeline) << timeline.error().text();
    return timeline ? *timeline : Timeline();
}

/// A message between stages.
std::int64_t borderBytes(const spec::JobSpec &job)
{
    const Split split(job);
    return split.rows * split.hidden * static_cast<std::int64_t>(bytesOf(job.precision.compute));
}

/// Micro-batches of chunks that have begun forward and not ended backward, the most at any time, by the actions of a stage.
std::int64_t mostInFlight(const spec::JobSpec &job, std::int32_t stage)
{
    std::int64_t now = 0;
    std::int64_t most = 0;
    bool split = false;
    for (const Action &action : trainSchedule(job, stage))
        split = split || action.kind == ActionKind::BackwardWeight;
    for (const Action &action : trainSchedule(job, stage)) {
        if (action.kind == ActionKind::Forward)
            most = std::max(most, ++now);
        else if (action.kind == (split ? ActionKind::BackwardWeight : ActionKind::Backward))
            --now;
    }
    EXPECT_EQ(now, 0);
    return most;
}

} // namespace

/// (p − 1)·(TF + TB + TW) for gpipe and 1f1b, 1/v of it interleaved, (p − 1)·(TF + TB − TW) for zb-h1: idle time of every stage
/// (Huang 2019, Narayanan 2019 and 2021, Qi 2023). Equal stages, no communication, no head.
TEST(Pipeline, BubbleIsTheClosedForm)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    const auto expectIdle = [](const char *schedule, std::int64_t pp, std::int64_t m, std::int64_t chunks) {
        const auto plan = makePlan(pipelineJob(schedule, pp, m, chunks));
        ASSERT_TRUE(plan) << plan.error().text();
        for (const LayerTimes t : {LayerTimes{10, 10, 10}, LayerTimes{7, 9, 6}, LayerTimes{5, 12, 5}}) {
            const auto timeline = simulate(*plan, ProgramKind::Train, t);
            ASSERT_TRUE(timeline) << timeline.error().text();
            const std::int64_t whole =
                t.tf + t.tb + t.tw; // of a layer, which is a stage, or one of its chunks
            const bool split = std::string(schedule) == "zb-h1";
            const std::int64_t idle = (pp - 1) * (split ? t.tf + t.tb - t.tw : whole);
            for (const StageTimes &stage : timeline->stages) {
                EXPECT_EQ(stage.computeNs, m * chunks * whole);
                EXPECT_EQ(stage.bubbleNs + stage.barrierNs, idle)
                    << schedule << " pp " << pp << " m " << m << " virtual " << chunks;
                EXPECT_TRUE(stage.exposedNs.empty());
            }
            EXPECT_EQ(timeline->stepNs, m * chunks * whole + idle);
        }
    };
    for (const std::int64_t pp : {2, 3, 5}) {
        for (const std::int64_t m : {pp, pp + 2}) {
            for (const char *schedule : {"gpipe", "1f1b", "zb-h1"})
                expectIdle(schedule, pp, m, 1);
        }
        expectIdle("interleaved", pp, pp, 2);
    }
    expectIdle("interleaved", 3, 6, 3);
    expectIdle("zb-h1", 8, 9, 1);
}

/// A stage that waits for another is idle, also where the message passes through a transfer of the tensor group first: with
/// transfers for nothing the closed form holds, and with transfers that take time no group waits longer than its transfers ran.
TEST(Pipeline, WaitsBelongToWhatWasLate)
{
    for (const std::int64_t pp : {2, 3}) {
        spec::JobSpec job = pipelineJob("1f1b", pp, 4, 1);
        job.layout.tp = 2;
        job.layout.sequenceParallel = true;
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const LayerTimes t{10, 10, 10};
        const auto free = simulate(*plan, ProgramKind::Train, t);
        ASSERT_TRUE(free);
        for (const StageTimes &stage : free->stages) {
            EXPECT_EQ(stage.bubbleNs + stage.barrierNs, (pp - 1) * 30);
            EXPECT_TRUE(stage.exposedNs.empty());
        }
        const auto slow = [&t](const StepProgram &program, const Op &op) -> std::int64_t {
            return op.group != none && program.groups[static_cast<std::size_t>(op.group)].name == "tp"
                ? 3
                : t(program, op);
        };
        const auto timeline = simulate(*plan, ProgramKind::Train, slow);
        ASSERT_TRUE(timeline);
        for (std::size_t s = 0; s < timeline->stages.size(); ++s) {
            const StageTimes &stage = timeline->stages[s];
            std::int64_t ran = 0;
            std::int64_t exposed = 0;
            for (const StepProgram &program : plan->programs) {
                if (program.kind != ProgramKind::Train || program.role.stage != static_cast<std::int32_t>(s))
                    continue;
                for (const Op &op : program.ops) {
                    if (op.group != none && program.groups[static_cast<std::size_t>(op.group)].name == "tp")
                        ran += 3;
                }
            }
            for (const auto &[group, ns] : stage.exposedNs)
                exposed += ns;
            EXPECT_GT(exposed, 0);
            EXPECT_LE(exposed, ran);
            EXPECT_EQ(stage.computeNs + stage.bubbleNs + stage.barrierNs + exposed, timeline->stepNs);
        }
    }
}

/// ZB-V idles no longer than its pipeline takes to fill, (p − 1) times the longest part of a chunk, once a V of micro-batches fits
/// (m ≥ 2p − 1); with fewer it is no worse than zb-h1 (Qi et al. 2023: section 6, and the bubble of table 1).
TEST(Pipeline, ZeroBubbleV)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (std::int64_t pp = 2; pp <= 8; pp += isLong() ? 1 : 3) {
        for (std::int64_t m = pp; m <= 4 * pp; m += isLong() ? 1 : pp - 1) {
            const auto plan = makePlan(pipelineJob("zbv", pp, m, 2), PlanDepth::Ordered);
            ASSERT_TRUE(plan) << plan.error().text();
            for (const LayerTimes t : {LayerTimes{10, 10, 10}, LayerTimes{7, 9, 6}}) {
                const auto timeline = simulate(*plan, ProgramKind::Train, t);
                ASSERT_TRUE(timeline) << timeline.error().text();
                const std::int64_t most = m >= 2 * pp - 1 ? (pp - 1) * std::max({t.tf, t.tb, t.tw})
                                                          : (pp - 1) * 2 * (t.tf + t.tb - t.tw);
                for (const StageTimes &stage : timeline->stages)
                    EXPECT_LE(stage.bubbleNs + stage.barrierNs, most) << "pp " << pp << " m " << m;
            }
        }
    }
}

/// Where layers are computed again, weights that wait would hold more than the forward kept: both schedules stay within p
/// micro-batches of the stage and a chunk, and idle no longer than 1f1b, (p − 1)·(TF + TR + TB + TW).
TEST(Pipeline, ZeroBubbleWithinMemory)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    const LayerTimes t{7, 9, 6};
    for (std::int64_t pp = 2; pp <= 8; pp += isLong() ? 1 : 3) {
        for (std::int64_t m = pp; m <= 4 * pp; m += isLong() ? 1 : 3 * pp) {
            for (const char *mode : {"none", "selective", "attention", "full"}) {
                for (const std::int64_t chunks : {1, 2}) {
                    spec::JobSpec job = pipelineJob(chunks == 2 ? "zbv" : "zb-h1", pp, m, chunks);
                    job.model.layers = 4 * pp;
                    job.layout.stages =
                        std::vector<std::int64_t>(static_cast<std::size_t>(pp * chunks), 4 / chunks);
                    job.recompute.mode = mode;
                    const auto plan = makePlan(job, PlanDepth::Ordered);
                    ASSERT_TRUE(plan) << plan.error().text();
                    const LayerBytes layer = layerBytes(job, true);
                    const std::int64_t kept = 4 * layer.kept;
                    for (std::int32_t stage = 0; stage < pp; ++stage) {
                        const std::int64_t live =
                            memoryOf(*plan, Role{stage})
                                .live[static_cast<std::size_t>(MemoryKind::Activations)];
                        // Beyond: one layer in work, the borders' messages, tokens, the head's input.
                        EXPECT_LE(live, pp * kept + kept / chunks + 2 * layer.pending + 6 * borderBytes(job))
                            << mode << " pp " << pp << " m " << m << " stage " << stage << " chunks "
                            << chunks;
                    }
                    const auto timeline = simulate(*plan, ProgramKind::Train, t);
                    ASSERT_TRUE(timeline) << timeline.error().text();
                    const std::int64_t again = mode[0] == 'f' ? t.tf : 0;
                    for (const StageTimes &stage : timeline->stages)
                        EXPECT_LE(stage.bubbleNs + stage.barrierNs,
                                  (pp - 1) * 4 * (t.tf + again + t.tb + t.tw));
                }
            }
        }
    }
}

/// … also in tensor groups with sequence parallelism, where the gradients that weights wait for are whole and what is kept is cut; and what lies
/// in the arena is little more than what is alive, since gathers hold their output no longer than they must.
TEST(Pipeline, ZeroBubbleWithinMemoryInTensorGroups)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const char *schedule : {"zb-h1", "zbv"}) {
        for (const char *mode : {"none", "selective", "attention"}) {
            const std::int64_t pp = 4, chunks = schedule[2] == 'v' ? 2 : 1;
            spec::JobSpec job = largeJob();
            job.layout.dp = 1;
            job.layout.tp = 4;
            job.layout.sequenceParallel = true;
            job.layout.pp = pp;
            job.layout.virtualStages = chunks;
            job.layout.schedule = schedule;
            job.model.layers = 4 * pp;
            job.layout.stages = std::vector<std::int64_t>(static_cast<std::size_t>(pp * chunks), 4 / chunks);
            job.batch.global = job.batch.micro * 4 * pp;
            job.recompute.mode = mode;
            const auto plan = makePlan(job, PlanDepth::Placed);
            ASSERT_TRUE(plan) << plan.error().text();
            const LayerBytes layer = layerBytes(job, true);
            const std::int64_t kept = 4 * layer.kept;
            for (std::int32_t stage = 0; stage < pp; ++stage) {
                const MemoryReport report = memoryOf(*plan, Role{stage});
                const auto live = report.live[static_cast<std::size_t>(MemoryKind::Activations)];
                EXPECT_LE(live, pp * kept + kept / chunks + 2 * layer.pending + 6 * borderBytes(job))
                    << schedule << " " << mode << " stage " << stage;
                const auto arena = report.bytes[static_cast<std::size_t>(MemoryKind::Activations)];
                EXPECT_LE(static_cast<double>(arena), 1.12 * static_cast<double>(live))
                    << schedule << " " << mode << " stage " << stage;
            }
        }
    }
}

TEST(Pipeline, MicroBatchesInFlight)
{
    for (std::int64_t pp = 2; pp <= 8; ++pp) {
        for (const std::int64_t m : {std::int64_t(1), pp - 1, pp, pp + 1, 2 * pp, 3 * pp, 4 * pp}) {
            for (std::int32_t r = 0; r < pp; ++r) {
                EXPECT_EQ(mostInFlight(pipelineJob("gpipe", pp, m), r), m);
                EXPECT_EQ(mostInFlight(pipelineJob("1f1b", pp, m), r), std::min(pp - r, m));
                EXPECT_EQ(mostInFlight(pipelineJob("zb-h1", pp, m), r), std::min(pp, m));
                EXPECT_LE(mostInFlight(pipelineJob("zbv", pp, m, 2), r), 2 * pp) << "chunks of half a stage";
                if (m % pp == 0 && m >= 2 * pp) {
                    for (const std::int64_t v : {2, 3})
                        EXPECT_EQ(mostInFlight(pipelineJob("interleaved", pp, m, v), r),
                                  pp * v + pp - 1 - 2 * r);
                }
            }
        }
    }
    // Megatron-LM's warm-ups for p = 4, v = 2, m = 8: 10, 8, 6, 4.
    for (std::int32_t r = 0; r < 4; ++r)
        EXPECT_EQ(mostInFlight(pipelineJob("interleaved", 4, 8, 2), r), 10 - 2 * r + 1);
}

/// What a stage keeps is what its micro-batches in flight keep: stage r has one less than stage r − 1.
TEST(Pipeline, MemoryFollowsMicroBatchesInFlight)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    spec::JobSpec job = pipelineJob("1f1b", 4, 12);
    const auto liveOf = [&](std::int64_t m, int stage) {
        spec::JobSpec other = job;
        other.batch.global = other.batch.micro * m;
        const auto plan = makePlan(other);
        EXPECT_TRUE(plan) << plan.error().text();
        return memoryOf(*plan, stage).live[static_cast<std::size_t>(MemoryKind::Activations)];
    };
    for (const int stage : {1, 2}) {
        const std::int64_t inFlight = 4 - stage;
        const std::int64_t least = liveOf(1, stage);
        const std::int64_t second = liveOf(2, stage) - least; // what one more keeps
        EXPECT_GT(second, 0);
        EXPECT_EQ(liveOf(12, stage), liveOf(30, stage)) << "not with the number of micro-batches";
        EXPECT_LE(liveOf(12, stage), least + inFlight * second);
        EXPECT_GE(liveOf(12, stage), least + (inFlight - 1) * second - second / 2);
    }
}

TEST(Pipeline, StagesAreBalanced)
{
    spec::JobSpec job = largeJob();
    job.layout.dp = 1;
    job.layout.pp = 4;
    const double h = 768;
    const double layer = 12 * h * h + 2 * 1024 * h;
    const double head = 50257 * h;
    double slowest = 0;
    double sum = 0;
    std::int32_t next = 0;
    for (const StageSpan &span : stageSpans(job)) {
        EXPECT_EQ(span.begin, next);
        next = span.end;
        const double cost = (span.end - span.begin) * layer + (span.head ? head : 0);
        slowest = std::max(slowest, cost);
        sum += cost;
    }
    EXPECT_EQ(next, 12);
    EXPECT_LT(slowest, 3 * layer + head) << "better than an even split";
    EXPECT_LE(slowest, sum / 4 + layer) << "within a layer of the mean";
    job.layout.stages = {{5, 4, 3, 0}};
    EXPECT_EQ(stageSpans(job)[3].begin, 12);
    EXPECT_TRUE(makePlan(job));
}

/// A tied embedding on the first and the last stage: both sum their gradients, one is counted.
TEST(Pipeline, TiedEmbedding)
{
    for (const std::int64_t zero : {0, 1}) {
        spec::JobSpec job = smallJob(3, zero, 2);
        job.layout.pp = 3;
        job.model.layers = 3;
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        for (int stage = 0; stage < 3; ++stage) {
            const StepProgram &train = plan->program(ProgramKind::Train, stage * 3);
            EXPECT_EQ(train.role.stage, stage);
            int sums = 0;
            for (const Op &op : train.ops)
                sums +=
                    op.group != none && train.groups[static_cast<std::size_t>(op.group)].name == "embedding";
            EXPECT_EQ(sums, stage == 1 ? 0 : 1);
            int counted = 0;
            for (const Tensor &tensor : train.tensors)
                counted += tensor.name == "wte.weight" && tensor.counted;
            EXPECT_EQ(counted, stage == 0 ? 1 : 0);
            if (stage == 1)
                continue;
            StepProgram program = train;
            for (const Op &op : train.ops) {
                if (op.group != none && train.groups[static_cast<std::size_t>(op.group)].name == "embedding")
                    removeOp(program, op.id);
            }
            EXPECT_FALSE(verify(program));
        }
    }
    {
        spec::JobSpec job = pipelineJob("zbv", 3, 6, 2);
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const StepProgram &first = plan->program(ProgramKind::Train, 0);
        EXPECT_TRUE(std::none_of(first.groups.begin(), first.groups.end(), [](const Group &group) {
            return group.name == "embedding";
        })) << "one rank has both ends";
    }
}

/// Any transfer between stages left out, doubled, or of another micro-batch leaves the ranks waiting or is refused.
TEST(Pipeline, EveryTransferIsChecked)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const char *schedule : {"1f1b", "zb-h1", "interleaved", "zbv"}) {
        const bool chunked = std::string(schedule) == "interleaved" || std::string(schedule) == "zbv";
        const spec::JobSpec job = pipelineJob(schedule, 3, 3, chunked ? 2 : 1);
        const auto whole = makePlan(job);
        ASSERT_TRUE(whole) << whole.error().text();
        int checked = 0;
        for (std::size_t p = 0; p < whole->programs.size(); ++p) {
            if (whole->programs[p].kind != ProgramKind::Train)
                continue;
            for (const Op &op : whole->programs[p].ops) {
                if (op.kind != OpKind::Send && op.kind != OpKind::Recv)
                    continue;
                for (const int fault : {0, 1, 2}) {
                    Plan plan = *whole;
                    StepProgram &program = plan.programs[p];
                    if (fault == 0)
                        removeOp(program, op.id);
                    else if (fault == 1)
                        insertCopy(program, op.id + 1, op);
                    else
                        program.ops[static_cast<std::size_t>(op.id)].microbatch ^= 1;
                    EXPECT_FALSE(verify(program) && verifyTogether(plan, ProgramKind::Train)) << opName(op);
                    ++checked;
                }
            }
        }
        EXPECT_GT(checked, 30);
    }
}

/// With communication that takes time the step is longer than without, and never longer than if nothing overlapped.
TEST(Pipeline, LinksCostTime)
{
    for (const char *schedule : {"1f1b", "zb-h1"}) {
        const auto plan = makePlan(pipelineJob(schedule, 4, 8));
        const LayerTimes layer{1000, 1000, 1000};
        const auto step = [&](double bytesPerNs) {
            const Link link{10, bytesPerNs};
            std::int64_t transfers = 0;
            const auto timeline =
                simulate(*plan, ProgramKind::Train, [&](const StepProgram &program, const Op &op) {
                    if (!isTransfer(op.kind))
                        return layer(program, op);
                    const std::int64_t time = transferNs(program, op, link);
                    transfers += time;
                    return time;
                });
            return std::pair(timeline->stepNs, transfers);
        };
        const std::int64_t free = timelineOf(pipelineJob(schedule, 4, 8), layer).stepNs;
        EXPECT_GT(step(1).first, free);
        EXPECT_GT(step(0.5).first, step(1).first);
        EXPECT_LT(step(0.5).first, free + step(0.5).second);
    }
}

/// The first stage's copy of a tied embedding is complete at the end of its backward only. On the last stage, whose copy is complete early,
/// nothing stands behind their sum: not the other buckets' reductions, and not the backward that some of those feed, without which the first
/// stage's would never end.
TEST(Pipeline, TheSumOfTiedEmbeddingsKeepsNothingWaiting)
{
    for (const char *schedule : {"gpipe", "1f1b", "zb-h1"}) {
        for (const char *algorithm : {"library", "ring", "direct"}) {
            spec::JobSpec job = smallJob(2, 0, 4);
            job.model.layers = 4;
            job.model.hidden = 32;
            job.model.heads = 4;
            job.model.kvHeads = 1;
            job.layout.tp = job.layout.pp = 2;
            job.layout.schedule = schedule;
            job.layout.sequenceParallel = true;
            job.zero.bucketBytes = 4096;
            job.comm.algorithm = algorithm;
            job.precision.reduce = algorithm == std::string("library") ? DType::BF16 : DType::F32;
            const auto plan = makePlan(job, PlanDepth::Checked);
            ASSERT_TRUE(plan) << schedule << ' ' << algorithm << ": " << plan.error().text();
            for (int stage = 0; stage < 2; ++stage) {
                const StepProgram &program = plan->program(ProgramKind::Train, 4 * stage);
                bool tied = false;
                int after = 0, before = 0;
                for (const Op &op : program.ops) {
                    if (op.stream != Stream::Data || op.chunk == none)
                        continue;
                    if (op.group == program.buckets[static_cast<std::size_t>(op.chunk)].tie)
                        tied = true;
                    else
                        ++(tied ? after : before);
                }
                EXPECT_TRUE(tied) << stage;
                EXPECT_GT(before, 3) << schedule << ' ' << algorithm << " stage " << stage;
                EXPECT_EQ(after, 0) << schedule << ' ' << algorithm << " stage " << stage;
            }
        }
    }
}

} // namespace rankyard::plan
