// SPDX-License-Identifier: GPL-3.0-or-later
// What is refused or said before a job is planned.
#include "engine/plan/combine.h"
#include "engine/plan/plan.h"
#include "tests/engine/plan/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

namespace rankyard::plan {

using testing::HasSubstr;

/// Each rule of the table is met by a job, and says what works.
TEST(Rules, PlanRefusesWhatDoesNotCombine)
{
    struct Case {
        const char *path;
        const char *rule;
        std::function<void(spec::JobSpec &)> change;
    };
    const std::vector<Case> cases = {
        {"compression.mode", "ZeRO 2 and 3",
         [](auto &j) {
             j.compression.mode = "int8";
             j.zero.stage = 2;
         }},
        {"compression.mode", "without replicas",
         [](auto &j) {
             j.compression.mode = "int8";
             j.layout.dp = 1;
         }},
        {"recompute.partition", "inputs are what", [](auto &j) { j.recompute.partition = true; }},
        {"recompute.partition", "without a tensor group",
         [](auto &j) {
             j.recompute.partition = true;
             j.recompute.mode = "full";
         }},
        {"recompute.partition", "sequence parallelism",
         [](auto &j) {
             j.recompute.partition = j.layout.sequenceParallel = true;
             j.recompute.mode = "full";
             j.layout.tp = 2;
         }},
        {"recompute.partition", "does not divide",
         [](auto &j) {
             j.recompute.partition = true;
             j.recompute.mode = "full";
             j.layout.tp = 3;
         }},
        {"recompute.to_host", "inputs are what",
         [](auto &j) {
             j.recompute.toHost = true;
             j.recompute.mode = "attention";
         }},
        {"precision.reduce", "no sum to make",
         [](auto &j) {
             j.compression.mode = "int8";
             j.precision.reduce = DType::BF16;
         }},
        {"precision.reduce", "loss scale", [](auto &j) { j.precision.reduce = DType::F16; }},
        {"precision.reduce", "in steps",
         [](auto &j) {
             j.comm.algorithm = "ring";
             j.precision.reduce = DType::BF16;
         }},
        {"comm.algorithm", "codes are gathered",
         [](auto &j) {
             j.compression.mode = "int8";
             j.comm.algorithm = "ring";
         }},
        {"comm.algorithm", "ZeRO 2 and 3",
         [](auto &j) {
             j.zero.stage = 2;
             j.comm.algorithm = "direct";
         }},
        {"comm.algorithm", "64 ranks",
         [](auto &j) {
             j.layout.dp = 65;
             j.batch.global = 130;
             j.comm.algorithm = "ring";
         }},
        {"zero.shard", "something that is sharded",
         [](auto &j) {
             j.zero.shard = 2;
             j.zero.stage = 0;
         }},
        {"zero.shard", "blocks of equal size", [](auto &j) { j.zero.shard = 3; }},
        {"offload.params", "by an optimizer on the host", [](auto &j) { j.offload.params = "cpu"; }},
        {"zero.stage", "come unit by unit", [](auto &j) { j.offload.params = j.offload.optimizer = "cpu"; }},
        {"offload.nvme_path", "need a folder", [](auto &j) { j.offload.optimizer = "nvme"; }},
        {"offload.nvme_path", "nothing is kept", [](auto &j) { j.offload.nvmePath = "/tmp"; }},
    };
    std::set<std::string> met;
    for (const Case &c : cases) {
        spec::JobSpec job = smallJob();
        c.change(job);
        const auto plan = makePlan(job);
        ASSERT_FALSE(plan) << c.rule;
        EXPECT_EQ(plan.error().code, Code::BadJob);
        EXPECT_EQ(plan.error().where, c.path);
        EXPECT_THAT(plan.error().what, HasSubstr(c.rule));
        EXPECT_FALSE(plan.error().found.empty() || plan.error().expected.empty());
        met.insert(plan.error().what);
    }
    EXPECT_EQ(met.size() + 1, combinations().size()) << "one text is that of two";
}

/// The same of the rules of layouts; what they say has the job's numbers.
TEST(Rules, PlanRefusesLayoutsThatDoNotDivide)
{
    struct Case {
        const char *path;
        const char *says;
        const char *nearest;
        std::function<void(spec::JobSpec &)> change;
    };
    const std::vector<Case> cases = {
        {"model.kv_heads", "must divide model.heads", "2",
         [](auto &j) {
             j.model.heads = 2;
             j.model.kvHeads = 3;
         }},
        {"model.heads", "multiple of layout.tp = 3", "layout.tp 2, or model.heads 3",
         [](auto &j) { j.layout.tp = 3; }},
        {"model.ffn", "multiple of layout.tp = 2", "layout.tp 1, or model.ffn 32",
         [](auto &j) {
             j.layout.tp = 2;
             j.model.ffn = 33;
         }},
        {"model.kv_heads", "must divide layout.tp = 3 or be a multiple of it", "layout.tp 2",
         [](auto &j) {
             j.model.heads = 6;
             j.model.hidden = 24;
             j.model.ffn = 96;
             j.model.kvHeads = 2;
             j.layout.tp = 3;
         }},
        {"model.seq", "multiple of 2 · layout.cp = 6", "6", [](auto &j) { j.layout.cp = 3; }},
        {"layout.sequence_parallel", "7 tokens a rank, which layout.tp = 2",
         "false, or model.seq 6, or layout.tp 1",
         [](auto &j) {
             j.layout.tp = 2;
             j.layout.sequenceParallel = true;
             j.batch.micro = 1;
             j.model.seq = 7;
         }},
        {"layout.virtual", "needs pp > 1", "1", [](auto &j) { j.layout.virtualStages = 2; }},
        {"layout.virtual", "zbv has two chunks", "2",
         [](auto &j) {
             j.layout.pp = 2;
             j.layout.schedule = "zbv";
         }},
        {"layout.pp", "= 4 stages are too many for 2 layers", "3, or model.layers 3",
         [](auto &j) { j.layout.pp = 4; }},
        {"batch.global", "interleaved needs", "16",
         [](auto &j) {
             j.model.layers = 4;
             j.layout.pp = 2;
             j.layout.virtualStages = 2;
             j.layout.schedule = "interleaved";
             j.batch.global = 20;
         }},
        {"layout.stages", "layers of each virtual stage", "null, or 1 number with the sum 2",
         [](auto &j) {
             j.layout.stages = {1, 1};
         }},
        {"zero.stage", "layout.pp 1 with layout.dp 4", "1",
         [](auto &j) {
             j.layout.pp = 2;
             j.zero.stage = 2;
         }},
        {"batch.global", "multiple of dp · micro", "12", [](auto &j) { j.batch.global = 9; }},
    };
    std::set<const Rule *> met;
    for (const Case &c : cases) {
        spec::JobSpec job = smallJob();
        c.change(job);
        const Status legal = checkJob(job);
        ASSERT_FALSE(legal) << c.says;
        EXPECT_EQ(legal.error().where, c.path) << c.says;
        EXPECT_THAT(legal.error().what, HasSubstr(c.says));
        EXPECT_EQ(legal.error().expected, c.nearest) << c.says;
        const auto rules = layoutRules();
        met.insert(&*std::find_if(rules.begin(), rules.end(), [&](const Rule &r) { return r.broken(job); }));
    }
    EXPECT_EQ(met.size(), layoutRules().size());
}

/// What bounds a plan before it is made is near what is made, wherever ops come from.
TEST(Rules, OpsAreEstimatedBeforeTheyAreMade)
{
    const std::vector<std::function<void(spec::JobSpec &)>> changes = {
        [](auto &) {},
        [](auto &j) { j.batch.global = 64; },
        [](auto &j) { j.recompute.mode = "full"; },
        [](auto &j) { j.recompute.mode = "selective"; },
        [](auto &j) { j.layout.tp = 4; },
        [](auto &j) {
            j.layout.tp = 4;
            j.layout.sequenceParallel = true;
        },
        [](auto &j) { j.layout.cp = 4; },
        [](auto &j) { j.layout.cp = 8; },
        [](auto &j) {
            j.layout.cp = 8;
            j.recompute.mode = "full";
        },
        [](auto &j) {
            j.layout.pp = 4;
            j.batch.global = 64;
        },
        [](auto &j) { j.model.vocab = 200'000; },
        [](auto &j) {
            j.layout.dp = 16;
            j.batch.global = 64;
            j.zero.bucketBytes = 1000;
        },
        [](auto &j) {
            j.layout.dp = 16;
            j.batch.global = 64;
            j.zero.bucketBytes = 1000;
            j.comm.algorithm = "ring";
        },
        [](auto &j) {
            j.layout.dp = 16;
            j.batch.global = 256;
            j.zero.bucketBytes = 1000;
            j.zero.stage = 2;
        },
        [](auto &j) {
            j.layout.dp = 16;
            j.batch.global = 256;
            j.zero.stage = 3;
        },
    };
    for (std::size_t i = 0; i < changes.size(); ++i) {
        spec::JobSpec job;
        job.model.layers = 8;
        job.model.hidden = 64;
        job.model.heads = 8;
        job.model.seq = 256;
        job.model.vocab = 512;
        job.batch.micro = 4;
        job.batch.global = 4;
        changes[i](job);
        const auto plan = makePlan(job, PlanDepth::Ordered);
        ASSERT_TRUE(plan) << i << ": " << plan.error().text();
        double ops = 0;
        for (const StepProgram &program : plan->programs)
            ops += program.kind == ProgramKind::Train ? static_cast<double>(program.ops.size()) : 0;
        EXPECT_GT(estimatedOps(job), ops / 1.5) << i << ": " << ops;
        EXPECT_LT(estimatedOps(job), ops * 1.5) << i << ": " << ops;
    }
}

/// Settings without an effect are legal, and said; each of the table is met, the default job has none.
TEST(Rules, SettingsWithoutEffectAreSaid)
{
    const std::vector<std::pair<const char *, std::function<void(spec::JobSpec &)>>> cases = {
        {"recompute.ratio 0.5", [](auto &j) { j.recompute.ratio = 0.5; }},
        {"recompute.every 2", [](auto &j) { j.recompute.every = 2; }},
        {"recompute.every 2",
         [](auto &j) {
             j.recompute.mode = "full";
             j.recompute.every = 2;
             j.recompute.ratio = 0.5;
         }},
        {"layout.sequence_parallel true", [](auto &j) { j.layout.sequenceParallel = true; }},
        {"layout.schedule gpipe", [](auto &j) { j.layout.schedule = "gpipe"; }},
        {"layout.schedule interleaved",
         [](auto &j) {
             j.zero.stage = 1;
             j.layout.pp = 2;
             j.layout.schedule = "interleaved";
         }},
        {"zero.stage 1",
         [](auto &j) {
             j.layout.dp = 1;
             j.batch.global = 4;
         }},
        {"comm.algorithm ring",
         [](auto &j) {
             j.zero.stage = 0;
             j.layout.dp = 1;
             j.comm.algorithm = "ring";
         }},
        {"precision.reduce bf16",
         [](auto &j) {
             j.zero.stage = 0;
             j.layout.dp = 1;
             j.precision.reduce = DType::BF16;
         }},
        {"precision.loss_scale.mode static",
         [](auto &j) {
             j.precision.lossScale.mode = "static";
             j.precision.lossScale.value = 8;
         }},
        {"compression.mode int8",
         [](auto &j) {
             j.compression.mode = "int8";
             j.compression.block = 1;
         }},
        {"compression.mode topk",
         [](auto &j) {
             j.compression.mode = "topk";
             j.compression.density = 1;
         }},
    };
    EXPECT_TRUE(idleNotes(smallJob()).empty());
    std::set<const Rule *> met;
    for (const auto &[begin, change] : cases) {
        spec::JobSpec job = smallJob();
        change(job);
        ASSERT_TRUE(checkJob(job)) << begin;
        const auto notes = idleNotes(job);
        ASSERT_EQ(notes.size(), 1u) << begin;
        EXPECT_EQ(notes[0].find(std::string(begin) + " is of no use: "), 0u) << notes[0];
        for (const Rule &rule : idleSettings()) {
            if (rule.broken(job))
                met.insert(&rule);
        }
    }
    EXPECT_EQ(met.size(), idleSettings().size());
}

} // namespace rankyard::plan
