// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/machine_use.h"
#include "ui/cluster/box_plan.h"
#include "ui/cluster/overlay.h"
#include "ui/common/zoom_canvas.h"

namespace rankyard::ui {

/// The boxes of a cluster, panned and zoomed. What is too small to read is drawn as less: texts go first, then boxes inside
/// nodes, at last nodes are one rectangle each, so that ten thousand GPUs cost a few milliseconds. GUI thread.
///
/// A click selects, on a fold opens it. Keys: arrows go from GPU to GPU; the page has the rest.
class ClusterCanvas : public ZoomCanvas
{
    Q_OBJECT
public:
    explicit ClusterCanvas(QWidget *parent = nullptr);

    /// Both outlive the canvas or are replaced by another call. Null: nothing to show.
    void setCluster(const cluster::Cluster *cluster, const cluster::Slots *places);
    void setMarks(std::vector<std::uint8_t> marks); ///< Overlay::Member bits by slot
    /// How busy the devices of the first node are, by device; empty: not known.
    void setUse(std::vector<cluster::DeviceUse> use);
    const BoxPlan &plan() const { return m_plan; }

    int selectedNode() const { return m_node; }
    int selectedDevice() const { return m_device; }
    int selectedSlot() const; ///< −1: no slot is selected
    void select(int node, int device);
    void selectSlot(int slot);

    void fit() override;
    void zoomAt(const QPointF &pixel, double factor) override;
    void panBy(const QPointF &pixels) override;
    double zoom() const { return m_zoom; }
    /// Folds or unfolds the group of the selected node, or all groups when none is selected.
    void toggleFold();
    bool isFolded() const;
    QPointF toScene(const QPointF &pixel) const { return (pixel - m_offset) / m_zoom; }
    QPointF toPixel(const QPointF &scene) const { return scene * m_zoom + m_offset; }
    QSize sizeHint() const override { return {900, 600}; }

signals:
    void selectionChanged();
    void planChanged();

protected:
    void paintEvent(QPaintEvent *event) override;
    void resizeEvent(QResizeEvent *event) override;
    void clicked(const QPointF &pixel) override;
    bool isThing(const QPointF &pixel) const override;
    QString tipAt(const QPointF &pixel) const override;
    bool key(QKeyEvent *event) override;

private:
    void rebuild();
    void reveal(int node);
    void stepSlot(int by);
    void toggle(int field);
    // canvas_paint.cpp
    struct Batch;
    void paintField(QPainter &painter, const BoxPlan::Field &field, Batch &batch) const;
    void paintNode(QPainter &painter, const BoxPlan::NodeBoxes &boxes, int node, int type) const;
    void paintUse(QPainter &painter, const QRectF &box, const cluster::DeviceUse &use, bool withText) const;
    void paintFold(QPainter &painter, const BoxPlan::Field &field) const;
    QString tipOf(const BoxPlan::Hit &hit) const;

    const cluster::Cluster *m_cluster = nullptr;
    const cluster::Slots *m_slots = nullptr;
    std::vector<std::uint8_t> m_marks;
    std::vector<cluster::DeviceUse> m_use;
    std::vector<bool> m_unfolded;
    BoxPlan m_plan;
    double m_zoom = 1;
    QPointF m_offset;
    bool m_fitted = true; ///< keeps fitting while nobody has moved the view
    int m_node = -1;
    int m_device = -1;
};

} // namespace rankyard::ui
