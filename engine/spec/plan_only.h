// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/spec/job.h"

#include <optional>
#include <string>
#include <vector>

/// What a job can only be planned with: its section `plan_only`. Nothing runs such a job; readJob() refuses it.
namespace rankyard::spec {

struct PlanOnly {
    std::optional<std::string> model; ///< of the planner's catalogue; its sizes in place of the job's model
    std::optional<std::int64_t> experts, topK, sharedExperts, expertFfn, denseLayers;
    std::optional<std::int64_t> queryRank, keyRank, nopeDim, ropeDim,
        valueDim;                          ///< multi-head latent attention
    std::optional<std::string> activation; ///< gelu, relu2, swiglu
    std::optional<std::string> compute;    ///< fp8, fp4
    std::int64_t ep = 1;                   ///< expert-parallel ranks
};

struct WideJob {
    JobSpec job;
    PlanOnly wide;
};

bool hasPlanOnly(const Json &document);
/// The document of a file, with overrides ("path=value") put in.
Result<Json> loadDocument(const std::string &path, const std::vector<std::string> &overrides);
/// The job beside the section, and the section: unknown keys, wrong types and values out of range are errors as readJob's.
Result<WideJob> readWideJob(Json document, const std::string &name);
/// The section, with the keys that say something.
Json writePlanOnly(const PlanOnly &wide);
/// Of the JSON Schema of jobs.
OrderedJson planOnlySchema();

} // namespace rankyard::spec
