// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/validate.h"

#include <algorithm>
#include <cmath>

namespace rankyard::predict {

double quantile(std::vector<double> values, double share)
{
    if (values.empty())
        return 0;
    std::sort(values.begin(), values.end());
    const double at = share * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

namespace {

ErrorSummary summaryOf(const std::vector<const Validated *> &rows)
{
    ErrorSummary summary;
    std::vector<double> errors, signedErrors, naive;
    int covered = 0;
    for (const Validated *row : rows) {
        errors.push_back(std::abs(row->error));
        signedErrors.push_back(row->error);
        naive.push_back(std::abs(row->baseline / row->row.measured - 1));
        covered += row->row.measured >= row->predicted.low && row->row.measured <= row->predicted.high;
    }
    summary.n = static_cast<int>(rows.size());
    summary.median = quantile(errors, 0.5);
    summary.p90 = quantile(errors, 0.9);
    summary.worst = quantile(errors, 1);
    summary.bias = quantile(signedErrors, 0.5);
    summary.covered = rows.empty() ? 0 : static_cast<double>(covered) / static_cast<double>(rows.size());
    summary.baseline = quantile(naive, 0.5);
    summary.baselineP90 = quantile(naive, 0.9);
    return summary;
}

/// Seconds at the whole peak, recomputation and the bubble included.
double atPeak(const Run &run)
{
    const bool full = run.recompute == Recompute::Full;
    const double flops =
        stepFlops(run.shape, run.globalBatch, full ? Convention::Hardware4 : Convention::Model3);
    const double m = run.layout.microBatches;
    const double ramp = (run.layout.pp - 1.0) / std::max(1, run.layout.virtualStages);
    return flops / (run.devices * run.machine.peak[static_cast<std::size_t>(run.micro.precision)])
        * (1 + ramp / m);
}

/// The best that one share of the peak for each device and precision can do on these very rows.
void addBaseline(std::vector<Validated> &rows)
{
    const auto kind = [](const Run &run) { return run.machine.family + nameOf(run.micro.precision); };
    std::map<std::string, std::vector<double>> ratios;
    for (const Validated &row : rows)
        ratios[kind(*row.row.run)].push_back(row.row.measured / atPeak(*row.row.run));
    std::map<std::string, double> middle;
    for (const auto &[name, values] : ratios)
        middle[name] = quantile(values, 0.5);
    for (Validated &row : rows)
        row.baseline = atPeak(*row.row.run) * middle[kind(*row.row.run)];
}

/// Equal keys: the same run as far as the columns say.
std::string keyOf(const Run &run)
{
    const Shape &s = run.shape;
    std::string key = run.machine.device;
    for (const double value :
         {static_cast<double>(s.layers), static_cast<double>(s.hidden), static_cast<double>(s.heads),
          static_cast<double>(s.ffn), static_cast<double>(s.seq), static_cast<double>(s.vocab), run.devices,
          run.globalBatch, static_cast<double>(run.micro.sequences), static_cast<double>(run.micro.tp),
          static_cast<double>(run.micro.cp), static_cast<double>(run.layout.pp),
          static_cast<double>(run.layout.virtualStages), static_cast<double>(run.layout.schedule),
          static_cast<double>(run.layout.zero), static_cast<double>(run.micro.precision),
          static_cast<double>(run.recompute), run.machine.networkBandwidth})
        key += ' ' + std::to_string(value);
    return key;
}

void addNoise(Validation &validation)
{
    std::map<std::string, std::vector<double>> groups;
    for (const Validated &row : validation.rows) {
        if (row.row.run->what == RunClass::Dense)
            groups[keyOf(*row.row.run)].push_back(row.row.measured);
    }
    std::vector<double> distances;
    for (const auto &[key, times] : groups) {
        const double middle = quantile(times, 0.5);
        for (const double time : times) {
            if (times.size() > 1)
                distances.push_back(std::abs(time / middle - 1));
        }
    }
    validation.repeats = static_cast<int>(distances.size());
    validation.noiseMedian = quantile(distances, 0.5);
    validation.noiseP90 = quantile(distances, 0.9);
}

/// "owner/name" or "arXiv:2104.04473" of a source with its table and file: what counts as one source.
std::string sourceOf(const std::string &text)
{
    const std::size_t end = text.starts_with("arXiv:") ? text.find(' ') : text.find_first_of(": ");
    return text.substr(0, end);
}

OrderedJson partsJson(const StepTime &step)
{
    return {{"compute", step.compute},   {"bubble", step.bubble}, {"tensor", step.tensor},
            {"pipeline", step.pipeline}, {"data", step.data},     {"optimizer", step.optimizer},
            {"overhead", step.overhead}};
}

OrderedJson summaryJson(const ErrorSummary &summary)
{
    return {{"median", summary.median},
            {"p90", summary.p90},
            {"worst", summary.worst},
            {"n", summary.n},
            {"bias", summary.bias},
            {"covered_by_80_percent_interval", summary.covered},
            {"baseline_median", summary.baseline},
            {"baseline_p90", summary.baselineP90}};
}

OrderedJson mapJson(const std::map<std::string, ErrorSummary> &map)
{
    OrderedJson json = OrderedJson::object();
    for (const auto &[name, summary] : map)
        json[name] = summaryJson(summary);
    return json;
}

} // namespace

Validation validateRuns(std::vector<Row> rows, const Calibrations &calibrations)
{
    Validation validation;
    for (Row &row : rows) {
        if (!row.run) {
            ++validation.skipped[row.skipped];
            continue;
        }
        Validated done;
        done.predicted = predictRun(*row.run, calibrations);
        done.error = done.predicted.seconds / row.measured - 1;
        done.row = std::move(row);
        validation.rows.push_back(std::move(done));
    }
    addBaseline(validation.rows);
    addNoise(validation);
    std::vector<const Validated *> dense;
    std::map<std::string, std::vector<const Validated *>> apart, bySource, byDevice;
    for (const Validated &row : validation.rows) {
        if (row.row.run->what != RunClass::Dense) {
            apart[nameOf(row.row.run->what)].push_back(&row);
            continue;
        }
        dense.push_back(&row);
        bySource[sourceOf(row.row.source)].push_back(&row);
        byDevice[row.row.gpu].push_back(&row);
    }
    validation.dense = summaryOf(dense);
    const auto all = [](const auto &from, auto &to) {
        for (const auto &[name, list] : from)
            to[name] = summaryOf(list);
    };
    all(apart, validation.apart);
    all(bySource, validation.bySource);
    all(byDevice, validation.byDevice);
    return validation;
}

OrderedJson validationJson(const Validation &validation)
{
    OrderedJson rows = OrderedJson::array();
    for (const Validated &row : validation.rows) {
        rows.push_back({{"id", row.row.id},
                        {"source", row.row.source},
                        {"gpu", row.row.gpu},
                        {"predicted_iter_s", row.predicted.seconds},
                        {"measured_iter_s", row.row.measured},
                        {"error", row.error},
                        {"class", nameOf(row.row.run->what)},
                        {"low_iter_s", row.predicted.low},
                        {"high_iter_s", row.predicted.high},
                        {"baseline_iter_s", row.baseline},
                        {"parts", partsJson(row.predicted)}});
    }
    OrderedJson summary = summaryJson(validation.dense);
    OrderedJson skipped = OrderedJson::object();
    for (const auto &[reason, count] : validation.skipped)
        skipped[reason] = count;
    summary["skipped"] = std::move(skipped);
    return {{"rows", std::move(rows)},
            {"summary", std::move(summary)},
            {"apart", mapJson(validation.apart)},
            {"by_source", mapJson(validation.bySource)},
            {"by_device", mapJson(validation.byDevice)},
            {"noise_floor",
             {{"n", validation.repeats}, {"median", validation.noiseMedian}, {"p90", validation.noiseP90}}}};
}

} // namespace rankyard::predict
