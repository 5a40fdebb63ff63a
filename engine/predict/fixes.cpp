// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/fixes.h"

#include "engine/plan/plan.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

namespace rankyard::predict {

namespace {

std::vector<std::string> partsOf(const std::string &path)
{
    std::vector<std::string> parts;
    std::size_t begin = 0;
    for (;;) {
        const std::size_t dot = path.find('.', begin);
        parts.push_back(path.substr(begin, dot == std::string::npos ? dot : dot - begin));
        if (dot == std::string::npos)
            return parts;
        begin = dot + 1;
    }
}

bool isPath(const std::string &word)
{
    return word.find('.') != std::string::npos && std::isalpha(static_cast<unsigned char>(word.front())) != 0
        && std::all_of(word.begin(), word.end(), [](unsigned char c) {
               return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '.' || c == '_';
           });
}

/// A JSON scalar at the begin of `text`: a number, a quoted word, null, true or false. The rest is what follows it.
std::optional<std::string> scalarAt(const std::string &text)
{
    if (text.empty())
        return std::nullopt;
    std::size_t end = 0;
    if (text[0] == '"') {
        end = text.find('"', 1);
        if (end == std::string::npos)
            return std::nullopt;
        ++end;
    } else {
        while (end < text.size() && text[end] != ',' && text[end] != ';' && text[end] != ' ')
            ++end;
    }
    std::string value = text.substr(0, end);
    const Json parsed = Json::parse(value, nullptr, false);
    if (parsed.is_discarded() || parsed.is_structured())
        return std::nullopt;
    return value;
}

/// A word as values of keys are that are no numbers: "cpu", "zb-h1". In quotes, as JSON.
std::optional<std::string> plainWord(const std::string &text)
{
    const std::size_t end = std::min(text.find_first_of(" ,;"), text.size());
    const std::string word = text.substr(0, end);
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
        return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_' || c == '-';
    });
    return plain ? std::optional('"' + word + '"') : std::nullopt;
}

/// "path=value" for every value that the text of an error proposes, in its order: "4", "\"bf16\"", "at most 8", "…; nearest: 8",
/// "nearest: batch.micro 4, or batch.global 32", "0, or data.valid_fraction 0.05", "none, or zero.stage 1". What is no value of that
/// key does not pass for one: see problemOf.
std::vector<std::string> proposals(const std::string &path, const std::string &expected)
{
    std::map<std::size_t, std::string> list; // by place in the text
    // Words that are paths are followed by their value.
    for (std::size_t begin = 0; begin < expected.size();) {
        const std::size_t space = std::min(expected.find(' ', begin), expected.size());
        const std::string word = expected.substr(begin, space - begin);
        if (!word.empty() && isPath(word) && space < expected.size()) {
            const std::string rest = expected.substr(space + 1);
            const auto value = scalarAt(rest);
            if (const auto change = value ? value : plainWord(rest))
                list[begin] = word + "=" + *change;
        }
        begin = space + 1;
    }
    for (const std::string lead : {"", "nearest: ", "at most ", "at least ", "a multiple of "}) {
        const std::size_t found = lead.empty() ? 0 : expected.rfind(lead);
        if (found == std::string::npos)
            continue;
        const std::string rest = expected.substr(found + lead.size());
        const auto value = scalarAt(rest);
        if (const auto change = value ? value : lead.empty() ? plainWord(rest) : std::nullopt)
            list[found] = path + "=" + *change;
    }
    std::vector<std::string> changes;
    for (auto &[place, change] : list) {
        if (std::find(changes.begin(), changes.end(), change) == changes.end())
            changes.push_back(std::move(change));
    }
    return changes;
}

std::string wordsOf(const std::string &change)
{
    const std::size_t equals = change.find('=');
    const std::string path = change.substr(0, equals);
    const std::string last = path.substr(path.rfind('.') + 1);
    std::string value = change.substr(equals + 1);
    std::erase(value, '"');
    return last + " " + value;
}

/// `document` with the value of `standard` at `path`; without the key where the standard has none.
Json withDefault(Json document, const Json &standard, const std::string &path)
{
    Json *at = &document;
    const Json *from = &standard;
    const std::vector<std::string> parts = partsOf(path);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (!at->is_object() || !at->contains(parts[i]))
            return document;
        const bool known = from && from->is_object() && from->contains(parts[i]);
        from = known ? &(*from)[parts[i]] : nullptr;
        if (i + 1 < parts.size()) {
            at = &(*at)[parts[i]];
            continue;
        }
        if (from)
            (*at)[parts[i]] = *from;
        else
            at->erase(parts[i]);
    }
    return document;
}

} // namespace

Json changed(Json document, const std::vector<std::string> &changes)
{
    for (const std::string &change : changes) {
        const std::size_t equals = change.find('=');
        if (equals == std::string::npos)
            continue;
        Json *at = &document;
        for (const std::string &part : partsOf(change.substr(0, equals))) {
            if (!at->is_object())
                *at = Json::object();
            at = &(*at)[part];
        }
        const std::string text = change.substr(equals + 1);
        Json value = Json::parse(text, nullptr, false);
        *at = value.is_discarded() ? Json(text) : std::move(value);
    }
    return document;
}

namespace {

/// The document for a reader that takes only clusters on which jobs run, and the cluster that it names.
std::pair<Json, std::string> apart(Json document)
{
    std::string cluster = "local";
    if (!document.is_object())
        return {std::move(document), cluster};
    if (document.contains("cluster") && document["cluster"].is_string())
        cluster = document["cluster"].get<std::string>();
    document["cluster"] = "local";
    return {std::move(document), std::move(cluster)};
}

} // namespace

Result<spec::JobSpec> readDesign(const Json &document)
{
    auto [job, cluster] = apart(document);
    RY_ASSIGN(spec::JobSpec spec, spec::readJob(std::move(job), "the design"));
    spec.cluster = std::move(cluster);
    return spec;
}

Result<spec::WideJob> readWideDesign(const Json &document)
{
    auto [job, cluster] = apart(document);
    RY_ASSIGN(spec::WideJob wide, spec::readWideJob(std::move(job), "the design"));
    wide.job.cluster = std::move(cluster);
    return wide;
}

Status checkDesign(const Json &document)
{
    RY_ASSIGN(const spec::JobSpec job, readDesign(document));
    return plan::checkJob(job);
}

Problem problemOf(const Error &error, const Json &document)
{
    Problem problem{Severity::Error, error.where, error.what, {}};
    if (!error.found.empty())
        problem.text += ". Found " + error.found;
    if (!error.expected.empty())
        problem.text += (error.found.empty() ? ". Works: " : "; works: ") + error.expected;
    std::vector<Fix> partly; // after which something else is wrong with the same key
    for (const std::string &change : proposals(error.where, error.expected)) {
        const Status again = checkDesign(changed(document, {change}));
        const std::string path = change.substr(0, change.find('='));
        const Fix fix{{change}, wordsOf(change)};
        if (again || (again.error().where != error.where && again.error().where != path))
            problem.fixes.push_back(fix);
        else if (readDesign(changed(document, {change})) && again.error().what != error.what)
            partly.push_back(fix);
    }
    if (problem.fixes.empty())
        problem.fixes = std::move(partly);
    return problem;
}

std::vector<Problem> problemsOf(const Json &document)
{
    constexpr std::size_t most = 32;
    static const Json standard = spec::writeJob(spec::JobSpec());
    std::vector<Problem> problems;
    Json repaired = document;
    while (problems.size() < most) {
        const Status legal = checkDesign(repaired);
        if (!legal && legal.error().where == "plan_only") // the sizes beside it are not its model's
            return {problemOf(legal.error(), document)};
        if (legal)
            break;
        Problem problem = problemOf(legal.error(), repaired);
        const bool again = std::any_of(problems.begin(), problems.end(),
                                       [&](const Problem &known) { return known.path == problem.path; });
        if (again) // its repair was none: what follows from it is no news
            break;
        Json next = problem.fixes.empty() ? withDefault(repaired, standard, problem.path)
                                          : changed(repaired, problem.fixes.front().changes);
        problems.push_back(std::move(problem));
        if (next == repaired)
            break;
        repaired = std::move(next);
    }
    return problems;
}

} // namespace rankyard::predict
