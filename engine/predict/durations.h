// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/simulate.h"
#include "engine/predict/cost.h"

namespace rankyard::predict {

/// What each op of a job's programs takes, by the same primitives as the closed form: the time line that plan::simulate draws and the
/// number that combine() gives come from one cost model. The function is self-contained; any thread may call it.
plan::Duration durationsOf(const CostModel &cost, const spec::JobSpec &job);

} // namespace rankyard::predict
