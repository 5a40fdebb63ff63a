// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/plan/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>

namespace rankyard::plan {

TEST(Report, PlanKeys)
{
    const auto plan = makePlan(smallJob());
    const OrderedJson report = planReport(*plan);
    ASSERT_EQ(report["ranks"].size(), 2U);
    const auto &memory = report["ranks"][1]["memory"];
    std::int64_t sum = 0;
    for (const auto &[key, value] : memory.items())
        sum += key == "peak" ? 0 : value.get<std::int64_t>();
    EXPECT_EQ(memory["peak"], sum);
    EXPECT_EQ(memory["params"], 7680);
    EXPECT_EQ(report["ranks"][1]["rank"], 1);
    EXPECT_EQ(report["ranks"][1]["stage"], 0);
    EXPECT_EQ(report["comm"]["dp"], 7680) << "half of each slice exchange, twice";
    EXPECT_EQ(report["payload"]["dp"], 2 * 7680);
    EXPECT_EQ(report["program"]["ops"], plan->programs[0].ops.size());
    EXPECT_EQ(report["program"]["collectives"], 3);
    EXPECT_TRUE(report["step_ms"].is_null()) << "nothing is invented without a calibration";
    EXPECT_TRUE(report["mfu"].is_null());
    EXPECT_TRUE(report["tflops_per_device"].is_null());
    EXPECT_EQ(report["bubble"], 0.0) << "one stage has none";
    EXPECT_GT(report["notes"].size(), 0U);
}

TEST(Report, EveryStageHasItsOwn)
{
    spec::JobSpec job = smallJob(2);
    job.model.layers = 3;
    job.layout.pp = 3;
    job.layout.tp = 1;
    const auto plan = makePlan(job);
    ASSERT_TRUE(plan) << plan.error().text();
    const OrderedJson report = planReport(*plan);
    ASSERT_EQ(report["stages"].size(), 3U);
    std::int64_t most = 0;
    for (const auto &stage : report["stages"]) {
        const int rank = [&] {
            int found = 0;
            while (plan->grid.role(found).stage != stage["stage"].get<int>())
                ++found;
            return found;
        }();
        const StepProgram &program = plan->program(ProgramKind::Train, rank);
        EXPECT_EQ(stage["program"]["ops"], program.ops.size());
        EXPECT_EQ(stage["comm"]["dp"], trafficOf(*plan, rank)["dp"].wire);
        EXPECT_EQ(stage["comm"]["pp"], trafficOf(*plan, rank)["pp"].wire);
        most = std::max(most, stage["comm"]["pp"].get<std::int64_t>());
    }
    // The stage in the middle sends both ways.
    EXPECT_EQ(report["stages"][1]["comm"]["pp"],
              report["stages"][0]["comm"]["pp"].get<std::int64_t>()
                  + report["stages"][2]["comm"]["pp"].get<std::int64_t>());
    EXPECT_EQ(report["comm"]["pp"], most);
    // Tensors of all stages; a layer's are on one stage, whose ranks tile them.
    const OrderedJson tensors = tensorReport(*plan);
    std::set<std::string> layers;
    for (const auto &tensor : tensors["tensors"]) {
        layers.insert(tensor["name"].get<std::string>().substr(0, 8));
        std::int64_t covered = 0;
        for (const auto &range : tensor["ranges"])
            covered += range[1].get<std::int64_t>() - range[0].get<std::int64_t>();
        EXPECT_GE(covered, tensor["numel"].get<std::int64_t>()) << tensor["name"];
    }
    EXPECT_TRUE(layers.contains("layers.0") && layers.contains("layers.1") && layers.contains("layers.2"));
}

TEST(Report, OneRank)
{
    const OrderedJson report = planReport(*makePlan(smallJob(1)));
    EXPECT_EQ(report["ranks"].size(), 1U);
    EXPECT_EQ(report["comm"], OrderedJson::object());
    EXPECT_EQ(report["program"]["collectives"], 0);
}

TEST(Report, WireBytes)
{
    EXPECT_EQ(wireBytes(OpKind::AllReduce, 1000, 4), 1500);
    EXPECT_EQ(wireBytes(OpKind::ReduceScatter, 1000, 4), 750);
    EXPECT_EQ(wireBytes(OpKind::AllGather, 1000, 5), 800);
    EXPECT_EQ(wireBytes(OpKind::AllReduce, 1000, 1), 0);
    EXPECT_EQ(wireBytes(OpKind::Send, 1000, 2), 1000);
    EXPECT_EQ(wireBytes(OpKind::Forward, 1000, 2), 0);
}

TEST(Report, DescriptionHasALineAnOp)
{
    const StepProgram program = makePlan(smallJob())->programs[0];
    const std::string text = describe(program);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_EQ(static_cast<std::size_t>(lines),
              1 + program.groups.size() + program.arenas.size() + program.buckets.size()
                  + program.ops.size());
}

/// Planning is interactive: GPT-2 small over 32 micro-batches. Processor time, so that a busy machine does not matter.
TEST(Report, PlanningTime)
{
    double plan = 1e9;
    double check = 1e9;
    double digest = 1e9;
    std::size_t ops = 0;
    const auto now = [] { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
    for (int i = 0; i < 3; ++i) {
        const double begin = now();
        const auto made = makePlan(largeJob());
        const double planned = now();
        ASSERT_TRUE(verify(made->programs[0]));
        const double verified = now();
        EXPECT_EQ(digestOf(made->programs[0]), made->programs[0].digest);
        digest = std::min(digest, now() - verified);
        plan = std::min(plan, planned - begin);
        check = std::min(check, verified - planned);
        ops = made->programs[0].ops.size();
    }
    std::printf(
        "%zu ops: both programs planned and verified in %.1f ms; verify(train) %.1f ms, digest %.1f ms\n",
        ops, plan, check, digest);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(check, 100);
    EXPECT_LT(plan, 1000);
#endif
}

} // namespace rankyard::plan
