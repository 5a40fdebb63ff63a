// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/plot/ticks.h"

#include <qcustomplot.h>

#include <functional>

/// Private to ui/plot: what the charts add to QCustomPlot.
namespace rankyard::ui {

/// A layerable that paints by a function, in pixels.
class Painting : public QCPLayerable
{
public:
    using Function = std::function<void(QCPPainter *)>;
    Painting(QCustomPlot *plot, const QString &layer, Function paint, QCPAxisRect *clip = nullptr);

protected:
    QRect clipRect() const override;
    void applyDefaultAntialiasingHint(QCPPainter *painter) const override;
    void draw(QCPPainter *painter) override;

private:
    Function m_paint;
    QCPAxisRect *m_clip;
};

/// Ticks of ticks.h.
class FunctionTicker : public QCPAxisTicker
{
public:
    std::function<TickSet(double lo, double hi)> make;

    void generate(const QCPRange &range, const QLocale &locale, QChar formatChar, int precision,
                  QVector<double> &ticks, QVector<double> *subTicks, QVector<QString> *tickLabels) override;
};

/// A QCustomPlot whose mouse and wheel belong to the chart around it.
class Canvas : public QCustomPlot
{
public:
    struct Handler {
        std::function<void(QMouseEvent *)> press, move, release, doubleClick;
        std::function<void(QWheelEvent *)> wheel;
        std::function<void()> leave;
        std::function<void()> resized;
    };

    explicit Canvas(QWidget *parent);
    Handler handler;

protected:
    void mousePressEvent(QMouseEvent *event) override { handler.press(event); }
    void mouseMoveEvent(QMouseEvent *event) override { handler.move(event); }
    void mouseReleaseEvent(QMouseEvent *event) override { handler.release(event); }
    void mouseDoubleClickEvent(QMouseEvent *event) override { handler.doubleClick(event); }
    void wheelEvent(QWheelEvent *event) override { handler.wheel(event); }
    void leaveEvent(QEvent *event) override;
    void resizeEvent(QResizeEvent *event) override;
};

} // namespace rankyard::ui
