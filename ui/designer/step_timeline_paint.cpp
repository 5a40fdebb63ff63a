// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/step_timeline.h"

#include <QPainter>

#include <algorithm>
#include <array>
#include <cmath>

namespace rankyard::ui {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// 1, 2 or 5 times a power of ten, at least `least`.
double roundStep(double least)
{
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * power >= least)
            return factor * power;
    }
    return 10 * power;
}

} // namespace

void StepTimeline::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.fillRect(rect(), theme.color(Token::Surface));
    if (m_lanes.empty()) {
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(rect(), Qt::AlignCenter,
                         m_verdict && m_verdict->isPlanOnly()
                             ? tr("Such a model is planned in closed form: no program is there to be drawn")
                             : tr("A job that can run has its step drawn here"));
        return;
    }
    paintRuler(painter);
    painter.setClipRect(QRectF(0, plot().top(), width(), plot().height() + 2));
    for (int lane = 0; lane < static_cast<int>(m_lanes.size()); ++lane) {
        const QRectF box = laneRect(lane);
        if (box.bottom() >= plot().top() && box.top() <= height())
            paintLane(painter, lane);
    }
    paintLabels(painter);
    if (m_current.lane >= 0 && m_current.span >= 0) {
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(theme.color(Token::Text), 2));
        const QRectF box = rectOf(m_current).intersected(plot());
        painter.drawRect(box.adjusted(0, 0, std::max(0.0, 2 - box.width()), 0));
    }
    painter.setClipping(false);
    paintRing(painter);
}

void StepTimeline::paintRuler(QPainter &painter) const
{
    const Theme &theme = Theme::instance();
    painter.setFont(theme.font(FontRole::MonoSmall));
    const QFontMetrics metrics(painter.font());
    const double whole = std::max(1.0, static_cast<double>(m_verdict->timeline->stepNs));
    const bool shares = m_verdict->basis == predict::Basis::Shares;
    // Round numbers in what is written: per cent or seconds.
    const double unit = shares ? whole / 100 : 1;
    const double room = metrics.horizontalAdvance(QStringLiteral("100.00 ms")) + 24;
    const double step = roundStep((m_end - m_begin) / unit * room / plot().width()) * unit;
    double free = 0;
    for (double time = std::ceil(m_begin / step) * step; time <= m_end; time += step) {
        const double x = std::round(toPixel(time));
        painter.setPen(theme.color(Token::Border));
        painter.drawLine(QPointF(x, theme.scaled(18)), QPointF(x, height()));
        painter.setPen(theme.color(Token::Muted));
        const QString text = time == 0 ? QStringLiteral("0") : textOf(time);
        const int wide = metrics.horizontalAdvance(text);
        const double left =
            std::min(x + 3, width() - wide - 2.0); // the last one stays whole, where there is room
        if (left < free)
            continue;
        painter.drawText(QPointF(left, theme.scaled(14)), text);
        free = left + wide + 4;
    }
}

void StepTimeline::paintLane(QPainter &painter, int lane) const
{
    const Theme &theme = Theme::instance();
    const QRectF box = laneRect(lane);
    const Lane &what = m_lanes[at(lane)];
    if (what.stream == plan::Stream::Compute) {
        // Waiting shows through wherever nothing is computed.
        const double end = std::min(toPixel(static_cast<double>(m_verdict->timeline->stepNs)), box.right());
        painter.setOpacity(0.6);
        painter.fillRect(QRectF(box.left(), box.top(), end - box.left(), box.height()),
                         theme.brush(Ink::of(Kind::Bubble)));
        painter.setOpacity(1);
    }
    std::array<QBrush, kindCount> brushes;
    std::array<bool, kindCount> made{};
    const auto brush = [&](Kind kind) -> const QBrush & {
        const auto i = static_cast<std::size_t>(kind);
        if (!made[i]) {
            brushes[i] = theme.brush(Ink::of(kind));
            made[i] = true;
        }
        return brushes[i];
    };
    const auto &spans = what.spans;
    auto span = std::upper_bound(spans.begin(), spans.end(), static_cast<qint64>(m_begin),
                                 [](qint64 t, const Span &s) { return t < s.end; });
    const double perPixel = (m_end - m_begin) / plot().width();
    const auto leftOf = [&](const Span &s) {
        return std::max(box.left(), toPixel(static_cast<double>(s.begin)));
    };
    const auto rightOf = [&](const Span &s) {
        return std::min(box.right(), toPixel(static_cast<double>(s.end)));
    };
    const auto isWide = [&](const Span &s) { return rightOf(s) - leftOf(s) >= 1; };
    while (span != spans.end() && static_cast<double>(span->begin) < m_end) {
        if (isWide(*span)) {
            const double left = leftOf(*span), right = rightOf(*span);
            const bool gap = right - left >= 4; // neighbours of one kind are told apart by a hair
            painter.fillRect(QRectF(left, box.top(), right - left - (gap ? 1 : 0), box.height()),
                             brush(span->kind));
            ++span;
            continue;
        }
        // One column for the narrow ones that begin in it: the kind that fills most of it, as strong as it is full.
        const double column = std::floor(leftOf(*span));
        const double until = toTime(column + 1);
        std::array<double, kindCount> filled{};
        double sum = 0;
        for (int looked = 0;
             span != spans.end() && static_cast<double>(span->begin) < until && !isWide(*span);
             ++span, ++looked) {
            const auto time = static_cast<double>(span->end - span->begin);
            filled[static_cast<std::size_t>(span->kind)] += time;
            sum += time;
            if (looked == 64) { // a sample says enough
                span = std::lower_bound(span, spans.end(), static_cast<qint64>(until),
                                        [](const Span &s, qint64 t) { return s.begin < t; });
                if (isWide(*std::prev(span)))
                    --span;
                sum = perPixel;
                break;
            }
        }
        const auto most = static_cast<Kind>(std::max_element(filled.begin(), filled.end()) - filled.begin());
        painter.setOpacity(std::clamp(sum / perPixel, 0.25, 1.0));
        painter.fillRect(QRectF(column, box.top(), 1, box.height()), brush(most));
        painter.setOpacity(1);
    }
}

void StepTimeline::paintLabels(QPainter &painter) const
{
    const Theme &theme = Theme::instance();
    painter.setFont(theme.font(FontRole::Small));
    painter.setPen(theme.color(Token::Muted));
    const QFontMetrics metrics(painter.font());
    double next = -1e9;
    for (int lane = 0; lane < static_cast<int>(m_lanes.size()); ++lane) {
        if (m_lanes[at(lane)].stream != plan::Stream::Compute)
            continue;
        const QRectF box = laneRect(lane);
        // Whole, also where the lane is less high than its name; not every stage when there are many.
        const double top = std::max(box.center().y() - metrics.height() / 2.0, plot().top());
        if (top < next)
            continue;
        next = top + metrics.height();
        painter.drawText(QRectF(8, top, plot().left() - 10, metrics.height()), Qt::AlignVCenter,
                         tr("Stage %1").arg(m_lanes[at(lane)].stage));
    }
}

} // namespace rankyard::ui
