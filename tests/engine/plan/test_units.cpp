// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"
#include "tests/engine/plan/jobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace rankyard::plan {

TEST(Units, TensorsOfGpt2)
{
    spec::JobSpec job = largeJob();
    const std::vector<TensorSpec> tensors = modelTensors(job);
    ASSERT_EQ(tensors.size(), 2U + 12 * 12 + 2);
    EXPECT_EQ(tensors[0].name, "wte.weight");
    EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{50257, 768}));
    EXPECT_EQ(tensors[4].name, "layers.0.attn.qkv.weight");
    EXPECT_EQ(tensors[4].shape, (std::vector<std::int64_t>{2304, 768}));
    EXPECT_EQ(tensors.back().name, "norm.bias");
    std::int64_t numel = 0;
    for (const TensorSpec &tensor : tensors)
        numel += numelOf(tensor.shape);
    EXPECT_EQ(numel, 124439808); // GPT-2 small as published
    job.model.tied = false;
    EXPECT_EQ(modelTensors(job).back().name, "head.weight");
}

/// Parameters of the published models (their config.json and safetensors indices).
TEST(Units, TensorsOfLlama)
{
    spec::JobSpec job;
    job.model.family = "llama";
    job.model.tied = false;
    const auto count = [&](std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                           std::int64_t keyHeads, std::int64_t ffn, std::int64_t vocab) {
        job.model.layers = layers;
        job.model.hidden = hidden;
        job.model.heads = heads;
        job.model.kvHeads = keyHeads;
        job.model.ffn = ffn;
        job.model.vocab = vocab;
        std::int64_t numel = 0;
        for (const TensorSpec &tensor : modelTensors(job))
            numel += numelOf(tensor.shape);
        return numel;
    };
    EXPECT_EQ(count(32, 4096, 32, 32, 11008, 32000), 6738415616);
    EXPECT_EQ(count(32, 4096, 32, 8, 14336, 128256), 8030261248);
    EXPECT_EQ(count(80, 8192, 64, 8, 28672, 128256), 70553706496);
}

TEST(Units, SectionsOfTheTensorGroup)
{
    spec::JobSpec job;
    job.model.family = "llama";
    job.model.layers = 1;
    job.model.hidden = 48;
    job.model.heads = 12;
    job.model.kvHeads = 3;
    job.model.ffn = 60;
    job.model.vocab = 257;
    job.layout.tp = 6; // two ranks share each KV head
    std::map<std::string, TensorSpec> tensors;
    for (const TensorSpec &tensor : modelTensors(job))
        tensors[tensor.name] = tensor;
    const auto sections = [&](const char *name) { return tensors[name].sections; };
    EXPECT_EQ(sections("layers.0.attn.qkv.weight"),
              (std::vector<Section>{{48, 8, 1}, {12, 4, 2}, {12, 4, 2}}));
    EXPECT_EQ(sections("layers.0.mlp.up.weight"), (std::vector<Section>{{60, 10, 1}, {60, 10, 1}}));
    EXPECT_EQ(sections("layers.0.mlp.down.weight"), (std::vector<Section>{{60, 10, 1}}));
    EXPECT_EQ(tensors["layers.0.mlp.down.weight"].axis, 1);
    EXPECT_EQ(tensors["layers.0.attn.out.weight"].axis, 1);
    EXPECT_EQ(sections("wte.weight"), (std::vector<Section>{{257, 43, 1}}))
        << "one row of padding on the last";
    EXPECT_EQ(tensors["norm.weight"].axis, none);
    job.model.family = "gpt2";
    for (const TensorSpec &tensor : modelTensors(job))
        tensors[tensor.name] = tensor;
    EXPECT_EQ(sections("layers.0.attn.qkv.bias"), sections("layers.0.attn.qkv.weight"));
    EXPECT_EQ(tensors["layers.0.attn.out.bias"].axis, none) << "added after the sum, by every rank alike";
    job.layout.tp = 1;
    for (const TensorSpec &tensor : modelTensors(job))
        EXPECT_EQ(tensor.axis, none);
}

/// Balanced causal halves: each rank has as much above the diagonal as any other, and every position stands on one rank.
TEST(Units, PositionsOfContextRanks)
{
    for (const std::int64_t ranks : {1, 2, 3, 5}) {
        const std::int64_t seq = 6 * ranks;
        std::vector<int> seen(static_cast<std::size_t>(seq), 0);
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
            std::int64_t keys = 0;
            for (std::int64_t row = 0; row < seq / ranks; ++row) {
                const std::int64_t position = positionOf(row, seq, rank, ranks);
                ++seen[static_cast<std::size_t>(position)];
                keys += position + 1;
            }
            EXPECT_EQ(keys, seq * (seq + 1) / 2 / ranks);
        }
        EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(seq), 1));
    }
}

TEST(Units, InitAndDecay)
{
    const spec::JobSpec job = largeJob();
    for (const TensorSpec &tensor : modelTensors(job)) {
        const bool bias = tensor.name.ends_with(".bias");
        const bool norm = tensor.name.find("norm") != std::string::npos;
        EXPECT_EQ(tensor.decay, !bias && !norm) << tensor.name;
        const bool residual =
            tensor.name.ends_with("attn.out.weight") || tensor.name.ends_with("mlp.down.weight");
        EXPECT_DOUBLE_EQ(tensor.initStd,
                         bias || norm   ? 0
                             : residual ? 0.02 / std::sqrt(24.0)
                                        : 0.02)
            << tensor.name;
        EXPECT_EQ(tensor.initValue, norm && !bias ? 1 : 0) << tensor.name;
    }
    spec::JobSpec globs = job;
    globs.optimizer.noDecay = {"layers.?.attn.*", "w?e.weight"};
    for (const TensorSpec &tensor : modelTensors(globs)) {
        const bool attn = tensor.name.rfind("layers.", 0) == 0 && tensor.name[8] == '.'
            && tensor.name.find(".attn.") != std::string::npos;
        EXPECT_EQ(tensor.decay, !attn && tensor.name != "wte.weight" && tensor.name != "wpe.weight")
            << tensor.name;
    }
}

TEST(Units, LossChunks)
{
    spec::JobSpec job = smallJob();
    EXPECT_EQ(lossChunkTokens(job), 8) << "few tokens are one chunk";
    job = largeJob();
    const std::int64_t chunk = lossChunkTokens(job);
    EXPECT_GE(chunk, 128);
    EXPECT_LE(chunk * 50257 * 4, 40 << 20);
    job.model.vocab = 1 << 20;
    EXPECT_EQ(lossChunkTokens(job), 128);
    for (std::int64_t seq = 1; seq < 3000; seq += 7) {
        job.model.seq = seq;
        const std::int64_t size = lossChunkTokens(job);
        EXPECT_GE(size, std::min<std::int64_t>(seq, 64));
        EXPECT_LE(size, seq);
    }
}

/// 6 flops a parameter of the linear layers and token, and attention: the usual count (Megatron: 96·… without the head's norm).
TEST(Units, FlopsOfAStep)
{
    const spec::JobSpec job = largeJob();
    const auto plan = makePlan(job);
    ASSERT_TRUE(plan);
    double flops = 0;
    for (const Op &op : plan->program(ProgramKind::Train, 0).ops)
        flops += static_cast<double>(op.flops);
    const double tokens = 32 * 1024;
    const double h = 768;
    const double linear = 12 * 12 * h * h + h * 50257;
    EXPECT_DOUBLE_EQ(flops, tokens * (6 * linear + 12 * 12 * 1024 * h));
    double forward = 0;
    for (const Op &op : plan->program(ProgramKind::Eval, 0).ops)
        forward += static_cast<double>(op.flops);
    EXPECT_DOUBLE_EQ(forward * 3, flops);
}

TEST(RankGrid, CoordinatesAndMembers)
{
    spec::Layout layout;
    layout.tp = 2;
    layout.cp = 1;
    layout.dp = 3;
    layout.pp = 2;
    const RankGrid grid(layout); // tp fastest, then dp, then pp
    EXPECT_EQ(grid.world(), 12);
    EXPECT_EQ(grid.coordinate(9, "tp"), 1);
    EXPECT_EQ(grid.coordinate(9, "dp"), 1);
    EXPECT_EQ(grid.coordinate(9, "pp"), 1);
    EXPECT_EQ(grid.members(9, {"tp"}), (std::vector<int>{8, 9}));
    EXPECT_EQ(grid.members(9, {"dp"}), (std::vector<int>{7, 9, 11}));
    EXPECT_EQ(grid.members(9, {"pp"}), (std::vector<int>{3, 9}));
    EXPECT_EQ(grid.members(9, {"dp", "pp"}), (std::vector<int>{1, 3, 5, 7, 9, 11}));
    EXPECT_EQ(grid.members(0, {"tp", "cp", "dp", "pp"}).size(), 12U);
    EXPECT_EQ(grid.role(9).stage, 1);
    EXPECT_EQ(grid.members(9, Group{0, "dp-replicate", {"dp", "tp"}, 3, Pick::Outer}),
              (std::vector<int>{7, 9, 11}));
    EXPECT_EQ(grid.members(9, Group{0, "dp-shard", {"dp", "tp"}, 2, Pick::Inner}), (std::vector<int>{8, 9}));
    EXPECT_EQ(grid.indexIn(9, Group{0, "dp-replicate", {"dp", "tp"}, 3, Pick::Outer}), 1);
    const Group ends{0, "embedding", {"dp"}, 2, Pick::Ends};
    EXPECT_EQ(grid.members(7, ends), (std::vector<int>{7, 11}));
    EXPECT_EQ(grid.indexIn(9, ends), -1) << "between the ends";
    layout.order = "pp-dp";
    const RankGrid other(layout);
    EXPECT_EQ(other.world(), 12) << "axes that the order leaves out come last";
    EXPECT_EQ(other.members(0, {"pp"}), (std::vector<int>{0, 1}));
}

} // namespace rankyard::plan
