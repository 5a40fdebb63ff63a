// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/event_lane.h"

#include <QHelpEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

EventLane::EventLane(ChartGroup *group, QWidget *parent) : QFrame(parent), m_group(group)
{
    setObjectName(QStringLiteral("panel"));
    setMouseTracking(true);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setAccessibleName(tr("Events"));
    connect(group, &ChartGroup::viewChanged, this, qOverload<>(&QWidget::update));
    connect(group, &ChartGroup::cursorMoved, this, qOverload<>(&QWidget::update));
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        updateGeometry();
        update();
    });
}

void EventLane::setEvents(std::vector<Event> events)
{
    m_events = std::move(events);
    QStringList words;
    for (const Event &each : m_events)
        words << each.text;
    setAccessibleDescription(words.join(QStringLiteral(", ")));
    update();
}

QSize EventLane::sizeHint() const { return {400, Theme::instance().scaled(34)}; }

QRectF EventLane::field() const
{
    const Theme &theme = Theme::instance();
    const int title = QFontMetrics(theme.font(FontRole::Strong)).horizontalAdvance(tr("Events"));
    return QRectF(rect()).adjusted(12 + title + 16, 0, -16, 0);
}

double EventLane::toPixel(double x) const
{
    const QRectF area = field();
    const double t = m_group->logX() ? std::log(x / m_group->lo()) / std::log(m_group->hi() / m_group->lo())
                                     : (x - m_group->lo()) / (m_group->hi() - m_group->lo());
    return area.left() + t * area.width();
}

void EventLane::drawMark(QPainter &painter, const Event *event, const QPointF &c, double half) const
{
    const Theme &theme = Theme::instance();
    painter.setPen(QPen(theme.color(Token::Surface), 1));
    painter.setBrush(theme.color(event->ink));
    switch (event->shape) {
    case 1:
        painter.drawRect(QRectF(c.x() - half + 0.5, c.y() - half + 0.5, 2 * half - 1, 2 * half - 1));
        break;
    case 2:
        painter.drawPolygon(QPolygonF(
            {c + QPointF(0, -half - 0.5), c + QPointF(-half - 0.5, half), c + QPointF(half + 0.5, half)}));
        break;
    case 3:
        painter.drawPolygon(QPolygonF({c + QPointF(0, -half - 1), c + QPointF(half + 1, 0),
                                       c + QPointF(0, half + 1), c + QPointF(-half - 1, 0)}));
        break;
    default:
        painter.drawEllipse(c, half - 0.5, half - 0.5);
    }
}

void EventLane::paintEvent(QPaintEvent *event)
{
    QFrame::paintEvent(event);
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setFont(theme.font(FontRole::Strong));
    painter.setPen(theme.color(Token::Text));
    painter.drawText(QRectF(12, 0, width(), height()), Qt::AlignVCenter | Qt::AlignLeft, tr("Events"));
    const QRectF area = field();
    const double middle = height() / 2.0;
    painter.setFont(theme.font(FontRole::Small));
    const QFontMetrics metrics(theme.font(FontRole::Small));
    if (m_events.empty()) {
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(area, Qt::AlignVCenter | Qt::AlignLeft, tr("none yet"));
        return;
    }
    painter.setPen(QPen(theme.color(Token::Border), 1));
    painter.drawLine(QPointF(area.left(), std::floor(middle) + 0.5),
                     QPointF(area.right(), std::floor(middle) + 0.5));

    // Marks first claim their place, then labels, the heaviest first, where nothing stands yet.
    struct Placed {
        double px;
        const Event *what;
    };
    std::vector<Placed> placed;
    for (const Event &each : m_events) {
        if (each.x >= m_group->lo() && each.x <= m_group->hi())
            placed.push_back({toPixel(each.x), &each});
    }
    std::vector<std::pair<double, double>> taken;
    const double half = theme.scaled(4);
    for (const Placed &mark : placed) {
        // Labels may cover marks of the least weight, which are many and alike.
        if (mark.what->weight > 1)
            taken.emplace_back(mark.px - half - 2, mark.px + half + 2);
    }
    const auto paintMark = [&](const Placed &mark) {
        drawMark(painter, mark.what, QPointF(mark.px, middle), half);
    };
    std::vector<std::size_t> order(placed.size());
    for (std::size_t i = 0; i < order.size(); ++i)
        order[i] = i;
    const bool labelAll = placed.size() <= 12;
    std::vector<std::pair<double, double>> labels;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return placed[a].what->weight > placed[b].what->weight;
    });
    for (std::size_t i : order) {
        const double left = placed[i].px + half + 4;
        const double right = left + metrics.horizontalAdvance(placed[i].what->text) + 6;
        const bool free = right <= area.right() + 8
            && std::none_of(taken.begin(), taken.end(),
                            [&](const auto &each) { return each.first < right && each.second > left; });
        if (!free || (placed[i].what->weight <= 1 && !labelAll))
            continue;
        taken.emplace_back(left, right);
        labels.emplace_back(left, right);
        const QRectF place(left, middle - metrics.height() / 2.0, right - left, metrics.height());
        painter.fillRect(place.adjusted(-2, 0, 0, 0), theme.color(Token::Surface));
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(place, Qt::AlignVCenter | Qt::AlignLeft, placed[i].what->text);
    }
    for (std::size_t k = order.size(); k-- > 0;) {
        const Placed &mark = placed[order[k]];
        const bool covered = std::any_of(labels.begin(), labels.end(), [&](const auto &each) {
            return mark.px + half > each.first - 2 && mark.px - half < each.second;
        });
        if (!covered || mark.what->weight > 1)
            paintMark(mark);
    }
    if (const auto cursor = m_group->cursor();
        cursor && *cursor >= m_group->lo() && *cursor <= m_group->hi()) {
        QColor line = theme.color(Token::Text);
        line.setAlphaF(0.55f);
        painter.setPen(QPen(line, 1));
        const double px = std::floor(toPixel(*cursor)) + 0.5;
        painter.drawLine(QPointF(px, 4), QPointF(px, height() - 4));
    }
}

void EventLane::mouseMoveEvent(QMouseEvent *event)
{
    const QRectF area = field();
    if (!m_group->hasData() || event->position().x() < area.left() || event->position().x() > area.right())
        return;
    const double t = (event->position().x() - area.left()) / area.width();
    m_group->setCursor(m_group->logX() ? m_group->lo() * std::pow(m_group->hi() / m_group->lo(), t)
                                       : m_group->lo() + t * (m_group->hi() - m_group->lo()),
                       this, -1);
}

void EventLane::leaveEvent(QEvent *)
{
    if (m_group->cursorSource() == this)
        m_group->setCursor(std::nullopt);
}

bool EventLane::event(QEvent *event)
{
    if (event->type() == QEvent::ToolTip) {
        const auto *help = static_cast<QHelpEvent *>(event);
        QStringList near;
        for (const Event &each : m_events) {
            if (std::fabs(toPixel(each.x) - help->pos().x()) <= 8)
                near << (each.detail.isEmpty() ? each.text : each.text + QStringLiteral(": ") + each.detail);
        }
        if (near.isEmpty())
            QToolTip::hideText();
        else
            QToolTip::showText(help->globalPos(), near.mid(0, 12).join(QLatin1Char('\n')), this);
        return true;
    }
    return QFrame::event(event);
}

} // namespace rankyard::ui
