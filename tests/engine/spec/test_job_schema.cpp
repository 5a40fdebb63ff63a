// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/job.h"
#include "engine/spec/job_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex.h>

using namespace rankyard;
using namespace rankyard::spec;

namespace {

bool isType(const Json &value, const std::string &type)
{
    if (type == "integer") {
        return value.is_number_integer()
            || (value.is_number_float() && std::isfinite(value.get<double>())
                && value.get<double>() == std::floor(value.get<double>()));
    }
    return (type == "number" && value.is_number()) || (type == "string" && value.is_string())
        || (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null())
        || (type == "object" && value.is_object()) || (type == "array" && value.is_array());
}

/// Exact for every 64-bit integer; nlohmann's own comparison wraps unsigned values.
long double number(const Json &value)
{
    if (value.is_number_unsigned())
        return static_cast<long double>(value.get<std::uint64_t>());
    return value.is_number_integer() ? static_cast<long double>(value.get<std::int64_t>())
                                     : value.get<double>();
}

bool matches(const std::string &text, const std::string &pattern)
{
    if (pattern == "^[^\\u0000-\\u001f]*$") // POSIX expressions have no \u
        return std::none_of(text.begin(), text.end(),
                            [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    regex_t compiled{};
    EXPECT_EQ(::regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB), 0) << pattern;
    const bool found = ::regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
    ::regfree(&compiled);
    return found;
}

const Json noObject = Json::object();

/// The part of JSON Schema 2020-12 that jobSchema uses; an unknown keyword is a failure of the test.
bool accepts(const Json &schema, const Json &value)
{
    if (schema.is_boolean())
        return schema.get<bool>();
    for (const auto &[key, rule] : schema.items()) {
        bool ok = true;
        if (key == "type") {
            const Json types = rule.is_array() ? rule : Json::array({rule});
            ok = std::any_of(types.begin(), types.end(),
                             [&](const Json &type) { return isType(value, type.get<std::string>()); });
        } else if (key == "const") {
            ok = value == rule;
        } else if (key == "enum") {
            ok = std::find(rule.begin(), rule.end(), value) != rule.end();
        } else if (key == "minimum") {
            ok = !value.is_number() || number(value) >= number(rule);
        } else if (key == "maximum") {
            ok = !value.is_number() || number(value) <= number(rule);
        } else if (key == "exclusiveMinimum") {
            ok = !value.is_number() || number(value) > number(rule);
        } else if (key == "exclusiveMaximum") {
            ok = !value.is_number() || number(value) < number(rule);
        } else if (key == "minLength") {
            ok = !value.is_string() || value.get<std::string>().size() >= rule.get<std::size_t>();
        } else if (key == "pattern") {
            ok = !value.is_string() || matches(value.get<std::string>(), rule.get<std::string>());
        } else if (key == "items") {
            ok = !value.is_array()
                || std::all_of(value.begin(), value.end(), [&](const Json &v) { return accepts(rule, v); });
        } else if (key == "minItems") {
            ok = !value.is_array() || value.size() >= rule.get<std::size_t>();
        } else if (key == "maxItems") {
            ok = !value.is_array() || value.size() <= rule.get<std::size_t>();
        } else if (key == "required") {
            ok = !value.is_object() || std::all_of(rule.begin(), rule.end(), [&](const Json &name) {
                return value.contains(name.get<std::string>());
            });
        } else if (key == "properties" || key == "additionalProperties" || key == "propertyNames") {
            for (const auto &[name, child] : (value.is_object() ? value : noObject).items()) {
                const bool listed = schema.contains("properties") && schema["properties"].contains(name);
                if (key == "properties" && listed)
                    ok = ok && accepts(rule[name], child);
                if (key == "additionalProperties" && !listed)
                    ok = ok && accepts(rule, child);
                if (key == "propertyNames")
                    ok = ok && accepts(rule, Json(name));
            }
        } else {
            const bool annotation = key == "description" || key == "default" || key == "title"
                || key == "$schema" || key == "x-not-in-this-version";
            EXPECT_TRUE(annotation) << key;
        }
        if (!ok)
            return false;
    }
    return true;
}

Json schema() { return Json::parse(jobSchema().dump()); }

Json pathSchema(const Json &root, const std::string &path)
{
    Json at = root;
    std::stringstream in(path);
    for (std::string part; std::getline(in, part, '.');)
        at = Json(at["properties"][part]);
    return at;
}

} // namespace

TEST(JobSchema, HasEveryKeyWithItsDefaultAndALineAboutIt)
{
    const Json root = schema();
    EXPECT_EQ(root["required"], Json({"schema", "model", "data"}));
    EXPECT_EQ(root["properties"]["data"]["required"], Json({"train"}));
    JobSpec defaults;
    for (const Field &field : jobFields(defaults)) {
        const Json at = pathSchema(root, field.path);
        EXPECT_FALSE(at.value("description", "").empty()) << field.path;
        EXPECT_EQ(at.contains("default"), !field.rule.required) << field.path;
        if (!field.rule.required) {
            EXPECT_EQ(at["default"], slotValue(field.slot)) << field.path;
            EXPECT_TRUE(accepts(at, at["default"])) << field.path;
        }
    }
    for (const auto &[name, section] : root["properties"].items()) {
        if (name != "schema" && section.contains("properties")) {
            EXPECT_FALSE(section["description"].get<std::string>().empty()) << name;
        }
    }
}

/// Key by key, the schema says yes exactly where the reader's type and rule do.
TEST(JobSchema, AcceptsWhatTheReaderAccepts)
{
    const std::vector<Json> values = {nullptr,
                                      true,
                                      false,
                                      -1,
                                      0,
                                      1,
                                      2,
                                      3,
                                      6,
                                      100,
                                      0.5,
                                      0.1,
                                      0.05,
                                      1.0,
                                      1e-5,
                                      5e8,
                                      15099494.4,
                                      1e17,
                                      1e300,
                                      26214400,
                                      1000000000,
                                      std::numeric_limits<std::int64_t>::max(),
                                      std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::uint64_t>::max(),
                                      "",
                                      "x",
                                      "a\tb",
                                      "none",
                                      "gpt2",
                                      "llama",
                                      "1f1b",
                                      "zbv",
                                      "library",
                                      "ring",
                                      "fp32",
                                      "bf16",
                                      "fp16",
                                      "fp64",
                                      "i32",
                                      "dynamic",
                                      "static",
                                      "deepspeed",
                                      "adamw",
                                      "cosine",
                                      "local",
                                      "pack",
                                      "tp-cp-dp-pp",
                                      Json::array(),
                                      Json::array({1}),
                                      Json::array({0.9, 0.9}),
                                      Json::array({0.9, 1}),
                                      Json::array({1, 2, 3}),
                                      Json::array({"a"}),
                                      Json::array({""}),
                                      Json::array({"a\n"}),
                                      Json::object(),
                                      Json{{"OMP_NUM_THREADS", "2"}},
                                      Json{{"OMP_NUM_THREADS", 2}},
                                      Json{{"LC_ALL", "C"}}};
    const Json root = schema();
    JobSpec defaults;
    const std::size_t count = jobFields(defaults).size();
    int accepted = 0;
    for (std::size_t i = 0; i < count; ++i) {
        for (const Json &value : values) {
            JobSpec job;
            const Field field = jobFields(job)[i];
            const bool reader = storeSlot(field, value).ok() && checkRule(field).ok();
            EXPECT_EQ(accepts(pathSchema(root, field.path), value), reader)
                << field.path << " = " << shown(value);
            accepted += reader;
        }
    }
    EXPECT_GT(accepted, 300);
}

TEST(JobSchema, WholeDocuments)
{
    const Json root = schema();
    JobSpec job;
    job.data.train = "corpus";
    const Json good = Json::parse(writeJob(job).dump());
    EXPECT_TRUE(accepts(root, good));
    const auto both = [&](const Json &document) {
        EXPECT_FALSE(accepts(root, document)) << document;
        EXPECT_FALSE(readJob(document, "j")) << document;
    };
    for (const char *key : {"schema", "model", "data"}) {
        Json document = good;
        document.erase(key);
        both(document);
    }
    Json document = good;
    document["modle"] = 1;
    both(document);
    document = good;
    document["precision"]["loss_scale"]["x"] = 1;
    both(document);
    document = good;
    document["model"] = nullptr;
    both(document);
    document = good;
    document["comm"]["env"]["PATH"] = "x";
    both(document);
    both(Json::array());
}
