// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"

namespace rankyard::plan {

/// A job with the given layout; sizes small enough to read its program.
inline spec::JobSpec smallJob(std::int64_t dp = 2, std::int64_t zero = 1, std::int64_t microbatches = 2)
{
    spec::JobSpec job;
    job.model.layers = 2;
    job.model.hidden = 8;
    job.model.heads = 2;
    job.model.seq = 4;
    job.model.vocab = 16;
    job.layout.dp = dp;
    job.zero.stage = zero;
    job.batch.micro = 2;
    job.batch.global = dp * job.batch.micro * microbatches;
    return job;
}

inline spec::JobSpec largeJob()
{
    spec::JobSpec job;
    job.model.layers = 12;
    job.model.hidden = 768;
    job.model.heads = 12;
    job.model.seq = 1024;
    job.model.vocab = 50257;
    job.layout.dp = 2;
    job.zero.stage = 1;
    job.batch.micro = 1;
    job.batch.global = 64;
    return job;
}

} // namespace rankyard::plan
