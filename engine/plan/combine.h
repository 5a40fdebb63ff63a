// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/spec/job.h"

#include <span>
#include <string>

/// What combines with what: strategies that exclude each other, as one table that the planner refuses by and the
/// documentation is made from.
namespace rankyard::plan {

struct Combination {
    const char *path; ///< of the key that is refused
    const char *rule; ///< why, for people
    bool (*broken)(const spec::JobSpec &job);
    std::string (*found)(const spec::JobSpec &job);
    const char *nearest; ///< values that work
};

std::span<const Combination> combinations();

/// BadJob with the first rule that the job breaks, the value found and the nearest that works.
Status checkCombination(const spec::JobSpec &job);

} // namespace rankyard::plan
