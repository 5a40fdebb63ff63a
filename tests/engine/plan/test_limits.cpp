// SPDX-License-Identifier: GPL-3.0-or-later
// What an agent plans for a client: any job that can be read ends as a plan or as a refusal, never as a fault of the planner.
#include "engine/spec/job_table.h"
#include "tests/engine/long.h"
#include "tests/engine/plan/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rankyard::plan {

using testing::HasSubstr;

namespace {

/// Values at and beyond the edges of a key, and of each kind that it might hold.
std::vector<Json> edgesOf(const spec::Field &field)
{
    const spec::Rule &rule = field.rule;
    std::vector<Json> values = {Json(), Json::array(), Json::object(), "", -1, 0, 1, 2, 3, true};
    for (const std::string &word : rule.values)
        values.emplace_back(word);
    for (const double bound : {rule.low, rule.high}) {
        if (!std::isfinite(bound))
            continue;
        for (const double value : {bound - 1, bound, bound + 1})
            values.push_back(value == std::floor(value) && std::fabs(value) < 0x1p53
                                 ? Json(static_cast<std::int64_t>(value))
                                 : Json(value));
    }
    for (const std::vector<std::int64_t> &list : {std::vector<std::int64_t>{0},
                                                  {1},
                                                  {4},
                                                  {2, 2},
                                                  {4, 0},
                                                  {0, 4},
                                                  {0, 0},
                                                  {10000, 10000},
                                                  {1, 1, 2},
                                                  {0, 4, 0}})
        values.emplace_back(list);
    values.emplace_back(std::numeric_limits<std::int64_t>::max());
    values.emplace_back(std::numeric_limits<std::int64_t>::min());
    values.emplace_back(1e300);
    return values;
}

/// The passes read nothing of the optimizer, the schedule of the learning rate, the data and the run.
bool isForPlanner(const std::string &path)
{
    for (const char *section :
         {"model.", "batch.", "layout.", "zero.", "comm.", "recompute.", "offload.", "compression."}) {
        if (path.starts_with(section))
            return true;
    }
    return path.starts_with("precision.") && !path.starts_with("precision.loss_scale.");
}

spec::JobSpec baseJob(std::int64_t pp, const char *schedule)
{
    spec::JobSpec job = smallJob(1, 1, 1);
    job.data.train = "corpus";
    job.run.evalEvery = 0;
    job.model.layers = 4;
    job.layout.pp = pp;
    job.layout.schedule = schedule;
    job.layout.virtualStages = schedule == std::string("zbv") ? 2 : 1;
    return job;
}

} // namespace

TEST(Limits, EveryKeyAtItsEdgesIsPlannedOrRefused)
{
    int planned = 0, refused = 0, drawn = 0;
    for (spec::JobSpec base : {baseJob(1, "1f1b"), baseJob(2, "zbv")}) {
        const Json document = Json::parse(dumpJson(spec::writeJob(base)));
        for (const spec::Field &field : spec::jobFields(base)) {
            for (const Json &value : edgesOf(field)) {
                Json changed = document;
                std::string pointer = "/" + field.path;
                std::replace(pointer.begin(), pointer.end(), '.', '/');
                changed[Json::json_pointer(pointer)] = value;
                SCOPED_TRACE(field.path + " = " + dumpJson(value));
                const auto job = spec::readJob(changed, "job");
                if (!job) {
                    EXPECT_NE(job.error().code, Code::Internal) << job.error().text();
                    ++refused;
                    continue;
                }
                // A deep model takes seconds to plan, whatever else it has.
                const bool wanted = isLong() || field.path.starts_with("layout.") || ++drawn % 6 == 0;
                if (job->microBatches() * job->model.layers > 1000 || !isForPlanner(field.path) || !wanted) {
                    (void)checkJob(*job);
                    continue;
                }
                const auto plan = makePlan(*job);
                if (!plan) {
                    EXPECT_NE(plan.error().code, Code::Internal) << plan.error().text();
                }
                ++(plan ? planned : refused);
            }
        }
    }
    EXPECT_GT(planned, 40);
    EXPECT_GT(refused, 500);
}

TEST(Limits, StagesAreCheckedInAPipelineOfOneToo)
{
    using Stages = std::vector<std::int64_t>;
    const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
    for (const Stages &stages :
         {Stages{}, {2, 2}, {3}, {5}, {0}, {4, 0}, {-1}, {huge}, {huge, huge}, {-4, 8}}) {
        spec::JobSpec job = baseJob(1, "1f1b");
        job.layout.stages = stages;
        const Status status = checkJob(job);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().where, "layout.stages");
        EXPECT_THAT(status.error().expected, HasSubstr("null, or 1 number with the sum 4"));
        EXPECT_FALSE(makePlan(job));
    }
    spec::JobSpec job = baseJob(1, "1f1b");
    job.layout.stages = Stages{4};
    EXPECT_TRUE(makePlan(job));
}

/// The agent plans it: a small job must not take its memory. What the refusal names is then planned.
TEST(Limits, SubGroupsAreCounted)
{
    for (const char *tier : {"cpu", "nvme"}) {
        spec::JobSpec job = baseJob(4, "1f1b");
        job.model.layers = 7;
        job.model.heads = 12;
        job.model.hidden = 72;
        job.model.seq = 6;
        job.offload.optimizer = tier;
        if (job.offload.optimizer == "nvme")
            job.offload.nvmePath = "/tmp";
        job.offload.params = "cpu";
        job.zero.subGroup = 1;
        const Status status = checkJob(job);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().where, "zero.sub_group");
        // 12 · 72² + 13 · 72 in each of 7 layers, 16 tokens and 6 positions and the last norm of 72: 443,664.
        EXPECT_EQ(status.error().expected, "at least 7");
        job.zero.subGroup = 7;
        EXPECT_TRUE(checkJob(job));
        job.offload.params = job.offload.optimizer = "none"; // nothing is cut then
        job.offload.nvmePath.reset();
        job.zero.subGroup = 1;
        EXPECT_TRUE(checkJob(job));
    }
}

/// Layers are numbered through the model, ops through a stage: a short program may be of a late layer.
TEST(Limits, AStageMayHaveFewerOpsThanTheModelLayers)
{
    spec::JobSpec job = smallJob(1, 0, 1);
    job.model.layers = 64;
    job.layout.pp = 2;
    for (const std::vector<std::int64_t> &stages :
         {std::vector<std::int64_t>{64, 0}, {63, 1}, {1, 63}, {32, 32}}) {
        job.layout.stages = stages;
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
    }
    // And one beyond the model's is found.
    Plan plan = *makePlan(job);
    for (StepProgram &program : plan.programs) {
        for (Op &op : program.ops)
            op.unit.layer += op.unit.layer == none ? 0 : 1;
    }
    const Status status = verifyTogether(plan, ProgramKind::Train);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().what, HasSubstr("of a layer that the model does not have"));
}

} // namespace rankyard::plan
