// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/layout_scatter.h"

#include "ui/common/format.h"
#include "ui/common/theme.h"

#include <QFocusEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

constexpr double ticks[] = {0, 1 / 2.2, 2 / 2.2}; ///< of the time axis, as shares of its length

} // namespace

LayoutScatter::LayoutScatter(QWidget *parent) : QWidget(parent)
{
    setFocusPolicy(Qt::StrongFocus);
    setAccessibleName(tr("Layouts by memory and time"));
    connect(&Theme::instance(), &Theme::changed, this, qOverload<>(&QWidget::update));
}

void LayoutScatter::setOutcome(std::shared_ptr<const search::Outcome> outcome)
{
    m_outcome = std::move(outcome);
    m_points.clear();
    m_selected = -1;
    m_bytes = 1;
    m_seconds = 1e-9;
    if (m_outcome) {
        for (const auto &candidate : m_outcome->pareto)
            m_points.push_back({&candidate, true, true, false});
        for (const auto &candidate : m_outcome->best)
            m_points.push_back({&candidate, true, false, false});
        for (const auto &candidate : m_outcome->near)
            m_points.push_back({&candidate, false, false, false});
        if (m_outcome->current.time.seconds > 0)
            m_points.push_back({&m_outcome->current, m_outcome->current.margin >= 0, false, true});
        m_bytes = m_outcome->capacity.bytes;
    }
    for (const Point &point : m_points) {
        m_bytes = std::max(m_bytes, std::min(point.candidate->bytes, 2 * m_outcome->capacity.bytes));
        m_seconds = std::max(m_seconds, point.candidate->time.seconds);
    }
    // A front of slow layouts that need next to nothing would press the rest to the floor.
    if (m_outcome && !m_outcome->best.empty())
        m_seconds = std::min(m_seconds, 4 * m_outcome->best.back().time.seconds);
    if (m_outcome && m_outcome->current.time.seconds > 0)
        m_seconds = std::max(m_seconds, m_outcome->current.time.seconds);
    std::erase_if(m_points, [this](const Point &point) {
        return point.candidate->time.seconds > m_seconds || point.candidate->bytes > m_bytes;
    });
    m_seconds = 1e-9;
    for (const Point &point : m_points)
        m_seconds = std::max(m_seconds, point.candidate->time.seconds);
    m_bytes *= 1.05;
    m_seconds *= 1.1;
    std::stable_sort(m_points.begin(), m_points.end(),
                     [](const Point &a, const Point &b) { return a.candidate->bytes < b.candidate->bytes; });
    setAccessibleDescription(tr("%1 layouts").arg(m_points.size()));
    update();
}

QRectF LayoutScatter::plot() const
{
    const QFontMetrics metrics(Theme::instance().font(FontRole::MonoSmall));
    double left = metrics.horizontalAdvance(QStringLiteral("888 ms")) + 12;
    for (const double at : ticks)
        left = std::max(left, metrics.horizontalAdvance(formatSeconds(m_seconds * at)) + 12.0);
    return {left, 10, std::max(10.0, width() - left - 14),
            std::max(10.0, height() - 2.0 * metrics.height() - 18)};
}

QPointF LayoutScatter::pixelOf(const Point &point) const
{
    const QRectF box = plot();
    return {box.left() + point.candidate->bytes / m_bytes * box.width(),
            box.bottom() - point.candidate->time.seconds / m_seconds * box.height()};
}

QString LayoutScatter::tipOf(const Point &point) const
{
    const search::Candidate &what = *point.candidate;
    return QString::fromStdString(search::textOf(what.choice)) + QLatin1Char('\n')
        + tr("%1 a step, %2 on the fullest rank")
              .arg(formatSeconds(what.time.seconds), formatValue(what.bytes, Unit::Bytes))
        + (what.why.empty() ? QString() : QLatin1Char('\n') + QString::fromStdString(what.why));
}

void LayoutScatter::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setFont(theme.font(FontRole::MonoSmall));
    const QFontMetrics metrics(painter.font());
    const QRectF box = plot();
    painter.setPen(theme.color(Token::Border));
    painter.drawLine(box.bottomLeft(), box.bottomRight());
    painter.drawLine(box.topLeft(), box.bottomLeft());
    if (!m_outcome)
        return;
    painter.setPen(theme.color(Token::Muted));
    for (const double at : ticks) {
        const double y = box.bottom() - at * box.height();
        painter.drawText(QRectF(0, y - metrics.height() / 2.0, box.left() - 6, metrics.height()),
                         Qt::AlignRight | Qt::AlignVCenter,
                         at == 0 ? QStringLiteral("0") : formatSeconds(m_seconds * at));
    }
    painter.drawText(QRectF(box.left(), box.bottom() + 4, box.width(), metrics.height()), Qt::AlignLeft,
                     QStringLiteral("0"));
    painter.drawText(QRectF(box.left(), box.bottom() + 4, box.width(), metrics.height()), Qt::AlignRight,
                     formatValue(m_bytes, Unit::Bytes));
    painter.drawText(QRectF(0, box.bottom() + 4 + metrics.height(), box.right(), metrics.height() + 2),
                     Qt::AlignRight, tr("peak memory"));
    const double usable = box.left() + m_outcome->capacity.usable() / m_bytes * box.width();
    painter.setPen(QPen(theme.color(Token::Bad), 1, Qt::DashLine));
    painter.drawLine(QPointF(usable, box.top()), QPointF(usable, box.bottom()));
    QPolygonF front;
    for (const Point &point : m_points) {
        if (point.front)
            front << pixelOf(point);
    }
    painter.setPen(QPen(theme.color(Token::Accent), 1));
    painter.drawPolyline(front);
    for (int i = 0; i < static_cast<int>(m_points.size()); ++i) {
        const Point &point = m_points[static_cast<std::size_t>(i)];
        const QColor color = theme.color(point.current    ? Token::Text
                                             : point.fits ? Token::Accent
                                                          : Token::Warn);
        painter.setPen(QPen(color, 1.5));
        painter.setBrush(point.fits && !point.current ? QBrush(color) : QBrush(theme.color(Token::Surface)));
        const QPointF at = pixelOf(point);
        const double size = i == m_selected ? 7 : 4;
        if (point.current)
            painter.drawRect(QRectF(at.x() - size, at.y() - size, 2 * size, 2 * size));
        else
            painter.drawEllipse(at, size, size);
    }
    if (hasFocus()) {
        painter.setBrush(Qt::NoBrush);
        painter.setPen(theme.color(Token::Accent));
        painter.drawRect(QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5));
    }
}

int LayoutScatter::pointAt(const QPointF &pixel) const
{
    int best = -1;
    double nearest = 10;
    for (int i = 0; i < static_cast<int>(m_points.size()); ++i) {
        const QPointF away = pixelOf(m_points[static_cast<std::size_t>(i)]) - pixel;
        const double distance = std::hypot(away.x(), away.y());
        if (distance < nearest) {
            nearest = distance;
            best = i;
        }
    }
    return best;
}

void LayoutScatter::select(int point)
{
    m_selected = point;
    if (point >= 0)
        setAccessibleDescription(tipOf(m_points[static_cast<std::size_t>(point)]));
    update();
    emit selectionChanged(point);
}

void LayoutScatter::mousePressEvent(QMouseEvent *event) { select(pointAt(event->position())); }

void LayoutScatter::mouseDoubleClickEvent(QMouseEvent *event)
{
    const int point = pointAt(event->position());
    if (point >= 0)
        emit chosen(*m_points[static_cast<std::size_t>(point)].candidate);
}

void LayoutScatter::keyPressEvent(QKeyEvent *event)
{
    const int last = static_cast<int>(m_points.size()) - 1;
    if (last >= 0 && (event->key() == Qt::Key_Left || event->key() == Qt::Key_Right))
        return select(std::clamp(m_selected + (event->key() == Qt::Key_Right ? 1 : -1), 0, last));
    if (last >= 0 && (event->key() == Qt::Key_Home || event->key() == Qt::Key_End))
        return select(event->key() == Qt::Key_Home ? 0 : last);
    if (m_selected >= 0 && (event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter)) {
        emit chosen(*m_points[static_cast<std::size_t>(m_selected)].candidate);
        return;
    }
    QWidget::keyPressEvent(event);
}

void LayoutScatter::focusInEvent(QFocusEvent *event)
{
    QWidget::focusInEvent(event);
    update();
}

void LayoutScatter::focusOutEvent(QFocusEvent *event)
{
    QWidget::focusOutEvent(event);
    update();
}

bool LayoutScatter::event(QEvent *event)
{
    if (event->type() != QEvent::ToolTip)
        return QWidget::event(event);
    const auto *help = static_cast<QHelpEvent *>(event);
    const int point = pointAt(help->pos());
    if (point < 0)
        QToolTip::hideText();
    else
        QToolTip::showText(help->globalPos(), tipOf(m_points[static_cast<std::size_t>(point)]), this);
    return true;
}

} // namespace rankyard::ui
