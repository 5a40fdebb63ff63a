// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/verdict.h"
#include "ui/common/theme.h"
#include "ui/common/zoom_canvas.h"

#include <memory>
#include <vector>

namespace rankyard::ui {

/// The predicted step: a row a stage with its computation and below it the lanes of its transfers, over time. What is narrower
/// than a pixel is drawn as one column of the kind that fills most of it, so that a step of 10⁵ ops costs what the pixels cost.
/// Keys as in trace viewers: W and S zoom, A and D pan, F fits, comma and full stop go from op to op. GUI thread.
class StepTimeline : public ZoomCanvas
{
    Q_OBJECT
public:
    struct Span {
        qint64 begin = 0;
        qint64 end = 0;
        plan::OpId op = plan::none;
        Kind kind = Kind::Forward;
    };
    struct Lane {
        int stage = 0;
        plan::Stream stream = plan::Stream::Compute;
        std::vector<Span> spans; ///< by begin; none overlaps the next
    };
    struct Hit {
        int lane = -1;
        int span = -1;
        bool operator==(const Hit &) const = default;
    };

    explicit StepTimeline(QWidget *parent = nullptr);

    /// Null, or one without a time line: nothing is drawn.
    void setVerdict(std::shared_ptr<const predict::Verdict> verdict);
    const std::vector<Lane> &lanes() const { return m_lanes; }
    std::vector<Kind> kinds() const; ///< that are there, in the order of a legend
    QRectF rectOf(const Hit &hit) const;
    Hit hit(const QPointF &pixel) const;
    Hit current() const { return m_current; }
    void select(const Hit &hit);
    QString tipOf(const Hit &hit) const; ///< name, begin, duration
    void fit() override;
    void zoomAt(const QPointF &pixel, double factor) override; ///< time alone
    void panBy(const QPointF &pixels) override;
    double begin() const { return m_begin; } ///< of the view, ns
    double end() const { return m_end; }
    QSize sizeHint() const override { return {600, 260}; }
    QSize minimumSizeHint() const override { return {200, 100}; }

protected:
    void paintEvent(QPaintEvent *event) override;
    void resizeEvent(QResizeEvent *event) override;
    void clicked(const QPointF &pixel) override;
    bool isThing(const QPointF &pixel) const override;
    QString tipAt(const QPointF &pixel) const override;
    bool key(QKeyEvent *event) override;

private:
    void build();
    QRectF laneRect(int lane) const;
    QRectF plot() const; ///< where time is drawn
    double toPixel(double ns) const;
    double toTime(double pixel) const;
    void clampView();
    void step(int by);
    QString textOf(double ns) const;
    double contentHeight() const;
    // step_timeline_paint.cpp
    void paintRuler(QPainter &painter) const;
    void paintLane(QPainter &painter, int lane) const;
    void paintLabels(QPainter &painter) const;

    std::shared_ptr<const predict::Verdict> m_verdict;
    std::vector<Lane> m_lanes;
    double m_begin = 0;
    double m_end = 1;
    double m_top = 0; ///< pixels scrolled down
    Hit m_current;
};

} // namespace rankyard::ui
