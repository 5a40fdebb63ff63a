// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/step_timeline.h"

#include "ui/common/format.h"
#include "ui/designer/kinds.h"

#include <QKeyEvent>

#include <algorithm>
#include <array>
#include <cmath>

namespace rankyard::ui {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

constexpr double shortest = 50; ///< ns: of the view

int rulerHeight() { return Theme::instance().scaled(22); }
int labelWidth() { return Theme::instance().scaled(64); }

} // namespace

StepTimeline::StepTimeline(QWidget *parent) : ZoomCanvas(parent) { setAccessibleName(tr("Predicted step")); }

void StepTimeline::setVerdict(std::shared_ptr<const predict::Verdict> verdict)
{
    const double before =
        m_verdict && m_verdict->timeline ? static_cast<double>(m_verdict->timeline->stepNs) : 0;
    const bool fitted = m_begin <= 0 && m_end >= before;
    if (verdict && m_verdict && verdict->plan
        && verdict->plan == m_verdict->plan) { // the same step, with more known
        m_verdict = std::move(verdict);
        return;
    }
    m_verdict = std::move(verdict);
    build();
    m_current = {};
    // A view that was zoomed keeps its place in the step, whose length may be another.
    const double now = m_verdict && m_verdict->timeline
        ? std::max(1.0, static_cast<double>(m_verdict->timeline->stepNs))
        : 1;
    if (fitted || before <= 0)
        fit();
    else {
        m_begin *= now / before;
        m_end *= now / before;
        clampView();
    }
    setAccessibleDescription(
        m_lanes.empty() ? QString() : tr("%1 stages, %2").arg(m_verdict->stages.size()).arg(textOf(now)));
    update();
}

void StepTimeline::build()
{
    m_lanes.clear();
    if (!m_verdict || !m_verdict->timeline || !m_verdict->plan)
        return;
    using plan::Stream;
    constexpr std::array<Stream, 5> streams = {Stream::Compute, Stream::Tensor, Stream::Data,
                                               Stream::Pipeline, Stream::Copy};
    for (const auto &stage : m_verdict->stages) {
        const plan::StepProgram &program = m_verdict->plan->program(plan::ProgramKind::Train, stage.rank);
        const auto &times = m_verdict->timeline->stages[at(stage.stage)].ops;
        std::array<std::vector<Span>, 5> spans;
        for (const plan::Op &op : program.ops) {
            const plan::OpTime &time = times[at(op.id)];
            if (time.end <= time.begin)
                continue;
            const auto stream = std::find(streams.begin(), streams.end(), op.stream) - streams.begin();
            spans[static_cast<std::size_t>(stream)].push_back(
                {time.begin, time.end, op.id, kindOf(op, program)});
        }
        for (int i = 0; i < 5; ++i) {
            std::vector<Span> &list = spans[at(i)];
            if (list.empty() && i > 0)
                continue;
            std::sort(list.begin(), list.end(),
                      [](const Span &a, const Span &b) { return a.begin < b.begin; });
            // Channels of a pipeline run beside each other; in one lane the later covers what is left of the earlier.
            for (std::size_t k = 1; k < list.size(); ++k) {
                if (list[k - 1].end > list[k].begin)
                    list[k - 1].end = list[k].begin;
            }
            std::erase_if(list, [](const Span &span) { return span.end <= span.begin; });
            m_lanes.push_back({stage.stage, streams[at(i)], std::move(list)});
        }
    }
}

std::vector<Kind> StepTimeline::kinds() const
{
    std::array<bool, kindCount> there{};
    for (const Lane &lane : m_lanes) {
        for (const Span &span : lane.spans)
            there[static_cast<std::size_t>(span.kind)] = true;
    }
    // What computes, then waiting, then what is sent.
    there[static_cast<std::size_t>(Kind::Bubble)] = !m_lanes.empty();
    std::vector<Kind> kinds;
    for (const Kind kind :
         {Kind::Forward, Kind::InputGradient, Kind::WeightGradient, Kind::Recompute, Kind::Bubble,
          Kind::OptimizerStep, Kind::TensorParallel, Kind::DataParallel, Kind::Pipeline, Kind::Copy}) {
        if (there[static_cast<std::size_t>(kind)])
            kinds.push_back(kind);
    }
    return kinds;
}

QRectF StepTimeline::plot() const
{
    return {static_cast<double>(labelWidth()), static_cast<double>(rulerHeight()),
            std::max(1.0, width() - labelWidth() - 8.0), std::max(1.0, height() - rulerHeight() - 4.0)};
}

/// Computation gets four times the height of a lane of transfers; all of it fills the plot down to what can still be read.
QRectF StepTimeline::laneRect(int lane) const
{
    double weights = 0;
    double before = 0;
    const auto weight = [this](int i) {
        const bool compute = m_lanes[at(i)].stream == plan::Stream::Compute;
        return (compute ? 4.0 : 1.2) + (i > 0 && compute ? 1.2 : 0.0); // a gap between stages
    };
    for (int i = 0; i < static_cast<int>(m_lanes.size()); ++i) {
        if (i == lane)
            before = weights;
        weights += weight(i);
    }
    const double unit = std::clamp(plot().height() / std::max(1.0, weights), 3.0, 22.0);
    const bool compute = m_lanes[at(lane)].stream == plan::Stream::Compute;
    const double top = plot().top() - m_top + (before + (lane > 0 && compute ? 1.2 : 0)) * unit;
    return {plot().left(), top, plot().width(), (compute ? 4.0 : 1.0) * unit};
}

double StepTimeline::contentHeight() const
{
    return m_lanes.empty() ? 0
                           : laneRect(static_cast<int>(m_lanes.size()) - 1).bottom() + m_top - plot().top();
}

double StepTimeline::toPixel(double ns) const
{
    return plot().left() + (ns - m_begin) / (m_end - m_begin) * plot().width();
}
double StepTimeline::toTime(double pixel) const
{
    return m_begin + (pixel - plot().left()) / plot().width() * (m_end - m_begin);
}

void StepTimeline::clampView()
{
    const double whole = m_verdict && m_verdict->timeline
        ? std::max(1.0, static_cast<double>(m_verdict->timeline->stepNs))
        : 1;
    const double span = std::clamp(m_end - m_begin, std::min(shortest, whole), whole);
    m_begin = std::clamp(m_begin, 0.0, whole - span);
    m_end = m_begin + span;
    m_top = std::clamp(m_top, 0.0, std::max(0.0, contentHeight() - plot().height()));
    update();
}

void StepTimeline::fit()
{
    m_begin = 0;
    m_end = 1e300;
    m_top = 0;
    clampView();
}

void StepTimeline::zoomAt(const QPointF &pixel, double factor)
{
    const double centre = toTime(pixel.x());
    m_begin = centre - (centre - m_begin) / factor;
    m_end = centre + (m_end - centre) / factor;
    clampView();
}

void StepTimeline::panBy(const QPointF &pixels)
{
    const double by = -pixels.x() / plot().width() * (m_end - m_begin);
    m_top -= pixels.y();
    m_begin += by;
    m_end += by;
    clampView();
}

StepTimeline::Hit StepTimeline::hit(const QPointF &pixel) const
{
    for (int i = 0; i < static_cast<int>(m_lanes.size()); ++i) {
        if (!laneRect(i).contains(pixel))
            continue;
        const auto time = static_cast<qint64>(toTime(pixel.x()));
        const auto &spans = m_lanes[at(i)].spans;
        const auto after = std::upper_bound(spans.begin(), spans.end(), time,
                                            [](qint64 t, const Span &span) { return t < span.begin; });
        if (after == spans.begin() || std::prev(after)->end <= time)
            return {i, -1};
        return {i, static_cast<int>(std::prev(after) - spans.begin())};
    }
    return {};
}

QRectF StepTimeline::rectOf(const Hit &hit) const
{
    const QRectF lane = laneRect(hit.lane);
    const Span &span = m_lanes[at(hit.lane)].spans[at(hit.span)];
    const double left = toPixel(static_cast<double>(span.begin));
    return {left, lane.top(), toPixel(static_cast<double>(span.end)) - left, lane.height()};
}

QString StepTimeline::textOf(double ns) const
{
    if (m_verdict && m_verdict->basis == predict::Basis::Shares)
        return formatShort(100 * ns / std::max(1.0, static_cast<double>(m_verdict->timeline->stepNs)),
                           Unit::Percent);
    return ns < 1e6 ? QString::number(ns / 1e3, 'f', ns < 1e4 ? 2 : 1) + QStringLiteral(" µs")
                    : formatSeconds(ns / 1e9);
}

QString StepTimeline::tipOf(const Hit &hit) const
{
    if (hit.lane < 0)
        return {};
    const Lane &lane = m_lanes[at(hit.lane)];
    if (hit.span < 0)
        return lane.stream == plan::Stream::Compute ? tr("Stage %1 waits here").arg(lane.stage) : QString();
    const Span &span = lane.spans[at(hit.span)];
    const auto &stage = m_verdict->stages[at(lane.stage)];
    const plan::Op &op = m_verdict->plan->program(plan::ProgramKind::Train, stage.rank).op(span.op);
    return QStringLiteral("%1, %2\n%3")
               .arg(tr("Stage %1").arg(lane.stage), wordOf(span.kind),
                    QString::fromStdString(plan::opName(op)))
        + QLatin1Char('\n')
        + tr("begins at %1, lasts %2")
              .arg(textOf(static_cast<double>(span.begin)),
                   textOf(static_cast<double>(span.end - span.begin)));
}

void StepTimeline::select(const Hit &hit)
{
    m_current = hit;
    if (hit.lane >= 0 && hit.span >= 0) {
        const Span &span = m_lanes[at(hit.lane)].spans[at(hit.span)];
        const auto begin = static_cast<double>(span.begin);
        const auto end = static_cast<double>(span.end);
        if (begin < m_begin || end > m_end) {
            const double shift = begin < m_begin ? begin - m_begin : std::min(end - m_end, begin - m_begin);
            m_begin += shift;
            m_end += shift;
            clampView();
        }
        setAccessibleDescription(tipOf(hit));
    }
    update();
}

void StepTimeline::step(int by)
{
    if (m_lanes.empty())
        return;
    const int lane = std::max(0, m_current.lane);
    const int count = static_cast<int>(m_lanes[at(lane)].spans.size());
    if (count > 0)
        select({lane, m_current.span < 0 ? 0 : std::clamp(m_current.span + by, 0, count - 1)});
}

void StepTimeline::resizeEvent(QResizeEvent *event)
{
    QWidget::resizeEvent(event);
    clampView();
}

void StepTimeline::clicked(const QPointF &pixel) { select(hit(pixel)); }

bool StepTimeline::isThing(const QPointF &) const { return false; }

QString StepTimeline::tipAt(const QPointF &pixel) const { return tipOf(hit(pixel)); }

bool StepTimeline::key(QKeyEvent *event)
{
    const QPointF middle = plot().center();
    const double page = plot().width() / 8;
    constexpr int farthest = 1 << 28; // more than any lane has
    switch (event->key()) {
    case Qt::Key_W:
        zoomAt(middle, 1.5);
        return true;
    case Qt::Key_S:
        zoomAt(middle, 1 / 1.5);
        return true;
    case Qt::Key_A:
        panBy({page, 0});
        return true;
    case Qt::Key_D:
        panBy({-page, 0});
        return true;
    case Qt::Key_Left:
    case Qt::Key_Comma:
        step(-1);
        return true;
    case Qt::Key_Right:
    case Qt::Key_Period:
        step(1);
        return true;
    case Qt::Key_Home:
    case Qt::Key_End:
        step(event->key() == Qt::Key_Home ? -farthest : farthest);
        return true;
    case Qt::Key_Up:
    case Qt::Key_Down: {
        const int lane = std::clamp(m_current.lane + (event->key() == Qt::Key_Down ? 1 : -1), 0,
                                    std::max(0, static_cast<int>(m_lanes.size()) - 1));
        if (!m_lanes.empty())
            select({lane, m_lanes[at(lane)].spans.empty() ? -1 : 0});
        return true;
    }
    case Qt::Key_Escape:
        if (m_current.lane < 0)
            return false;
        select({});
        return true;
    default:
        return false;
    }
}

} // namespace rankyard::ui
