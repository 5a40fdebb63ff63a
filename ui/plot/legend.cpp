// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/legend.h"

#include <QMenu>
#include <QPainter>
#include <QToolButton>

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
    if (show != Show::Value)
        width += (m_mark == Mark::None ? 0 : 6)
            + QFontMetrics(theme.font(FontRole::Small)).horizontalAdvance(m_name);
    if (show != Show::Name && m_valueChars > 0)
        width += (width > 0 ? 6 : 0)
            + QFontMetrics(theme.font(FontRole::Mono))
                  .horizontalAdvance(QString(m_valueChars, QLatin1Char('0')));
    return width + 2;
}

QSize LegendItem::sizeHint() const { return {widthFor(m_show), Theme::instance().scaled(20)}; }

void LegendItem::paintMark(QPainter &painter, const QRectF &place, bool on) const
{
    const Theme &theme = Theme::instance();
    const QPointF middle = place.center();
    if (m_mark == Mark::Dash) {
        QPen pen(theme.color(m_ink), 1.5);
        pen.setDashPattern({2.5, 2});
        painter.setPen(pen);
        painter.drawLine(QPointF(place.left(), middle.y()), QPointF(place.right(), middle.y()));
    } else if (m_mark == Mark::Dot) {
        const double size = theme.scaled(8) - 1;
        painter.setPen(QPen(Theme::isHatched(m_ink) ? theme.color(Token::Muted) : theme.color(m_ink), 1));
        painter.setBrush(on ? theme.brush(m_ink) : QBrush(Qt::NoBrush));
        painter.drawEllipse(middle, size / 2, size / 2);
    }
}

QIcon LegendItem::swatch() const
{
    QPixmap pixmap(QSize(16, 16) * devicePixelRatioF());
    pixmap.setDevicePixelRatio(devicePixelRatioF());
    pixmap.fill(Qt::transparent);
    QPainter painter(&pixmap);
    painter.setRenderHint(QPainter::Antialiasing);
    paintMark(painter, QRectF(1, 0, 14, 16), true);
    return QIcon(pixmap);
}

void LegendItem::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const bool on = !isCheckable() || isChecked();
    double left = 1;
    if (m_mark != Mark::None) {
        const double own = theme.scaled(m_mark == Mark::Dash ? 14 : 8);
        paintMark(painter, QRectF(left, 0, own, height()), on);
        left += own + 6;
    }
    if (m_show != Show::Value) {
        QFont font = theme.font(FontRole::Small);
        font.setStrikeOut(!on);
        painter.setFont(font);
        painter.setPen(
            theme.color(underMouse() && isEnabled() && isCheckable() ? Token::Text : Token::Muted));
        painter.drawText(QRectF(left, 0, width(), height()), Qt::AlignVCenter | Qt::AlignLeft, m_name);
        left += QFontMetrics(font).horizontalAdvance(m_name) + 6;
    }
    if (m_show != Show::Name && on && !m_value.isEmpty()) {
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

Legend::Legend(QWidget *parent) : QWidget(parent), m_more(new QToolButton(this))
{
    m_more->setObjectName(QStringLiteral("legendMore"));
    m_more->setProperty("role", "more");
    m_more->setPopupMode(QToolButton::InstantPopup);
    m_more->setMenu(new QMenu(m_more));
    m_more->setToolTip(tr("What has no room in this line"));
    m_more->setAccessibleName(tr("More series"));
    m_more->hide();
    connect(m_more->menu(), &QMenu::aboutToShow, this, &Legend::fillMenu);
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
    using Show = LegendItem::Show;
    using Mark = LegendItem::Mark;
    std::vector<Show> shows(m_items.size(), Show::Full);
    // A figure without a value says nothing.
    for (std::size_t i = 0; i < m_items.size(); ++i) {
        if (m_items[i]->mark() == Mark::None && m_items[i]->value().isEmpty())
            shows[i] = Show::Hidden;
    }
    const auto put = [&](bool place) {
        int left = 0;
        int folded = 0;
        for (std::size_t i = 0; i < m_items.size(); ++i) {
            LegendItem &item = *m_items[i];
            if (place) {
                item.setShow(shows[i]);
                item.setVisible(shows[i] != Show::Hidden);
            }
            if (shows[i] == Show::Hidden) {
                folded += isFoldable(item) ? 1 : 0;
                continue;
            }
            const int own = item.widthFor(shows[i]);
            if (place)
                item.setGeometry(left, 0, own, height());
            left += own + between;
        }
        m_more->setText(tr("+%1").arg(folded));
        const int own = m_more->sizeHint().width();
        if (place) {
            m_more->setVisible(folded > 0);
            m_more->setGeometry(left, 0, own, height());
        }
        return folded > 0 ? left + own : left - between;
    };
    const auto shrink = [&](Show less, auto concerns) {
        for (std::size_t i = m_items.size(); i-- > 0 && put(false) > width();) {
            if (shows[i] != Show::Hidden && concerns(*m_items[i]))
                shows[i] = less;
        }
    };
    // Figures beside the series ("now", "predicted") are what the panel is asked for: they give way last.
    const auto isSeries = [](const LegendItem &item) { return item.isCheckable(); };
    shrink(Show::Name, isSeries);
    shrink(Show::Hidden, isSeries);
    shrink(Show::Hidden, [](const LegendItem &item) { return item.mark() != Mark::None; });
    shrink(Show::Value, [](const LegendItem &item) { return item.saysItself(); });
    shrink(Show::Hidden, [](const LegendItem &) { return true; });
    put(true);
}

/// What "+2" opens: an item that has something to say when it is not in the line.
bool Legend::isFoldable(const LegendItem &item) const
{
    return item.mark() != LegendItem::Mark::None || !item.value().isEmpty();
}

void Legend::fillMenu()
{
    QMenu *menu = m_more->menu();
    menu->clear();
    for (LegendItem *item : m_items) {
        if (!item->isHidden() || !isFoldable(*item))
            continue;
        const QString text =
            item->value().isEmpty() ? item->name() : item->name() + QLatin1Char('\t') + item->value();
        QAction *action = menu->addAction(item->swatch(), text);
        action->setToolTip(item->toolTip());
        action->setCheckable(item->isCheckable());
        action->setChecked(item->isChecked());
        action->setEnabled(item->isCheckable());
        connect(action, &QAction::toggled, item, &QAbstractButton::setChecked);
    }
}

void Legend::resizeEvent(QResizeEvent *) { arrange(); }

} // namespace rankyard::ui
