// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/passes/pack.h"

namespace rankyard::plan {

/// Packs in program order, each item into the smallest gap that holds it: all in one region, or the small ones above the others,
/// whichever comes out smaller. O(n log n).
Packing packByGaps(const std::vector<Item> &items, const LaneOrder &order);

} // namespace rankyard::plan
