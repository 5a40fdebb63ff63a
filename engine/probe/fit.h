// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"
#include "engine/predict/cost.h"
#include "engine/probe/links.h"
#include "engine/probe/trial.h"

#include <vector>

namespace rankyard::probe {

/// The values of cluster::Measured that explain the samples best: constants of the cost model by which programs of the same kind are priced
/// later (predict::durationsOf). Damped least squares on the logarithms of predicted ÷ measured (Levenberg 1944, Marquardt 1963), each
/// sample with the weight of its share of a step; links by a line through latency and bytes. With how well each kind of work is
/// explained. NotHere when there is nothing to fit.
Result<cluster::Measured> fit(const std::vector<Trial> &trials, const std::vector<LinkSample> &links);

/// The cost model of one thread with these values, without links: what the fit compares with the samples.
predict::CostModel modelOf(const cluster::Measured &measured);

} // namespace rankyard::probe
