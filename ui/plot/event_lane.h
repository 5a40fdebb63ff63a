// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/plot/chart_group.h"

#include <QFrame>

#include <vector>

namespace rankyard::ui {

/// What happened, on the x axis that all charts share: one strip, marks by kind (shape and colour), labels where there is room.
class EventLane : public QFrame
{
    Q_OBJECT
public:
    struct Event {
        double x = 0;
        QString text;   ///< "checkpoint 500"
        QString detail; ///< tooltip
        Ink ink;
        int weight = 0; ///< labels of heavier ones are placed first
        int shape = 0;  ///< 0 dot, 1 flag, 2 triangle, 3 diamond
    };

    explicit EventLane(ChartGroup *group, QWidget *parent = nullptr);
    void setEvents(std::vector<Event> events);
    const std::vector<Event> &events() const { return m_events; }
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return {100, sizeHint().height()}; }

protected:
    void paintEvent(QPaintEvent *event) override;
    void mouseMoveEvent(QMouseEvent *event) override;
    void leaveEvent(QEvent *event) override;
    bool event(QEvent *event) override;

private:
    QRectF field() const;
    double toPixel(double x) const;
    void drawMark(QPainter &painter, const Event *event, const QPointF &centre, double half) const;

    ChartGroup *m_group;
    std::vector<Event> m_events;
};

} // namespace rankyard::ui
