// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/combine.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

using spec::JobSpec;

bool compresses(const JobSpec &job) { return job.compression.mode != "none"; }
std::string compressionMode(const JobSpec &job) { return job.compression.mode; }

constexpr Combination table[] = {
    {"compression.mode",
     "ZeRO 2 and 3 reduce every micro-batch by itself, compression is of a step's gradient",
     [](const JobSpec &job) { return compresses(job) && job.zero.stage >= 2; }, compressionMode,
     "none, or zero.stage 1"},
    {"compression.mode", "without replicas there is no data-parallel reduction to compress",
     [](const JobSpec &job) { return compresses(job) && job.layout.dp * job.layout.cp == 1; },
     compressionMode, "none, or layout.dp 2"},
};

} // namespace

std::span<const Combination> combinations() { return table; }

Status checkCombination(const JobSpec &job)
{
    const auto broken = std::find_if(std::begin(table), std::end(table),
                                     [&](const Combination &rule) { return rule.broken(job); });
    if (broken == std::end(table))
        return {};
    return Error::make(Code::BadJob, broken->rule, broken->path)
        .withFound(broken->found(job))
        .withExpected(broken->nearest);
}

} // namespace rankyard::plan
