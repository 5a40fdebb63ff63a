// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"
#include "engine/probe/links.h"
#include "engine/probe/trial.h"

#include <functional>
#include <string>
#include <vector>

namespace rankyard::probe {

struct Options {
    DeviceFactory makeDevice; ///< one thread of it
    DeviceFactory makeWideDevice =
        {};        ///< all cores of the machine; what further threads of a rank are worth. May be empty
    int ranks = 1; ///< at work at once: one a core
    std::vector<DType> types = {DType::F32, DType::BF16, DType::F16};
    std::function<void(double share, const std::string &what)> progress = {};
    std::function<bool()> stop = [] { return false; };
};

/// A matrix product of a trial: c[m,n] = a[m,k] · b[k,n].
struct Product {
    std::int64_t m = 0, n = 0, k = 0;
    DType type = DType::F32;
    double flopsPerSecond = 0; ///< measured, of one rank
    double predicted = 0;
};

struct Report {
    cluster::Measured measured;
    std::vector<Product> products;
    std::vector<LinkSample> links;
    double seconds = 0; ///< that it took
};

/// Measures this machine by running small programs on all its cores at once, and fits the cost model's constants to what their ops took.
/// Under a minute on two cores. Stopped when `stop` said so.
Result<Report> run(const Options &options);

} // namespace rankyard::probe
