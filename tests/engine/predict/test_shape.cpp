// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/flops.h"
#include "engine/predict/shape.h"

#include <gtest/gtest.h>

namespace rankyard::predict {
namespace {

const Shape &model(const char *name)
{
    const Shape *found = findModel(name);
    EXPECT_NE(found, nullptr) << name;
    static const Shape none;
    return found ? *found : none;
}

double billions(const char *name) { return static_cast<double>(paramsOf(model(name))) / 1e9; }

TEST(Shape, CountsOfModelCardsAndPapers)
{
    // Exact: printed by the tools and cards of these models.
    EXPECT_EQ(paramsOf(model("LLAMA3-8B")), 8030261248);
    EXPECT_EQ(paramsOf(model("Llama 3.1 70B")), 70553706496);
    EXPECT_EQ(paramsOf(model("LLaMA-2-7B")), 6738415616);
    EXPECT_EQ(paramsOf(model("LLaMA 13B")), 13015864320);
    EXPECT_EQ(paramsOf(model("Llama3.2-1B")), 1235814400);
    EXPECT_EQ(paramsOf(model("Qwen2.5 7B")), 7615616512);
    EXPECT_EQ(paramsOf(model("mistral-7b")), 7241732096);
    EXPECT_EQ(paramsOf(model("Mixtral 8x7B")), 46702792704);
    EXPECT_EQ(paramsOf(model("SmolLM-1.7B")), 1711376384);
    // Rounded, as the papers print them. DeepSeek V3 and Kimi K2 without the extra prediction module.
    EXPECT_NEAR(billions("DeepSeekV3"), 671.0, 0.3);
    EXPECT_NEAR(billions("Kimi_K2"), 1026, 3);
    EXPECT_NEAR(billions("Moonlight 16B (MoE, MLA)"), 16, 0.3);
    EXPECT_NEAR(billions("Qwen3_30B_a3B"), 30.5, 0.1);
    EXPECT_NEAR(billions("Qwen3_235B_a22B"), 235, 0.5);
    EXPECT_NEAR(billions("Llama 3 405B"), 405.9, 0.1);
    EXPECT_NEAR(billions("GPT3-175B"), 174.6, 0.1);
    EXPECT_NEAR(static_cast<double>(activeParams(model("DeepSeek V3 671B"))) / 1e9, 37.6, 0.4);
    EXPECT_NEAR(static_cast<double>(activeParams(model("Qwen3_30B_a3B"))) / 1e9, 3.3, 0.1);
}

TEST(Shape, NamesAreFoundHoweverTheyAreSpelt)
{
    EXPECT_EQ(model("LLAMA2-13B").layers, 40);
    EXPECT_EQ(model("Llama 2 13B").layers, 40);
    EXPECT_EQ(model("Llama3 70B 2-node").layers, 80);
    EXPECT_EQ(model("LLaMA-13B (Megatron-LLaMA)").vocab, 32000);
    EXPECT_EQ(model("GPT-OSS 20B").experts.count, 32);
    EXPECT_EQ(findModel("nobody's 7B"), nullptr);
    EXPECT_EQ(findModel(""), nullptr);
}

TEST(Shape, PaddedVocabularyGrowsWithTensorParallelism)
{
    // Megatron-LM with its 128: GPT-2's 50257.
    EXPECT_EQ(paddedVocab(50257, 1), 50304);
    EXPECT_EQ(paddedVocab(50257, 4), 50688);
    EXPECT_EQ(paddedVocab(50257, 8), 51200);
}

TEST(Flops, ClosedFormsOfThePapers)
{
    Shape gpt = model("GPT3-175B");
    const double L = 96, h = 12288, s = 2048, V = 51200, B = 1536;
    const double hw = 96 * B * L * s * h * h * (1 + s / (6 * h) + V / (16 * L * h));
    EXPECT_NEAR(stepFlops(gpt, B, Convention::Hardware4) / hw, 1, 1e-12);
    const double m3 = 72 * B * L * s * h * h * (1 + s / (6 * h) + V / (12 * L * h));
    EXPECT_NEAR(stepFlops(gpt, B, Convention::Model3) / m3, 1, 1e-12);
    EXPECT_NEAR(stepFlops(gpt, B, Convention::Model3) - stepFlops(gpt, B, Convention::Model3Causal),
                B * s * 6 * L * s * h, 1e3);
    // NVIDIA's two figures of one model: 57.9 and 51.5 GFLOP a token.
    Shape eight = model("LLAMA3-8B");
    EXPECT_NEAR(stepFlops(eight, 1, Convention::Model3) / 8192 / 1e9, 57.9, 0.05);
    EXPECT_NEAR(stepFlops(eight, 1, Convention::Model3Causal) / 8192 / 1e9, 51.5, 0.05);
    EXPECT_EQ(conventionFrom("8N*tokens"), Convention::EightN);
    EXPECT_FALSE(conventionFrom("M4"));
}

} // namespace
} // namespace rankyard::predict
