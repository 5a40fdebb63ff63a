// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/cluster_canvas.h"

#include "ui/common/theme.h"

#include <QKeyEvent>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

constexpr double margin = 20;
constexpr double leastZoom = 0.004;
constexpr double mostZoom = 8;

} // namespace

ClusterCanvas::ClusterCanvas(QWidget *parent) : ZoomCanvas(parent)
{
    setAttribute(Qt::WA_OpaquePaintEvent);
    setMinimumSize(200, 160);
    setAccessibleName(tr("Boxes of the cluster"));
}

void ClusterCanvas::setCluster(const cluster::Cluster *cluster, const cluster::Slots *places)
{
    m_cluster = cluster;
    m_slots = places;
    m_marks.clear();
    m_use.clear();
    m_unfolded.assign(cluster ? cluster->groups.size() : 0, false);
    m_node = m_device = -1;
    m_fitted = true;
    rebuild();
    emit selectionChanged();
}

void ClusterCanvas::rebuild()
{
    const double aspect = height() > 0 ? static_cast<double>(width()) / height() : 1.5;
    m_plan = m_cluster ? BoxPlan(*m_cluster, aspect, m_unfolded) : BoxPlan();
    if (m_fitted)
        fit();
    update();
    emit planChanged();
}

void ClusterCanvas::setMarks(std::vector<std::uint8_t> marks)
{
    m_marks = std::move(marks);
    update();
}

void ClusterCanvas::setUse(std::vector<cluster::DeviceUse> use)
{
    m_use = std::move(use);
    update();
}

int ClusterCanvas::selectedSlot() const
{
    if (!m_slots || m_node < 0)
        return -1;
    for (int slot = m_slots->firstOf(m_node); slot < m_slots->firstOf(m_node + 1); ++slot) {
        if (m_slots->place(slot).device == m_device)
            return slot;
    }
    return -1;
}

void ClusterCanvas::select(int node, int device)
{
    if (node == m_node && device == m_device)
        return;
    m_node = node;
    m_device = device;
    update();
    emit selectionChanged();
}

void ClusterCanvas::selectSlot(int slot)
{
    if (!m_slots || slot < 0 || slot >= m_slots->count())
        return;
    const auto place = m_slots->place(slot);
    select(place.node, place.device);
    reveal(place.node);
}

/// Brings a node into view, unfolding its group when it is behind the fold.
void ClusterCanvas::reveal(int node)
{
    auto origin = m_plan.originOf(node);
    for (std::size_t i = 0; !origin && i < m_plan.fields().size(); ++i) {
        const BoxPlan::Field &field = m_plan.fields()[i];
        if (node < field.firstNode || node >= field.firstNode + m_cluster->groups[i].count)
            continue;
        m_unfolded[i] = true;
        rebuild();
        origin = m_plan.originOf(node);
    }
    if (!origin)
        return;
    const QRectF seen(toScene({0, 0}), toScene(QPointF(width(), height())));
    const QRectF box(*origin, m_plan.boxes(m_slots->typeOfNode(node)).size);
    if (!seen.intersects(box))
        panBy(rect().center() - toPixel(box.center()));
}

void ClusterCanvas::fit()
{
    const QRectF bounds = m_plan.bounds();
    m_fitted = true;
    if (bounds.isEmpty())
        return;
    const double most = 1.25 * Theme::instance().textPercent() / 100.0;
    m_zoom = std::clamp(
        std::min((width() - 2 * margin) / bounds.width(), (height() - 2 * margin) / bounds.height()),
        leastZoom, most);
    m_offset = QPointF(std::max(margin, (width() - bounds.width() * m_zoom) / 2),
                       std::max(margin, (height() - bounds.height() * m_zoom) / 2));
    update();
}

void ClusterCanvas::zoomAt(const QPointF &pixel, double factor)
{
    const QPointF scene = toScene(pixel);
    m_zoom = std::clamp(m_zoom * factor, leastZoom, mostZoom);
    m_offset = pixel - scene * m_zoom;
    m_fitted = false;
    update();
}

void ClusterCanvas::panBy(const QPointF &pixels)
{
    m_offset += pixels;
    m_fitted = false;
    update();
}

bool ClusterCanvas::isFolded() const
{
    return std::any_of(m_plan.fields().begin(), m_plan.fields().end(),
                       [](const BoxPlan::Field &field) { return !field.fold.isEmpty(); });
}

void ClusterCanvas::toggle(int field)
{
    const auto at = static_cast<std::size_t>(field);
    m_unfolded[at] = !m_unfolded[at];
    m_fitted = true;
    rebuild();
}

void ClusterCanvas::toggleFold()
{
    if (!m_cluster)
        return;
    const bool open = isFolded();
    m_unfolded.assign(m_unfolded.size(), open);
    m_fitted = true;
    rebuild();
}

void ClusterCanvas::resizeEvent(QResizeEvent *event)
{
    QWidget::resizeEvent(event);
    // Rows are made for the shape of the window as long as nobody has looked closer.
    if (m_fitted)
        rebuild();
}

void ClusterCanvas::clicked(const QPointF &pixel)
{
    const BoxPlan::Hit hit = m_plan.hit(toScene(pixel));
    if (hit.fold >= 0)
        toggle(hit.fold);
    else
        select(hit.node, hit.device);
}

bool ClusterCanvas::isThing(const QPointF &pixel) const { return m_plan.hit(toScene(pixel)).node >= 0; }

QString ClusterCanvas::tipAt(const QPointF &pixel) const { return tipOf(m_plan.hit(toScene(pixel))); }

void ClusterCanvas::stepSlot(int by)
{
    if (!m_slots || m_slots->count() == 0)
        return;
    const int now = selectedSlot();
    selectSlot(now < 0 ? 0 : std::clamp(now + by, 0, m_slots->count() - 1));
}

bool ClusterCanvas::key(QKeyEvent *event)
{
    const int node = m_slots && m_node >= 0 ? m_node : 0;
    const int perNode =
        m_slots && m_cluster ? std::max(1, m_slots->firstOf(node + 1) - m_slots->firstOf(node)) : 1;
    switch (event->key()) {
    case Qt::Key_Left:
        stepSlot(-1);
        return true;
    case Qt::Key_Right:
        stepSlot(1);
        return true;
    case Qt::Key_Up:
        stepSlot(-perNode);
        return true;
    case Qt::Key_Down:
        stepSlot(perNode);
        return true;
    case Qt::Key_Home:
        selectSlot(0);
        return true;
    case Qt::Key_End:
        selectSlot(m_slots ? m_slots->count() - 1 : -1);
        return true;
    case Qt::Key_Escape:
        if (m_node < 0)
            return false;
        select(-1, -1);
        return true;
    default:
        return false;
    }
}

} // namespace rankyard::ui
