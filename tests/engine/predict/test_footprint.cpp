// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/closed_memory.h"
#include "engine/predict/durations.h"
#include "engine/predict/footprint.h"
#include "tests/engine/long.h"
#include "tests/engine/plan/jobs.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace rankyard::predict {
namespace {

std::string named(const spec::JobSpec &job)
{
    const OrderedJson all = spec::writeJob(job);
    std::string text = " m " + std::to_string(job.microBatches());
    for (const char *key : {"layout", "zero", "recompute", "offload", "compression", "comm"})
        text += std::string(" ") + key + dumpJson(all[key]);
    return text;
}

/// More micro-batches than the footprint looks at.
spec::JobSpec longLayout(std::mt19937_64 &random)
{
    spec::JobSpec job = plan::randomLayout(random);
    const std::int64_t period = job.layout.schedule == "interleaved" && job.layout.pp > 1 ? job.layout.pp : 1;
    const std::int64_t beyond = std::max(steadyOf(job).memory, steadyOf(job).time);
    job.batch.global = job.layout.dp * job.batch.micro * period
        * ((beyond + period - 1) / period + 3 + static_cast<std::int64_t>(random() % 20) + 6 * job.layout.pp);
    return job;
}

/// DESIGN 1.5: live bytes at the peak, of the closed form and of the whole program, are equal.
TEST(Footprint, LiveBytesAreThoseOfTheWholeProgram)
{
    std::mt19937_64 random(11);
    const int count = isLong() ? 1000 : sanitized ? 5 : 60;
    for (int i = 0; i < count; ++i) {
        const spec::JobSpec job = longLayout(random);
        const auto whole = plan::makePlan(job, plan::PlanDepth::Placed);
        ASSERT_TRUE(whole) << whole.error().text();
        const auto stages = footprintOf(job);
        ASSERT_TRUE(stages) << stages.error().text();
        for (std::int32_t stage = 0; stage < job.layout.pp; ++stage) {
            const plan::MemoryReport report = plan::memoryOf(*whole, plan::Role{stage});
            EXPECT_EQ((*stages)[static_cast<std::size_t>(stage)].live, report.live)
                << i << " stage " << stage << named(job);
            EXPECT_EQ((*stages)[static_cast<std::size_t>(stage)].liveAtOnce, report.liveAtOnce)
                << i << " stage " << stage << named(job);
        }
    }
}

/// … and its time, within 2 %.
TEST(Footprint, TimeIsThatOfTheWholeProgram)
{
    std::mt19937_64 random(12);
    const int count = isLong() ? 1000 : sanitized ? 5 : 60;
    double worst = 0;
    for (int i = 0; i < count; ++i) {
        const spec::JobSpec job = longLayout(random);
        const plan::Duration duration = [&](const plan::StepProgram &program,
                                            const plan::Op &op) -> std::int64_t {
            return plan::isTransfer(op.kind) ? plan::transferNs(program, op, {2000, 0.5}) : 50 + op.flops;
        };
        const auto whole = plan::makePlan(job, plan::PlanDepth::Ordered);
        ASSERT_TRUE(whole) << whole.error().text();
        const auto timeline = plan::simulate(*whole, plan::ProgramKind::Train, duration);
        ASSERT_TRUE(timeline) << timeline.error().text();
        const auto time = programTimeOf(job, [&](const plan::Plan &plan) {
            return plan::simulate(plan, plan::ProgramKind::Train, duration);
        });
        ASSERT_TRUE(time) << time.error().text();
        const double error = time->seconds * 1e9 / static_cast<double>(timeline->stepNs) - 1;
        worst = std::max(worst, std::abs(error));
        EXPECT_NEAR(error, 0, 0.02) << i << named(job);
    }
    std::printf("%d layouts: worst difference %.5f\n", count, worst);
}

/// What a layer keeps is the same, read off the programs with the whole ring.
TEST(UnitMemory, RingsOfAnyLength)
{
    for (const char *mode : {"none", "selective", "attention", "full"}) {
        for (const std::int64_t cp : {4, 5, 8}) {
            spec::JobSpec job = plan::smallJob(1, 0, 1);
            job.model.heads = job.model.hidden = 16;
            job.model.seq = 4 * cp;
            job.layout.cp = cp;
            job.recompute.mode = mode;
            double live[2];
            for (int layers = 1; layers <= 2; ++layers) {
                job.model.layers = layers;
                const auto plan = plan::makePlan(job, plan::PlanDepth::Ordered);
                ASSERT_TRUE(plan) << plan.error().text();
                const auto report = plan::memoryOf(*plan, plan::Role{0});
                live[layers - 1] =
                    static_cast<double>(report.live[static_cast<std::size_t>(plan::MemoryKind::Activations)]);
            }
            const auto unit = unitMemory(job);
            ASSERT_TRUE(unit) << unit.error().text();
            EXPECT_EQ(unit->kept, live[1] - live[0]) << mode << " cp " << cp;
            EXPECT_EQ(unit->work, 2 * live[0] - live[1]) << mode << " cp " << cp;
        }
    }
}

} // namespace
} // namespace rankyard::predict
