// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/job.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace rankyard;
using namespace rankyard::spec;

namespace {

Json document(const std::vector<std::pair<std::string, Json>> &changes)
{
    Json json = {{"schema", "rankyard/job/1"}, {"model", Json::object()}, {"data", {{"train", "corpus"}}}};
    for (const auto &[pointer, value] : changes)
        json[Json::json_pointer(pointer)] = value;
    return json;
}

struct Case {
    std::vector<std::pair<std::string, Json>> changes;
    std::string where;
    std::string what;     ///< a part of it
    std::string expected; ///< a part of it
};

void refused(const Case &c)
{
    const auto job = readJob(document(c.changes), "job.json");
    ASSERT_FALSE(job) << c.where << ' ' << c.what;
    const Error &error = job.error();
    EXPECT_EQ(error.code, Code::BadJob);
    EXPECT_EQ(error.where, c.where) << error.text();
    EXPECT_NE(error.what.find(c.what), std::string::npos) << error.text();
    EXPECT_NE(error.expected.find(c.expected), std::string::npos) << error.text();
    EXPECT_FALSE(error.found.empty()) << error.text();
}

JobSpec schedule(const char *kind, std::int64_t warmup, std::int64_t total)
{
    JobSpec job;
    job.data.train = "x";
    job.optimizer.lr = 1e-3;
    job.lrSchedule = {kind, warmup, total, 1e-4};
    return job;
}

} // namespace

TEST(JobRules, WhatThisVersionDoesNotHaveIsRefusedWithTheNearestThatWorks)
{
    const std::string no = "not in this version";
    const std::vector<Case> cases = {
        {{{"/precision/grad", "bf16"}}, "precision.grad", no, "\"fp32\""},
        {{{"/precision/grad", "fp64"}}, "precision.grad", no, "\"fp32\""},
        {{{"/precision/loss_in_16bit", true}}, "precision.loss_in_16bit", no, "false"},
        {{{"/offload/params", "nvme"}}, "offload.params", no, "\"none\""},
        {{{"/run/epochs", 1.5}}, "run.epochs", no, "null"},
        {{{"/run/compact_every", 70}}, "run.compact_every", no, "100"},
    };
    for (const Case &c : cases)
        refused(c);
}

TEST(JobRules, RangesAndEnumerations)
{
    const std::vector<Case> cases = {
        {{{"/model/layers", 0}}, "model.layers", "out of range", "nearest: 1"},
        {{{"/model/seq", 0}}, "model.seq", "out of range", "nearest: 1"},
        {{{"/model/norm_eps", 0}}, "model.norm_eps", "out of range", "more than 0"},
        {{{"/model/family", "gpt-2"}}, "model.family", "unknown value", "\"gpt2\""},
        {{{"/model/layers", "6"}}, "model.layers", "wrong type", "an integer"},
        {{{"/model/tied", 1}}, "model.tied", "wrong type", "true or false"},
        {{{"/precision/compute", "float32"}}, "precision.compute", "unknown value", "fp32"},
        {{{"/precision/compute", "i64"}}, "precision.compute", "unknown value", "fp32"},
        {{{"/precision/compute", 32}}, "precision.compute", "wrong type", "fp32"},
        {{{"/layout/dp", 0}}, "layout.dp", "out of range", "nearest: 1"},
        {{{"/layout/schedule", "interleave"}}, "layout.schedule", "unknown value", "\"interleaved\""},
        {{{"/run/steps", -1}}, "run.steps", "out of range", "nearest: 0"},
        {{{"/run/keep", 0}}, "run.keep", "out of range", "nearest: 1"},
        {{{"/optimizer/lr", -1}}, "optimizer.lr", "out of range", "nearest: 0"},
        {{{"/optimizer/betas", {0.9}}}, "optimizer.betas", "wrong type", "a list of two numbers"},
        {{{"/optimizer/betas", {0.9, 1.0}}}, "optimizer.betas[1]", "out of range", "less than 1"},
        {{{"/optimizer/no_decay", {"a", ""}}}, "optimizer.no_decay[1]", "empty", ""},
        {{{"/optimizer/no_decay", {"a", 1}}}, "optimizer.no_decay", "wrong type", "a list of strings"},
        {{{"/data/train", ""}}, "data.train", "empty", ""},
        {{{"/data/train", "a\nb"}}, "data.train", "control character", ""},
        {{{"/data/documents", "mask"}}, "data.documents", "unknown value", "\"pack\""},
        {{{"/comm/env", {{"PATH", "/x"}}}}, "comm.env", "may not be set", "OMP_*"},
        {{{"/comm/env", {{"OMP_", "/x"}}}}, "comm.env", "may not be set", "OMP_*"},
        {{{"/comm/env", {{"OMP_NUM_THREADS", 4}}}}, "comm.env", "wrong type", "strings"},
        {{{"/comm/env", {{"NCCL_DEBUGS", "INFO"}}}},
         "comm.env.NCCL_DEBUGS",
         "no such variable",
         "nearest: NCCL_DEBUG"},
        {{{"/comm/env", {{"NCCL_DEBUG", "INFOS"}}}}, "comm.env.NCCL_DEBUG", "not a value", "nearest: INFO"},
        {{{"/comm/env", {{"NCCL_IB_TIMEOUT", "99"}}}},
         "comm.env.NCCL_IB_TIMEOUT",
         "not a value",
         "nearest: 31"},
        {{{"/comm/env", {{"NCCL_P2P_LEVEL", "NVLINK"}}}},
         "comm.env.NCCL_P2P_LEVEL",
         "not a value",
         "LOC, NVL, PIX"},
        {{{"/comm/env", {{"NCCL_P2P_DISABLE", "yes"}}}},
         "comm.env.NCCL_P2P_DISABLE",
         "not a value",
         "0 or 1"},
        {{{"/comm/env", {{"CUDA_DEVICE_ORDER", "PCI"}}}},
         "comm.env.CUDA_DEVICE_ORDER",
         "not a value",
         "PCI_BUS_ID"},
        {{{"/lr_schedule/kind", "cosin"}}, "lr_schedule.kind", "unknown value", "\"cosine\""},
    };
    for (const Case &c : cases)
        refused(c);
}

TEST(JobRules, RulesOfMoreThanOneKey)
{
    const std::vector<Case> cases = {
        {{{"/batch/micro", 3}}, "batch.micro", "does not divide", "batch.micro 2, or batch.global 15"},
        {{{"/batch/micro", 32}}, "batch.micro", "does not divide", "batch.micro 16, or batch.global 32"},
        {{{"/layout/dp", 3}}, "batch.global", "not a multiple", "batch.global 12"},
        {{{"/layout/dp", 3}, {"/batch/global", 17}}, "batch.global", "not a multiple", "batch.global 12"},
        {{{"/layout/dp", 3}, {"/batch/global", 23}}, "batch.global", "not a multiple", "batch.global 24"},
        {{{"/model/heads", 7}}, "model.heads", "does not divide", "model.heads 6, or model.hidden 385"},
        {{{"/model/kv_heads", 4}}, "model.kv_heads", "does not divide", "3"},
        {{{"/model/rope", {{"rope_theta", 10000}}}}, "model.rope", "learned", "null"},
        {{{"/model/family", "llama"}, {"/model/rope", {{"rope_type", "su"}}}},
         "model.rope.rope_type",
         "unknown",
         "llama3"},
        {{{"/model/family", "llama"}, {"/model/head_dim", 33}}, "model.head_dim", "even", "34"},
        {{{"/layout/order", "dp-tp"}}, "layout.order", "each axis once", "tp-cp-dp-pp"},
        {{{"/model/seq", 1 << 23}}, "batch.micro", "too large", "at most 2"},
        {{{"/precision/compute", "fp64"}, {"/precision/grad", "fp16"}},
         "precision.grad",
         "not in this version",
         ""},
        {{{"/precision/loss_scale/mode", "static"}}, "precision.loss_scale.value", "needs its value", ""},
        {{{"/precision/loss_scale/value", 128}}, "precision.loss_scale.value", "no fixed value", ""},
        {{{"/precision/loss_scale/max_power", 8}},
         "precision.loss_scale.max_power",
         "smaller",
         "at least 16"},
        {{{"/precision/loss_scale/min", 1e9}}, "precision.loss_scale.min", "larger", "65536"},
        {{{"/lr_schedule/warmup", 300}}, "lr_schedule.warmup", "longer", "at most 200"},
        {{{"/lr_schedule/min_lr", 1}}, "lr_schedule.min_lr", "larger", "at most 0.0003"},
        {{{"/data/valid_fraction", 0}}, "run.eval_every", "no validation data", "0"},
    };
    for (const Case &c : cases)
        refused(c);
}

TEST(JobRules, WhatIsAccepted)
{
    const std::vector<std::vector<std::pair<std::string, Json>>> cases = {
        {{"/run/steps", 0}},
        {{"/model/tied", false}},
        {{"/model/kv_heads", nullptr}, {"/model/head_dim", 64}},
        {{"/layout/dp", 16}, {"/batch/micro", 1}, {"/zero/stage", 1}},
        {{"/comm/algorithm", "direct"}},
        {{"/comm/env", {{"OMP_NUM_THREADS", "2"}, {"LC_ALL", "C"}, {"NCCL_DEBUG", "INFO"}}}},
        {{"/comm/env",
          {{"NCCL_IB_HCA", "=mlx5_0:1"},
           {"NCCL_P2P_LEVEL", "NVL"},
           {"NCCL_NTHREADS", "256"},
           {"CUDA_VISIBLE_DEVICES", ""}}}},
        {{"/precision/compute", "bf16"}},
        {{"/precision/compute", "fp16"}},
        {{"/model/kv_heads", 3}},
        {{"/zero/stage", 3}, {"/zero/max_live", 5}},
        {{"/layout/cp", 2}, {"/recompute/mode", "full"}, {"/recompute/ratio", 0.5}},
        {{"/model/head_dim", 32}},
        {{"/model/dropout", 0.1}},
        {{"/model/family", "llama"}, {"/model/rope", {{"rope_theta", 5e5}}}},
        {{"/layout/tp", 2},
         {"/layout/pp", 3},
         {"/layout/order", "pp-dp-tp-cp"},
         {"/layout/schedule", "zb-h1"}},
        {{"/precision/compute", "fp64"}},
        {{"/precision/compute", "fp64"}, {"/precision/grad", "fp64"}},
        {{"/lr_schedule/kind", "constant"}, {"/lr_schedule/warmup", 500}},
        {{"/lr_schedule/kind", "linear"}, {"/lr_schedule/warmup", 0}},
        {{"/data/valid_fraction", 0}, {"/run/eval_every", 0}},
        {{"/data/valid_fraction", 0}, {"/data/valid", "other"}},
        {{"/zero/bucket_bytes", 1}},
        {{"/model/ffn", 1},
         {"/model/hidden", 1},
         {"/model/heads", 1},
         {"/model/seq", 1},
         {"/model/vocab", 1}},
    };
    for (const auto &changes : cases) {
        const auto job = readJob(document(changes), "j");
        EXPECT_TRUE(job) << job.error().text();
        if (job && job->precision.compute == DType::F64) {
            EXPECT_EQ(job->precision.grad, DType::F64);
            EXPECT_EQ(job->precision.master, DType::F64);
            EXPECT_EQ(job->precision.reduce, DType::F64);
        }
    }
}

TEST(JobRules, ValidateChecksJobsMadeInCode)
{
    JobSpec job;
    job.data.train = "x";
    EXPECT_TRUE(validateJob(job));
    job.batch.micro = 0;
    EXPECT_EQ(validateJob(job).error().where, "batch.micro");
    job.batch.micro = 4;
    job.model.heads = 0;
    EXPECT_EQ(validateJob(job).error().where, "model.heads");
    job.model.heads = 6;
    job.precision.compute = DType::F64;
    EXPECT_EQ(validateJob(job).error().where, "precision.grad");
    job.precision.grad = job.precision.master = job.precision.reduce = DType::F64;
    EXPECT_TRUE(validateJob(job));
    job.optimizer.lr = std::nan("");
    EXPECT_EQ(validateJob(job).error().where, "optimizer.lr");
}

TEST(LearningRate, WarmsUpThenFalls)
{
    const JobSpec cosine = schedule("cosine", 10, 110);
    EXPECT_DOUBLE_EQ(learningRate(cosine, 0), 0);
    EXPECT_DOUBLE_EQ(learningRate(cosine, -5), 0);
    EXPECT_DOUBLE_EQ(learningRate(cosine, 1), 1e-4);
    EXPECT_DOUBLE_EQ(learningRate(cosine, 10), 1e-3);
    EXPECT_DOUBLE_EQ(learningRate(cosine, 60), 5.5e-4);
    EXPECT_DOUBLE_EQ(learningRate(cosine, 110), 1e-4);
    EXPECT_DOUBLE_EQ(learningRate(cosine, 100000), 1e-4);
    EXPECT_NEAR(learningRate(cosine, 35), 1e-4 + 9e-4 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);

    const JobSpec linear = schedule("linear", 10, 110);
    EXPECT_DOUBLE_EQ(learningRate(linear, 35), 1e-4 + 9e-4 * 0.75);
    EXPECT_DOUBLE_EQ(learningRate(linear, 111), 1e-4);

    const JobSpec constant = schedule("constant", 10, 110);
    EXPECT_DOUBLE_EQ(learningRate(constant, 5), 5e-4);
    EXPECT_DOUBLE_EQ(learningRate(constant, 1000), 1e-3);
}

TEST(LearningRate, EdgesOfTheSchedule)
{
    EXPECT_DOUBLE_EQ(learningRate(schedule("cosine", 0, 100), 1),
                     1e-4 + 9e-4 * 0.5 * (1 + std::cos(M_PI / 100)));
    EXPECT_DOUBLE_EQ(learningRate(schedule("cosine", 10, 10), 10), 1e-3);
    EXPECT_DOUBLE_EQ(learningRate(schedule("cosine", 10, 10), 11), 1e-4);
    EXPECT_DOUBLE_EQ(learningRate(schedule("linear", 0, 1), 1), 1e-4);
    for (const char *kind : {"constant", "linear", "cosine"}) {
        double last = 1;
        for (std::int64_t step = 20; step < 300; ++step) {
            const double lr = learningRate(schedule(kind, 20, 200), step);
            EXPECT_LE(lr, last);
            last = lr;
        }
    }
}
