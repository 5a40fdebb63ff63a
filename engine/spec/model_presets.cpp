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

/// Reads a key of one of several names; keeps the first error.
class Keys
{
public:
    Keys(const Json &config, std::string name) : m_config(config), m_name(std::move(name)) {}

    const Json *find(const char *key) const
    {
        const auto found = m_config.find(key);
        return found == m_config.end() || found->is_null() ? nullptr : &*found;
    }

    std::int64_t whole(const char *key, std::int64_t fallback)
    {
        const Json *value = find(key);
        if (!value)
            return fallback;
        if (!value->is_number_integer() || value->get<std::int64_t>() < 1)
            refuse(key, *value, "a whole number from 1 on");
        return m_error ? fallback : value->get<std::int64_t>();
    }

    double number(const char *key, double fallback)
    {
        const Json *value = find(key);
        if (!value)
            return fallback;
        if (!value->is_number() || value->get<double>() < 0)
            refuse(key, *value, "a number from 0 on");
        return m_error ? fallback : value->get<double>();
    }

    bool flag(const char *key, bool fallback)
    {
        const Json *value = find(key);
        if (!value)
            return fallback;
        if (!value->is_boolean())
            refuse(key, *value, "true or false");
        return m_error ? fallback : value->get<bool>();
    }

    void refuse(const char *key, const Json &found, std::string expected)
    {
        if (!m_error)
            m_error = Error::make(Code::BadData, std::string("the key ") + key + " cannot be used", m_name)
                          .withFound(dumpJson(found))
                          .withExpected(std::move(expected));
    }

    const std::optional<Error> &error() const { return m_error; }

private:
    const Json &m_config;
    std::string m_name;
    std::optional<Error> m_error;
};

Model readGpt2(Keys &keys)
{
    // Defaults of transformers' GPT2Config.
    Model model = gpt(keys.whole("n_layer", 12), keys.whole("n_embd", 768), keys.whole("n_head", 12),
                      keys.whole("n_positions", 1024), keys.whole("vocab_size", 50257));
    if (keys.find("n_inner"))
        model.ffn = keys.whole("n_inner", 1);
    model.tied = keys.flag("tie_word_embeddings", true);
    model.normEps = keys.number("layer_norm_epsilon", 1e-5);
    model.dropout = keys.number("resid_pdrop", 0.1);
    return model;
}

Model readLlama(Keys &keys)
{
    // Defaults of transformers' LlamaConfig.
    Model model = gpt(keys.whole("num_hidden_layers", 32), keys.whole("hidden_size", 4096),
                      keys.whole("num_attention_heads", 32), keys.whole("max_position_embeddings", 2048),
                      keys.whole("vocab_size", 32000));
    model.family = "llama";
    model.ffn = keys.whole("intermediate_size", 11008);
    if (keys.find("num_key_value_heads"))
        model.kvHeads = keys.whole("num_key_value_heads", 1);
    if (keys.find("head_dim"))
        model.headDim = keys.whole("head_dim", 1);
    model.tied = keys.flag("tie_word_embeddings", false);
    model.normEps = keys.number("rms_norm_eps", 1e-6);
    Json rope = Json::object();
    if (const Json *parameters = keys.find("rope_parameters"); parameters && parameters->is_object())
        rope = *parameters; // newer files have both in here
    for (const char *key : {"rope_theta", "rope_scaling"}) {
        if (const Json *value = keys.find(key))
            rope[key] = *value;
    }
    if (!rope.empty())
        model.rope = std::move(rope);
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

Result<Model> readHfConfig(const Json &config, const std::string &name)
{
    if (!config.is_object())
        return Error::make(Code::BadData, "not a model's configuration", name)
            .withExpected("a JSON object with model_type");
    Keys keys(config, name);
    const Json *type = keys.find("model_type");
    const std::string family = type && type->is_string() ? type->get<std::string>() : std::string();
    Model model;
    if (family == "gpt2") {
        model = readGpt2(keys);
    } else if (family == "llama" || (family == "mistral" && !keys.find("sliding_window"))) {
        model = readLlama(keys);
    } else {
        return Error::make(Code::BadData, "this kind of model is not in this version", name)
            .withFound(family.empty() ? "no model_type" : "model_type " + family)
            .withExpected("model_type gpt2, llama, or mistral without a sliding window");
    }
    if (keys.error())
        return *keys.error();
    return model;
}

} // namespace rankyard::spec
