// SPDX-License-Identifier: GPL-3.0-or-later
// Places of the cards, and what of the Monitor comes back at the next start.
#include "ui/common/segmented.h"
#include "ui/common/settings.h"
#include "ui/monitor/monitor_head.h"
#include "ui/monitor/monitor_page.h"

#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>

#include <algorithm>

namespace rankyard::ui {

namespace {

constexpr qsizetype mostZooms = 50; ///< of the runs that were looked at last

constexpr QLatin1String layoutKey("monitor/layout");
constexpr QLatin1String zoomKey("monitor/zooms");

QString textOf(const QJsonDocument &document)
{
    return QString::fromUtf8(document.toJson(QJsonDocument::Compact));
}

QJsonDocument documentOf(const QVariant &text) { return QJsonDocument::fromJson(text.toString().toUtf8()); }

} // namespace

QWidget *MonitorPage::focusedPanel() const
{
    QWidget *focused = focusWidget();
    while (focused && std::find(m_order.begin(), m_order.end(), focused) == m_order.end())
        focused = focused->parentWidget();
    return focused;
}

void MonitorPage::moveCard(int by)
{
    const auto card = std::find(m_order.begin(), m_order.end(), focusedPanel());
    if (card == m_order.end() || m_enlarged)
        return;
    // Its neighbour on the screen: cards without use have no place there.
    auto other = card;
    do {
        if (other == (by < 0 ? m_order.begin() : m_order.end() - 1))
            return;
        other += by;
    } while (!m_charts->isUsed(*other));
    std::iter_swap(card, other);
    layOut();
}

void MonitorPage::keepView()
{
    QJsonArray order;
    for (const QWidget *panel : m_order)
        order.append(MonitorCharts::nameOf(panel));
    QJsonObject layout = m_charts->looks();
    layout[QStringLiteral("order")] = order;
    layout[QStringLiteral("enlarged")] = m_enlarged ? MonitorCharts::nameOf(m_enlarged) : QString();
    layout[QStringLiteral("x")] = static_cast<int>(m_charts->mode());
    m_settings->setValue(layoutKey, textOf(QJsonDocument(layout)));
    if (!m_run || !m_run->hasInfo())
        return;
    QJsonArray zooms = documentOf(m_settings->value(zoomKey)).array();
    for (qsizetype i = zooms.size(); i-- > 0;) {
        if (zooms[i][QStringLiteral("run")].toString() == m_run->id())
            zooms.removeAt(i);
    }
    QJsonObject zoom = m_charts->zoom();
    if (!zoom.isEmpty()) {
        zoom[QStringLiteral("run")] = m_run->id();
        zoom[QStringLiteral("mode")] = static_cast<int>(m_charts->mode());
        zooms.append(zoom);
    }
    while (zooms.size() > mostZooms)
        zooms.removeFirst();
    m_settings->setValue(zoomKey, textOf(QJsonDocument(zooms)));
}

void MonitorPage::bringBackLayout()
{
    const QJsonObject layout = documentOf(m_settings->value(layoutKey)).object();
    if (layout.isEmpty())
        return;
    m_charts->setLooks(layout);
    m_head->modes()->setCurrent(std::clamp(layout[QStringLiteral("x")].toInt(), 0, 2));
    const QJsonArray order = layout[QStringLiteral("order")].toArray();
    const auto place = [&order](const QWidget *panel) {
        for (qsizetype i = 0; i < order.size(); ++i) {
            if (order[i].toString() == MonitorCharts::nameOf(panel))
                return i;
        }
        return order.size();
    };
    std::stable_sort(m_order.begin(), m_order.end(),
                     [&place](const QWidget *a, const QWidget *b) { return place(a) < place(b); });
    for (QWidget *panel : m_order) {
        if (MonitorCharts::nameOf(panel) == layout[QStringLiteral("enlarged")].toString())
            m_enlarged = panel;
    }
}

void MonitorPage::bringBackZoom()
{
    for (const QJsonValue &zoom : documentOf(m_settings->value(zoomKey)).array()) {
        // A zoom into seconds says nothing on an axis of steps.
        if (zoom[QStringLiteral("run")].toString() == m_run->id()
            && zoom[QStringLiteral("mode")].toInt() == static_cast<int>(m_charts->mode()))
            m_charts->setZoom(zoom.toObject());
    }
}

} // namespace rankyard::ui
