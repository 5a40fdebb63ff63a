// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/model_presets.h"

#include <algorithm>

namespace rankyard::spec {

namespace {

Model gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t seq = 1024,
          std::int64_t vocab = 50257)
{
    Model model;
    model.family = "gpt2";
    model.layers = layers;
    model.hidden = hidden;
    model.heads = heads;
    model.seq = seq;
    model.vocab = vocab;
    return model;
}

/// theta 0: the family's 10,000.
Model llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t keyHeads,
            std::int64_t ffn, std::int64_t seq, std::int64_t vocab, double theta = 0)
{
    Model model = gpt(layers, hidden, heads, seq, vocab);
    model.family = "llama";
    model.kvHeads = keyHeads;
    model.ffn = ffn;
    model.tied = false;
    model.normEps = seq > 2048 ? 1e-5 : 1e-6; // Llama 1 has the smaller one
    if (theta > 0)
        model.rope = {{"rope_theta", theta}};
    return model;
}

Model sharing(Model model)
{
    model.tied = true;
    return model;
}

} // namespace

const std::vector<ModelPreset> &modelPresets()
{
    static const std::vector<ModelPreset> all = {
        {"gpt2", "GPT-2, 124 M", gpt(12, 768, 12)},
        {"gpt2-medium", "GPT-2 medium, 355 M", gpt(24, 1024, 16)},
        {"gpt2-large", "GPT-2 large, 774 M", gpt(36, 1280, 20)},
        {"gpt2-xl", "GPT-2 XL, 1.56 B", gpt(48, 1600, 25)},
        {"gpt3-175b", "GPT-3, 175 B", gpt(96, 12288, 96, 2048, 51200)},
        {"llama-7b", "Llama 7B", llama(32, 4096, 32, 32, 11008, 2048, 32000)},
        {"llama-13b", "Llama 13B", llama(40, 5120, 40, 40, 13824, 2048, 32000)},
        {"llama-2-70b", "Llama 2 70B", llama(80, 8192, 64, 8, 28672, 4096, 32000)},
        {"llama-3.2-1b", "Llama 3.2 1B", sharing(llama(16, 2048, 32, 8, 8192, 8192, 128256, 500000))},
        {"llama-3-8b", "Llama 3 8B", llama(32, 4096, 32, 8, 14336, 8192, 128256, 500000)},
        {"llama-3-70b", "Llama 3 70B", llama(80, 8192, 64, 8, 28672, 8192, 128256, 500000)},
        {"llama-3.1-405b", "Llama 3.1 405B", llama(126, 16384, 128, 8, 53248, 8192, 128256, 500000)},
    };
    return all;
}

const ModelPreset *findModelPreset(std::string_view id)
{
    const auto &all = modelPresets();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const ModelPreset &preset) { return preset.id == id; });
    return found == all.end() ? nullptr : &*found;
}

} // namespace rankyard::spec
