// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/error.h"

#include "engine/base/json.h"

#include <system_error>

namespace rankyard {

namespace {

struct CodeRow {
    Code code;
    const char *name;
    Exit exit;
};

constexpr CodeRow codeTable[] = {
    {Code::Usage, "usage", Exit::BadUsage},
    {Code::BadJob, "bad-job", Exit::BadUsage},
    {Code::BadData, "bad-data", Exit::BadUsage},
    {Code::NotFound, "not-found", Exit::BadUsage},
    {Code::InUse, "in-use", Exit::BadUsage},
    {Code::DoesNotFit, "does-not-fit", Exit::CannotRun},
    {Code::NotHere, "not-here", Exit::CannotRun},
    {Code::Io, "io", Exit::CannotRun},
    {Code::RankFailed, "rank-failed", Exit::RankFailed},
    {Code::NodeFailed, "node-failed", Exit::NodeFailed},
    {Code::Stopped, "stopped", Exit::Stopped},
    {Code::Newer, "newer", Exit::BadUsage},
    {Code::Internal, "internal", Exit::RankFailed},
};

const CodeRow &row(Code code)
{
    for (const CodeRow &candidate : codeTable) {
        if (candidate.code == code)
            return candidate;
    }
    return codeTable[std::size(codeTable) - 1];
}

} // namespace

Error Error::make(Code code, std::string what, std::string where)
{
    Error error;
    error.code = code;
    error.what = std::move(what);
    error.where = std::move(where);
    return error;
}

Error Error::fromErrno(int number, std::string what, std::string where)
{
    Error error = make(Code::Io, std::move(what), std::move(where));
    error.found = std::generic_category().message(number);
    if (number == ENOSPC)
        error.hint = "Free space on that file system, or choose another folder";
    else if (number == EACCES || number == EPERM)
        error.hint = "Check who owns the folder and its permissions";
    return error;
}

Error &&Error::withFound(std::string value) &&
{
    found = std::move(value);
    return std::move(*this);
}
Error &&Error::withExpected(std::string value) &&
{
    expected = std::move(value);
    return std::move(*this);
}
Error &&Error::withHint(std::string value) &&
{
    hint = std::move(value);
    return std::move(*this);
}

Error &&Error::causedBy(Error value) &&
{
    cause = std::make_shared<const Error>(std::move(value));
    return std::move(*this);
}

std::string Error::text() const
{
    std::string line = where.empty() ? what : where + ": " + what;
    if (!found.empty() || !expected.empty()) {
        line += " (";
        if (!found.empty())
            line += "found " + found;
        if (!found.empty() && !expected.empty())
            line += ", ";
        if (!expected.empty())
            line += "expected " + expected;
        line += ")";
    }
    if (cause)
        line += ", because " + cause->text();
    if (!hint.empty())
        line += ". " + hint;
    return line;
}

const char *codeName(Code code) { return row(code).name; }
Exit exitFor(Code code) { return row(code).exit; }

void to_json(nlohmann::json &json, const Error &error)
{
    json = {{"code", codeName(error.code)}, {"what", error.what}};
    const auto add = [&json](const char *key, const std::string &value) {
        if (!value.empty())
            json[key] = value;
    };
    add("where", error.where);
    add("found", error.found);
    add("expected", error.expected);
    add("hint", error.hint);
    if (error.cause)
        json["cause"] = *error.cause;
}

void from_json(const nlohmann::json &json, Error &error)
{
    error = {};
    if (!json.is_object())
        return;
    const auto text = [&json](const char *key) {
        const auto at = json.find(key);
        return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    for (const CodeRow &candidate : codeTable) {
        if (text("code") == candidate.name)
            error.code = candidate.code;
    }
    error.what = text("what");
    error.where = text("where");
    error.found = text("found");
    error.expected = text("expected");
    error.hint = text("hint");
    if (const auto at = json.find("cause"); at != json.end() && at->is_object())
        error.cause = std::make_shared<const Error>(at->get<Error>());
}

} // namespace rankyard
