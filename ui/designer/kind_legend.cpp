// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/kind_legend.h"

#include "ui/designer/kinds.h"

#include <QPainter>

#include <algorithm>

namespace rankyard::ui {

namespace {

constexpr int mark = 9;
constexpr int gap = 14;
constexpr int edge = 12;

/// Large text takes the room from the drawing below.
int mostLines() { return Theme::instance().textPercent() < 150 ? 2 : 1; }

int lineHeight() { return QFontMetrics(Theme::instance().font(FontRole::Small)).height() + 4; }

} // namespace

KindLegend::KindLegend(QWidget *parent) : QWidget(parent)
{
    QSizePolicy policy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    policy.setHeightForWidth(true);
    setSizePolicy(policy);
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
    setVisible(!m_kinds.empty());
    updateGeometry();
    update();
}

std::vector<KindLegend::Place> KindLegend::places(int width) const
{
    const QFontMetrics metrics(Theme::instance().font(FontRole::Small));
    const int count = metrics.horizontalAdvance(QStringLiteral("+99"));
    std::vector<Place> placed;
    int x = edge;
    int line = 0;
    for (std::size_t i = 0; i < m_kinds.size(); ++i) {
        const int wide = mark + 5 + metrics.horizontalAdvance(wordOf(m_kinds[i]));
        if (x + wide > width - edge && x > edge) {
            x = edge;
            ++line;
        }
        const int left = line == mostLines() - 1 && i + 1 < m_kinds.size() ? count + gap : 0;
        if (line >= mostLines())
            break;
        // The last of the last line may fill it; any other leaves room for the count of the rest.
        if (x + wide + left > width - edge && x > edge)
            break;
        placed.push_back({x, line, wide});
        x += wide + gap;
    }
    return placed;
}

int KindLegend::heightForWidth(int width) const
{
    const std::vector<Place> placed = places(width);
    return (placed.empty() ? 1 : placed.back().line + 1) * lineHeight() + 2;
}

QSize KindLegend::sizeHint() const { return {0, heightForWidth(std::max(width(), 1))}; }

void KindLegend::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setFont(theme.font(FontRole::Small));
    const int high = lineHeight();
    const std::vector<Place> placed = places(width());
    painter.setPen(theme.color(Token::Muted));
    for (std::size_t i = 0; i < placed.size(); ++i) {
        const auto &[x, line, wide] = placed[i];
        const int y = line * high;
        painter.fillRect(QRect(x, y + (high - mark) / 2, mark, mark), theme.brush(Ink::of(m_kinds[i])));
        painter.drawText(QRect(x + mark + 5, y, wide, high), Qt::AlignVCenter, wordOf(m_kinds[i]));
    }
    if (placed.size() == m_kinds.size() || placed.empty())
        return;
    const Place &last = placed.back();
    painter.drawText(QRect(last.x + last.width + gap, last.line * high, width(), high), Qt::AlignVCenter,
                     QStringLiteral("+%1").arg(m_kinds.size() - placed.size()));
}

} // namespace rankyard::ui
