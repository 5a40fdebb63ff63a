// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/plan/jobs.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace rankyard::plan {

TEST(Plan, Works)
{
    auto plan = makePlan(smallJob());
    ASSERT_TRUE(plan) << plan.error().text();
    auto t0 = monotonicNs();
    auto big = makePlan(largeJob());
    auto t1 = monotonicNs();
    auto d = digestOf(big->programs[0]);
    auto t2 = monotonicNs();
    auto t3 = monotonicNs(); ASSERT_TRUE(verify(big->programs[0])); auto t4=monotonicNs(); std::printf("verify %f\n", double(t4-t3)/1e6);
    const MemoryReport m = memoryOf(*big, 0);
    std::printf("%zu ops %f ms digest %f ms\n", big->programs[0].ops.size(), double(t1 - t0) / 1e6, double(t2 - t1) / 1e6);
    for (std::size_t k = 0; k < 8; ++k)
        std::printf("%s %ld %ld\n", nameOf(MemoryKind(k)), m.bytes[k], m.live[k]);
    std::puts(dumpJson(planReport(*plan), 1).c_str());
}

} // namespace rankyard::plan
