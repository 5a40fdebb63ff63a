// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/legend.h"

#include <QPainter>

#include <algorithm>

namespace rankyard::ui {

namespace {
constexpr int between = 10;
}

LegendItem::LegendItem(const QString &name, Ink ink, Mark mark, QWidget *parent)
    : QAbstractButton(parent),
      m_name(name),
      m_ink(ink),
      m_mark(mark)
{
    setCheckable(true);
    setChecked(true);
    setFocusPolicy(Qt::TabFocus);
    setCursor(Qt::PointingHandCursor);
    setAccessibleName(name);
    setToolTip(name);
}

void LegendItem::setValue(const QString &value)
{
    if (value == m_value)
        return;
    m_value = value;
    setToolTip(value.isEmpty() ? m_name : m_name + QLatin1Char(' ') + value);
    setAccessibleDescription(value);
    const bool wider = value.size() > m_valueChars || value.size() < m_valueChars - 3;
    if (wider) {
        m_valueChars = static_cast<int>(value.size());
        static_cast<Legend *>(parentWidget())->arrange();
    }
    update();
}

void LegendItem::setShow(Show show)
{
    m_show = show;
    update();
}

int LegendItem::widthFor(Show show) const
{
    const Theme &theme = Theme::instance();
    if (show == Show::Hidden)
        return 0;
    int width = m_mark == Mark::None ? 0 : m_mark == Mark::Dash ? theme.scaled(14) : theme.scaled(8);
    if (show == Show::MarkOnly && m_mark != Mark::None)
        return width + 2;
    width +=
        (m_mark == Mark::None ? 0 : 6) + QFontMetrics(theme.font(FontRole::Small)).horizontalAdvance(m_name);
    if (show == Show::Full && m_valueChars > 0)
        width += 6
            + QFontMetrics(theme.font(FontRole::Mono))
                  .horizontalAdvance(QString(m_valueChars, QLatin1Char('0')));
    return width + 2;
}

QSize LegendItem::sizeHint() const { return {widthFor(m_show), Theme::instance().scaled(20)}; }

void LegendItem::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const bool on = !isCheckable() || isChecked();
    const double middle = height() / 2.0;
    double left = 1;
    if (m_mark == Mark::Dash) {
        QPen pen(theme.color(m_ink), 1.5);
        pen.setDashPattern({2.5, 2});
        painter.setPen(pen);
        painter.drawLine(QPointF(left, middle), QPointF(left + theme.scaled(14), middle));
        left += theme.scaled(14) + 6;
    } else if (m_mark == Mark::Dot) {
        const double size = theme.scaled(8);
        const QRectF dot(left, middle - size / 2, size, size);
        painter.setPen(QPen(Theme::isHatched(m_ink) ? theme.color(Token::Muted) : theme.color(m_ink), 1));
        painter.setBrush(on ? theme.brush(m_ink) : QBrush(Qt::NoBrush));
        painter.drawEllipse(dot.adjusted(0.5, 0.5, -0.5, -0.5));
        left += size + 6;
    }
    if (m_show != Show::MarkOnly || m_mark == Mark::None) {
        QFont font = theme.font(FontRole::Small);
        font.setStrikeOut(!on);
        painter.setFont(font);
        painter.setPen(
            theme.color(underMouse() && isEnabled() && isCheckable() ? Token::Text : Token::Muted));
        painter.drawText(QRectF(left, 0, width(), height()), Qt::AlignVCenter | Qt::AlignLeft, m_name);
        left += QFontMetrics(font).horizontalAdvance(m_name) + 6;
    }
    if (m_show == Show::Full && on && !m_value.isEmpty()) {
        painter.setFont(theme.font(FontRole::Mono));
        painter.setPen(theme.color(Token::Text));
        painter.drawText(QRectF(left, 0, width(), height()), Qt::AlignVCenter | Qt::AlignLeft, m_value);
    }
    if (hasFocus()) {
        painter.setPen(QPen(theme.color(Token::Accent), 1));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5), 3, 3);
    }
}

Legend::Legend(QWidget *parent) : QWidget(parent)
{
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        updateGeometry();
        arrange();
    });
}

LegendItem *Legend::add(const QString &name, Ink ink, LegendItem::Mark mark, bool clickable)
{
    auto *item = new LegendItem(name, ink, mark, this);
    if (!clickable) {
        item->setCheckable(false);
        item->setFocusPolicy(Qt::NoFocus);
        item->setCursor(Qt::ArrowCursor);
    }
    m_items.push_back(item);
    item->show();
    arrange();
    return item;
}

void Legend::remove(LegendItem *item)
{
    std::erase(m_items, item);
    delete item;
    arrange();
}

void Legend::clear()
{
    qDeleteAll(m_items);
    m_items.clear();
}

QSize Legend::sizeHint() const
{
    int width = 0;
    for (const LegendItem *item : m_items)
        width += item->widthFor(LegendItem::Show::Full) + between;
    return {width, Theme::instance().scaled(20)};
}

void Legend::arrange()
{
    // From the last item on: first values go, then names; a hidden one keeps its mark with the rest in the tooltip.
    std::vector<LegendItem::Show> shows(m_items.size(), LegendItem::Show::Full);
    // A figure without a value says nothing.
    for (std::size_t i = 0; i < m_items.size(); ++i) {
        if (m_items[i]->mark() == LegendItem::Mark::None && m_items[i]->value().isEmpty())
            shows[i] = LegendItem::Show::Hidden;
    }
    const auto total = [&] {
        int width = 0;
        for (std::size_t i = 0; i < m_items.size(); ++i)
            width += shows[i] == LegendItem::Show::Hidden
                ? 0
                : m_items[i]->widthFor(shows[i]) + (i > 0 ? between : 0);
        return width;
    };
    const auto shrink = [&](LegendItem::Show less, bool series) {
        for (std::size_t i = m_items.size(); i-- > 0 && total() > width();) {
            if (m_items[i]->isCheckable() == series)
                shows[i] = less;
        }
    };
    shrink(LegendItem::Show::Name, true);
    shrink(LegendItem::Show::MarkOnly, true);
    if (std::any_of(m_items.begin(), m_items.end(),
                    [](const LegendItem *item) { return !item->isCheckable() && !item->value().isEmpty(); }))
        shrink(LegendItem::Show::Hidden, true);
    // Figures beside the series ("now", "predicted") are what the panel is asked for: they give way last.
    shrink(LegendItem::Show::Name, false);
    shrink(LegendItem::Show::MarkOnly, false);
    int left = 0;
    for (std::size_t i = 0; i < m_items.size(); ++i) {
        m_items[i]->setShow(shows[i]);
        if (shows[i] == LegendItem::Show::Hidden) {
            m_items[i]->hide();
            continue;
        }
        const int own = m_items[i]->widthFor(shows[i]);
        m_items[i]->setGeometry(left, 0, own, height());
        m_items[i]->setVisible(left + own <= width());
        left += own + between;
    }
}

void Legend::resizeEvent(QResizeEvent *) { arrange(); }

} // namespace rankyard::ui
