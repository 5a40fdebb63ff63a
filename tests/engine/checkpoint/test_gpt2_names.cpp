// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/gpt2_names.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace rankyard::checkpoint;

TEST(Gpt2Names, EveryParameterGoesThereAndBack)
{
    std::vector<std::string> names = {"wte.weight", "wpe.weight", "norm.weight", "norm.bias", "head.weight"};
    for (const int layer : {0, 1, 11, 47}) {
        for (const char *rest : {"attn.norm", "attn.qkv", "attn.out", "mlp.norm", "mlp.up", "mlp.down"}) {
            for (const char *leaf : {".weight", ".bias"})
                names.push_back("layers." + std::to_string(layer) + "." + rest + leaf);
        }
    }
    for (const std::string &name : names) {
        const auto theirs = toHuggingFace(name);
        ASSERT_TRUE(theirs) << name;
        for (const char *prefix : {"", "transformer."}) {
            const ForeignName back = fromHuggingFace(prefix + theirs->name);
            ASSERT_EQ(back.kind, ForeignKind::Parameter) << theirs->name;
            EXPECT_EQ(back.canonical.name, name);
            EXPECT_EQ(back.canonical.transposed, theirs->transposed);
        }
        const bool matrix = name.find("qkv.weight") != std::string::npos
            || name.find("out.weight") != std::string::npos || name.find("up.weight") != std::string::npos
            || name.find("down.weight") != std::string::npos;
        EXPECT_EQ(theirs->transposed, matrix) << name;
    }
}

TEST(Gpt2Names, TheNamesOfTransformers)
{
    EXPECT_EQ(toHuggingFace("layers.3.attn.qkv.weight")->name, "h.3.attn.c_attn.weight");
    EXPECT_EQ(toHuggingFace("layers.3.mlp.down.bias")->name, "h.3.mlp.c_proj.bias");
    EXPECT_EQ(toHuggingFace("norm.bias")->name, "ln_f.bias");
    EXPECT_EQ(fromHuggingFace("transformer.h.0.ln_2.weight").canonical.name, "layers.0.mlp.norm.weight");
    EXPECT_EQ(fromHuggingFace("h.10.attn.bias").kind, ForeignKind::Buffer);
    EXPECT_EQ(fromHuggingFace("transformer.h.10.attn.masked_bias").kind, ForeignKind::Buffer);
    for (const char *name : {"", "h.", "h.0", "h.0.", "h..ln_1.weight", "h.x.ln_1.weight", "h.01.ln_1.weight",
                             "h.-1.ln_1.weight", "h.0.ln_3.weight", "model.embed_tokens.weight",
                             "transformer.transformer.wte.weight", "h.12345678901.ln_1.weight"})
        EXPECT_EQ(fromHuggingFace(name).kind, ForeignKind::Unknown) << name;
    for (const char *name : {"", "layers.0.attn.q.weight", "layers.0", "wte", "h.0.ln_1.weight"})
        EXPECT_FALSE(toHuggingFace(name)) << name;
}

TEST(Gpt2Names, Transposes)
{
    EXPECT_EQ(foreignShape({2, 3}, true), (std::vector<std::int64_t>{3, 2}));
    EXPECT_EQ(foreignShape({5}, false), (std::vector<std::int64_t>{5}));
    for (const auto &[rows, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 70}, {33, 65}, {64, 32}, {0, 5}}) {
        std::vector<std::uint16_t> in(static_cast<std::size_t>(rows * columns));
        std::iota(in.begin(), in.end(), std::uint16_t(0));
        std::vector<std::uint16_t> out(in.size());
        transpose(in.data(), rows, columns, 2, out.data());
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < columns; ++c)
                ASSERT_EQ(out[static_cast<std::size_t>(c * rows + r)],
                          in[static_cast<std::size_t>(r * columns + c)]);
        }
        std::vector<std::uint16_t> back(in.size());
        transpose(out.data(), columns, rows, 2, back.data());
        EXPECT_EQ(back, in);
    }
    const std::vector<double> wide = {1, 2, 3, 4, 5, 6};
    std::vector<double> turned(6);
    transpose(wide.data(), 2, 3, 8, turned.data());
    EXPECT_EQ(turned, (std::vector<double>{1, 4, 2, 5, 3, 6}));
}
