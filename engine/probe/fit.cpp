// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/probe/fit.h"

#include "engine/predict/durations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace rankyard::probe {

namespace {

using plan::OpKind;
using plan::Segment;
using predict::CostModel;

/// What is fitted, where the search begins, and how far a value may go. Logarithms are moved, so all stay above 0. What no sample
/// shows keeps its place.
struct Unknown {
    const char *name;
    double start;
    double least;
    double most;
};
constexpr Unknown unknowns[] = {
    {"peak_fp32", 50e9, 1e8, 1e16},
    {"peak_bf16", 50e9, 1e8, 1e16},
    {"peak_fp16", 50e9, 1e8, 1e16},
    {"memory_bandwidth", 1e10, 1e8, 1e14},
    {"operands", 0.3, 1e-3, 5},
    {"kernel", 1e-6, 1e-8, 1e-3},
    {"attention", 0.6, 0.05, 1.5},
    {"attention_fp32", 1, 0.1, 10},
    {"attention_backward", 0.8, 0.2, 1.5},
    {"head_half", 20, 0.1, 256},
    {"attention_tile", 50, 0.1, 1024},
    {"traffic", 0.5, 0.01, 10},
    {"exponential", 2e-10, 1e-12, 1e-6},
};
constexpr std::size_t count = std::size(unknowns);
using Point = std::vector<double>; ///< logarithms, by unknown

constexpr double narrow =
    0.05; ///< residuals beyond it count little: a disturbed sample does not pull the others
constexpr double wide = 0.5; ///< for the way there

/// A sample of a trial, ready to be priced.
struct Row {
    const Trial *trial = nullptr;
    const Sample *sample = nullptr;
    double weight = 1;
};

cluster::Measured valuesOf(const Point &point)
{
    cluster::Measured measured;
    for (std::size_t i = 0; i < count; ++i)
        measured.values[unknowns[i].name] = std::exp(point[i]);
    return measured;
}

/// ln(predicted ÷ measured) of every row.
std::vector<double> residualsOf(const std::vector<Row> &rows, const Point &point)
{
    const CostModel cost = modelOf(valuesOf(point));
    std::vector<double> residuals;
    residuals.reserve(rows.size());
    const Trial *trial = nullptr;
    plan::Duration duration;
    for (const Row &row : rows) {
        if (row.trial != trial) {
            trial = row.trial;
            duration = predict::durationsOf(cost, trial->job);
        }
        const plan::Op &op = row.sample->program->op(row.sample->op);
        const double predicted =
            1e-9 * static_cast<double>(std::max<std::int64_t>(1, duration(*row.sample->program, op)));
        residuals.push_back(std::log(predicted / row.sample->seconds));
    }
    return residuals;
}

/// Squares near zero, logarithm far out.
double lossOf(const std::vector<Row> &rows, const std::vector<double> &residuals, double scale)
{
    double loss = 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
        loss += rows[i].weight * std::log1p(residuals[i] * residuals[i] / (scale * scale));
    return loss;
}

/// Gauss with pivots; `matrix` is small and positive definite by its damping.
Point solve(std::vector<Point> matrix, Point right)
{
    const std::size_t n = right.size();
    for (std::size_t i = 0; i < n; ++i) {
        std::size_t pivot = i;
        for (std::size_t r = i + 1; r < n; ++r) {
            if (std::abs(matrix[r][i]) > std::abs(matrix[pivot][i]))
                pivot = r;
        }
        std::swap(matrix[i], matrix[pivot]);
        std::swap(right[i], right[pivot]);
        for (std::size_t r = i + 1; r < n; ++r) {
            const double factor = matrix[r][i] / matrix[i][i];
            for (std::size_t k = i; k < n; ++k)
                matrix[r][k] -= factor * matrix[i][k];
            right[r] -= factor * right[i];
        }
    }
    for (std::size_t i = n; i-- > 0;) {
        for (std::size_t k = i + 1; k < n; ++k)
            right[i] -= matrix[i][k] * right[k];
        right[i] /= matrix[i][i];
    }
    return right;
}

/// JᵀWJ and −JᵀWr at a point; weights as lossOf's slope has them.
struct Normal {
    std::vector<Point> matrix;
    Point right;
};

Normal normalOf(const std::vector<Row> &rows, const Point &point, const std::vector<double> &residuals,
                double scale)
{
    constexpr double step = 1e-3;
    std::vector<std::vector<double>> slopes;
    for (std::size_t k = 0; k < count; ++k) {
        Point moved = point;
        moved[k] += step;
        slopes.push_back(residualsOf(rows, moved));
        for (std::size_t i = 0; i < rows.size(); ++i)
            slopes[k][i] = (slopes[k][i] - residuals[i]) / step;
    }
    Normal normal{std::vector<Point>(count, Point(count)), Point(count)};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const double weight = rows[i].weight / (scale * scale + residuals[i] * residuals[i]);
        for (std::size_t j = 0; j < count; ++j) {
            normal.right[j] -= weight * slopes[j][i] * residuals[i];
            for (std::size_t k = 0; k < count; ++k)
                normal.matrix[j][k] += weight * slopes[j][i] * slopes[k][i];
        }
    }
    return normal;
}

Point clamped(Point point)
{
    for (std::size_t i = 0; i < count; ++i)
        point[i] = std::clamp(point[i], std::log(unknowns[i].least), std::log(unknowns[i].most));
    return point;
}

/// Damped steps until none is better.
Point minimise(const std::vector<Row> &rows, Point point, double scale)
{
    std::vector<double> residuals = residualsOf(rows, point);
    double loss = lossOf(rows, residuals, scale), damping = 1;
    for (int step = 0; step < 60; ++step) {
        const Normal normal = normalOf(rows, point, residuals, scale);
        double gain = 0;
        for (int attempt = 0; attempt < 10 && gain <= 0; ++attempt) {
            auto matrix = normal.matrix;
            for (std::size_t i = 0; i < count; ++i)
                matrix[i][i] += damping * matrix[i][i] + 1e-6;
            Point trial = solve(std::move(matrix), normal.right);
            for (std::size_t i = 0; i < count; ++i)
                trial[i] = point[i] + std::clamp(trial[i], -1.0, 1.0);
            trial = clamped(std::move(trial));
            std::vector<double> there = residualsOf(rows, trial);
            const double better = loss - lossOf(rows, there, scale);
            if (!(better > 0)) {
                damping *= 4;
                continue;
            }
            gain = better;
            loss -= better;
            point = std::move(trial);
            residuals = std::move(there);
            damping = std::max(1e-4, damping / 4);
        }
        if (gain < 1e-6 * loss)
            break;
    }
    return point;
}

/// Where the search begins: the best rate of each type as its peak.
Point startOf(const std::vector<Trial> &trials)
{
    std::map<std::string, double> best;
    for (const Trial &trial : trials) {
        const std::string peak = std::string("peak_") + nameOf(trial.job.precision.compute);
        for (const Sample &sample : trial.samples) {
            const auto flops = static_cast<double>(sample.program->op(sample.op).flops);
            const bool product = sample.program->op(sample.op).segment != Segment::Core;
            if (product && sample.seconds > 0)
                best[peak] = std::max(best[peak], flops / sample.seconds);
        }
    }
    Point start;
    for (const Unknown &unknown : unknowns) {
        const auto found = best.find(unknown.name);
        start.push_back(std::log(found != best.end() && found->second > 0 ? found->second : unknown.start));
    }
    return start;
}

/// A sample's weight is its share of the computing time of its trial, but no kind of work counts for nothing.
std::vector<Row> rowsOf(const std::vector<Trial> &trials)
{
    std::vector<Row> rows;
    for (const Trial &trial : trials) {
        double whole = 0;
        for (const Sample &sample : trial.samples)
            whole += sample.seconds * sample.times;
        for (const Sample &sample : trial.samples) {
            if (sample.seconds > 0)
                rows.push_back({&trial, &sample, 0.02 + sample.seconds * sample.times / whole});
        }
    }
    return rows;
}

std::string kindOf(const Row &row)
{
    const plan::Op &op = row.sample->program->op(row.sample->op);
    const std::string type = predict::nameOf(predict::precisionOf(row.trial->job.precision.compute));
    switch (op.segment) {
    case Segment::Core:
        return "attention " + type;
    case Segment::Qkv:
    case Segment::Out:
    case Segment::Up:
    case Segment::Down:
    case Segment::Logits:
    case Segment::Loss:
        return "matrix products " + type;
    default:
        return op.kind == OpKind::Optimizer || op.kind == OpKind::GradNorm ? "optimizer" : "element-wise";
    }
}

cluster::Measured::Fit summaryOf(std::string what, std::vector<double> errors)
{
    std::sort(errors.begin(), errors.end());
    return {std::move(what), static_cast<int>(errors.size()), errors[errors.size() / 2], errors.back()};
}

/// Seconds of `sample` on a ring: bytes on the wire of one link, and steps of latency (CostModel::collective).
struct LinkShape {
    double bytes = 0;
    double latencies = 0;
};

LinkShape shapeOf(const LinkSample &sample)
{
    const double n = sample.ranks, bytes = static_cast<double>(sample.bytes);
    if (sample.kind == OpKind::Send)
        return {bytes, 1};
    const double ways = sample.kind == OpKind::AllReduce ? 2 : 1;
    return {ways * bytes * (n - 1) / n, ways * (n - 1) / 7};
}

/// Least relative squares of seconds = bytes ÷ bandwidth + latencies · latency, both at least 0.
void fitLinks(const std::vector<LinkSample> &links, cluster::Measured &measured)
{
    // Normal equations of |bytes · slope + latencies · latency − seconds| ÷ seconds.
    double bb = 0, bl = 0, ll = 0, b = 0, l = 0;
    for (const LinkSample &sample : links) {
        const LinkShape shape = shapeOf(sample);
        const double x = shape.bytes / sample.seconds, y = shape.latencies / sample.seconds;
        bb += x * x;
        bl += x * y;
        ll += y * y;
        b += x;
        l += y;
    }
    const double determinant = bb * ll - bl * bl;
    double slope = determinant > 0 ? (b * ll - l * bl) / determinant : 0;
    double latency = determinant > 0 ? (l * bb - b * bl) / determinant : 0;
    if (latency < 0 || slope <= 0) {
        latency = 0;
        slope = b / bb;
    }
    measured.values["link_bandwidth"] = 1 / slope;
    measured.values["island_latency"] = std::min(latency, 1e-2);
    std::map<std::string, std::vector<double>> errors;
    for (const LinkSample &sample : links) {
        const LinkShape shape = shapeOf(sample);
        errors[plan::nameOf(sample.kind)].push_back(
            std::abs((shape.bytes * slope + shape.latencies * latency) / sample.seconds - 1));
    }
    for (auto &[kind, list] : errors)
        measured.fits.push_back(summaryOf(kind, std::move(list)));
}

} // namespace

CostModel modelOf(const cluster::Measured &measured)
{
    const auto value = [&](const char *name) {
        const auto found = measured.values.find(name);
        return found == measured.values.end() ? 0.0 : found->second;
    };
    predict::Machine machine;
    machine.family = "cpu";
    machine.peak[static_cast<std::size_t>(predict::Precision::Fp32)] = value("peak_fp32");
    machine.peak[static_cast<std::size_t>(predict::Precision::Bf16)] = value("peak_bf16");
    machine.peak[static_cast<std::size_t>(predict::Precision::Fp16)] = value("peak_fp16");
    machine.memoryBandwidth = value("memory_bandwidth");
    machine.cooperative = true;
    auto constants = predict::calibrationOf(measured);
    return CostModel(machine, constants ? *constants : predict::Calibration{});
}

Result<cluster::Measured> fit(const std::vector<Trial> &trials, const std::vector<LinkSample> &links)
{
    const std::vector<Row> rows = rowsOf(trials);
    if (rows.empty())
        return Error::make(Code::NotHere, "nothing was measured", "probe");
    const Point point = minimise(rows, minimise(rows, startOf(trials), wide), narrow);
    cluster::Measured measured = valuesOf(point);
    for (const DType type : {DType::F32, DType::BF16, DType::F16}) {
        if (std::none_of(trials.begin(), trials.end(),
                         [type](const Trial &t) { return t.job.precision.compute == type; }))
            measured.values.erase(std::string("peak_") + nameOf(type));
    }
    std::map<std::string, std::vector<double>> errors;
    const std::vector<double> residuals = residualsOf(rows, point);
    for (std::size_t i = 0; i < rows.size(); ++i)
        errors[kindOf(rows[i])].push_back(std::abs(std::exp(residuals[i]) - 1));
    for (auto &[kind, list] : errors)
        measured.fits.push_back(summaryOf(kind, std::move(list)));
    if (!links.empty())
        fitLinks(links, measured);
    return measured;
}

} // namespace rankyard::probe
