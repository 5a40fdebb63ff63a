// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"

#include <QWidget>

namespace rankyard::ui {

/// Nodes at the bottom with their network cards, leaf switches above, the spine over all; each rail has its column and colour,
/// lines are as wide as their rate. Groups of nodes beyond the first are told in a line. GUI thread.
class FabricView : public QWidget
{
    Q_OBJECT
public:
    explicit FabricView(QWidget *parent = nullptr);
    void setCluster(const cluster::Cluster *cluster,
                    const cluster::Slots *places); ///< outlive it, or are replaced
    /// What the picture says, in sentences; also for screen readers.
    QStringList facts() const;

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    struct Shape;
    Shape shape() const;
    void paintNodes(QPainter &painter, const Shape &shape) const;
    void paintSwitches(QPainter &painter, const Shape &shape) const;

    const cluster::Cluster *m_cluster = nullptr;
    const cluster::Slots *m_slots = nullptr;
};

} // namespace rankyard::ui
