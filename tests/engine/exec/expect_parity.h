// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/parity.h"
#include "tests/engine/exec/synthetic_data.h"

#include <gtest/gtest.h>

namespace rankyard::exec::test {

inline ParityOptions parityOptions(std::int64_t steps = 20)
{
    ParityOptions options;
    options.steps = steps;
    options.makeDevice = [] { return makeCpuDevice(1); };
    options.makeData = [](const spec::JobSpec &job) -> Result<std::unique_ptr<DataSource>> {
        return std::unique_ptr<DataSource>(std::make_unique<SyntheticData>(job));
    };
    return options;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t mostSteps = 2; ///< instrumented kernels take ten times as long
#else
constexpr std::int64_t mostSteps = 20;
#endif

/// The job in its layout gives what one rank gives; of long runs also that it learns. Without `gradients` losses and scales alone.
inline void expectParity(const spec::JobSpec &job, const std::string &what, std::int64_t steps = 20,
                         double learns = 0.95, bool gradients = true)
{
    SCOPED_TRACE(what);
    steps = std::min(steps, mostSteps);
    const auto report = checkParity(job, parityOptions(steps));
    ASSERT_TRUE(report.ok()) << report.error().text();
    EXPECT_TRUE(gradients ? report->ok() : report->follows())
        << "loss " << report->worstLoss << " (limit " << report->lossLimit << "), " << report->worst.parameter
        << " of " << report->worst.unit << " " << report->worst.relativeError << " of "
        << report->gradientLimit << " at step " << report->worst.step << ", against fp64 "
        << report->worstExact;
    if (steps >= 20) {
        EXPECT_LT(report->steps.back().loss, learns * report->steps.front().loss);
    }
}

} // namespace rankyard::exec::test
