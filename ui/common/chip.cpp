// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/chip.h"

#include "ui/common/icons.h"

#include <QPainter>

namespace rankyard::ui {

Chip::Chip(QWidget *parent) : QAbstractButton(parent)
{
    setSizePolicy(QSizePolicy::Fixed, QSizePolicy::Fixed);
    setClickable(false);
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        updateGeometry();
        update();
    });
}

void Chip::setLook(const QString &text, Token tone, const QString &iconName)
{
    if (text == this->text() && tone == m_tone && iconName == m_icon)
        return;
    m_tone = tone;
    m_icon = iconName;
    setText(text);
    setAccessibleName(text);
    updateGeometry();
    update();
}

void Chip::setClickable(bool clickable)
{
    m_clickable = clickable;
    setFocusPolicy(clickable ? Qt::StrongFocus : Qt::NoFocus);
    setAttribute(Qt::WA_TransparentForMouseEvents, !clickable);
    setCursor(clickable ? Qt::PointingHandCursor : Qt::ArrowCursor);
}

QSize Chip::sizeHint() const
{
    const Theme &theme = Theme::instance();
    const QFontMetrics metrics(theme.font(FontRole::Small));
    const int iconWidth = m_icon.isEmpty() ? 0 : theme.scaled(14) + 4;
    return {metrics.horizontalAdvance(text()) + iconWidth + 20, metrics.height() + 6};
}

void Chip::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const QColor tone = theme.color(m_tone);
    const QRectF frame = QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5);
    const double radius = std::min(frame.height() / 2, 12.0);
    painter.setPen(QPen(hasFocus()                   ? theme.color(Token::Accent)
                            : m_tone == Token::Muted ? theme.color(Token::Border)
                                                     : tone,
                        hasFocus() ? 2 : 1));
    painter.setBrush(m_clickable && underMouse() ? mixed(theme.color(Token::Surface), tone, 0.12)
                                                 : QColor(Qt::transparent));
    painter.drawRoundedRect(frame, radius, radius);
    double left = 10;
    if (!m_icon.isEmpty()) {
        const int size = theme.scaled(14);
        paintIcon(painter, m_icon, QRectF(8, (height() - size) / 2.0, size, size), tone);
        left = 8 + size + 4;
    }
    painter.setFont(theme.font(FontRole::Small));
    painter.setPen(tone);
    painter.drawText(QRectF(left, 0, width() - left, height()), Qt::AlignVCenter | Qt::AlignLeft, text());
}

} // namespace rankyard::ui
