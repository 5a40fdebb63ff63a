// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/zoom_canvas.h"

#include "ui/common/theme.h"

#include <QFocusEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>
#include <QWheelEvent>

#include <cmath>

namespace rankyard::ui {

namespace {

constexpr double wheelStep = 1.2;
constexpr double keyStep = 1.25;

} // namespace

ZoomCanvas::ZoomCanvas(QWidget *parent) : QWidget(parent)
{
    setFocusPolicy(Qt::StrongFocus);
    setMouseTracking(true);
    connect(&Theme::instance(), &Theme::changed, this, qOverload<>(&QWidget::update));
}

void ZoomCanvas::paintRing(QPainter &painter) const
{
    if (m_ring)
        paintFocusRing(painter, rect());
}

void paintFocusRing(QPainter &painter, const QRect &rect)
{
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(QPen(Theme::instance().color(Token::Accent), 1.5));
    painter.setBrush(Qt::NoBrush);
    painter.drawRoundedRect(QRectF(rect).adjusted(1, 1, -1, -1), 5, 5);
}

void ZoomCanvas::mousePressEvent(QMouseEvent *event)
{
    m_press = m_last = event->position();
    m_dragging = false;
}

void ZoomCanvas::mouseMoveEvent(QMouseEvent *event)
{
    if (!(event->buttons() & (Qt::LeftButton | Qt::MiddleButton)))
        return;
    constexpr double least = 5; // pixels: less is a click with an unsteady hand
    if (!m_dragging && (event->position() - m_press).manhattanLength() < least)
        return;
    m_dragging = true;
    setCursor(Qt::ClosedHandCursor);
    panBy(event->position() - m_last);
    m_last = event->position();
}

void ZoomCanvas::mouseReleaseEvent(QMouseEvent *event)
{
    unsetCursor();
    if (!m_dragging && event->button() == Qt::LeftButton)
        clicked(event->position());
}

void ZoomCanvas::mouseDoubleClickEvent(QMouseEvent *event)
{
    if (!isThing(event->position()))
        fit();
}

void ZoomCanvas::wheelEvent(QWheelEvent *event)
{
    const double notches = event->angleDelta().y() / 120.0;
    if (notches != 0)
        zoomAt(event->position(), std::pow(wheelStep, notches));
    event->accept();
}

void ZoomCanvas::keyPressEvent(QKeyEvent *event)
{
    if (event->modifiers() & ~(Qt::ShiftModifier | Qt::KeypadModifier))
        return QWidget::keyPressEvent(event);
    if (key(event))
        return;
    switch (event->key()) {
    case Qt::Key_Plus:
    case Qt::Key_Equal:
        return zoomAt(rect().center(), keyStep);
    case Qt::Key_Minus:
        return zoomAt(rect().center(), 1 / keyStep);
    case Qt::Key_F:
        return fit();
    default:
        QWidget::keyPressEvent(event);
    }
}

void ZoomCanvas::focusInEvent(QFocusEvent *event)
{
    QWidget::focusInEvent(event);
    m_ring = event->reason() == Qt::TabFocusReason || event->reason() == Qt::BacktabFocusReason
        || event->reason() == Qt::ShortcutFocusReason;
    update();
}

void ZoomCanvas::focusOutEvent(QFocusEvent *event)
{
    QWidget::focusOutEvent(event);
    m_ring = false;
    update();
}

bool ZoomCanvas::event(QEvent *event)
{
    if (event->type() != QEvent::ToolTip)
        return QWidget::event(event);
    const auto *help = static_cast<QHelpEvent *>(event);
    const QString tip = tipAt(help->pos());
    if (tip.isEmpty())
        QToolTip::hideText();
    else
        QToolTip::showText(help->globalPos(), tip, this);
    return true;
}

} // namespace rankyard::ui
