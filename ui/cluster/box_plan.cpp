// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/box_plan.h"

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

using cluster::DeviceKind;

constexpr double inset = 12;
constexpr double spacing = 8;
constexpr double heading = 26;
constexpr double planeHeight = 26;
constexpr QSizeF gpuSize(64, 68);
constexpr QSizeF nicSize(100, 26);
constexpr QSizeF numaSize(150, 68);
constexpr QSizeF coreSize(64, 40);

/// Lays the devices of one kind of node out, from the inside outwards.
class Layout
{
public:
    explicit Layout(const cluster::Node &node) : m_node(node) {}

    BoxPlan::NodeBoxes run()
    {
        const double top = 34 + (m_node.switchBandwidth > 0 ? planeHeight + spacing : 0);
        const QSizeF inner = fill(0, QPointF(inset, top));
        const double width = std::max(260.0, inner.width() + 2 * inset);
        m_out.size = QSizeF(width, top + inner.height() + inset);
        if (m_node.switchBandwidth > 0)
            m_out.plane = QRectF(inset, 34, width - 2 * inset, planeHeight);
        return std::move(m_out);
    }

private:
    const cluster::Device &device(int at) const { return m_node.devices[static_cast<std::size_t>(at)]; }

    std::vector<int> childrenOf(int parent) const
    {
        std::vector<int> children;
        for (std::size_t i = 0; i < m_node.devices.size(); ++i) {
            if (m_node.devices[i].parent == parent)
                children.push_back(static_cast<int>(i));
        }
        return children;
    }

    /// A box around one box says nothing.
    bool isTransparent(int at) const
    {
        const DeviceKind kind = device(at).kind;
        return (kind == DeviceKind::Package || kind == DeviceKind::Bridge) && childrenOf(at).size() == 1;
    }

    bool isLeaf(int at) const
    {
        const DeviceKind kind = device(at).kind;
        return kind == DeviceKind::Gpu || kind == DeviceKind::Nic || kind == DeviceKind::Core
            || (kind == DeviceKind::Numa && childrenOf(at).empty());
    }

    QSizeF sizeOf(int at) const
    {
        switch (device(at).kind) {
        case DeviceKind::Gpu:
            return gpuSize;
        case DeviceKind::Nic:
            return nicSize;
        case DeviceKind::Core:
            return coreSize;
        default:
            return numaSize;
        }
    }

    void put(int at, const QRectF &rect)
    {
        const DeviceKind kind = device(at).kind;
        const bool slot = kind == DeviceKind::Gpu || kind == DeviceKind::Core;
        auto &list = slot ? m_out.gpus : kind == DeviceKind::Nic ? m_out.nics : m_out.containers;
        list.push_back({at, rect});
    }

    /// Places `items` in rows of `perRow`; returns the room that they take.
    QSizeF rows(const std::vector<int> &items, const QPointF &origin, std::size_t perRow)
    {
        double width = 0;
        double y = 0;
        for (std::size_t begin = 0; begin < items.size(); begin += perRow) {
            double x = 0;
            double tall = 0;
            for (std::size_t i = begin; i < std::min(items.size(), begin + perRow); ++i) {
                const QPointF at = origin + QPointF(x, y);
                const QSizeF size = isLeaf(items[i]) ? sizeOf(items[i]) : container(items[i], at);
                if (isLeaf(items[i]))
                    put(items[i], QRectF(at, size));
                x += size.width() + spacing;
                tall = std::max(tall, size.height());
            }
            width = std::max(width, x - spacing);
            y += tall + spacing;
        }
        return {width, std::max(0.0, y - spacing)};
    }

    QSizeF container(int at, const QPointF &origin)
    {
        const std::size_t own = m_out.containers.size();
        m_out.containers.push_back({at, {}}); // before what it holds: painted below it
        const QSizeF inner = fill(at, origin + QPointF(inset, heading));
        const QSizeF size(std::max(236.0, inner.width() + 2 * inset), heading + inner.height() + inset);
        m_out.containers[own].rect = QRectF(origin, size);
        return size;
    }

    /// What stands inside `parent`: GPUs, then network cards, then boxes with more in them.
    QSizeF fill(int parent, const QPointF &origin)
    {
        std::vector<int> gpus, nics, others;
        std::vector<int> todo = childrenOf(parent);
        for (std::size_t i = 0; i < todo.size(); ++i) {
            const int at = todo[i];
            if (isTransparent(at)) {
                const std::vector<int> inside = childrenOf(at);
                todo.insert(todo.begin() + static_cast<std::ptrdiff_t>(i) + 1, inside.begin(), inside.end());
                continue;
            }
            const bool slot = device(at).kind == DeviceKind::Gpu || device(at).kind == DeviceKind::Core;
            (slot ? gpus : device(at).kind == DeviceKind::Nic ? nics : others).push_back(at);
        }
        QSizeF room(0, 0);
        const auto add = [&](const std::vector<int> &items, std::size_t perRow) {
            if (items.empty())
                return;
            const double y = room.height() > 0 ? room.height() + spacing : 0;
            const QSizeF took = rows(items, origin + QPointF(0, y), perRow);
            room = QSizeF(std::max(room.width(), took.width()), y + took.height());
        };
        // Many cores stand in a block.
        add(gpus,
            std::max<std::size_t>(
                4, static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(gpus.size()))))));
        add(nics, 2);
        add(others, 4);
        return room;
    }

    const cluster::Node &m_node;
    BoxPlan::NodeBoxes m_out;
};

} // namespace

BoxPlan::BoxPlan(const cluster::Cluster &cluster, double aspect, const std::vector<bool> &unfolded)
{
    for (const cluster::Node &type : cluster.types) {
        m_types.push_back(Layout(type).run());
        const auto byDevice = [](const Box &a, const Box &b) { return a.device < b.device; };
        std::sort(m_types.back().gpus.begin(), m_types.back().gpus.end(), byDevice);
    }
    double y = 0;
    double widest = 0;
    int node = 0;
    for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
        const cluster::NodeGroup &group = cluster.groups[i];
        Field field;
        field.group = static_cast<int>(i);
        field.type = group.type;
        field.firstNode = node;
        const bool folds = group.count > shownWhenFolded + 1 && !(i < unfolded.size() && unfolded[i]);
        field.shown = folds ? shownWhenFolded : group.count;
        const QSizeF size = boxes(group.type).size;
        field.pitch = size + QSizeF(gap, gap);
        const int cells = field.shown + (folds ? 1 : 0);
        const double ideal = std::sqrt(cells * aspect * field.pitch.height() / field.pitch.width());
        field.columns = folds ? std::clamp(static_cast<int>(ideal), 1, 2)
                              : std::clamp(static_cast<int>(std::lround(ideal)), 1, std::max(1, cells));
        field.origin = QPointF(0, y);
        const int rows = (field.shown + field.columns - 1) / field.columns;
        double height = rows * field.pitch.height();
        if (folds) {
            field.fold = QRectF(0, y + height, field.columns * field.pitch.width() - gap, 56);
            height += 56 + gap;
        }
        widest = std::max(widest, field.columns * field.pitch.width() - gap);
        y += height;
        node += group.count;
        m_fields.push_back(field);
    }
    m_bounds = QRectF(0, 0, widest, std::max(0.0, y - gap));
}

int BoxPlan::shownNodes() const
{
    int shown = 0;
    for (const Field &field : m_fields)
        shown += field.shown;
    return shown;
}

QPointF BoxPlan::nodeAt(const Field &field, int index) const
{
    return field.origin
        + QPointF(index % field.columns * field.pitch.width(), index / field.columns * field.pitch.height());
}

std::optional<QPointF> BoxPlan::originOf(int node) const
{
    for (const Field &field : m_fields) {
        if (node >= field.firstNode && node < field.firstNode + field.shown)
            return nodeAt(field, node - field.firstNode);
    }
    return std::nullopt;
}

BoxPlan::Hit BoxPlan::hit(const QPointF &point) const
{
    Hit hit;
    for (std::size_t i = 0; i < m_fields.size(); ++i) {
        const Field &field = m_fields[i];
        if (field.fold.contains(point)) {
            hit.fold = static_cast<int>(i);
            return hit;
        }
        const QPointF local = point - field.origin;
        const int column = static_cast<int>(std::floor(local.x() / field.pitch.width()));
        const int row = static_cast<int>(std::floor(local.y() / field.pitch.height()));
        const int index = row * field.columns + column;
        if (local.x() < 0 || local.y() < 0 || column >= field.columns || index >= field.shown)
            continue;
        const QPointF inside = point - nodeAt(field, index);
        const NodeBoxes &node = boxes(field.type);
        if (!QRectF(QPointF(), node.size).contains(inside))
            return hit;
        hit.node = field.firstNode + index;
        hit.device = 0;
        // The innermost: later ones stand in earlier ones.
        for (const auto *list : {&node.containers, &node.gpus, &node.nics}) {
            for (const Box &box : *list) {
                if (box.rect.contains(inside))
                    hit.device = box.device;
            }
        }
        return hit;
    }
    return hit;
}

} // namespace rankyard::ui
