// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/spec/job.h"

#include <span>
#include <string>
#include <vector>

/// What combines with what, as tables that the planner refuses by and the documentation is made from.
namespace rankyard::plan {

struct Rule {
    const char *path; ///< of the key that is refused
    const char *rule; ///< why, for people
    bool (*broken)(const spec::JobSpec &job);
    std::string (*found)(const spec::JobSpec &job);
    const char *nearest; ///< values that work
    std::string (*says)(const spec::JobSpec &job) =
        nullptr; ///< `rule` with the job's numbers; null: as it is
    std::string (*values)(const spec::JobSpec &job) = nullptr; ///< `nearest` worked out; null: as it is
};

/// Strategies that exclude each other.
std::span<const Rule> combinations();
/// What heads, sequence, layers and batch the axes and their schedule divide. They rely on those above them, and on every value being in
/// its range.
std::span<const Rule> layoutRules();

/// Settings that do nothing beside the others, or harm: not refused, but said.
std::span<const Rule> idleSettings();
/// "recompute.ratio 0.5 is of no use: …", of each such setting of a job that checkJob() takes.
std::vector<std::string> idleNotes(const spec::JobSpec &job);

/// BadJob with the first rule that the job breaks, the value found and the nearest that works.
Status check(std::span<const Rule> rules, const spec::JobSpec &job);

} // namespace rankyard::plan
