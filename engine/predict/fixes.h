// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/spec/job.h"
#include "engine/spec/plan_only.h"

#include <string>
#include <vector>

/// What a person can do about a job that cannot run: changes of one key each, as `--set` takes them.
namespace rankyard::predict {

enum class Severity {
    Note,    ///< worth knowing
    Advice,  ///< runs, and would be better otherwise
    Warning, ///< runs, and is probably not what was meant
    Error,   ///< cannot run
};

/// One way out: "layout.tp=8", or several keys at once.
struct Fix {
    std::vector<std::string> changes; ///< each is "path=value"
    std::string words;                ///< "tp 8, dp 4"
};

/// Something to say about one key of the job.
struct Problem {
    Severity severity = Severity::Error;
    std::string path; ///< of the job; empty: of the whole
    std::string text; ///< one sentence, without the path
    std::vector<Fix> fixes;
};

/// `document` with `changes` applied: the text after the equals sign is JSON, or else a string. Sections that are missing are made.
Json changed(Json document, const std::vector<std::string> &changes);

/// The error of readJob or checkJob as a problem. Its fixes are the nearest values that the error names, in its order: those after
/// which that key and the changed one are right; where there is none, those after which the key has another error. `document` is the job that was read.
Problem problemOf(const Error &error, const Json &document);

/// Everything that is wrong with a job, not the first only: each error is repaired in a copy, by its first fix or with the key's
/// default, and the rest is read again. Errors of readDesign, then of plan::checkJob. Empty: the job can be planned.
std::vector<Problem> problemsOf(const Json &document);

/// What the reader, the validator and the planner's rules say of a design, without planning it.
Status checkDesign(const Json &document);

/// readJob for a design: `cluster` may name any cluster, since nothing is started. The error is the first that readJob finds.
Result<spec::JobSpec> readDesign(const Json &document);
/// The same of a design with a section plan_only.
Result<spec::WideJob> readWideDesign(const Json &document);

} // namespace rankyard::predict
