// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/published.h"

#include <map>

namespace rankyard::predict {

/// Linear between neighbours of the sorted values; 0 for none.
double quantile(std::vector<double> values, double share);

/// |predicted ÷ measured − 1| over rows.
struct ErrorSummary {
    int n = 0;
    double median = 0;
    double p90 = 0;
    double worst = 0;
    double bias = 0;    ///< median of the signed error
    double covered = 0; ///< share of rows whose time lies in the 80 % interval
    double baseline =
        0; ///< median of the naive model: the peak times one share for each kind of device, and the bubble
    double baselineP90 = 0;
};

struct Validated {
    Row row;
    StepTime predicted;
    double error = 0; ///< predicted ÷ measured − 1
    double baseline = 0;
};

/// Predictions beside measurements.
struct Validation {
    std::vector<Validated> rows;
    std::map<std::string, int> skipped;           ///< by reason
    ErrorSummary dense;                           ///< dense 16-bit pre-training: what targets are about
    std::map<std::string, ErrorSummary> apart;    ///< experts, fp8, fine_tuning
    std::map<std::string, ErrorSummary> bySource; ///< dense ones
    std::map<std::string, ErrorSummary> byDevice;
    /// Of runs that the table has more than once, the same in all but the result: median and p90 of the distance to their median.
    int repeats = 0;
    double noiseMedian = 0;
    double noiseP90 = 0;
};
Validation validateRuns(std::vector<Row> rows, const Calibrations &calibrations);
/// {rows: [{id, source, gpu, predicted_iter_s, measured_iter_s, error, …}], summary: {median, p90, worst, n, skipped, …}, …}
OrderedJson validationJson(const Validation &validation);

} // namespace rankyard::predict
