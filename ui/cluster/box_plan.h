// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"

#include <QRectF>

#include <optional>
#include <vector>

namespace rankyard::ui {

/// Where the nested boxes of a cluster stand, in units that are pixels at a zoom of 1. Boxes are laid out once a kind of node;
/// equal nodes stand in a grid, or are folded into one box after the first two. No widgets; any thread.
class BoxPlan
{
public:
    struct Box {
        int device = 0;
        QRectF rect; ///< in its node
    };
    struct NodeBoxes {
        QSizeF size;
        QRectF plane; ///< NVSwitch; empty: none
        std::vector<Box> containers;
        std::vector<Box> gpus; ///< or the cores that stand for them, in the order of cluster::Slots
        std::vector<Box> nics;
    };
    /// The nodes of one group, in rows.
    struct Field {
        int group = 0;
        int type = 0;
        int firstNode = 0;
        int shown = 0; ///< nodes; the rest is behind the fold
        int columns = 1;
        QPointF origin;
        QSizeF pitch;
        QRectF fold; ///< the box "30 more"; empty: none
    };
    struct Hit {
        int node = -1;
        int device = -1;
        int fold = -1; ///< index of a field whose fold was hit
    };

    static constexpr int shownWhenFolded = 2;
    static constexpr double gap = 24;

    BoxPlan() = default;
    /// `aspect`: width ÷ height that the whole should have. `unfolded`: groups that show every node.
    BoxPlan(const cluster::Cluster &cluster, double aspect, const std::vector<bool> &unfolded);

    QRectF bounds() const { return m_bounds; }
    const std::vector<Field> &fields() const { return m_fields; }
    const NodeBoxes &boxes(int type) const { return m_types[static_cast<std::size_t>(type)]; }
    int shownNodes() const;
    QPointF nodeAt(const Field &field, int index) const; ///< top left corner
    /// Of a node; empty while it is behind a fold.
    std::optional<QPointF> originOf(int node) const;
    Hit hit(const QPointF &point) const;

private:
    std::vector<NodeBoxes> m_types;
    std::vector<Field> m_fields;
    QRectF m_bounds;
};

} // namespace rankyard::ui
