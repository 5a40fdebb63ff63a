// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace rankyard::checkpoint {

namespace {

constexpr const char *schemaFamily = "rankyard/checkpoint";
constexpr int schemaVersion = 1;
constexpr std::pair<Role, const char *> roles[] = {{Role::Param, "param"},
                                                   {Role::Master, "master"},
                                                   {Role::ExpAvg, "exp_avg"},
                                                   {Role::ExpAvgSq, "exp_avg_sq"},
                                                   {Role::Error, "error"}};

Error bad(std::string what, std::string where, std::string found = {}, std::string expected = {})
{
    return Error::make(Code::BadData, std::move(what), std::move(where))
        .withFound(std::move(found))
        .withExpected(std::move(expected));
}

/// Reads members of JSON objects; the first failure is kept and later reads do nothing.
class Reader
{
public:
    explicit Reader(std::string name) : m_name(std::move(name)) {}

    const Json *member(const Json &object, const std::string &path, const char *key)
    {
        const auto at = object.is_object() ? object.find(key) : object.end();
        if (!object.is_object() || at == object.end()) {
            fail(path, key, "is missing", {});
            return nullptr;
        }
        return &*at;
    }

    void get(const Json &object, const std::string &path, const char *key, std::string &out)
    {
        const Json *value = member(object, path, key);
        if (value && !value->is_string())
            fail(path, key, "is not a string", *value);
        else if (value)
            out = value->get<std::string>();
    }

    /// Any whole number of 64 bits with its sign.
    void getSigned(const Json &object, const std::string &path, const char *key, std::int64_t &out)
    {
        const Json *value = member(object, path, key);
        if (value && value->is_number_integer() && !value->is_number_unsigned())
            out = value->get<std::int64_t>();
        else
            get(object, path, key, out);
    }

    /// Whole numbers from 0 to 2^63 − 1.
    void get(const Json &object, const std::string &path, const char *key, std::int64_t &out)
    {
        const Json *value = member(object, path, key);
        if (value
            && (!value->is_number_unsigned()
                || value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)))
            fail(path, key, "is not a whole number in range", *value);
        else if (value)
            out = value->get<std::int64_t>();
    }

    void get(const Json &object, const std::string &path, const char *key, double &out)
    {
        const Json *value = member(object, path, key);
        if (value && (!value->is_number() || !std::isfinite(value->get<double>())))
            fail(path, key, "is not a finite number", *value);
        else if (value)
            out = value->get<double>();
    }

    const Json &list(const Json &object, const std::string &path, const char *key)
    {
        static const Json empty = Json::array();
        const Json *value = member(object, path, key);
        if (value && !value->is_array())
            fail(path, key, "is not a list", *value);
        return value && value->is_array() ? *value : empty;
    }

    void fail(const std::string &path, const char *key, const char *what, const Json &found)
    {
        if (m_status) {
            m_status = bad(what, m_name + ": " + path + (path.empty() || !*key ? "" : ".") + key,
                           found.is_null() ? std::string() : dumpJson(found).substr(0, 80));
        }
    }

    const Status &status() const { return m_status; }

private:
    std::string m_name;
    Status m_status;
};

OrderedJson tensorJson(const LogicalTensor &tensor)
{
    OrderedJson shards = OrderedJson::array();
    for (const Shard &shard : tensor.shards)
        shards.push_back(
            {{"file", shard.file}, {"key", shard.key}, {"begin", shard.begin}, {"end", shard.end}});
    return {{"name", tensor.name},
            {"role", nameOf(tensor.role)},
            {"dtype", nameOf(tensor.dtype)},
            {"shape", tensor.shape},
            {"shards", std::move(shards)}};
}

LogicalTensor readTensor(Reader &reader, const Json &json, const std::string &path)
{
    LogicalTensor tensor;
    std::string text;
    reader.get(json, path, "name", tensor.name);
    reader.get(json, path, "role", text);
    if (!roleFromName(text, tensor.role))
        reader.fail(path, "role", "is unknown", text);
    reader.get(json, path, "dtype", text);
    if (!dtypeFromName(text, tensor.dtype))
        reader.fail(path, "dtype", "is unknown", text);
    for (const Json &extent : reader.list(json, path, "shape")) {
        if (!extent.is_number_unsigned()
            || extent.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
            reader.fail(path, "shape", "holds something else than sizes", extent);
        else
            tensor.shape.push_back(extent.get<std::int64_t>());
    }
    for (const Json &entry : reader.list(json, path, "shards")) {
        Shard &shard = tensor.shards.emplace_back();
        reader.get(entry, path + ".shards", "file", shard.file);
        reader.get(entry, path + ".shards", "key", shard.key);
        reader.get(entry, path + ".shards", "begin", shard.begin);
        reader.get(entry, path + ".shards", "end", shard.end);
    }
    return tensor;
}

void readScalars(Reader &reader, const Json &json, Manifest &m)
{
    reader.get(json, "", "run", m.run);
    reader.get(json, "", "epoch", m.epoch);
    reader.get(json, "", "build", m.build);
    reader.get(json, "", "wall_ns", m.wallNs);
    reader.get(json, "", "step", m.step);
    if (json.contains("skipped_steps"))
        reader.get(json, "", "skipped_steps", m.skippedSteps);
    reader.get(json, "", "consumed_samples", m.consumedSamples);
    if (const Json *scaler = reader.member(json, "", "scaler")) {
        reader.get(*scaler, "scaler", "scale", m.scaler.scale);
        reader.get(*scaler, "scaler", "good_steps", m.scaler.goodSteps);
        reader.getSigned(*scaler, "scaler", "hysteresis", m.scaler.hysteresis);
    }
    if (const Json *data = reader.member(json, "", "data")) {
        reader.get(*data, "data", "fingerprint", m.dataFingerprint);
        if (const Json *seed = reader.member(*data, "data", "seed")) {
            if (seed->is_number_unsigned())
                m.dataSeed = seed->get<std::uint64_t>();
            else if (!seed->is_null())
                reader.fail("data", "seed", "is neither null nor a whole number", *seed);
        }
    }
    if (const Json *layout = reader.member(json, "", "layout")) {
        reader.get(*layout, "layout", "dp", m.layout.dp);
        reader.get(*layout, "layout", "tp", m.layout.tp);
        reader.get(*layout, "layout", "pp", m.layout.pp);
        reader.get(*layout, "layout", "cp", m.layout.cp);
        reader.get(*layout, "layout", "virtual", m.layout.virtualStages);
        reader.get(*layout, "layout", "zero_stage", m.layout.zeroStage);
    }
    if (const Json *job = reader.member(json, "", "job"))
        m.job = *job;
}

std::string digestOfDocument(Json document)
{
    document.erase("digest");
    return digestOf(dumpJson(document));
}

/// Only a plain name: no folder, no parent, nothing hidden, nothing that ends a C string.
bool isPlainName(const std::string &name)
{
    return !name.empty() && name.size() <= 255 && name.front() != '.' && name.find('/') == std::string::npos
        && name.find('\0') == std::string::npos && name != "MANIFEST.json";
}

Status checkShards(const LogicalTensor &tensor, const std::string &where, const std::set<std::string> &files)
{
    RY_ASSIGN(const std::int64_t elements, elementsOf(tensor.shape, where));
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(bytesOf(tensor.dtype)), &bytes))
        return bad("the tensor is larger than 63 bits can count", where);
    std::vector<const Shard *> order;
    for (const Shard &shard : tensor.shards) {
        if (!files.count(shard.file))
            return bad("a shard lies in a file that is not listed", where, shard.file);
        if (shard.begin < 0 || shard.end < shard.begin || shard.end > elements)
            return bad("a shard is outside the tensor", where,
                       std::to_string(shard.begin) + " to " + std::to_string(shard.end),
                       "0 to " + std::to_string(elements));
        order.push_back(&shard);
    }
    std::sort(order.begin(), order.end(), [](const Shard *a, const Shard *b) {
        return std::tie(a->begin, a->end) < std::tie(b->begin, b->end);
    });
    std::int64_t next = 0;
    for (const Shard *shard : order) {
        if (shard->begin != next) {
            return bad(shard->begin > next ? "elements of the tensor are in no shard"
                                           : "elements of the tensor are in two shards",
                       where,
                       std::to_string(std::min(next, shard->begin)) + " to "
                           + std::to_string(std::max(next, shard->begin)));
        }
        next = shard->end;
    }
    if (next != elements)
        return bad("elements of the tensor are in no shard", where,
                   std::to_string(next) + " to " + std::to_string(elements));
    return {};
}

} // namespace

const char *nameOf(Role role)
{
    for (const auto &[value, name] : roles) {
        if (value == role)
            return name;
    }
    return "";
}

bool roleFromName(const std::string &name, Role &role)
{
    for (const auto &[value, text] : roles) {
        if (name == text) {
            role = value;
            return true;
        }
    }
    return false;
}

const LogicalTensor *Manifest::find(std::string_view name, Role role) const
{
    for (const LogicalTensor &tensor : tensors) {
        if (tensor.name == name && tensor.role == role)
            return &tensor;
    }
    return nullptr;
}

Status checkManifest(const Manifest &manifest)
{
    std::set<std::string> files;
    for (const FileEntry &file : manifest.files) {
        if (!isPlainName(file.name))
            return bad("not a plain file name", "files", dumpJson(Json(file.name)));
        if (file.size < 0)
            return bad("a negative size", file.name, std::to_string(file.size));
        if (!files.insert(file.name).second)
            return bad("a file is listed twice", file.name);
    }
    std::set<std::pair<std::string, Role>> names;
    for (const LogicalTensor &tensor : manifest.tensors) {
        const std::string where = tensor.name + " (" + nameOf(tensor.role) + ")";
        if (tensor.name.empty())
            return bad("a tensor without a name", "tensors");
        if (!names.insert({tensor.name, tensor.role}).second)
            return bad("a tensor stands twice", where);
        RY_TRY(checkShards(tensor, where, files));
    }
    for (const auto &[alias, name] : manifest.aliases) {
        if (!manifest.find(name, Role::Param))
            return bad("an alias of a tensor that is not there", alias, name);
    }
    if (manifest.step < 0 || manifest.consumedSamples < 0)
        return bad("a negative step or number of samples", "step", std::to_string(manifest.step));
    if (manifest.skippedSteps < 0 || manifest.skippedSteps > manifest.step)
        return bad("more steps skipped than done", "skipped_steps", std::to_string(manifest.skippedSteps));
    if (!std::isfinite(manifest.scaler.scale))
        return bad("the loss scale is not finite", "scaler.scale");
    return {};
}

OrderedJson writeManifest(const Manifest &m)
{
    OrderedJson json;
    json["schema"] = std::string(schemaFamily) + "/" + std::to_string(schemaVersion);
    json["run"] = m.run;
    json["epoch"] = m.epoch;
    json["build"] = m.build;
    json["wall_ns"] = m.wallNs;
    json["step"] = m.step;
    json["skipped_steps"] = m.skippedSteps;
    json["consumed_samples"] = m.consumedSamples;
    json["scaler"] = {
        {"scale", m.scaler.scale}, {"good_steps", m.scaler.goodSteps}, {"hysteresis", m.scaler.hysteresis}};
    json["data"]["seed"] = m.dataSeed ? OrderedJson(*m.dataSeed) : OrderedJson();
    json["data"]["fingerprint"] = m.dataFingerprint;
    json["layout"] = {{"dp", m.layout.dp},
                      {"tp", m.layout.tp},
                      {"pp", m.layout.pp},
                      {"cp", m.layout.cp},
                      {"virtual", m.layout.virtualStages},
                      {"zero_stage", m.layout.zeroStage}};
    json["job"] = m.job;
    json["aliases"] = OrderedJson::object();
    for (const auto &[alias, name] : m.aliases)
        json["aliases"][alias] = name;
    json["tensors"] = OrderedJson::array();
    for (const LogicalTensor &tensor : m.tensors)
        json["tensors"].push_back(tensorJson(tensor));
    json["files"] = OrderedJson::array();
    for (const FileEntry &file : m.files)
        json["files"].push_back({{"name", file.name}, {"size", file.size}, {"digest", file.digest}});
    // Through text, as a reader will see it.
    json["digest"] = digestOfDocument(Json::parse(dumpJson(json)));
    return json;
}

std::string manifestDigest(const OrderedJson &document) { return document.value("digest", std::string()); }

Result<Manifest> readManifest(std::string_view text, const std::string &name)
{
    RY_ASSIGN(const Json json, parseJson(text, name));
    RY_TRY(checkSchema(json, schemaFamily, schemaVersion, name));
    Reader reader(name);
    std::string digest;
    reader.get(json, "", "digest", digest);
    RY_TRY(reader.status());
    if (digestOfDocument(json) != digest)
        return bad("the manifest was damaged or changed: its digest does not match", name,
                   digestOfDocument(json), digest);
    Manifest m;
    readScalars(reader, json, m);
    if (const Json *aliases = reader.member(json, "", "aliases"); aliases && aliases->is_object()) {
        for (const auto &[alias, target] : aliases->items()) {
            if (!target.is_string())
                reader.fail("aliases", "", "holds something else than names", target);
            else
                m.aliases.emplace_back(alias, target.get<std::string>());
        }
    } else if (aliases) {
        reader.fail("", "aliases", "is not an object", *aliases);
    }
    for (const Json &tensor : reader.list(json, "", "tensors"))
        m.tensors.push_back(readTensor(reader, tensor, "tensors[" + std::to_string(m.tensors.size()) + "]"));
    for (const Json &entry : reader.list(json, "", "files")) {
        const std::string path = "files[" + std::to_string(m.files.size()) + "]";
        FileEntry &file = m.files.emplace_back();
        reader.get(entry, path, "name", file.name);
        reader.get(entry, path, "size", file.size);
        reader.get(entry, path, "digest", file.digest);
    }
    RY_TRY(reader.status());
    if (auto status = checkManifest(m); !status) {
        Error error = status.error();
        error.where = name + ": " + error.where;
        return error;
    }
    return m;
}

} // namespace rankyard::checkpoint
