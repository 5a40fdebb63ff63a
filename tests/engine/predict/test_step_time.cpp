// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/sources.h"
#include "engine/plan/plan.h"
#include "engine/predict/durations.h"
#include "engine/predict/step_time.h"

#include <gtest/gtest.h>

#include <chrono>

namespace rankyard::predict {
namespace {

CostModel costOf(const char *preset, int nodes)
{
    const auto cluster = cluster::makePreset(preset, nodes);
    auto machine = machineOf(*cluster);
    auto constants = fittedCalibrations().of(machine->family);
    return CostModel(*machine, *constants);
}

TEST(StepTime, PartsAddUp)
{
    const CostModel cost = costOf("dgx-a100-80", 32);
    const Shape &shape = *findModel("GPT3-175B");
    Micro micro;
    micro.tp = 8;
    for (const Recompute recompute : {Recompute::None, Recompute::Full}) {
        const UnitTimes unit = unitTimes(cost, shape, micro, recompute);
        Layout layout;
        layout.pp = 8;
        layout.dp = 4;
        layout.microBatches = 48;
        for (const Schedule schedule :
             {Schedule::GPipe, Schedule::OneFOneB, Schedule::Interleaved, Schedule::ZeroBubbleH1}) {
            layout.schedule = schedule;
            layout.virtualStages = schedule == Schedule::Interleaved ? 3 : 1;
            const StepTime step = combine(cost, unit, layout);
            EXPECT_NEAR(step.compute + step.bubble + step.tensor + step.pipeline + step.data + step.optimizer
                            + step.overhead,
                        step.seconds, 1e-9 * step.seconds);
            EXPECT_LT(step.low, step.seconds);
            EXPECT_GT(step.high, step.seconds);
        }
    }
}

TEST(StepTime, BubbleIsThatOfThePapers)
{
    // Equal stages: (p − 1)/(m + p − 1) of the step without transfers, and a v-th of the idle time interleaved.
    const CostModel cost = costOf("dgx-a100-80", 1);
    UnitTimes unit;
    unit.forward = 1;
    unit.backwardInput = 1;
    unit.backwardWeight = 1;
    unit.layers = 8;
    Layout layout;
    layout.pp = 4;
    layout.microBatches = 12;
    layout.schedule = Schedule::OneFOneB;
    const double send = 2 * cost.send(0, true) * (1 - cost.constants().hidePipeline);
    EXPECT_NEAR(combine(cost, unit, layout).bubble, 3 * (6 + send), 1e-9);
    layout.schedule = Schedule::ZeroBubbleH1; // (p − 1)(F + B − 2W), W a third
    EXPECT_NEAR(combine(cost, unit, layout).bubble, 3 * (6 + send) / 3, 1e-9);
    layout.schedule = Schedule::ZeroBubbleH2;
    EXPECT_NEAR(combine(cost, unit, layout).bubble, 0, 1e-9);
    layout.schedule = Schedule::Interleaved;
    layout.virtualStages = 2;
    EXPECT_NEAR(combine(cost, unit, layout).bubble, 3 * (6 + 2 * send) / 2, 1e-9);
}

TEST(StepTime, MoreOfEverythingThatCostsTakesLonger)
{
    const CostModel cost = costOf("dgx-h100", 16);
    const Shape &shape = *findModel("LLAMA3-70B");
    Micro micro;
    micro.tp = 8;
    Layout layout;
    layout.pp = 4;
    layout.dp = 4;
    layout.microBatches = 16;
    const auto seconds = [&](Recompute recompute) {
        return combine(cost, unitTimes(cost, shape, micro, recompute), layout).seconds;
    };
    const double none = seconds(Recompute::None);
    EXPECT_GT(seconds(Recompute::Selective), none);
    EXPECT_GT(seconds(Recompute::Attention), none);
    EXPECT_GT(seconds(Recompute::Full), 1.2 * none);
    EXPECT_LT(seconds(Recompute::Full), 1.45 * none);
    layout.microBatches = 32;
    EXPECT_GT(seconds(Recompute::None), 1.6 * none);
}

TEST(StepTime, CombineIsFast)
{
    const CostModel cost = costOf("dgx-a100-80", 128);
    const UnitTimes unit = unitTimes(cost, *findModel("GPT3-175B"), {1, 8}, Recompute::Full);
    Layout layout;
    layout.pp = 8;
    layout.dp = 16;
    double total = 0;
    constexpr int times = 200000;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
        layout.microBatches = 8 + i % 64;
        layout.zero = i % 4;
        total += combine(cost, unit, layout).seconds;
    }
    const double ns =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_GT(total, 0);
    // An optimised build takes under 100 ns; this bound catches a logarithm or an allocation in any build.
    EXPECT_LT(ns / times, 3000);
    RecordProperty("ns", std::to_string(ns / times));
    std::printf("combine: %.0f ns\n", ns / times);
}

spec::JobSpec job(std::int64_t dp, std::int64_t tp, std::int64_t pp)
{
    spec::JobSpec made;
    made.model.layers = 6;
    made.model.hidden = 512;
    made.model.heads = 8;
    made.model.ffn = 2048;
    made.model.seq = 512;
    made.model.vocab = 3000;
    made.model.tied = false;
    made.layout.dp = dp;
    made.layout.tp = tp;
    made.layout.pp = pp;
    made.batch.micro = 4;
    made.batch.global = 4 * dp * 6;
    made.precision.compute = DType::BF16;
    made.optimizer.clip = 0;
    return made;
}

/// What of the closed form a program knows: not the host's launches, the step's fixed cost, stragglers.
double programSeconds(const CostModel &cost, const spec::JobSpec &spec)
{
    const auto plan = plan::makePlan(spec, plan::PlanDepth::Ordered);
    EXPECT_TRUE(plan) << plan.error().text();
    const auto line = plan::simulate(*plan, plan::ProgramKind::Train, durationsOf(cost, spec));
    EXPECT_TRUE(line) << line.error().text();
    return static_cast<double>(line->stepNs) / 1e9;
}

/// Wide enough to keep a GPU busy.
spec::JobSpec wideJob(std::int64_t dp, std::int64_t tp, std::int64_t pp)
{
    spec::JobSpec made = job(dp, tp, pp);
    made.model.hidden = 2048;
    made.model.heads = 16;
    made.model.ffn = 8192;
    return made;
}

/// Two nodes of A100, without what a program does not know.
CostModel programmed()
{
    const auto cluster = cluster::makePreset("dgx-a100-80", 2);
    auto constants = asProgrammed(*fittedCalibrations().of("A100"));
    constants.host = 0;
    constants.step = 0;
    constants.straggler = 0;
    constants.contention = 0;
    return CostModel(*machineOf(*cluster), constants);
}

TEST(Durations, ProgramAndClosedFormAreOneCostModel)
{
    const CostModel cost = programmed();
    for (const auto &[dp, tp, pp] :
         {std::array{1, 1, 1}, {3, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 1, 3}, {1, 2, 2}, {2, 2, 3}}) {
        spec::JobSpec spec = wideJob(dp, tp, pp);
        spec.model.seq = 1024;
        const double program = programSeconds(cost, spec);
        const double closed = jobTime(cost, spec).step.seconds;
        std::printf("dp %d tp %d pp %d: program %.3f ms, closed form %.3f ms, ratio %.3f\n", dp, tp, pp,
                    1e3 * program, 1e3 * closed, closed / program);
        EXPECT_NEAR(closed / program, 1, 0.02) << dp << tp << pp;
        spec.recompute.mode = "full";
        const double again = programSeconds(cost, spec);
        EXPECT_GT(again, 1.1 * program) << dp << tp << pp;
        std::printf("  full recompute: ratio %.3f\n", jobTime(cost, spec).step.seconds / again);
        EXPECT_NEAR(jobTime(cost, spec).step.seconds / again, 1, 0.02) << dp << tp << pp;
        spec.recompute.mode = "attention";
        EXPECT_NEAR(jobTime(cost, spec).step.seconds / programSeconds(cost, spec), 1, 0.03) << dp << tp << pp;
        spec.recompute.mode = "none";
        spec.layout.sequenceParallel = tp > 1;
        EXPECT_NEAR(jobTime(cost, spec).step.seconds / programSeconds(cost, spec), 1, 0.03) << dp << tp << pp;
        spec.layout.sequenceParallel = false;
        spec.zero.stage = pp == 1 && dp > 1 ? 2 : 0;
        EXPECT_NEAR(jobTime(cost, spec).step.seconds / programSeconds(cost, spec), 1, 0.03) << dp << tp << pp;
    }
}

/// Bubbles of the schedules with fewer micro-batches than stages, as many, and many: weights' gradients fill holes only as far as there are
/// some. A wide head besides, which programs work off in chunks.
TEST(Durations, BubblesOfProgramAndClosedForm)
{
    const CostModel cost = programmed();
    for (const auto &[pp, layers] : {std::pair{2, 12}, {3, 18}, {4, 24}, {5, 20}, {8, 32}}) {
        for (const int micro : {1, 2, pp, pp + 1, 2 * pp, 4 * pp}) {
            for (const char *schedule : {"1f1b", "interleaved", "zb-h1", "zbv"}) {
                if (schedule == std::string("interleaved") && micro % pp != 0)
                    continue;
                spec::JobSpec spec = wideJob(1, 1, pp);
                spec.model.layers = layers;
                spec.model.seq = 1024;
                spec.model.vocab = 16384;
                spec.layout.schedule = schedule;
                spec.layout.virtualStages = schedule == std::string("zbv")       ? 2
                    : schedule == std::string("interleaved") && layers >= 2 * pp ? 2
                                                                                 : 1;
                spec.batch.micro = 2;
                spec.batch.global = 2 * micro;
                if (spec.layout.virtualStages == 1 && schedule == std::string("interleaved"))
                    continue;
                const double ratio = jobTime(cost, spec).step.seconds / programSeconds(cost, spec);
                EXPECT_NEAR(ratio, 1, schedule == std::string("zbv") ? 0.06 : 0.03)
                    << schedule << " pp " << pp << " m " << micro;
            }
        }
    }
}

/// Reductions of each micro-batch, and gathers of each unit, run under the computation of others: a unit's gather under the unit before,
/// however large it is. Llama 7B in micro-batches of one sequence, over two nodes.
TEST(Durations, ShardsOfProgramAndClosedForm)
{
    const CostModel cost = programmed();
    for (const auto &[stage, tp, micro] :
         {std::array{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {2, 2, 1}, {3, 2, 1}, {3, 1, 4}}) {
        spec::JobSpec spec = wideJob(16 / tp, tp, 1);
        spec.model.family = "llama";
        spec.model.layers = 8;
        spec.model.hidden = 4096;
        spec.model.heads = 32;
        spec.model.ffn = 11008;
        spec.model.seq = 4096;
        spec.model.vocab = 32000;
        spec.model.tied = false;
        spec.batch.micro = micro;
        spec.batch.global = 16 / tp * micro * 2;
        spec.zero.stage = stage;
        for (const char *mode : {"none", "full"}) {
            spec.recompute.mode = mode;
            EXPECT_NEAR(jobTime(cost, spec).step.seconds / programSeconds(cost, spec), 1, 0.05)
                << "ZeRO " << stage << " tp " << tp << " micro " << micro << ' ' << mode;
        }
    }
}

/// Shifts of keys and values beside the blocks that they do not outlast and beside those that they do (16 ranks: the ring goes through
/// two nodes), and of their gradients between two blocks. The data group's reduction, which these jobs also have, is the test's above.
TEST(Durations, ContextRingsOfProgramAndClosedForm)
{
    const CostModel cost = programmed();
    for (const auto &[cp, tp, seq] :
         {std::array{2, 1, 1024}, {3, 1, 960}, {5, 1, 3840}, {4, 2, 8192}, {16, 1, 2048}, {16, 1, 65536}}) {
        spec::JobSpec spec = wideJob(1, tp, 1);
        spec.layout.cp = cp;
        spec.batch.micro = 1;
        spec.batch.global = 3;
        spec.model.seq = seq;
        for (const char *mode : {"none", "selective", "attention", "full"}) {
            spec.recompute.mode = mode;
            const StepTime closed = jobTime(cost, spec).step;
            const auto plan = plan::makePlan(spec, plan::PlanDepth::Ordered);
            ASSERT_TRUE(plan) << plan.error().text();
            const auto line = plan::simulate(*plan, plan::ProgramKind::Train, durationsOf(cost, spec));
            ASSERT_TRUE(line) << line.error().text();
            double exposed = 0;
            for (const auto &[group, ns] : line->stages.front().exposedNs)
                exposed += group == "cp" || group == "tp" ? 1e-9 * static_cast<double>(ns) : 0;
            EXPECT_NEAR(closed.tensor / exposed, 1, tp == 1 ? 0.001 : 0.05)
                << "cp " << cp << " seq " << seq << ' ' << mode;
            EXPECT_NEAR(1e9 * closed.seconds / static_cast<double>(line->stepNs), 1, 0.06)
                << "cp " << cp << " seq " << seq << ' ' << mode;
        }
    }
}

} // namespace
} // namespace rankyard::predict
