// SPDX-License-Identifier: GPL-3.0-or-later
// How somebody has set the charts up, to be had back at the next start.
#include "ui/monitor/monitor_charts.h"

#include <QJsonArray>

namespace rankyard::ui {

namespace {

QJsonArray pair(double lo, double hi) { return {lo, hi}; }

/// False, and nothing changed, unless it is a range.
bool read(const QJsonValue &value, double &lo, double &hi)
{
    const QJsonArray ends = value.toArray();
    if (ends.size() != 2 || !ends[0].isDouble() || !ends[1].isDouble()
        || !(ends[0].toDouble() < ends[1].toDouble()))
        return false;
    lo = ends[0].toDouble();
    hi = ends[1].toDouble();
    return true;
}

} // namespace

QJsonObject MonitorCharts::looks() const
{
    QJsonObject all;
    for (const Chart *chart : charts()) {
        all[nameOf(chart)] =
            QJsonObject{{QStringLiteral("log"), chart->leftAxis().scale == AxisSpec::Scale::Log10},
                        {QStringLiteral("zero"), chart->leftAxis().zeroBased},
                        {QStringLiteral("hidden"), QJsonArray::fromStringList(chart->hidden())}};
    }
    return {{QStringLiteral("charts"), all}, {QStringLiteral("logX"), m_group->logX()}};
}

void MonitorCharts::setLooks(const QJsonObject &looks)
{
    const QJsonObject all = looks[QStringLiteral("charts")].toObject();
    for (Chart *chart : charts()) {
        const QJsonObject look = all[nameOf(chart)].toObject();
        if (look.isEmpty())
            continue;
        AxisSpec axis = chart->leftAxis();
        if (axis.scale != AxisSpec::Scale::Log2)
            axis.scale =
                look[QStringLiteral("log")].toBool() ? AxisSpec::Scale::Log10 : AxisSpec::Scale::Linear;
        axis.zeroBased = look[QStringLiteral("zero")].toBool();
        chart->setLeftAxis(axis);
        QStringList hidden;
        for (const QJsonValue &name : look[QStringLiteral("hidden")].toArray())
            hidden << name.toString();
        chart->setHidden(hidden);
    }
    m_group->setLogX(looks[QStringLiteral("logX")].toBool());
}

QJsonObject MonitorCharts::zoom() const
{
    if (!m_run || m_group->isFollowing())
        return {};
    QJsonObject moved;
    for (const Chart *chart : charts()) {
        const YView view = chart->yView();
        if (view.moved)
            moved[nameOf(chart)] = QJsonObject{{QStringLiteral("left"), pair(view.lo, view.hi)},
                                               {QStringLiteral("right"), pair(view.rightLo, view.rightHi)}};
    }
    return {{QStringLiteral("x"), pair(m_group->lo(), m_group->hi())}, {QStringLiteral("y"), moved}};
}

void MonitorCharts::setZoom(const QJsonObject &zoom)
{
    double lo = 0;
    double hi = 0;
    if (!m_group->hasData() || !read(zoom[QStringLiteral("x")], lo, hi))
        return;
    m_group->remember();
    m_group->zoomX(lo, hi);
    const QJsonObject moved = zoom[QStringLiteral("y")].toObject();
    for (Chart *chart : charts()) {
        const QJsonObject ranges = moved[nameOf(chart)].toObject();
        YView view;
        view.moved = true;
        if (read(ranges[QStringLiteral("left")], view.lo, view.hi)) {
            read(ranges[QStringLiteral("right")], view.rightLo, view.rightHi);
            chart->setYView(view);
        }
    }
}

} // namespace rankyard::ui
