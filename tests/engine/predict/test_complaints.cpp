// SPDX-License-Identifier: GPL-3.0-or-later
// What users of memory and time estimators have complained about, by the threads where they did: each as a case that this one gets right.
#include "engine/cluster/sources.h"
#include "engine/predict/conventions.h"
#include "engine/predict/verdict.h"
#include "engine/spec/model_presets.h"

#include <gtest/gtest.h>

namespace rankyard::predict {
namespace {

spec::JobSpec jobOf(const char *preset, std::int64_t seq)
{
    spec::JobSpec job;
    job.data.train = "corpus";
    job.model = spec::findModelPreset(preset)->model;
    job.model.seq = seq;
    return job;
}

Verdict judged(const spec::JobSpec &job, const char *cluster)
{
    return judge(job, cluster::openCluster(cluster).value(), Json(spec::writeJob(job)));
}

std::int64_t bytesOf(const StageMemory &stage, plan::MemoryKind kind)
{
    return stage.report.bytes[static_cast<std::size_t>(kind)];
}

/// NVIDIA/Megatron-LM#525: a model of 774 M whose states fit runs out of memory all the same. States are not the answer.
TEST(Complaints, StatesFitAndTheRunDoesNot)
{
    spec::JobSpec job = jobOf("gpt2-large", 1024);
    job.precision.compute = DType::F16;
    job.batch.micro = job.batch.global = 16;
    const Verdict verdict = judged(job, "pcie-4090");
    const StageMemory &stage = verdict.stages.at(0);
    const std::int64_t states = bytesOf(stage, plan::MemoryKind::Params)
        + bytesOf(stage, plan::MemoryKind::Grads) + bytesOf(stage, plan::MemoryKind::Optimizer);
    EXPECT_NEAR(static_cast<double>(states), 18.0 * 774e6, 0.01 * 18 * 774e6);
    EXPECT_LT(states, stage.capacity / 2 + stage.capacity / 8);
    EXPECT_EQ(verdict.answer, Verdict::Answer::DoesNotFit);
    EXPECT_GT(bytesOf(stage, plan::MemoryKind::Activations), stage.capacity / 2);
    EXPECT_GT(bytesOf(stage, plan::MemoryKind::Workspace), 0) << "logits";
    EXPECT_GT(stage.context, 0) << "driver, communication, headroom";
    ASSERT_FALSE(verdict.problems.empty());
    EXPECT_FALSE(verdict.problems[0].fixes.empty()) << "and a way out";
}

/// deepspeedai/DeepSpeed#4527, #4093: 0.49 GB by the estimator, 14.7 to 21 GB measured: everything is offloaded but the activations.
TEST(Complaints, OffloadedStatesLeaveActivations)
{
    spec::JobSpec job = jobOf("llama-7b", 2048);
    job.model.layers = 8; // a quarter: activations and what is gathered are of a layer or in proportion
    job.precision.compute = DType::BF16;
    job.layout.dp = 4;
    job.batch.micro = 4;
    job.batch.global = 16;
    job.zero.stage = 3;
    job.zero.maxLive = 0;
    job.offload.optimizer = job.offload.params = "cpu";
    DeepSpeedCase theirs;
    theirs.params = 1.9e9;
    theirs.largestLayer = 131e6;
    theirs.gpusPerNode = 4;
    theirs.offloadParams = theirs.offloadOptimizer = true;
    const Verdict verdict = judged(job, "dgx-a100-80");
    const StageMemory &stage = verdict.stages.at(0);
    const auto device = static_cast<double>(stage.used - stage.context);
    EXPECT_GT(device, 5 * deepspeedZero3(theirs).device);
    EXPECT_GT(bytesOf(stage, plan::MemoryKind::Host), 0)
        << "deepspeedai/DeepSpeed#3606: and the host's memory counts";
    EXPECT_GT(verdict.hostUsed, 3 * bytesOf(stage, plan::MemoryKind::Host)) << "of all ranks of the node";
}

/// NVIDIA/Megatron-LM#488: 20 and 50 GB on two pipeline ranks where a tool had one number.
TEST(Complaints, EveryStageHasItsOwnNumber)
{
    spec::JobSpec job = jobOf("gpt2-medium", 1024);
    job.layout.pp = 4;
    job.batch.global = 64;
    const Verdict verdict = judged(job, "dgx-a100-80");
    ASSERT_EQ(verdict.stages.size(), 4u);
    for (std::size_t i = 1; i < 4; ++i)
        EXPECT_LT(bytesOf(verdict.stages[i], plan::MemoryKind::Activations),
                  bytesOf(verdict.stages[i - 1], plan::MemoryKind::Activations));
}

/// Hsword/Hetu#70, huggingface/accelerate#2512: constants without a source, numbers without their assumptions.
TEST(Complaints, EveryNumberOpensIntoWhatItIsMadeOf)
{
    spec::JobSpec job = jobOf("gpt2", 1024);
    job.layout.dp = 2;
    job.layout.pp = 2;
    const Verdict verdict = judged(job, "dgx-a100-80");
    ASSERT_GT(verdict.figures.size(), 6u);
    for (const Figure &figure : verdict.figures) {
        EXPECT_FALSE(figure.formula.empty()) << figure.key;
        EXPECT_FALSE(figure.source.empty()) << figure.key;
        EXPECT_FALSE(figure.inputs.empty()) << figure.key;
    }
    EXPECT_FALSE(verdict.notes.empty());
    EXPECT_GT(verdict.figure("step")->spread, 0) << "TylerYep/torchinfo#149: an interval, not a number alone";
    for (const Constant &constant : constants())
        EXPECT_NE(std::string(constant.what), "") << constant.name;
}

} // namespace
} // namespace rankyard::predict
