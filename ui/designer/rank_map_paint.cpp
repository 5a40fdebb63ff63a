// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/theme.h"
#include "ui/designer/rank_map.h"

#include <QPainter>

#include <algorithm>
#include <array>

namespace rankyard::ui {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// tp, cp, dp, pp: as their transfers are coloured in the time line.
constexpr std::array<Kind, 4> axisKinds = {Kind::TensorParallel, Kind::Copy, Kind::DataParallel,
                                           Kind::Pipeline};

} // namespace

void RankMap::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.fillRect(rect(), theme.color(Token::Surface));
    if (m_nodes == 0) {
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(rect(), Qt::AlignCenter, tr("The cluster cannot be shown"));
        return;
    }
    const bool antialias = m_zoom >= 8;
    painter.setRenderHint(QPainter::Antialiasing, antialias);
    for (int node = 0; node < m_nodes; ++node)
        paintNode(painter, node);
    paintPipeline(painter);
    paintRing(painter);
}

void RankMap::paintNode(QPainter &painter, int node) const
{
    const Theme &theme = Theme::instance();
    const QRectF unit = nodeRect(node);
    const QRectF box(unit.topLeft() * m_zoom + m_offset, unit.size() * m_zoom);
    if (!box.intersects(rect()))
        return;
    if (m_zoom >= 5) {
        painter.setPen(theme.color(Token::Border));
        painter.setBrush(theme.color(Token::Background));
        painter.drawRoundedRect(box, std::min(6.0, m_zoom / 4), std::min(6.0, m_zoom / 4));
    }
    const int first = m_slots->firstOf(node);
    const int end = m_slots->firstOf(node + 1);
    // Its name where there is room for it.
    const QFont font = theme.font(FontRole::Small);
    const QFontMetrics metrics(font);
    const QString name = QString::fromStdString(m_slots->nameOfNode(node));
    if (0.7 * m_zoom >= metrics.height()
        && box.width() - 12 >= metrics.horizontalAdvance(QStringLiteral("node-00"))) {
        painter.setFont(font);
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(QRectF(box.left() + 6, box.top(), box.width() - 12, 0.72 * m_zoom), Qt::AlignVCenter,
                         metrics.elidedText(name, Qt::ElideRight, static_cast<int>(box.width()) - 12));
    }
    for (int slot = first; slot < end; ++slot)
        paintCell(painter, slot, cellOf(slot));
}

void RankMap::paintCell(QPainter &painter, int slot, const QRectF &cell) const
{
    const Theme &theme = Theme::instance();
    const double inset = m_zoom >= 8 ? std::min(3.0, m_zoom * 0.06) : m_zoom >= 3 ? 0.5 : 0;
    const QRectF box = cell.adjusted(inset, inset, -inset, -inset);
    const double corner = m_zoom >= 12 ? 4 : 0;
    if (slot >= world()) {
        if (m_zoom < 5)
            return;
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(theme.color(Token::Border), 1, Qt::DashLine));
        painter.drawRoundedRect(box, corner, corner);
        return;
    }
    const int colour = m_colours[at(slot)];
    const bool lit = m_selected < 0 || m_marks[at(slot)] != 0 || slot == m_selected;
    // Colours come again after seven: the second time they are lighter.
    const double strength = (colour / seriesCount % 2 == 0 ? 0.55 : 0.3) * (lit ? 1 : 0.35);
    const QColor fill = mixed(theme.color(Token::Surface), theme.color(Ink::series(colour)), strength);
    painter.setPen(Qt::NoPen);
    painter.setBrush(fill);
    if (corner > 0)
        painter.drawRoundedRect(box, corner, corner);
    else
        painter.fillRect(box, fill);
    if (m_selected >= 0 && m_marks[at(slot)] != 0) {
        // A bar an axis at the foot: which groups the cell shares with the selected rank.
        const double high = std::max(1.5, box.height() * 0.12);
        int shared = 0;
        for (int axis = 0; axis < 4; ++axis)
            shared += (m_marks[at(slot)] >> axis) & 1;
        double x = box.left();
        for (int axis = 0; axis < 4; ++axis) {
            if (!((m_marks[at(slot)] >> axis) & 1))
                continue;
            painter.fillRect(QRectF(x, box.bottom() - high, box.width() / shared, high),
                             theme.color(Ink::of(axisKinds[at(axis)])));
            x += box.width() / shared;
        }
    }
    if (slot == m_selected) {
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(theme.color(Token::Text), 2));
        painter.drawRoundedRect(box, corner, corner);
    }
    const QFont font = theme.font(FontRole::MonoSmall);
    const QFontMetrics metrics(font);
    // All ranks have their number, or none.
    if (box.height() < metrics.height()
        || box.width() < metrics.horizontalAdvance(QString::number(world() - 1)) + 4)
        return;
    const QString text = QString::number(slot);
    painter.setFont(font);
    painter.setPen(theme.color(lit ? Token::Text : Token::Muted));
    painter.drawText(box, Qt::AlignCenter, text);
}

/// The way of an activation through the stages, from the selected rank's pipeline.
void RankMap::paintPipeline(QPainter &painter) const
{
    const auto found =
        std::find_if(m_groups.begin(), m_groups.end(), [](const Group &group) { return group.axis == "pp"; });
    if (found == m_groups.end())
        return;
    painter.setPen(QPen(Theme::instance().color(Ink::of(Kind::Pipeline)), 1.5, Qt::DashLine));
    for (std::size_t i = 1; i < found->ranks.size(); ++i)
        painter.drawLine(cellOf(found->ranks[i - 1]).center(), cellOf(found->ranks[i]).center());
}

} // namespace rankyard::ui
