// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/spec/job.h"

#include <cstdint>

namespace rankyard::bench {

/// CPU time of the calling thread.
std::int64_t threadCpuNs();

/// Times and rates of ATen's products and attention with a job's shapes, to standard output.
void printAtenTimes(const spec::JobSpec &job, int threads);

} // namespace rankyard::bench
