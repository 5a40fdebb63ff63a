// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/rank_map.h"

#include "ui/cluster/device_text.h"
#include "ui/common/format.h"
#include "ui/common/theme.h"

#include <QKeyEvent>

#include <algorithm>
#include <cmath>
#include <map>

namespace rankyard::ui {

namespace {

// In cells: between nodes, around the cells of one, and above them for its name.
constexpr double between = 0.6;
constexpr double around = 0.25;
constexpr double above = 0.7;
constexpr int manyNodes = 4096;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

} // namespace

RankMap::RankMap(QWidget *parent) : ZoomCanvas(parent) { setAccessibleName(tr("Ranks on the cluster")); }

RankMap::NodeShape RankMap::shapeOf(int node) const
{
    const int count = std::max(1, m_slots->firstOf(node + 1) - m_slots->firstOf(node));
    const int columns = count <= 2 ? count
        : count <= 4               ? 2
        : count <= 8               ? 4
                                   : static_cast<int>(std::ceil(std::sqrt(2.0 * count)));
    return {columns, (count + columns - 1) / columns};
}

void RankMap::setDesign(const std::optional<spec::Layout> &layout,
                        std::shared_ptr<const cluster::Cluster> cluster)
{
    const bool other = cluster != m_cluster;
    m_cluster = std::move(cluster);
    m_slots.reset();
    if (m_cluster)
        m_slots.emplace(*m_cluster);
    m_grid.reset();
    m_colours.clear();
    if (layout && m_slots && layout->world() <= m_slots->count()) {
        m_layout = *layout;
        m_grid.emplace(m_layout);
    }
    setColouring(m_colouring);
    if (m_selected >= world())
        m_selected = -1;
    fillGroups();
    if (other) {
        m_fitted = true;
        layOut();
    }
    update();
    emit selectionChanged();
}

void RankMap::setColouring(Colouring colouring)
{
    m_colouring = colouring;
    m_colours.assign(at(world()), 0);
    // Groups are numbered in the order of their first ranks.
    std::map<std::array<int, 4>, int> known;
    const char *own = colouring == TensorGroups ? "tp" : "dp";
    const char *axes[] = {"tp", "cp", "dp", "pp"};
    for (int rank = 0; rank < world(); ++rank) {
        if (colouring == Stages) {
            m_colours[at(rank)] = m_grid->coordinate(rank, "pp");
            continue;
        }
        std::array<int, 4> key{};
        for (int i = 0; i < 4; ++i)
            key[at(i)] = axes[i] == std::string_view(own) ? 0 : m_grid->coordinate(rank, axes[i]);
        m_colours[at(rank)] = known.try_emplace(key, static_cast<int>(known.size())).first->second;
    }
    update();
}

int RankMap::colourOf(int rank) const { return m_colours[at(rank)]; }

void RankMap::select(int rank)
{
    rank = rank >= 0 && rank < world() ? rank : -1;
    if (rank == m_selected)
        return;
    m_selected = rank;
    fillGroups();
    update();
    emit selectionChanged();
}

void RankMap::fillGroups()
{
    m_groups.clear();
    m_marks.assign(at(world()), 0);
    QStringList words;
    if (m_selected >= 0) {
        words << tr("Rank %1").arg(m_selected);
        const std::pair<const char *, QString> axes[] = {
            {"tp", tr("tensor")}, {"cp", tr("context")}, {"dp", tr("data")}, {"pp", tr("pipeline")}};
        for (int i = 0; i < 4; ++i) {
            Group group{axes[i].second,
                        axes[i].first,
                        m_grid->members(m_selected, std::vector<std::string>{axes[i].first}),
                        {}};
            if (group.ranks.size() < 2)
                continue;
            group.worst = m_slots->worstOf(group.ranks);
            for (const int member : group.ranks)
                m_marks[at(member)] |= static_cast<std::uint8_t>(1 << i);
            words << tr("%1 group of %2, %3")
                         .arg(group.name)
                         .arg(group.ranks.size())
                         .arg(wordsOfLink(group.worst.link));
            m_groups.push_back(std::move(group));
        }
    }
    setAccessibleDescription(words.join(QStringLiteral(". ")));
}

QRectF RankMap::nodeRect(int node) const
{
    const NodeShape shape = shapeOf(node);
    return {node % m_across * m_pitch.width(), node / m_across * m_pitch.height(), shape.columns + 2 * around,
            shape.rows + around + above};
}

void RankMap::layOut()
{
    m_nodes = m_cluster && m_slots ? std::min(m_cluster->nodes(), manyNodes) : 0;
    if (m_nodes == 0)
        return;
    NodeShape largest;
    for (int node = 0; node < m_nodes; ++node) {
        const NodeShape shape = shapeOf(node);
        largest.columns = std::max(largest.columns, shape.columns);
        largest.rows = std::max(largest.rows, shape.rows);
    }
    m_pitch = {largest.columns + 2 * around + between, largest.rows + around + above + between};
    // As many nodes in a row as make the cells largest.
    double best = 0;
    for (int across = 1; across <= m_nodes; ++across) {
        const int down = (m_nodes + across - 1) / across;
        const double zoom = std::min(width() / (across * m_pitch.width() + between),
                                     height() / (down * m_pitch.height() + between));
        if (zoom > best * 1.001) {
            best = zoom;
            m_across = across;
        }
    }
    const int down = (m_nodes + m_across - 1) / m_across;
    m_zoom = std::clamp(best, 0.5, static_cast<double>(Theme::instance().scaled(56)));
    const QSizeF whole((m_across * m_pitch.width() - between) * m_zoom,
                       (down * m_pitch.height() - between) * m_zoom);
    m_offset = {(width() - whole.width()) / 2, (height() - whole.height()) / 2};
}

void RankMap::fit()
{
    m_fitted = true;
    layOut();
    update();
}

QRectF RankMap::cellOf(int slot) const
{
    const auto place = m_slots->place(slot);
    const QRectF node = nodeRect(place.node);
    const int columns = shapeOf(place.node).columns;
    const QPointF corner(node.left() + around + place.local % columns,
                         node.top() + above + place.local / columns);
    return {corner * m_zoom + m_offset, QSizeF(m_zoom, m_zoom)};
}

int RankMap::slotAt(const QPointF &pixel) const
{
    if (m_nodes == 0)
        return -1;
    const QPointF unit = (pixel - m_offset) / m_zoom;
    const int column = static_cast<int>(std::floor(unit.x() / m_pitch.width()));
    const int row = static_cast<int>(std::floor(unit.y() / m_pitch.height()));
    const int node = row * m_across + column;
    if (column < 0 || column >= m_across || row < 0 || node >= m_nodes)
        return -1;
    const QRectF rect = nodeRect(node);
    const int x = static_cast<int>(std::floor(unit.x() - rect.left() - around));
    const int y = static_cast<int>(std::floor(unit.y() - rect.top() - above));
    const NodeShape shape = shapeOf(node);
    const int slot = m_slots->firstOf(node) + y * shape.columns + x;
    return x >= 0 && x < shape.columns && y >= 0 && y < shape.rows && slot < m_slots->firstOf(node + 1) ? slot
                                                                                                        : -1;
}

QString RankMap::tipOf(int slot) const
{
    const auto place = m_slots->place(slot);
    const auto &device = m_cluster->types[at(place.type)].devices[at(place.device)];
    const QString where = tr("%1 on %2")
                              .arg(QString::fromStdString(device.name),
                                   QString::fromStdString(m_slots->nameOfNode(place.node)));
    if (slot >= world())
        return where + QLatin1Char('\n') + tr("No rank runs here");
    QStringList parts;
    for (const char *axis : {"tp", "cp", "dp", "pp"})
        parts << QStringLiteral("%1 %2").arg(QLatin1String(axis)).arg(m_grid->coordinate(slot, axis));
    return tr("Rank %1").arg(slot) + QStringLiteral(" · ") + where + QLatin1Char('\n')
        + parts.join(QStringLiteral(", "));
}

void RankMap::resizeEvent(QResizeEvent *event)
{
    QWidget::resizeEvent(event);
    if (m_fitted)
        layOut();
}

void RankMap::panBy(const QPointF &pixels)
{
    m_fitted = false;
    m_offset += pixels;
    update();
}

void RankMap::zoomAt(const QPointF &pixel, double factor)
{
    const double zoom = std::clamp(m_zoom * factor, 0.5, 120.0);
    m_offset = pixel - (pixel - m_offset) * (zoom / m_zoom);
    m_zoom = zoom;
    m_fitted = false;
    update();
}

void RankMap::clicked(const QPointF &pixel)
{
    const int slot = slotAt(pixel);
    select(slot == m_selected ? -1 : slot);
}

bool RankMap::isThing(const QPointF &pixel) const { return slotAt(pixel) >= 0; }

QString RankMap::tipAt(const QPointF &pixel) const
{
    const int slot = slotAt(pixel);
    return slot < 0 ? QString() : tipOf(slot);
}

bool RankMap::key(QKeyEvent *event)
{
    const int columns = m_nodes > 0 ? shapeOf(0).columns : 1;
    const auto step = [this](int by) {
        select(m_selected < 0 ? 0 : std::clamp(m_selected + by, 0, std::max(0, world() - 1)));
        return true;
    };
    switch (event->key()) {
    case Qt::Key_Left:
        return step(-1);
    case Qt::Key_Right:
        return step(1);
    case Qt::Key_Up:
        return step(-columns);
    case Qt::Key_Down:
        return step(columns);
    case Qt::Key_Home:
        select(0);
        return true;
    case Qt::Key_End:
        select(world() - 1);
        return true;
    case Qt::Key_Escape:
        if (m_selected < 0)
            return false;
        select(-1);
        return true;
    default:
        return false;
    }
}

} // namespace rankyard::ui
