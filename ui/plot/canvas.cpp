// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/canvas.h"

namespace rankyard::ui {

Painting::Painting(QCustomPlot *plot, const QString &layer, Function paint, QCPAxisRect *clip)
    : QCPLayerable(plot, layer),
      m_paint(std::move(paint)),
      m_clip(clip)
{}

QRect Painting::clipRect() const
{
    return m_clip ? m_clip->rect().adjusted(0, -1, 1, 1) : QCPLayerable::clipRect();
}

void Painting::applyDefaultAntialiasingHint(QCPPainter *painter) const { painter->setAntialiasing(true); }

void Painting::draw(QCPPainter *painter) { m_paint(painter); }

void FunctionTicker::generate(const QCPRange &range, const QLocale &, QChar, int, QVector<double> &ticks,
                              QVector<double> *subTicks, QVector<QString> *tickLabels)
{
    const TickSet set = make(range.lower, range.upper);
    ticks = QVector<double>(set.at.begin(), set.at.end());
    if (subTicks)
        subTicks->clear();
    if (tickLabels)
        *tickLabels = QVector<QString>(set.label.begin(), set.label.end());
}

Canvas::Canvas(QWidget *parent) : QCustomPlot(parent)
{
    setFocusPolicy(Qt::NoFocus);
    setMouseTracking(true);
    setInteractions({});
    setNoAntialiasingOnDrag(true);
    setMinimumSize(60, 40);
}

void Canvas::leaveEvent(QEvent *event)
{
    handler.leave();
    QCustomPlot::leaveEvent(event);
}

void Canvas::resizeEvent(QResizeEvent *event)
{
    // Replot first with what is there; the chart then decimates for the new width.
    if (handler.resized)
        handler.resized();
    QCustomPlot::resizeEvent(event);
}

} // namespace rankyard::ui
