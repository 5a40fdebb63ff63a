// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/shape.h"

#include "engine/spec/model_presets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace rankyard::predict {

namespace {

/// GPT-3 style: biases, tied, learned positions, ffn = 4h.
Shape gpt(const char *name, std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t seq,
          std::int64_t vocab)
{
    Shape s;
    s.name = name;
    s.layers = layers;
    s.hidden = hidden;
    s.heads = heads;
    s.kvHeads = heads;
    s.headDim = heads > 0 ? hidden / heads : 0;
    s.ffn = 4 * hidden;
    s.seq = seq;
    s.vocab = vocab;
    return s;
}

/// Llama style: gated, untied, no biases, rotary positions.
Shape llama(const char *name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
            std::int64_t kvHeads, std::int64_t ffn, std::int64_t seq, std::int64_t vocab)
{
    Shape s = gpt(name, layers, hidden, heads, seq, vocab);
    s.kvHeads = kvHeads;
    s.ffn = ffn;
    s.gated = true;
    s.tied = false;
    s.biases = false;
    s.positions = false;
    return s;
}

/// One that a job can have by name.
Shape preset(const char *name, const char *id)
{
    Shape s = shapeOf(spec::findModelPreset(id)->model);
    s.name = name;
    return s;
}

Shape tied(Shape s)
{
    s.tied = true;
    return s;
}

Shape qwen2(Shape s)
{
    s.queryBias = true;
    return s;
}

Shape width(Shape s, std::int64_t headDim)
{
    s.headDim = headDim;
    return s;
}

Shape moe(Shape s, Experts experts)
{
    s.experts = experts;
    return s;
}

Shape mla(Shape s, Latent latent)
{
    s.latent = latent;
    s.headDim = latent.nope + latent.rope;
    return s;
}

/// Squared ReLU, no gate, untied (Nemotron-4, arXiv:2402.16819).
Shape nemotron(const char *name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
               std::int64_t kvHeads, std::int64_t ffn)
{
    Shape s = llama(name, layers, hidden, heads, kvHeads, ffn, 4096, 256000);
    s.gated = false;
    return s;
}

constexpr Latent deepseekLatent{1536, 512, 128, 64, 128};

/// The longest name that a query contains is meant. Sources: arXiv 2005.14165 (GPT-3), 2302.13971, 2307.09288, 2407.21783
/// (Llama 1 to 3), 2308.12950 (34B), 2401.04088 (Mixtral), 2412.19437 (DeepSeek V3), 2507.20534 (Kimi K2), 2502.16982 (Moonlight),
/// 2505.09388 (Qwen3), 2412.15115 (Qwen2.5), 2508.10925 (gpt-oss), 2205.01068 (OPT), 2211.05100 (BLOOM), 2201.11990 (MT-NLG),
/// 2104.04473 (GPT 1T), 2402.16819 and 2406.11704 (Nemotron-4); the GPT-3 5B and 20B of NVIDIA's launcher; MosaicML's llm-foundry.
const std::vector<Shape> &models()
{
    static const std::vector<Shape> all = {
        gpt("gpt3 5b", 24, 4096, 32, 2048, 51200),
        gpt("gpt3 20b", 44, 6144, 48, 2048, 51200),
        preset("gpt3 175b", "gpt3-175b"),
        preset("gpt 175b", "gpt3-175b"),
        gpt("gpt 530b", 105, 20480, 128, 2048, 51200),
        gpt("mt nlg 530b", 105, 20480, 128, 2048, 51200),
        gpt("gpt 1t", 128, 25600, 160, 2048, 51200),
        gpt("opt 175b", 96, 12288, 96, 2048, 50272),
        gpt("bloom 176b", 70, 14336, 112, 2048, 250880),
        gpt("gpt 104b", 64, 11600, 80, 2048, 50257),
        gpt("mpt 125m", 12, 768, 12, 2048, 50368),
        gpt("mpt 350m", 24, 1024, 16, 2048, 50368),
        gpt("mpt 760m", 24, 1536, 12, 2048, 50368),
        gpt("mpt 1b", 24, 2048, 16, 2048, 50368),
        gpt("mpt 3b", 32, 2560, 20, 2048, 50368),
        gpt("mpt 7b", 32, 4096, 32, 2048, 50368),
        gpt("mpt 13b", 40, 5120, 40, 2048, 50368),
        gpt("mpt 30b", 48, 7168, 56, 2048, 50368),
        gpt("mpt 70b", 64, 10240, 80, 2048, 50368),
        preset("llama 7b", "llama-7b"),
        preset("llama 13b", "llama-13b"),
        llama("llama 33b", 60, 6656, 52, 52, 17920, 2048, 32000),
        llama("llama 65b", 80, 8192, 64, 64, 22016, 2048, 32000),
        preset("llama 70b", "llama-2-70b"),
        llama("llama2 7b", 32, 4096, 32, 32, 11008, 4096, 32000),
        llama("llama2 13b", 40, 5120, 40, 40, 13824, 4096, 32000),
        llama("llama2 34b", 48, 8192, 64, 8, 22016, 4096, 32000),
        preset("llama2 70b", "llama-2-70b"),
        preset("llama3 8b", "llama-3-8b"),
        preset("llama3.1 8b", "llama-3-8b"),
        preset("llama3 70b", "llama-3-70b"),
        preset("llama3.1 70b", "llama-3-70b"),
        preset("llama3 405b", "llama-3.1-405b"),
        preset("llama3.1 405b", "llama-3.1-405b"),
        preset("llama3.2 1b", "llama-3.2-1b"),
        tied(llama("llama3.2 3b", 28, 3072, 24, 8, 8192, 8192, 128256)),
        llama("mistral 7b", 32, 4096, 32, 8, 14336, 4096, 32000),
        tied(llama("smollm 1.7b", 24, 2048, 32, 32, 8192, 2048, 49152)),
        qwen2(llama("qwen2.5 7b", 28, 3584, 28, 4, 18944, 4096, 152064)),
        qwen2(llama("qwen2.5 14b", 48, 5120, 40, 8, 13824, 4096, 152064)),
        qwen2(llama("qwen2.5 32b", 64, 5120, 40, 8, 27648, 4096, 152064)),
        qwen2(llama("qwen2.5 72b", 80, 8192, 64, 8, 29568, 4096, 152064)),
        nemotron("nemotron 8b", 32, 4096, 32, 32, 16384),
        nemotron("nemotron 15b", 32, 6144, 48, 8, 24576),
        nemotron("nemotron 22b", 40, 6144, 48, 8, 24576),
        nemotron("nemotron 340b", 96, 18432, 96, 8, 73728),
        moe(llama("mixtral 8x7b", 32, 4096, 32, 8, 14336, 4096, 32000), {8, 2, 0, 14336, 0}),
        moe(llama("mixtral 8x22b", 56, 6144, 48, 8, 16384, 4096, 32768), {8, 2, 0, 16384, 0}),
        moe(width(llama("qwen3 30b a3b", 48, 2048, 32, 4, 6144, 4096, 151936), 128), {128, 8, 0, 768, 0}),
        moe(width(llama("qwen3 moe 30b", 48, 2048, 32, 4, 6144, 4096, 151936), 128), {128, 8, 0, 768, 0}),
        moe(width(llama("qwen3 235b a22b", 94, 4096, 64, 4, 12288, 4096, 151936), 128), {128, 8, 0, 1536, 0}),
        moe(width(llama("gpt oss 20b", 24, 2880, 64, 8, 2880, 4096, 201088), 64), {32, 4, 0, 2880, 0}),
        moe(width(llama("gpt oss 120b", 36, 2880, 64, 8, 2880, 4096, 201088), 64), {128, 4, 0, 2880, 0}),
        moe(mla(llama("deepseek v3", 61, 7168, 128, 128, 18432, 4096, 129280), deepseekLatent),
            {256, 8, 1, 2048, 3}),
        moe(mla(llama("kimi k2", 61, 7168, 64, 64, 18432, 4096, 163840), deepseekLatent),
            {384, 8, 1, 2048, 1}),
        moe(mla(llama("moonlight 16b", 27, 2048, 16, 16, 11264, 4096, 163840), {0, 512, 128, 64, 128}),
            {64, 6, 2, 1408, 1}),
    };
    return all;
}

/// Letters, digits and dots in lower case, the rest is a separator; a digit after a letter stays with it: "LLAMA3.1-8B" → llama3.1 8b,
/// "Llama 3.1 8B" the same.
std::string normal(std::string_view name)
{
    std::string text;
    for (const char c : name) {
        const auto u = static_cast<unsigned char>(c);
        if (std::isalnum(u) || c == '.')
            text += static_cast<char>(std::tolower(u));
        else if (!text.empty() && text.back() != ' ')
            text += ' ';
    }
    while (!text.empty() && text.back() == ' ')
        text.pop_back();
    for (const char *family : {"llama ", "qwen ", "gpt "}) {
        const std::size_t at = text.find(family);
        const std::size_t next = at + std::string_view(family).size();
        // The generation belongs to the family; "13b" and "7b" after it are sizes.
        const std::size_t end = at == std::string::npos ? 0 : text.find_first_not_of("0123456789.", next);
        const bool generation = at != std::string::npos && end > next
            && (end == std::string::npos || text[end] == ' ') && std::string_view(family) != "gpt ";
        if (generation)
            text.erase(next - 1, 1);
    }
    // "llama 2 7b" and "llama2 7b", "deepseekv3" and "deepseek v3".
    constexpr std::array<std::array<const char *, 2>, 2> spellings{
        {{"deepseekv3", "deepseek v3"}, {"llama 2 ", "llama2 "}}};
    for (const auto &[from, to] : spellings) {
        if (const std::size_t at = text.find(from); at != std::string::npos)
            text.replace(at, std::string_view(from).size(), to);
    }
    return text;
}

} // namespace

const Shape *findModel(std::string_view name)
{
    const std::string wanted = ' ' + normal(name) + ' ';
    const Shape *best = nullptr;
    for (const Shape &model : models()) {
        if (wanted.find(' ' + model.name + ' ') != std::string::npos
            && (best == nullptr || model.name.size() > best->name.size()))
            best = &model;
    }
    return best;
}

const std::vector<const char *> &plannedModels()
{
    static const std::vector<const char *> names = {
        "Nemotron 15B", "Nemotron 340B", "Mixtral 8x7B", "Mixtral 8x22B", "Qwen3 30B-A3B", "Qwen3 235B-A22B",
        "gpt-oss 20B",  "gpt-oss 120B",  "DeepSeek-V3",  "Kimi K2",       "Moonlight 16B"};
    return names;
}

} // namespace rankyard::predict
