// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/rope.h"

#include "engine/spec/job_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace rankyard::spec {

namespace {

Error ropeError(const std::string &key, std::string what, std::string found, std::string expected)
{
    return Error::make(Code::BadJob, std::move(what), key.empty() ? "model.rope" : "model.rope." + key)
        .withFound(std::move(found))
        .withExpected(std::move(expected));
}

const char *const kinds[] = {"default", "linear", "dynamic", "llama3", "yarn"};
const char *const numbers[] = {"rope_theta",       "factor",          "original_max_position_embeddings",
                               "low_freq_factor",  "beta_fast",       "beta_slow",
                               "high_freq_factor", "attention_factor"};

/// The parameters of a configuration, one level, whichever way they were written.
struct Parameters {
    std::string kind = "default";
    std::map<std::string, double> values;

    Status read(const Json &object)
    {
        if (object.is_null())
            return {};
        if (!object.is_object())
            return ropeError("", "not an object", object.type_name(), "null or an object");
        for (const auto &[key, value] : object.items()) {
            if (key == "rope_scaling") {
                RY_TRY(read(value));
            } else if (key == "rope_type" || key == "type") {
                RY_TRY(readKind(key, value));
            } else if (std::find(std::begin(numbers), std::end(numbers), key) == std::end(numbers)) {
                return ropeError("", "unknown key", shown(Json(key)), "rope_theta, rope_type, factor, …");
            } else if (!value.is_number() || !(value.get<double>() > 0)) {
                return ropeError(key, "not a positive number", shown(value), "a number above 0");
            } else {
                values[key] = value.get<double>();
            }
        }
        return {};
    }

    Status readKind(const std::string &key, const Json &value)
    {
        kind = value.is_string() ? value.get<std::string>() : std::string();
        if (std::find(std::begin(kinds), std::end(kinds), kind) == std::end(kinds))
            return ropeError(key, "unknown kind of rotary positions", shown(value),
                             "default, linear, dynamic, llama3 or yarn");
        return {};
    }

    double get(const char *key, double otherwise) const
    {
        const auto found = values.find(key);
        return found == values.end() ? otherwise : found->second;
    }
    Status need(std::initializer_list<const char *> keys) const
    {
        for (const char *key : keys) {
            if (!values.contains(key))
                return ropeError(key, "missing for rope_type " + kind, "nothing", "a number above 0");
        }
        return {};
    }
};

/// Llama 3.1: waves longer than the old context ÷ low are stretched, those shorter than it ÷ high stay, between them a blend.
Result<double> llama3Frequency(const Parameters &p, double frequency)
{
    const double low = p.get("low_freq_factor", 1), high = p.get("high_freq_factor", 4);
    if (!(high > low))
        return ropeError("high_freq_factor", "not above low_freq_factor", std::to_string(high),
                         "more than " + std::to_string(low));
    const double turns = p.get("original_max_position_embeddings", 0) * frequency / (2 * std::numbers::pi);
    const double keep = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    return frequency * (keep + (1 - keep) / p.get("factor", 1));
}

/// YaRN: pairs that turn more than beta_fast times over the old context stay, those below beta_slow are stretched.
double yarnFrequency(const Parameters &p, double theta, double pair, double size, double frequency)
{
    const double context = p.get("original_max_position_embeddings", 0);
    const auto pairOf = [&](double turns) {
        return size * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    const double low = std::max(std::floor(pairOf(p.get("beta_fast", 32))), 0.0);
    const double high = std::min(std::ceil(pairOf(p.get("beta_slow", 1))), size - 1);
    const double stretch = std::clamp((pair - low) / std::max(high - low, 0.001), 0.0, 1.0);
    return frequency * (1 - stretch + stretch / p.get("factor", 1));
}

} // namespace

Result<Rope> ropeOf(const Model &model)
{
    const std::int64_t size = model.headSize();
    if (size % 2 != 0)
        return Error::make(Code::BadJob, "rotary positions need heads of an even width", "model.head_dim")
            .withFound(std::to_string(size))
            .withExpected(std::to_string(size + 1));
    Parameters p;
    RY_TRY(p.read(model.rope));
    if (p.kind != "default")
        RY_TRY(p.need({"factor"}));
    if (p.kind == "llama3" || p.kind == "dynamic" || p.kind == "yarn")
        RY_TRY(p.need({"original_max_position_embeddings"}));
    const auto width = static_cast<double>(size);
    const double factor = p.get("factor", 1), context = p.get("original_max_position_embeddings", 0);
    double theta = p.get("rope_theta", 10000);
    const auto seq = static_cast<double>(model.seq);
    if (p.kind == "dynamic" && seq > context && size > 2)
        theta *= std::pow(factor * seq / context - (factor - 1), width / (width - 2));
    Rope rope;
    for (std::int64_t i = 0; i < size / 2; ++i) {
        const auto pair = static_cast<double>(i);
        double frequency = std::pow(theta, -2 * pair / width);
        if (p.kind == "linear") {
            frequency /= factor;
        } else if (p.kind == "yarn") {
            frequency = yarnFrequency(p, theta, pair, width, frequency);
        } else if (p.kind == "llama3") {
            RY_ASSIGN(frequency, llama3Frequency(p, frequency));
        }
        rope.frequency.push_back(frequency);
    }
    if (p.kind == "yarn")
        rope.scale = p.get("attention_factor", factor > 1 ? 0.1 * std::log(factor) + 1 : 1);
    return rope;
}

} // namespace rankyard::spec
