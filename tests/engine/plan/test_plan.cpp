// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/plan/jobs.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace rankyard::plan {

TEST(Plan, Works)
{
    auto plan = makePlan(smallJob());
    ASSERT_TRUE(plan) << plan.error().text();
    std::fputs(describe(plan->programs[0]).c_str(), stdout);
    std::fputs(describe(plan->programs[1]).c_str(), stdout);
    auto t0 = monotonicNs();
    auto big = makePlan(largeJob());
    auto t1 = monotonicNs();
    auto d = digestOf(big->programs[0]);
    auto t2 = monotonicNs();
    const MemoryReport m = memoryOf(*big, 0);
    std::printf("%zu ops %f ms digest %f ms\n", big->programs[0].ops.size(), double(t1 - t0) / 1e6, double(t2 - t1) / 1e6);
    for (std::size_t k = 0; k < 8; ++k)
        std::printf("%s %ld %ld\n", nameOf(MemoryKind(k)), m.bytes[k], m.live[k]);
    std::puts(dumpJson(planReport(*plan), 1).c_str());
}

} // namespace rankyard::plan
