// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/interop/reading.h"

#include <algorithm>
#include <cmath>

namespace rankyard::interop {

namespace {

void flatten(const Json &value, const std::string &path, Values &out)
{
    if (!value.is_object() || value.empty()) {
        if (!path.empty())
            out[path] = value;
        return;
    }
    for (const auto &[key, inner] : value.items())
        flatten(inner, path.empty() ? key : path + "." + key, out);
}

std::vector<std::string> partsOf(const std::string &path)
{
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t dot = std::min(path.find('.', begin), path.size());
        parts.push_back(path.substr(begin, dot - begin));
        begin = dot + 1;
    }
    return parts;
}

/// Insertions, deletions and replacements between two names (Levenshtein 1966).
std::size_t distance(const std::string &a, const std::string &b)
{
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
        row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t above = row[j];
            row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
            diagonal = above;
        }
    }
    return row[b.size()];
}

/// The name among `names` that was probably meant; empty when none is near.
std::string nearest(const std::string &name, const std::set<std::string> &names)
{
    std::string best;
    std::size_t least = std::max<std::size_t>(1, name.size() / 4) + 1;
    for (const std::string &other : names) {
        if (other == name || name.size() > 200)
            continue;
        if (const std::size_t far = distance(name, other); far < least) {
            least = far;
            best = other;
        }
    }
    return best;
}

} // namespace

std::string shown(const Json &value)
{
    std::string text = value.is_string() ? value.get<std::string>() : dumpJson(value);
    constexpr std::size_t most = 80;
    if (text.size() > most)
        text = text.substr(0, most) + "…";
    return text;
}

Values flattened(const Json &document)
{
    Values out;
    flatten(document, {}, out);
    return out;
}

OrderedJson nested(const std::vector<std::pair<std::string, Json>> &values)
{
    OrderedJson out = OrderedJson::object();
    for (const auto &[path, value] : values) {
        OrderedJson *at = &out;
        for (const std::string &part : partsOf(path))
            at = &(*at)[part];
        *at = value;
    }
    return out;
}

Reading::Reading(Values values, const ImportOptions &options)
    : m_values(std::move(values)),
      m_options(options),
      m_job(spec::writeJob(options.base))
{}

bool Reading::isAuto(const std::string &path) const
{
    const auto found = m_values.find(path);
    return found != m_values.end() && found->second == "auto";
}

void Reading::rename(const std::string &from, const std::string &to)
{
    auto node = m_values.extract(from);
    if (node.empty())
        return;
    if (m_values.count(to) > 0) {
        fail(Error::make(Code::BadData, "given twice, also by its other name " + from, to));
        return;
    }
    node.key() = to;
    m_values.insert(std::move(node));
}

const Json *Reading::take(const std::string &path)
{
    m_taken.insert(path);
    const auto found = m_values.find(path);
    if (found == m_values.end())
        return nullptr;
    if (isAuto(path)) {
        guessed(path, found->second, "left to the program around the engine: what was there before stays");
        return nullptr;
    }
    // A variable that the script does not set itself.
    if (found->second.is_string() && found->second.get_ref<const std::string &>().rfind('$', 0) == 0) {
        guessed(path, found->second,
                "the script does not say what it stands for: what was there before stays");
        return nullptr;
    }
    return &found->second;
}

const Json *Reading::typed(const std::string &path, const char *expected, bool (*fits)(const Json &))
{
    const Json *value = take(path);
    if (!value || value->is_null())
        return nullptr;
    if (fits(*value))
        return value;
    fail(Error::make(Code::BadData, "has the wrong type", path)
             .withFound(shown(*value))
             .withExpected(expected));
    return nullptr;
}

std::optional<std::int64_t> Reading::whole(const std::string &path)
{
    constexpr double most = 9e15;
    const Json *value = typed(path, "a whole number", [](const Json &json) {
        const double number = json.is_number() ? json.get<double>() : NAN;
        return std::fabs(number) <= most && number == std::floor(number);
    });
    if (!value)
        return std::nullopt;
    return static_cast<std::int64_t>(value->get<double>());
}

std::optional<std::int64_t> Reading::atLeast(const std::string &path, std::int64_t least)
{
    const auto value = whole(path);
    if (value && *value < least) {
        fail(Error::make(Code::BadData, "out of range", path)
                 .withFound(std::to_string(*value))
                 .withExpected("at least " + std::to_string(least)));
        return std::nullopt;
    }
    return value;
}

std::optional<double> Reading::number(const std::string &path)
{
    const Json *value = typed(path, "a number", [](const Json &json) {
        return json.is_number() && std::isfinite(json.get<double>());
    });
    return value ? std::optional(value->get<double>()) : std::nullopt;
}

std::optional<bool> Reading::flag(const std::string &path)
{
    const Json *value = typed(path, "true or false", [](const Json &json) {
        return json.is_boolean() || json == "true" || json == "false" || json == "True" || json == "False"
            || json == 0 || json == 1;
    });
    if (!value)
        return std::nullopt;
    return *value == true || *value == "true" || *value == "True" || *value == 1;
}

std::optional<std::string> Reading::word(const std::string &path)
{
    const Json *value = typed(path, "a word", [](const Json &json) { return json.is_string(); });
    return value ? std::optional(value->get<std::string>()) : std::nullopt;
}

void Reading::same(std::span<const Same> rows)
{
    for (const Same &row : rows) {
        std::optional<Json> value;
        switch (row.type) {
        case Type::Whole:
            value = whole(row.theirs);
            break;
        case Type::Number:
            value = number(row.theirs);
            break;
        case Type::Flag:
            value = flag(row.theirs);
            break;
        case Type::Word:
            value = word(row.theirs);
            break;
        }
        if (value && !value->is_null())
            set(row.ours, std::move(*value));
    }
}

Json Reading::get(const std::string &ours) const
{
    const Json *at = &m_job;
    for (const std::string &part : partsOf(ours)) {
        const auto found = at->find(part);
        if (found == at->end())
            return {};
        at = &*found;
    }
    return *at;
}

std::int64_t Reading::getWhole(const std::string &ours) const
{
    const Json value = get(ours);
    return value.is_number_integer() ? value.get<std::int64_t>() : 0;
}

void Reading::set(const std::string &ours, Json value)
{
    Json *at = &m_job;
    for (const std::string &part : partsOf(ours))
        at = &(*at)[part];
    *at = std::move(value);
}

void Reading::setDefault(std::string_view ours)
{
    static const Json defaults = spec::writeJob(spec::JobSpec());
    const Json *value = &defaults;
    for (const std::string &part : partsOf(std::string(ours)))
        value = &value->at(part);
    set(std::string(ours), *value);
}

void Reading::setReduce(const std::string &theirs, DType type)
{
    const bool scaled = type != DType::F16 || get("precision.compute") == "fp16";
    const bool plain = get("compression.mode") == "none" && get("comm.algorithm") == "library";
    const bool possible = type == DType::F32 || (scaled && plain);
    set("precision.reduce", nameOf(possible ? type : DType::F32));
    if (!possible)
        guessed(theirs, nameOf(type),
                scaled ? "reductions that are compressed or in steps are in fp32"
                       : "sums in fp16 go with fp16 computation only: fp32 is taken");
}

void Reading::lost(const std::string &theirs, std::string why)
{
    m_taken.insert(theirs);
    const auto found = m_values.find(theirs);
    if (found != m_values.end())
        m_remarks.push_back({Remark::Kind::Lost, theirs, shown(found->second), std::move(why)});
}

void Reading::guessed(std::string path, const Json &value, std::string why)
{
    const bool told = std::any_of(m_remarks.begin(), m_remarks.end(),
                                  [&](const Remark &remark) { return remark.path == path; });
    if (!told)
        m_remarks.push_back({Remark::Kind::Guessed, std::move(path), shown(value), std::move(why)});
}

void Reading::fail(Error error)
{
    if (!m_error)
        m_error = std::move(error);
}

Result<Imported> Reading::finish(Engine engine, std::span<const Known> known, std::string_view unknownWhy)
{
    if (m_error)
        return *m_error;
    std::set<std::string> names = m_taken;
    for (const Known &row : known)
        names.insert(row.theirs);
    for (const auto &[path, value] : m_values) {
        if (m_taken.count(path) > 0)
            continue;
        const auto row = std::find_if(known.begin(), known.end(), [&, &key = path](const Known &one) {
            const std::string_view theirs = one.theirs;
            return theirs.back() == '.' ? key.rfind(theirs, 0) == 0 : key == theirs;
        });
        if (row != known.end() && *row->same != '\0' && value == Json::parse(row->same))
            continue;
        std::string why = row != known.end() ? row->why : std::string(unknownWhy);
        if (row == known.end()) {
            if (const std::string meant = nearest(path, names); !meant.empty())
                why += "; near: " + meant;
        }
        m_remarks.push_back({Remark::Kind::Lost, path, shown(value), std::move(why)});
    }
    return Imported{engine, std::move(m_job), std::move(m_remarks)};
}

Writing::Writing(const spec::JobSpec &job) : m_job(spec::writeJob(job)), m_leaves(flattened(m_job)) {}

Json Writing::use(const std::string &ours)
{
    m_used.insert(ours);
    const Json *at = &m_job;
    for (const std::string &part : partsOf(ours)) {
        const auto found = at->find(part);
        if (found == at->end())
            return {};
        at = &*found;
    }
    return *at;
}

void Writing::same(std::span<const Same> rows)
{
    for (const Same &row : rows)
        put(row.theirs, use(row.ours));
}

void Writing::lost(const std::string &ours, std::string why)
{
    const Json value = use(ours);
    m_remarks.push_back({Remark::Kind::Lost, ours, shown(value), std::move(why)});
}

void Writing::guessed(std::string theirs, const Json &value, std::string why)
{
    m_remarks.push_back({Remark::Kind::Guessed, std::move(theirs), shown(value), std::move(why)});
}

bool Writing::isUsed(const std::string &path) const
{
    return std::any_of(m_used.begin(), m_used.end(),
                       [&](const std::string &one) { return path == one || path.rfind(one + ".", 0) == 0; });
}

void Writing::lostRest(const std::string &section, const std::string &why)
{
    static const Values defaults = flattened(Json(spec::writeJob(spec::JobSpec())));
    for (const auto &[path, value] : m_leaves) {
        const auto standing = defaults.find(path);
        if (path.rfind(section, 0) == 0 && !isUsed(path)
            && (standing == defaults.end() || standing->second != value))
            lost(path, why);
    }
}

std::vector<Remark> Writing::finish()
{
    // What a job is called, where it runs and what it is written in are no settings of training.
    for (const char *own : {"schema", "name", "cluster"})
        m_used.insert(own);
    lostRest("", "the other engine has no such setting");
    return std::move(m_remarks);
}

} // namespace rankyard::interop
