// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/verdict.h"

#include <QWidget>

#include <memory>

namespace rankyard::ui {

/// Memory of each pipeline stage: a bar of kinds, the capacity as a line, what is left hatched. Up and Down choose a stage, whose parts are told in `partsOf` (tooltip, accessible description). GUI thread.
class MemoryBars : public QWidget
{
    Q_OBJECT
public:
    explicit MemoryBars(QWidget *parent = nullptr);

    void setVerdict(std::shared_ptr<const predict::Verdict> verdict);
    int current() const { return m_current; }
    void setCurrent(int stage);
    int fullest() const;              ///< the stage with the least left; -1: there is none
    QString partsOf(int stage) const; ///< a line a kind
    /// Where the bar of a stage is drawn, and its part of one kind.
    QRectF barOf(int stage) const;
    QRectF partOf(int stage, plan::MemoryKind kind) const;
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return {160, sizeHint().height()}; }

signals:
    void currentChanged(int stage);

protected:
    void paintEvent(QPaintEvent *event) override;
    void mousePressEvent(QMouseEvent *event) override;
    void keyPressEvent(QKeyEvent *event) override;
    void focusInEvent(QFocusEvent *event) override;
    void focusOutEvent(QFocusEvent *event) override;
    bool event(QEvent *event) override;

private:
    int stageAt(const QPoint &point) const;
    double scale() const; ///< bytes of the whole width

    std::shared_ptr<const predict::Verdict> m_verdict;
    int m_current = -1;
};

} // namespace rankyard::ui
