// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "engine/spec/job_table.h"
#include "engine/spec/plan_only.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace rankyard::spec {

namespace {

std::vector<std::string> split(std::string_view path)
{
    std::vector<std::string> parts;
    std::size_t begin = 0;
    for (;;) {
        const std::size_t dot = path.find('.', begin);
        parts.emplace_back(path.substr(begin, dot == std::string_view::npos ? dot : dot - begin));
        if (dot == std::string_view::npos)
            return parts;
        begin = dot + 1;
    }
}

/// What stands at `path` in the document; null when a part is missing.
const Json *find(const Json &document, const std::string &path)
{
    const Json *at = &document;
    for (const std::string &part : split(path)) {
        const auto next = at->is_object() ? at->find(part) : at->end();
        if (!at->is_object() || next == at->end())
            return nullptr;
        at = &*next;
    }
    return at;
}

/// Keys by their parent: "" → {"schema", "name", "model", …}, "model" → {"family", …}.
struct KeyTree {
    std::set<std::string> fields;
    std::set<std::string> sections;
    std::vector<std::string> childrenOf(const std::string &section) const
    {
        std::vector<std::string> names;
        const auto collect = [&](const std::set<std::string> &paths) {
            for (const std::string &path : paths) {
                const std::size_t dot = path.rfind('.');
                if ((dot == std::string::npos ? std::string() : path.substr(0, dot)) == section)
                    names.push_back(dot == std::string::npos ? path : path.substr(dot + 1));
            }
        };
        collect(fields);
        collect(sections);
        return names;
    }
};

KeyTree keyTree(const std::vector<Field> &fields)
{
    KeyTree tree;
    tree.fields.insert("schema");
    for (const Field &field : fields) {
        tree.fields.insert(field.path);
        for (std::size_t dot = field.path.find('.'); dot != std::string::npos;
             dot = field.path.find('.', dot + 1))
            tree.sections.insert(field.path.substr(0, dot));
    }
    return tree;
}

/// Where an unknown key probably belongs: a sibling of similar spelling, else the same or a similar key of another section.
std::string suggestion(const KeyTree &tree, const std::string &section, const std::string &key)
{
    const std::string prefix = section.empty() ? "" : section + ".";
    if (const std::string sibling = closest(key, tree.childrenOf(section)); !sibling.empty())
        return prefix + sibling;
    std::vector<std::string> leaves;
    for (const std::string &path : tree.fields)
        leaves.push_back(path.substr(path.rfind('.') + 1));
    const std::string leaf = closest(key, leaves);
    for (const std::string &path : tree.fields) {
        if (!leaf.empty() && path.substr(path.rfind('.') + 1) == leaf)
            return path;
    }
    return {};
}

Status checkKeys(const Json &object, const std::string &section, const KeyTree &tree)
{
    if (!object.is_object())
        return jobError(section, "wrong type", shown(object), "an object");
    for (const auto &[key, value] : object.items()) {
        const std::string path = section.empty() ? key : section + "." + key;
        if (tree.sections.count(path) && key.find('.') == std::string::npos) {
            RY_TRY(checkKeys(value, path, tree));
        } else if (!tree.fields.count(path) || key.find('.') != std::string::npos) {
            return jobError(path, "unknown key", shown(Json(key)), suggestion(tree, section, key));
        }
    }
    return {};
}

/// Explicit null, false and 0 are values; only a missing key leaves the default.
Result<JobSpec> readFields(const Json &document)
{
    if (hasPlanOnly(document))
        return jobError("plan_only", "a job with this section can be planned, not run", "",
                        "rankyardctl plan, or the job without it");
    JobSpec job;
    const std::vector<Field> fields = jobFields(job);
    RY_TRY(checkKeys(document, "", keyTree(fields)));
    if (!document.contains("model"))
        return jobError("model", "is missing", "", "an object, {} for the sample model");
    for (const Field &field : fields) {
        const Json *value = find(document, field.path);
        if (!value) {
            if (field.rule.required)
                return jobError(field.path, "is missing", "", field.rule.doc);
            continue;
        }
        RY_TRY(storeSlot(field, *value));
        RY_TRY(checkRule(field));
    }
    if (job.precision.compute == DType::F64) {
        for (DType *type : {&job.precision.grad, &job.precision.master, &job.precision.reduce}) {
            if (*type == DType::F32)
                *type = DType::F64; // the default: forced (DESIGN 3.1); another type is validateJob's error
        }
    }
    RY_TRY(validateJob(job));
    return job;
}

Status applyOverride(Json &document, const std::string &text)
{
    const auto usage = [&text](std::string what) {
        return Error::make(Code::Usage, std::move(what), "--set")
            .withFound(text)
            .withExpected("path=value, as in batch.micro=4");
    };
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
        return usage("not of the form path=value");
    const std::string path = text.substr(0, equals);
    const std::string raw = text.substr(equals + 1);
    Json value = Json::parse(raw, nullptr, false);
    if (value.is_discarded())
        value = raw;
    else if (!value.is_string() && !value.is_null()) {
        // 5 stays text where the key holds text: a corpus or run may be called so.
        JobSpec scratch;
        for (const Field &field : jobFields(scratch)) {
            if (field.path == path && schemaTypes(field.slot).front() == "string")
                value = raw;
        }
    }
    Json *at = &document;
    for (const std::string &part : split(path)) {
        if (part.empty())
            return usage("the path has an empty part");
        if (at->is_null())
            *at = Json::object();
        if (!at->is_object())
            return usage("the path goes through a value that is not an object");
        at = &(*at)[part];
    }
    *at = std::move(value);
    return {};
}

OrderedJson &slotAt(OrderedJson &root, const std::string &path)
{
    OrderedJson *at = &root;
    for (const std::string &part : split(path))
        at = &(*at)[part];
    return *at;
}

// ---- JSON Schema ----

OrderedJson scalarSchema(const Rule &rule, const std::string &type)
{
    OrderedJson schema;
    schema["type"] = type;
    if (type == "integer" || type == "number") {
        const auto bound = [&](const char *closed, const char *open, double value, bool isOpen) {
            if (!std::isfinite(value))
                return;
            if (std::fabs(value) < 0x1p53 && value == std::floor(value))
                schema[isOpen ? open : closed] = static_cast<std::int64_t>(value);
            else
                schema[isOpen ? open : closed] = value;
        };
        bound("minimum", "exclusiveMinimum", rule.low, rule.lowOpen);
        bound("maximum", "exclusiveMaximum", rule.high, rule.highOpen);
    } else if (type == "string") {
        if (!rule.mayBeEmpty)
            schema["minLength"] = 1;
        if (rule.values.empty())
            schema["pattern"] = "^[^\\u0000-\\u001f]*$";
    }
    return schema;
}

OrderedJson fieldSchema(const Field &field, const Json &standard)
{
    const Rule &rule = field.rule;
    const auto types = schemaTypes(field.slot);
    OrderedJson schema = scalarSchema(rule, types.front());
    if (types.size() > 1)
        schema["type"] = types;
    if (std::holds_alternative<PairSlot>(field.slot)) {
        schema["items"] = scalarSchema(rule, "number");
        schema["minItems"] = schema["maxItems"] = 2;
    } else if (std::holds_alternative<std::vector<std::string> *>(field.slot)) {
        schema["items"] = scalarSchema(rule, "string");
    } else if (std::holds_alternative<std::optional<std::vector<std::int64_t>> *>(field.slot)) {
        schema["items"] = scalarSchema(rule, "integer");
    } else if (std::holds_alternative<Environment *>(field.slot)) {
        schema["propertyNames"] = {{"pattern", environmentPattern}};
        schema["additionalProperties"] = scalarSchema(rule, "string");
    } else if (std::holds_alternative<std::uint64_t *>(field.slot)
               || std::holds_alternative<std::optional<std::uint64_t> *>(field.slot)) {
        schema["minimum"] = 0;
        schema["maximum"] = std::numeric_limits<std::uint64_t>::max();
    }
    if (!rule.supported.empty()) {
        schema["enum"] = rule.supported;
        std::vector<std::string> later;
        for (const std::string &value : rule.values) {
            if (std::find(rule.supported.begin(), rule.supported.end(), Json(value)) == rule.supported.end())
                later.push_back(value);
        }
        // Says in the schema itself what the reader answers "not in this version" to.
        schema["x-not-in-this-version"] = later.empty() ? OrderedJson("any other value") : OrderedJson(later);
    } else if (!rule.values.empty()) {
        schema["enum"] = rule.values;
    }
    schema["description"] = rule.doc;
    if (!rule.required)
        schema["default"] = standard;
    return schema;
}

OrderedJson objectSchema(std::string_view doc)
{
    OrderedJson schema;
    schema["type"] = "object";
    schema["description"] = doc;
    schema["additionalProperties"] = false;
    schema["properties"] = OrderedJson::object();
    return schema;
}

} // namespace

Result<JobSpec> readJob(Json document, const std::string &name, const std::vector<std::string> &overrides)
{
    if (document.is_object()) {
        for (const std::string &entry : overrides)
            RY_TRY(applyOverride(document, entry));
    }
    RY_TRY(checkSchema(document, jobSchemaFamily, jobSchemaVersion, name, Code::BadJob));
    Result<JobSpec> job = readFields(document);
    if (job)
        return job;
    Error error = job.error();
    const bool given = std::any_of(overrides.begin(), overrides.end(), [&](const std::string &entry) {
        return entry.starts_with(error.where + "=");
    });
    if (error.hint.empty() && given)
        error.hint = "It was given for this run: leave it out, or give another";
    else if (error.hint.empty() && !name.empty())
        error.hint = "Change it in " + name;
    return error;
}

Result<Json> loadDocument(const std::string &path, const std::vector<std::string> &overrides)
{
    RY_ASSIGN(const std::string text, readFile(path));
    RY_ASSIGN(Json document, parseJson(text, path, Code::BadJob));
    for (const std::string &entry : overrides) {
        if (document.is_object())
            RY_TRY(applyOverride(document, entry));
    }
    return document;
}

Result<JobSpec> loadJob(const std::string &path, const std::vector<std::string> &overrides)
{
    RY_ASSIGN(const std::string text, readFile(path));
    RY_ASSIGN(Json document, parseJson(text, path, Code::BadJob));
    return readJob(std::move(document), path, overrides);
}

OrderedJson writeJob(const JobSpec &job)
{
    JobSpec copy = job;
    OrderedJson root;
    root["schema"] = std::string(jobSchemaFamily) + "/" + std::to_string(jobSchemaVersion);
    for (const Field &field : jobFields(copy))
        slotAt(root, field.path) = slotValue(field.slot);
    return root;
}

OrderedJson jobSchema()
{
    JobSpec defaults;
    const std::string id = std::string(jobSchemaFamily) + "/" + std::to_string(jobSchemaVersion);
    OrderedJson root =
        objectSchema("A Rankyard training job. Rules that need more than one key are checked by the reader.");
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema";
    root["title"] = id;
    root["properties"]["schema"] = {{"const", id}};
    root["required"] = {"schema", "model", "data"};
    for (const Field &field : jobFields(defaults)) {
        OrderedJson *at = &root;
        const auto parts = split(field.path);
        std::string section;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            section += (section.empty() ? "" : ".") + parts[i];
            OrderedJson &child = (*at)["properties"][parts[i]];
            if (child.is_null())
                child = objectSchema(sectionDoc(section));
            at = &child;
        }
        (*at)["properties"][parts.back()] = fieldSchema(field, slotValue(field.slot));
        if (field.rule.required)
            (*at)["required"].push_back(parts.back());
    }
    return root;
}

} // namespace rankyard::spec
