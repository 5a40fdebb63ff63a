// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/gaps.h"
#include "engine/plan/passes/pack.h"
#include "tests/engine/long.h"
#include "tests/engine/plan/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

namespace rankyard::plan {
namespace {

/// Every pair of items that share a byte is ordered: by comparison of all with all.
void expectApart(const std::vector<Item> &items, const LaneOrder &order, const Packing &packing)
{
    for (std::size_t i = 0; i < items.size(); ++i) {
        EXPECT_EQ(packing.offsets[i] % arenaAlignment, 0);
        EXPECT_LE(packing.offsets[i] + items[i].size, packing.bytes);
        for (std::size_t k = 0; k < i; ++k) {
            const bool overlap = packing.offsets[i] < packing.offsets[k] + items[k].size
                && packing.offsets[k] < packing.offsets[i] + items[i].size;
            ASSERT_TRUE(!overlap || order.before(items[k].release, items[i].first)
                        || order.before(items[i].release, items[k].first))
                << "items " << k << " and " << i;
        }
    }
}

spec::JobSpec pipelineJob(const std::string &schedule, const std::string &recompute, std::int64_t tp)
{
    spec::JobSpec job = largeJob();
    job.layout.dp = 1;
    job.layout.tp = tp;
    job.layout.sequenceParallel = tp > 1;
    job.layout.pp = 3;
    job.layout.schedule = schedule;
    job.layout.virtualStages = schedule == "interleaved" || schedule == "zbv" ? 2 : 1;
    job.batch.global = 24;
    job.precision.compute = DType::BF16;
    job.recompute.mode = recompute;
    return job;
}

TEST(Pack, GapsKeepApartWhatIsNotOrdered)
{
    std::mt19937_64 random(7);
    int programs = 0;
    while (programs < 20 / sanitizerShare) {
        const auto plan = makePlan(randomLayout(random));
        ASSERT_TRUE(plan) << plan.error().text();
        for (const StepProgram &program : plan->programs) {
            const LaneOrder order(program);
            for (const auto &[arena, items] : itemsOf(program)) {
                if (items.size() < 2000)
                    expectApart(items, order, packByGaps(items, order));
            }
        }
        ++programs;
    }
}

/// What is too long for a search is packed as an allocator would at run time: within 5 % of what ops cannot know to be free.
/// With split backwards lifetimes differ more, and up to 10 % are lost. What cannot be known to be free is little more than what is alive: no lane
/// lags far behind the others.
TEST(Pack, LongProgramsPackTightly)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const char *schedule : {"1f1b", "gpipe", "interleaved", "zb-h1", "zbv"}) {
        double worst = 1, lag = 1;
        for (const char *recompute : {"none", "full"}) {
            const auto plan = makePlan(pipelineJob(schedule, recompute, 2)); // verifies that none overlap
            ASSERT_TRUE(plan) << plan.error().text();
            for (const StepProgram &program : plan->programs) {
                if (program.kind != ProgramKind::Train)
                    continue;
                const LaneOrder order(program);
                const std::vector<Item> items = itemsOf(program).at({MemoryKind::Activations, false});
                const std::int64_t held = heldPeak(items, order);
                const std::int64_t live = livePeak(items, order.ops());
                EXPECT_GE(held, live);
                lag = std::max(lag, static_cast<double>(held) / static_cast<double>(live));
                worst = std::max(worst,
                                 static_cast<double>(pack(items, order).bytes) / static_cast<double>(held));
            }
        }
        std::printf("%s: arena at most %.4f of the bytes held, these %.4f of those alive\n", schedule, worst,
                    lag);
        EXPECT_LE(lag, 1.12) << schedule;
        EXPECT_LE(worst, schedule[0] == 'z' ? 1.10 : 1.05) << schedule;
    }
}

} // namespace
} // namespace rankyard::plan
