// SPDX-License-Identifier: GPL-3.0-or-later
// How a chart gets from its models to QCustomPlot: decimation, stacks, ranges.
#include "ui/plot/chart_p.h"

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

void give(QCPGraph *graph, const std::vector<Sample> &samples)
{
    QVector<QCPGraphData> data;
    data.reserve(static_cast<qsizetype>(samples.size()));
    for (const Sample &sample : samples)
        data.append({sample.x, sample.y});
    graph->data()->set(data, true);
}

} // namespace

int Chart::Private::mostVerticalTicks() const
{
    // Of the widget, not of QCustomPlot's last layout, which is one drawing behind.
    const Theme &theme = Theme::instance();
    return std::clamp((plot->height() - theme.scaled(30)) / theme.scaled(30), 3, 6);
}

TickSet Chart::Private::verticalTicks(const AxisSpec &spec, double lo, double hi) const
{
    const int most = mostVerticalTicks();
    switch (spec.scale) {
    case AxisSpec::Scale::Log10:
        return decadeTicks(lo, hi, most);
    case AxisSpec::Scale::Log2:
        return powerTicks(lo, hi, most);
    case AxisSpec::Scale::Linear:
        break;
    }
    return linearTicks(lo, hi, spec.unit, most);
}

/// The same margins in every chart, so that their x axes stand under each other; more where a label is wider.
void Chart::Private::settleMargins()
{
    const Theme &theme = Theme::instance();
    const QFontMetrics metrics(tickFont());
    const auto room = [&metrics](int usual, const TickSet &ticks) {
        int widest = 0;
        for (const QString &label : ticks.label)
            widest = std::max(widest, metrics.horizontalAdvance(label));
        return std::max(usual, widest + labelPadding + 3);
    };
    const int atRight =
        rightSpec ? room(theme.scaled(40), verticalTicks(*rightSpec, yView.rightLo, yView.rightHi)) : 14;
    plot->axisRect()->setMargins(QMargins(room(theme.scaled(48), verticalTicks(left, yView.lo, yView.hi)),
                                          theme.scaled(8), atRight, theme.scaled(22)));
}

ColumnMap Chart::Private::columns() const
{
    return {group->lo(), group->hi(), group->logX(), std::max(16, plot->axisRect()->width())};
}

void Chart::Private::rebuild()
{
    dirty = false;
    refreshLegend();
    const ColumnMap map = columns();
    for (auto &each : series) {
        if (each->spec.draw == SeriesSpec::Draw::Area)
            continue;
        const AxisSpec &axis = each->spec.right ? rightSpec.value_or(AxisSpec{}) : left;
        const bool positive = axis.scale != AxisSpec::Scale::Linear;
        const auto hand = [&](QCPGraph *graph, SeriesModel::Which which, std::vector<Sample> &samples) {
            each->model.decimate(map, which, positive, samples);
            give(graph, samples);
        };
        hand(each->raw, SeriesModel::Which::Raw, each->drawnRaw);
        if (each->smooth && smoothing(*each))
            hand(each->smooth, SeriesModel::Which::Smooth, each->drawnSmooth);
        else
            each->drawnSmooth.clear();
        for (const auto &tail : each->tails) {
            std::vector<Sample> samples;
            tail->model.decimate(map, SeriesModel::Which::Raw, positive, samples);
            give(tail->graph, samples);
        }
        styleSeries(*each);
    }
    restack();
    settleY(false);
    if (rightSpec)
        settleY(true);
    settled = true;
    applyRanges();
    // Axes without data would only show numbers that mean nothing.
    const bool any = group->hasData();
    for (QCPAxis *axis : {x, y})
        axis->setTickLabels(any);
    right->setTickLabels(any && rightSpec.has_value());
    y->grid()->setVisible(any);
}

void Chart::Private::restack()
{
    bands.clear();
    bandSeries.clear();
    std::size_t count = 0;
    for (std::size_t i = 0; i < series.size(); ++i) {
        if (series[i]->spec.draw != SeriesSpec::Draw::Area || !series[i]->shown)
            continue;
        count = bandSeries.empty() ? series[i]->model.size() : std::min(count, series[i]->model.size());
        bandSeries.push_back(static_cast<int>(i));
    }
    if (bandSeries.empty())
        return;
    const auto &xs = series[static_cast<std::size_t>(bandSeries[0])]->model.x();
    if (total.size() > count || (!total.empty() && total.x().front() != xs.front()))
        total.clear();
    for (std::size_t at = total.size(); at < count; ++at) {
        double sum = 0;
        for (int i : bandSeries)
            sum += series[static_cast<std::size_t>(i)]->model.y()[at];
        total.append(xs[at], sum);
    }
    std::vector<std::size_t> at;
    total.peaks(columns(), at);
    std::vector<double> sum(at.size(), 0.0);
    for (int i : bandSeries) {
        std::vector<Sample> top(at.size());
        const auto &model = series[static_cast<std::size_t>(i)]->model;
        for (std::size_t k = 0; k < at.size(); ++k) {
            sum[k] += model.y()[at[k]];
            top[k] = {xs[at[k]], sum[k]};
        }
        series[static_cast<std::size_t>(i)]->drawnRaw = top;
        bands.push_back(std::move(top));
    }
}

NiceRange Chart::Private::autoRange(bool onRight, bool &any)
{
    const AxisSpec spec = onRight ? rightSpec.value_or(AxisSpec{}) : left;
    const bool positive = spec.scale != AxisSpec::Scale::Linear;
    double lo = 0;
    double hi = 0;
    any = false;
    const auto take = [&](double value) {
        lo = any ? std::min(lo, value) : value;
        hi = any ? std::max(hi, value) : value;
        any = true;
    };
    std::vector<double> drawnValues;
    const auto takeAll = [&](const std::vector<Sample> &samples) {
        for (const Sample &sample : samples) {
            if (sample.x < group->lo() || sample.x > group->hi() || !std::isfinite(sample.y)
                || (positive && sample.y <= 0))
                continue;
            take(sample.y);
            drawnValues.push_back(sample.y);
        }
    };
    for (const auto &each : series) {
        if (each->shown && each->spec.right == onRight && each->spec.draw != SeriesSpec::Draw::Area)
            takeAll(each->drawnRaw);
    }
    if (!onRight && !bands.empty()) {
        takeAll(bands.back());
        if (any)
            take(0);
    }
    above = onRight ? above : 0;
    if (spec.clipOutliers && clip && drawnValues.size() >= 8) {
        const auto rank = static_cast<std::ptrdiff_t>(static_cast<double>(drawnValues.size() - 1) * 0.97);
        std::nth_element(drawnValues.begin(), drawnValues.begin() + rank, drawnValues.end());
        const double usual = drawnValues[static_cast<std::size_t>(rank)];
        if (usual > 0 && hi > 1.6 * usual) {
            hi = usual * 1.15;
            above = static_cast<int>(
                std::count_if(drawnValues.begin(), drawnValues.end(), [hi](double v) { return v > hi; }));
        }
    }
    if (!onRight && reference && any)
        take(*reference);
    if (!any)
        return {0, 1};
    const int most = mostVerticalTicks();
    switch (spec.scale) {
    case AxisSpec::Scale::Log10:
        return niceLogRange(lo, hi, 10);
    case AxisSpec::Scale::Log2:
        return niceLogRange(lo, hi, 2);
    case AxisSpec::Scale::Linear:
        break;
    }
    return niceRange(lo, hi, spec.unit, most, spec.zeroBased || (!onRight && !bands.empty()));
}

void Chart::Private::settleY(bool onRight)
{
    if (yView.moved)
        return;
    bool any = false;
    const NiceRange wanted = autoRange(onRight, any);
    double &lo = onRight ? yView.rightLo : yView.lo;
    double &hi = onRight ? yView.rightHi : yView.hi;
    // While it follows, the axis keeps its place until the data leave it or use less than half of it.
    const bool holds =
        settled && any && wanted.lo >= lo && wanted.hi <= hi && wanted.hi - wanted.lo > 0.55 * (hi - lo);
    if (holds)
        return;
    lo = wanted.lo;
    hi = wanted.hi;
}

void Chart::Private::applyRanges()
{
    x->setScaleType(group->logX() ? QCPAxis::stLogarithmic : QCPAxis::stLinear);
    x->setRange(group->lo(), group->hi());
    y->setRange(yView.lo, yView.hi);
    right->setRange(yView.rightLo, yView.rightHi);
    settleMargins();
}

void Chart::Private::refreshLegend()
{
    for (auto &each : series) {
        if (!each->ownValue || each->model.empty())
            continue;
        const auto &values = each->model.y();
        each->legend->setValue(formatShort(values.back(), each->spec.unit));
    }
}

} // namespace rankyard::ui
