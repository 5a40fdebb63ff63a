// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>

namespace rankyard {

/// What kind of failure. One table (error.cpp) gives each its name in JSON and its exit status.
enum class Code {
    Usage,      ///< wrong command line
    BadJob,     ///< the job file cannot run as written
    BadData,    ///< corpus, checkpoint or other input is malformed
    NotFound,   ///< a file, run or name does not exist
    InUse,      ///< a directory, id or port is taken
    DoesNotFit, ///< not enough memory or devices
    NotHere,    ///< this build or host cannot do it: other build id, missing capability
    Io,         ///< reading or writing failed: disk full, permission
    RankFailed, ///< a rank died, hung or reported an error
    NodeFailed, ///< a node or the link to it was lost
    Stopped,    ///< the user stopped it
    Newer,      ///< a document of a newer schema
    Internal,   ///< a broken invariant: a bug
};

/// The command line's exit statuses (DESIGN 3.2).
enum class Exit { Done = 0, BadUsage = 2, CannotRun = 3, RankFailed = 4, NodeFailed = 5, Stopped = 6 };

/// An expected failure, as people and scripts see it: what is wrong, where, and the way out.
/// Empty strings mean "does not apply".
struct Error {
    Code code = Code::Internal;
    std::string what;  ///< one sentence, no full stop: "micro-batch does not divide the batch of a replica"
    std::string where; ///< JSON path, file, rank or op: "batch.micro", "/data/x.idx", "rank 1"
    std::string found; ///< the value that was found
    std::string expected; ///< the rule or the nearest value that works
    std::string hint;     ///< what to do next
    std::shared_ptr<const Error> cause;

    static Error make(Code code, std::string what, std::string where = {});
    /// An Io error with the text of errno `number`.
    static Error fromErrno(int number, std::string what, std::string where);
    Error &&withFound(std::string value) &&;
    Error &&withExpected(std::string value) &&;
    Error &&withHint(std::string value) &&;
    Error &&causedBy(Error value) &&;

    /// One line for people: "batch.micro: micro-batch … (found 3, expected 4). Hint".
    std::string text() const;
};

const char *codeName(Code code);
Exit exitFor(Code code);

/// {code, what, where?, found?, expected?, hint?, cause?}: the same object in --json, events and notices.
void to_json(nlohmann::json &json, const Error &error);
/// Unknown codes become Internal; missing keys become empty.
void from_json(const nlohmann::json &json, Error &error);

} // namespace rankyard
