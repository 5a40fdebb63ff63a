// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"
#include "engine/plan/plan.h"
#include "ui/common/zoom_canvas.h"

#include <memory>
#include <optional>

namespace rankyard::ui {

/// The ranks of a layout on the places of a cluster: a box a node, a cell a GPU (or core), coloured by stage or by group. A click
/// on a rank lights its groups; arrows go from rank to rank, Escape lets go. GUI thread.
class RankMap : public ZoomCanvas
{
    Q_OBJECT
public:
    enum Colouring { Stages, TensorGroups, DataGroups };
    /// A group that a rank is in, with its worst link.
    struct Group {
        QString name;     ///< "tensor"
        std::string axis; ///< "tp"
        std::vector<int> ranks;
        cluster::Slots::Worst worst;
    };

    explicit RankMap(QWidget *parent = nullptr);

    /// Null or a layout that does not fit: the cluster alone, or nothing.
    void setDesign(const std::optional<spec::Layout> &layout,
                   std::shared_ptr<const cluster::Cluster> cluster);
    void setColouring(Colouring colouring);
    Colouring colouring() const { return m_colouring; }
    int world() const { return m_grid ? m_grid->world() : 0; }
    int selected() const { return m_selected; }
    void select(int rank);
    /// Of the selected rank, those with more than one member.
    const std::vector<Group> &groups() const { return m_groups; }
    /// Which colour a rank has: its stage, or the number of its group.
    int colourOf(int rank) const;
    void fit() override;
    void zoomAt(const QPointF &pixel, double factor) override;
    void panBy(const QPointF &pixels) override;
    QRectF cellOf(int slot) const; ///< in pixels
    QSize sizeHint() const override { return {600, 320}; }
    QSize minimumSizeHint() const override { return {200, 120}; }

signals:
    void selectionChanged();

protected:
    void paintEvent(QPaintEvent *event) override;
    void resizeEvent(QResizeEvent *event) override;
    void clicked(const QPointF &pixel) override;
    bool isThing(const QPointF &pixel) const override;
    QString tipAt(const QPointF &pixel) const override;
    bool key(QKeyEvent *event) override;

private:
    struct NodeShape {
        int columns = 1;
        int rows = 1;
    };
    NodeShape shapeOf(int node) const;
    QRectF nodeRect(int node) const; ///< in units of a cell
    void layOut();
    int slotAt(const QPointF &pixel) const;
    void fillGroups();
    QString tipOf(int slot) const;
    void paintNode(QPainter &painter, int node) const;
    void paintCell(QPainter &painter, int slot, const QRectF &cell) const;
    void paintPipeline(QPainter &painter) const;

    std::shared_ptr<const cluster::Cluster> m_cluster;
    std::optional<cluster::Slots> m_slots;
    std::optional<plan::RankGrid> m_grid;
    spec::Layout m_layout;
    std::vector<int> m_colours;        ///< by rank
    std::vector<std::uint8_t> m_marks; ///< by rank: groups of the selected one, a bit an axis
    std::vector<Group> m_groups;
    Colouring m_colouring = Stages;
    int m_selected = -1;
    int m_nodes = 0;
    int m_across = 1; ///< nodes in a row
    QSizeF m_pitch{1, 1};
    double m_zoom = 1; ///< pixels of a cell
    QPointF m_offset;
    bool m_fitted = true;
};

} // namespace rankyard::ui
