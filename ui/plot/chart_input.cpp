// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/chart_p.h"

#include <QContextMenuEvent>
#include <QToolButton>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

constexpr int dragThreshold = 5;

} // namespace

void Chart::zoomAt(const QPointF &pixel, double factor, bool zoomX, bool zoomY)
{
    // A run of wheel notches is one step of the zoom stack.
    d->group->remember(d->lastWheel.isValid() && d->lastWheel.elapsed() < 400);
    d->lastWheel.start();
    if (zoomY) {
        d->y->scaleRange(factor, d->y->pixelToCoord(pixel.y()));
        d->right->scaleRange(factor, d->right->pixelToCoord(pixel.y()));
    }
    d->yView = {true, d->y->range().lower, d->y->range().upper, d->right->range().lower,
                d->right->range().upper};
    d->group->markMoved();
    if (zoomX) {
        d->x->scaleRange(factor, d->x->pixelToCoord(pixel.x()));
        d->group->zoomX(d->x->range().lower, d->x->range().upper);
    }
    dataChanged();
}

void Chart::zoomToBox(const QRectF &pixels)
{
    d->group->remember();
    const QRectF box = pixels.normalized();
    const bool byX = box.width() >= 8;
    const bool byY = box.height() >= 8;
    d->yView.moved = true;
    if (byY) {
        d->yView.lo = d->y->pixelToCoord(box.bottom());
        d->yView.hi = d->y->pixelToCoord(box.top());
        d->yView.rightLo = d->right->pixelToCoord(box.bottom());
        d->yView.rightHi = d->right->pixelToCoord(box.top());
    }
    d->group->markMoved();
    if (byX)
        d->group->zoomX(d->x->pixelToCoord(box.left()), d->x->pixelToCoord(box.right()));
    dataChanged();
}

void Chart::Private::press(QMouseEvent *event)
{
    q->setFocus(Qt::MouseFocusReason);
    const QPoint at = event->position().toPoint();
    if (event->button() == Qt::MiddleButton
        || (event->button() == Qt::LeftButton && event->modifiers() & Qt::ControlModifier)) {
        panning = true;
        panLast = at;
        group->remember();
    } else if (event->button() == Qt::LeftButton) {
        pressed = at;
    }
}

void Chart::Private::move(QMouseEvent *event)
{
    const QPoint at = event->position().toPoint();
    const QRect area = plot->axisRect()->rect();
    if (panning) {
        const double dx = x->pixelToCoord(panLast.x()) - x->pixelToCoord(at.x());
        const double dy = y->pixelToCoord(panLast.y()) - y->pixelToCoord(at.y());
        panLast = at;
        if (left.scale == AxisSpec::Scale::Linear) {
            yView.lo += dy;
            yView.hi += dy;
        }
        yView.moved = true;
        group->markMoved();
        group->zoomX(group->lo() + dx, group->hi() + dx);
        return;
    }
    if (pressed && (at - *pressed).manhattanLength() >= dragThreshold) {
        QRect drag = QRect(*pressed, at).normalized() & area;
        // Nearly straight drags zoom one axis only.
        if (std::abs(at.y() - pressed->y()) < 8)
            drag = QRect(drag.left(), area.top(), drag.width(), area.height());
        else if (std::abs(at.x() - pressed->x()) < 8)
            drag = QRect(area.left(), drag.top(), area.width(), drag.height());
        box = drag;
    }
    if (area.contains(at) && group->hasData())
        group->setCursor(x->pixelToCoord(at.x()), q, at.y());
    else if (group->cursorSource() == q)
        group->setCursor(std::nullopt);
}

void Chart::Private::release(QMouseEvent *)
{
    panning = false;
    if (pressed && !box.isNull()) {
        const QRect zoom = box;
        const QRect area = plot->axisRect()->rect();
        box = {};
        pressed.reset();
        // A full-height or full-width box zooms the other axis only.
        QRectF wanted = zoom;
        if (zoom.height() >= area.height())
            wanted.setHeight(0);
        if (zoom.width() >= area.width())
            wanted.setWidth(0);
        if (wanted.width() >= 8 || wanted.height() >= 8)
            q->zoomToBox(wanted);
    }
    pressed.reset();
    box = {};
    plot->layer(QStringLiteral("overlay"))->replot();
}

void Chart::Private::wheel(QWheelEvent *event)
{
    const QPoint delta = event->angleDelta();
    const int notches = delta.y() != 0 ? delta.y() : delta.x();
    const Qt::KeyboardModifiers keys = event->modifiers();
    if (notches == 0 || !group->hasData()
        || !plot->axisRect()->rect().contains(event->position().toPoint())) {
        event->ignore();
        return;
    }
    q->zoomAt(event->position(), std::pow(0.85, notches / 120.0), !(keys & Qt::ControlModifier),
              !(keys & Qt::ShiftModifier));
    event->accept();
}

const Chart::Private::Series *Chart::Private::guide() const
{
    const Series *best = nullptr;
    for (const auto &each : series) {
        if (each->shown && (!best || each->model.size() > best->model.size()))
            best = each.get();
    }
    return best && !best->model.empty() ? best : nullptr;
}

void Chart::Private::moveCursor(int samples)
{
    const Series *along = guide();
    if (!along)
        return;
    const auto last = static_cast<std::ptrdiff_t>(along->model.size()) - 1;
    // Without a cursor the keys begin at the newest sample; Home and End mean what they say.
    std::ptrdiff_t at =
        group->cursor() ? static_cast<std::ptrdiff_t>(along->model.nearest(*group->cursor())) : last;
    if (group->cursor() || samples < -1'000'000)
        at += samples;
    at = std::clamp<std::ptrdiff_t>(at, 0, last);
    group->setCursor(along->model.x()[static_cast<std::size_t>(at)], q, -1);
}

void Chart::keyPressEvent(QKeyEvent *event)
{
    if (event->modifiers() & Qt::ControlModifier) // the page's
        return Panel::keyPressEvent(event);
    const int stride = event->modifiers() & Qt::ShiftModifier ? 10 : 1;
    const QRect area = d->plot->axisRect()->rect();
    const auto centre = [&] {
        return QPointF(d->group->cursor() ? d->x->coordToPixel(*d->group->cursor()) : area.center().x(),
                       area.center().y());
    };
    switch (event->key()) {
    case Qt::Key_Left:
        d->moveCursor(-stride);
        return;
    case Qt::Key_Right:
        d->moveCursor(stride);
        return;
    case Qt::Key_Home:
        d->moveCursor(-1'000'000'000);
        return;
    case Qt::Key_End:
        d->moveCursor(1'000'000'000);
        return;
    case Qt::Key_Plus:
    case Qt::Key_Equal:
        zoomAt(centre(), 0.8, true, false);
        return;
    case Qt::Key_Minus:
        zoomAt(centre(), 1.25, true, false);
        return;
    case Qt::Key_Escape:
        if (d->group->cursor()) {
            d->group->setCursor(std::nullopt);
            return;
        }
        break;
    case Qt::Key_Menu:
        menuButton()->showMenu();
        return;
    default:
        break;
    }
    Panel::keyPressEvent(event);
}

void Chart::focusInEvent(QFocusEvent *event)
{
    Panel::focusInEvent(event);
    d->plot->layer(QStringLiteral("overlay"))->replot();
}

void Chart::focusOutEvent(QFocusEvent *event)
{
    Panel::focusOutEvent(event);
    d->plot->layer(QStringLiteral("overlay"))->replot();
}

void Chart::showEvent(QShowEvent *event)
{
    Panel::showEvent(event);
    if (d->dirty)
        d->schedule();
}

void Chart::contextMenuEvent(QContextMenuEvent *event) { d->menu->popup(event->globalPos()); }

} // namespace rankyard::ui
