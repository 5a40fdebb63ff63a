// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/interop/interop.h"

#include "engine/interop/reading.h"

#include <array>

namespace rankyard::interop {

namespace {

constexpr std::array<std::pair<Engine, const char *>, 3> engines = {
    {{Engine::DeepSpeed, "deepspeed"}, {Engine::Megatron, "megatron"}, {Engine::Torchtitan, "torchtitan"}}};

bool hasAny(const Json &document, std::initializer_list<const char *> keys)
{
    for (const char *key : keys) {
        if (document.is_object() && document.contains(key))
            return true;
    }
    return false;
}

bool isDeepSpeed(const Json &document)
{
    return hasAny(document,
                  {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization",
                   "gradient_accumulation_steps", "fp16", "bf16", "bfloat16",
                   "zero_allow_untested_optimizer"})
        && !hasAny(document, {"schema", "model_type"});
}

bool isTorchtitan(const Json &document)
{
    return hasAny(document, {"training", "parallelism", "experimental", "activation_checkpoint"})
        && hasAny(document, {"model", "training", "job", "optimizer"});
}

} // namespace

const char *nameOf(Engine engine)
{
    for (const auto &[one, name] : engines) {
        if (one == engine)
            return name;
    }
    return "";
}

std::optional<Engine> engineNamed(std::string_view name)
{
    for (const auto &[engine, known] : engines) {
        if (name == known)
            return engine;
    }
    return std::nullopt;
}

const char *nameOf(Remark::Kind kind) { return kind == Remark::Kind::Lost ? "lost" : "guessed"; }

std::optional<Engine> engineOf(std::string_view text)
{
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos)
        return std::nullopt;
    if (text[first] == '{') {
        const auto document = parseJson(text, "text");
        if (!document)
            return std::nullopt;
        if (isDeepSpeed(*document))
            return Engine::DeepSpeed;
        return isTorchtitan(*document) ? std::optional(Engine::Torchtitan) : std::nullopt;
    }
    const Values arguments = shellArguments(text);
    for (const char *sure : {"num-layers", "micro-batch-size", "tensor-model-parallel-size", "hidden-size"}) {
        if (arguments.count(sure) > 0)
            return Engine::Megatron;
    }
    if (const auto toml = parseToml(text, "text"); toml && isTorchtitan(*toml))
        return Engine::Torchtitan;
    if (const auto yaml = parseYaml(text, "text"); yaml && yaml->is_object()) {
        const Values leaves = yamlArguments(*yaml);
        if (leaves.count("num-layers") > 0 || leaves.count("tensor-model-parallel-size") > 0)
            return Engine::Megatron;
    }
    return std::nullopt;
}

Result<Imported> importConfig(std::string_view text, const std::string &name, const ImportOptions &options)
{
    const std::optional<Engine> engine = options.from ? options.from : engineOf(text);
    if (!engine)
        return Error::make(Code::BadData, "no configuration of an engine that is known here", name)
            .withExpected("DeepSpeed's JSON, arguments of Megatron-LM, torchtitan's TOML")
            .withHint("--from says which it is, and then what is wrong with it");
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool json = first != std::string_view::npos && text[first] == '{';
    switch (*engine) {
    case Engine::DeepSpeed: {
        RY_ASSIGN(const Json document, parseJson(text, name));
        return importDeepSpeed(document, options);
    }
    case Engine::Megatron: {
        Values arguments = shellArguments(text);
        if (arguments.empty()) {
            RY_ASSIGN(const Json document, parseYaml(text, name));
            arguments = yamlArguments(document);
        }
        if (arguments.empty())
            return Error::make(Code::BadData, "has no arguments", name).withExpected("--num-layers 24 …");
        return importMegatron(std::move(arguments), options);
    }
    case Engine::Torchtitan: {
        RY_ASSIGN(const Json document, json ? parseJson(text, name) : parseToml(text, name));
        return importTorchtitan(document, options);
    }
    }
    return Error::make(Code::Internal, "no such engine", name);
}

Exported exportConfig(const spec::JobSpec &job, Engine to)
{
    return to == Engine::DeepSpeed ? exportDeepSpeed(job)
        : to == Engine::Megatron   ? exportMegatron(job)
                                   : exportTorchtitan(job);
}

} // namespace rankyard::interop
