// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/search/search.h"

#include <QWidget>

#include <memory>

namespace rankyard::ui {

/// Layouts as points: memory of the fullest rank across, step time upwards; the front that nothing beats in both joined by a line,
/// what does not fit hollow, the usable memory as a line. A click or Left, Right and Enter take one. GUI thread.
class LayoutScatter : public QWidget
{
    Q_OBJECT
public:
    struct Point {
        const search::Candidate *candidate = nullptr;
        bool fits = true;
        bool front = false;
        bool current = false;
    };

    explicit LayoutScatter(QWidget *parent = nullptr);

    void setOutcome(std::shared_ptr<const search::Outcome> outcome);
    const std::vector<Point> &points() const { return m_points; }
    QPointF pixelOf(const Point &point) const;
    void select(int point);
    int selected() const { return m_selected; }
    QSize sizeHint() const override { return {320, 220}; }
    QSize minimumSizeHint() const override { return {140, 100}; }

signals:
    void chosen(const rankyard::search::Candidate &candidate);
    void selectionChanged(int point);

protected:
    void paintEvent(QPaintEvent *event) override;
    void mousePressEvent(QMouseEvent *event) override;
    void mouseDoubleClickEvent(QMouseEvent *event) override;
    void keyPressEvent(QKeyEvent *event) override;
    void focusInEvent(QFocusEvent *event) override;
    void focusOutEvent(QFocusEvent *event) override;
    bool event(QEvent *event) override;

private:
    int pointAt(const QPointF &pixel) const;
    QRectF plot() const;
    QString tipOf(const Point &point) const;

    std::shared_ptr<const search::Outcome> m_outcome;
    std::vector<Point> m_points; ///< by memory
    double m_bytes = 1;          ///< of the right edge
    double m_seconds = 1;        ///< of the top
    int m_selected = -1;
};

} // namespace rankyard::ui
