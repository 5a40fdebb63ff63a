// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/hf_config.h"

#include "engine/spec/plan_only.h"

#include <optional>

namespace rankyard::spec {

namespace {

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
    Model model;
    model.family = "gpt2";
    model.layers = keys.whole("n_layer", 12);
    model.hidden = keys.whole("n_embd", 768);
    model.heads = keys.whole("n_head", 12);
    model.seq = keys.whole("n_positions", 1024);
    model.vocab = keys.whole("vocab_size", 50257);
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
    Model model;
    model.family = "llama";
    model.layers = keys.whole("num_hidden_layers", 32);
    model.hidden = keys.whole("hidden_size", 4096);
    model.heads = keys.whole("num_attention_heads", 32);
    model.seq = keys.whole("max_position_embeddings", 2048);
    model.vocab = keys.whole("vocab_size", 32000);
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

/// Null when the file does not say it.
std::optional<std::int64_t> said(Keys &keys, const char *key)
{
    return keys.find(key) ? std::optional(keys.whole(key, 1)) : std::nullopt;
}

/// Defaults of transformers' MixtralConfig, Qwen3MoeConfig and DeepseekV3Config where a file leaves something out.
PlanOnly readMixtral(Keys &keys, const Model &model)
{
    PlanOnly wide;
    wide.experts = keys.whole("num_local_experts", 8);
    wide.topK = keys.whole("num_experts_per_tok", 2);
    wide.expertFfn = model.ffn;
    return wide;
}

PlanOnly readQwen3(Keys &keys)
{
    PlanOnly wide;
    wide.experts = keys.whole("num_experts", 128);
    wide.topK = keys.whole("num_experts_per_tok", 8);
    wide.expertFfn = keys.whole("moe_intermediate_size", 768);
    if (const Json *step = keys.find("decoder_sparse_step"); step && *step != Json(1))
        keys.refuse("decoder_sparse_step", *step, "1: experts in every layer");
    if (const Json *dense = keys.find("mlp_only_layers"); dense && *dense != Json::array())
        keys.refuse("mlp_only_layers", *dense, "[]: experts in every layer");
    return wide;
}

PlanOnly readDeepseek(Keys &keys)
{
    PlanOnly wide;
    wide.experts = keys.whole("n_routed_experts", 256);
    wide.topK = keys.whole("num_experts_per_tok", 8);
    wide.sharedExperts = keys.whole("n_shared_experts", 1);
    wide.expertFfn = keys.whole("moe_intermediate_size", 2048);
    wide.denseLayers = keys.whole("first_k_dense_replace", 3);
    wide.queryRank = said(keys, "q_lora_rank");
    wide.keyRank = keys.whole("kv_lora_rank", 512);
    wide.nopeDim = keys.whole("qk_nope_head_dim", 128);
    wide.ropeDim = keys.whole("qk_rope_head_dim", 64);
    wide.valueDim = keys.whole("v_head_dim", 128);
    return wide;
}

/// Empty when there is none.
std::string typeOf(const Json &config)
{
    const auto type = config.is_object() ? config.find("model_type") : config.end();
    return config.is_object() && type != config.end() && type->is_string() ? type->get<std::string>()
                                                                           : std::string();
}

} // namespace

Result<Model> readHfConfig(const Json &config, const std::string &name)
{
    if (!config.is_object())
        return Error::make(Code::BadData, "not a model's configuration", name)
            .withExpected("a JSON object with model_type");
    Keys keys(config, name);
    const std::string family = typeOf(config);
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

Result<Json> readHfSections(const Json &config, const std::string &name)
{
    const std::string family = typeOf(config);
    JobSpec job;
    std::optional<PlanOnly> wide;
    if (family == "mixtral" || family == "qwen3_moe" || family == "deepseek_v3") {
        Keys keys(config, name);
        job.model = readLlama(keys);
        wide = family == "mixtral"  ? readMixtral(keys, job.model)
            : family == "qwen3_moe" ? readQwen3(keys)
                                    : readDeepseek(keys);
        if (family == "deepseek_v3")
            job.model.kvHeads.reset(); // latent attention has none
        if (keys.error())
            return *keys.error();
    } else {
        auto model = readHfConfig(config, name);
        if (!model && model.error().where == name && model.error().expected.starts_with("model_type"))
            return Error(model.error())
                .withExpected(model.error().expected
                              + "; to be planned only mixtral, qwen3_moe, deepseek_v3");
        if (!model)
            return model.error();
        job.model = std::move(*model);
    }
    Json sections = {{"model", writeJob(job)["model"]}};
    if (wide)
        sections["plan_only"] = writePlanOnly(*wide);
    return sections;
}

} // namespace rankyard::spec
