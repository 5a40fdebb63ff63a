// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/rope.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace rankyard;
using namespace rankyard::spec;

namespace {

Model modelWith(std::int64_t size, const char *rope, std::int64_t seq = 8192)
{
    Model model;
    model.heads = 4;
    model.hidden = 4 * size;
    model.seq = seq;
    model.rope = Json::parse(rope);
    return model;
}

double frequency(const Model &model, std::size_t pair)
{
    const auto rope = ropeOf(model);
    EXPECT_TRUE(rope.ok()) << rope.error().text();
    return rope.ok() ? rope->frequency[pair] : 0;
}

void expectRefused(const char *rope, const char *where)
{
    const auto made = ropeOf(modelWith(64, rope));
    ASSERT_FALSE(made.ok()) << rope;
    EXPECT_EQ(made.error().code, Code::BadJob);
    EXPECT_EQ(made.error().where, where);
}

} // namespace

TEST(Rope, PlainOnesArePowersOfTheta)
{
    for (const char *rope : {"null", "{}", R"({"rope_theta": 10000, "rope_type": "default"})"}) {
        EXPECT_EQ(frequency(modelWith(64, rope), 0), 1);
        EXPECT_NEAR(frequency(modelWith(64, rope), 16), 0.01, 1e-16);
    }
    EXPECT_NEAR(frequency(modelWith(8, R"({"rope_theta": 16})"), 1), 0.5, 1e-16);
    EXPECT_NEAR(frequency(modelWith(8, R"({"rope_theta": 16, "rope_type": "linear", "factor": 4})"), 1),
                0.125, 1e-16);
}

/// By the formulas of Hugging Face's modeling_rope_utils.py, evaluated in Python for Llama 3.1 8B's configuration.
TEST(Rope, Llama3InBothSpellings)
{
    for (
        const char *rope :
        {R"({"rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
              "high_freq_factor": 4, "original_max_position_embeddings": 8192}})",
         R"({"rope_theta": 500000, "type": "llama3", "factor": 8, "original_max_position_embeddings": 8192})"}) {
        const Model model = modelWith(128, rope);
        for (const auto &[pair, wanted] : {std::pair<std::size_t, double>{0, 1.0},
                                           {1, 0.8146172338565447},
                                           {28, 0.0032114459947525913},
                                           {29, 0.002166570763503359},
                                           {30, 0.0013718935677611381},
                                           {32, 0.0005248461609929547},
                                           {34, 0.00017850781276799638},
                                           {35, 9.556212353964683e-05},
                                           {63, 3.068925988914511e-07}})
            EXPECT_NEAR(frequency(model, pair), wanted, 1e-13 * wanted) << pair;
    }
}

TEST(Rope, YarnAndDynamic)
{
    const Model yarn =
        modelWith(64, R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 2048})");
    for (const auto &[pair, wanted] : {std::pair<std::size_t, double>{0, 1.0},
                                       {8, 0.1},
                                       {12, 0.024325212770525993},
                                       {15, 0.00794983930712751},
                                       {20, 0.0009730085108210396},
                                       {31, 3.33380358040831e-05}})
        EXPECT_NEAR(frequency(yarn, pair), wanted, 1e-13 * wanted) << pair;
    EXPECT_NEAR(ropeOf(yarn)->scale, 1.138629436111989, 1e-14);
    const char *dynamic =
        R"({"rope_type": "dynamic", "factor": 2, "original_max_position_embeddings": 2048})";
    EXPECT_NEAR(frequency(modelWith(64, dynamic, 4096), 5), 0.19863005319821675, 1e-15);
    EXPECT_NEAR(frequency(modelWith(64, dynamic, 2048), 16), 0.01, 1e-16);
}

TEST(Rope, WhatIsUnknownOrMissingIsRefused)
{
    expectRefused(R"({"rope_type": "longrope", "factor": 2})", "model.rope.rope_type");
    expectRefused(R"({"rope_scaling": {"type": "su"}})", "model.rope.type");
    expectRefused(R"({"rope_type": "linear"})", "model.rope.factor");
    expectRefused(R"({"rope_type": "yarn", "factor": 2})", "model.rope.original_max_position_embeddings");
    expectRefused(R"({"theta": 10000})", "model.rope");
    expectRefused(R"({"rope_theta": 0})", "model.rope.rope_theta");
    expectRefused(R"([1])", "model.rope");
    EXPECT_FALSE(ropeOf(modelWith(3, "null")).ok());
}
