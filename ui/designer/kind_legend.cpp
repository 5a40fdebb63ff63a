// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/kind_legend.h"

#include "ui/designer/kinds.h"

#include <QPainter>

namespace rankyard::ui {

namespace {

constexpr int mark = 9;
constexpr int gap = 14;

} // namespace

KindLegend::KindLegend(QWidget *parent) : QWidget(parent)
{
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        updateGeometry();
        update();
    });
}

void KindLegend::setKinds(std::vector<Kind> kinds)
{
    m_kinds = std::move(kinds);
    QStringList names;
    for (const Kind kind : m_kinds)
        names << wordOf(kind);
    setToolTip(names.join(QStringLiteral(", ")));
    setAccessibleName(toolTip());
    updateGeometry();
    update();
}

QSize KindLegend::sizeHint() const
{
    const QFontMetrics metrics(Theme::instance().font(FontRole::Small));
    int wide = 0;
    for (const Kind kind : m_kinds)
        wide += mark + 5 + metrics.horizontalAdvance(wordOf(kind)) + gap;
    return {wide, metrics.height() + 4};
}

void KindLegend::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setFont(theme.font(FontRole::Small));
    const QFontMetrics metrics(painter.font());
    int x = 0;
    for (const Kind kind : m_kinds) {
        const QString name = wordOf(kind);
        const int wide = mark + 5 + metrics.horizontalAdvance(name);
        if (x + wide > width())
            return;
        painter.fillRect(QRect(x, (height() - mark) / 2, mark, mark), theme.brush(Ink::of(kind)));
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(QRect(x + mark + 5, 0, wide, height()), Qt::AlignVCenter, name);
        x += wide + gap;
    }
}

} // namespace rankyard::ui
