// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QWidget>

namespace rankyard::ui {

/// A drawing that is zoomed and panned, in one way wherever there is one: the wheel zooms at the pointer, a drag pans, a click is a
/// click, a double click beside everything fits; + and − zoom, F fits; a ring shows the focus that came by the keyboard. GUI thread.
class ZoomCanvas : public QWidget
{
    Q_OBJECT
public:
    explicit ZoomCanvas(QWidget *parent = nullptr);

    virtual void zoomAt(const QPointF &pixel, double factor) = 0;
    virtual void panBy(const QPointF &pixels) = 0; ///< moves what is drawn
    virtual void fit() = 0;

protected:
    virtual void clicked(const QPointF &pixel) = 0;
    virtual bool isThing(const QPointF &pixel) const = 0;  ///< something that a double click means
    virtual QString tipAt(const QPointF &pixel) const = 0; ///< empty: none
    /// Of the canvas beyond the common ones; true when it was one.
    virtual bool key(QKeyEvent *event) = 0;
    void paintRing(QPainter &painter) const;

    void mousePressEvent(QMouseEvent *event) override;
    void mouseMoveEvent(QMouseEvent *event) override;
    void mouseReleaseEvent(QMouseEvent *event) override;
    void mouseDoubleClickEvent(QMouseEvent *event) override;
    void wheelEvent(QWheelEvent *event) override;
    void keyPressEvent(QKeyEvent *event) override;
    void focusInEvent(QFocusEvent *event) override;
    void focusOutEvent(QFocusEvent *event) override;
    bool event(QEvent *event) override;

private:
    QPointF m_press;
    QPointF m_last;
    bool m_dragging = false;
    bool m_ring = false;
};

/// Around a drawing that has the focus.
void paintFocusRing(QPainter &painter, const QRect &rect);

} // namespace rankyard::ui
