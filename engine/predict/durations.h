// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/simulate.h"
#include "engine/predict/cost.h"

namespace rankyard::predict {

/// What each op of a job's programs takes, by the same primitives as the closed form: the time line that plan::simulate draws and the
/// number that combine() gives come from one cost model. The function is self-contained; any thread may call it.
plan::Duration durationsOf(const CostModel &cost, const spec::JobSpec &job);

/// When every op of a plan's step runs on those devices: plan::simulate with these durations. Ranks that take turns on a core fill
/// each other's waits, so that the step takes what all of them compute there: the line is stretched to that.
Result<plan::Timeline> timelineOf(const CostModel &cost, const plan::Plan &plan,
                                  const plan::Duration &duration);
/// By the durations above.
Result<plan::Timeline> timelineOf(const CostModel &cost, const plan::Plan &plan);

} // namespace rankyard::predict
