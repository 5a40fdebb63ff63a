// SPDX-License-Identifier: GPL-3.0-or-later
// A chart's series: what they are, how they look, which are shown.
#include "ui/plot/chart_p.h"

namespace rankyard::ui {

namespace {

constexpr double rawAlpha = 0.34;
constexpr double tailAlpha = 0.55;

} // namespace

/// QCustomPlot draws a width of exactly 1 as one device pixel, which is fast, but half a pixel on a screen of scale 2. There the lines
/// that are not noisy get their true width.
double Chart::Private::lineWidth() const { return plot->devicePixelRatioF() > 1.25 ? 1.01 : 1; }

void Chart::Private::styleSeries(Series &each)
{
    if (!each.raw)
        return;
    const QColor color = Theme::instance().color(each.spec.ink);
    const bool under = smoothing(each);
    // Steps are few and level: drawn a little wider they cost nothing and do not fade between two pixels.
    const bool level = each.spec.draw == SeriesSpec::Draw::Step;
    QPen pen(under ? faded(color, rawAlpha) : color, under ? 1 : level ? 1.4 : lineWidth());
    if (each.spec.dashed)
        pen.setDashPattern({5, 3});
    each.raw->setPen(pen);
    each.raw->setAdaptiveSampling(false);
    each.raw->setSelectable(QCP::stNone);
    each.raw->setLineStyle(each.spec.draw == SeriesSpec::Draw::Step ? QCPGraph::lsStepLeft
                               : each.spec.draw == SeriesSpec::Draw::Points && each.model.size() == 1
                               ? QCPGraph::lsNone
                               : QCPGraph::lsLine);
    if (each.spec.draw == SeriesSpec::Draw::Points) {
        QCPScatterStyle dots(QCPScatterStyle::ssDisc, each.model.size() > 24 ? 3 : 4.5);
        dots.setPen(QPen(color, 1));
        dots.setBrush(color);
        each.raw->setScatterStyle(dots);
    }
    each.raw->setVisible(each.shown);
    for (const auto &tail : each.tails) {
        QPen faint(faded(color, tailAlpha), lineWidth());
        faint.setDashPattern({4, 3});
        tail->graph->setPen(faint);
        tail->graph->setVisible(each.shown);
    }
    if (each.smooth) {
        QPen top(color, lineWidth());
        if (each.spec.dashed)
            top.setDashPattern({5, 3});
        each.smooth->setPen(top);
        each.smooth->setAdaptiveSampling(false);
        each.smooth->setSelectable(QCP::stNone);
        each.smooth->setVisible(each.shown && under);
    }
}

int Chart::addSeries(const SeriesSpec &spec)
{
    auto fresh = std::make_unique<Private::Series>();
    fresh->spec = spec;
    if (spec.smooth)
        fresh->model.setSmoothing(d->smoothingWeight);
    if (spec.draw != SeriesSpec::Draw::Area) {
        QCPAxis *value = spec.right ? d->right : d->y;
        fresh->raw = d->plot->addGraph(d->x, value);
        if (spec.smooth)
            fresh->smooth = d->plot->addGraph(d->x, value);
    }
    fresh->legend = d->legend->add(spec.name, spec.ink,
                                   spec.dashed ? LegendItem::Mark::Dash : LegendItem::Mark::Dot, true);
    if (!spec.tip.isEmpty())
        fresh->legend->setToolTip(spec.tip);
    d->styleSeries(*fresh);
    const int index = seriesCount();
    connect(fresh->legend, &QAbstractButton::toggled, this, [this, index](bool on) { setShown(index, on); });
    d->series.push_back(std::move(fresh));
    if (d->hidden.contains(spec.name))
        setShown(index, false);
    return index;
}

SeriesModel &Chart::addTail(int series)
{
    Private::Series &each = *d->series[static_cast<std::size_t>(series)];
    auto tail = std::make_unique<Private::Tail>();
    tail->graph = d->plot->addGraph(d->x, each.spec.right ? d->right : d->y);
    tail->graph->setAdaptiveSampling(false);
    tail->graph->setSelectable(QCP::stNone);
    each.tails.push_back(std::move(tail));
    d->styleSeries(each);
    return each.tails.back()->model;
}

int Chart::tailCount(int series) const
{
    return static_cast<int>(d->series[static_cast<std::size_t>(series)]->tails.size());
}

void Chart::clearSeries()
{
    for (auto &each : d->series) {
        for (const auto &tail : each->tails)
            d->plot->removeGraph(tail->graph);
        if (each->raw)
            d->plot->removeGraph(each->raw);
        if (each->smooth)
            d->plot->removeGraph(each->smooth);
    }
    d->series.clear();
    d->notes.clear();
    d->legend->clear();
    d->referenceItem = nullptr;
    d->reference.reset();
    d->total.clear();
    d->bands.clear();
    d->bandSeries.clear();
    d->settled = false;
    dataChanged();
}

int Chart::seriesCount() const { return static_cast<int>(d->series.size()); }
const SeriesSpec &Chart::spec(int series) const { return d->series[static_cast<std::size_t>(series)]->spec; }
SeriesModel &Chart::model(int series) { return d->series[static_cast<std::size_t>(series)]->model; }
const SeriesModel &Chart::model(int series) const
{
    return d->series[static_cast<std::size_t>(series)]->model;
}
bool Chart::isShown(int series) const { return d->series[static_cast<std::size_t>(series)]->shown; }

void Chart::setShown(int series, bool shown)
{
    if (series < 0 || series >= seriesCount())
        return;
    Private::Series &each = *d->series[static_cast<std::size_t>(series)];
    if (each.shown == shown)
        return;
    each.shown = shown;
    d->hidden.removeAll(each.spec.name);
    if (!shown)
        d->hidden << each.spec.name;
    each.legend->setChecked(shown);
    d->styleSeries(each);
    d->total.clear();
    dataChanged();
}

QStringList Chart::hidden() const { return d->hidden; }

void Chart::setHidden(const QStringList &names)
{
    d->hidden = names;
    for (int i = 0; i < seriesCount(); ++i)
        setShown(i, !names.contains(spec(i).name));
}

void Chart::setLegendValue(int series, const QString &value)
{
    Private::Series &each = *d->series[static_cast<std::size_t>(series)];
    each.ownValue = false;
    each.legend->setValue(value);
}

} // namespace rankyard::ui
