// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/chart_group.h"

#include "ui/plot/ticks.h"

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {
constexpr std::size_t deepest = 50;
}

ChartGroup::ChartGroup(QObject *parent) : QObject(parent), m_name(tr("step")) {}

void ChartGroup::join(const QObject *owner, Member member)
{
    m_members.emplace_back(owner, std::move(member));
    connect(owner, &QObject::destroyed, this, [this, owner] {
        std::erase_if(m_members, [owner](const auto &pair) { return pair.first == owner; });
        m_stack.clear();
        if (m_cursorSource == owner)
            m_cursorSource = nullptr;
    });
}

void ChartGroup::setData(double first, double last, int added, bool open)
{
    const bool had = m_hasData;
    const bool closes = m_open && !open;
    m_first = first;
    m_last = last;
    m_open = open;
    m_hasData = true;
    if (m_following) {
        if (!had || closes || last > m_hi || first < m_lo || (m_logX && m_lo <= 0))
            settleX();
    } else if (added > 0) {
        m_new += added;
        emit followChanged();
    }
}

void ChartGroup::reset()
{
    m_hasData = false;
    m_following = true;
    m_new = 0;
    m_stack.clear();
    m_cursor.reset();
    m_lo = 0;
    m_hi = 1;
    emit viewChanged();
    emit followChanged();
    emit cursorMoved();
}

void ChartGroup::settleX()
{
    const double smallest = m_unit == Unit::Step ? 1.0 : 1e-9;
    double lo = m_first;
    double hi = std::max(m_last, m_first + smallest);
    if (m_logX) {
        lo = lo > 0 ? lo : std::max(hi * 1e-6, 1e-9);
        hi = m_open ? hi * 1.3 : hi;
    } else {
        // Step 1 is drawn at 1, but the axis begins at 0.
        if (lo < 0.05 * hi)
            lo = 0;
        const double span = hi - lo;
        hi = m_open ? lo + std::max(span * 1.12, 10 * smallest) : lo + span * 1.01;
        if (m_open) {
            const double step = niceStep(hi - lo, 20);
            hi = lo + std::ceil((hi - lo) / step) * step;
        }
    }
    m_lo = lo;
    m_hi = hi;
    emit viewChanged();
}

void ChartGroup::setX(Unit unit, const QString &name)
{
    m_unit = unit;
    m_name = name;
}

void ChartGroup::setLogX(bool log)
{
    if (log == m_logX)
        return;
    m_logX = log;
    fit();
}

void ChartGroup::remember(bool merge)
{
    if (merge && !m_stack.empty())
        return;
    View view{m_lo, m_hi, m_following, {}};
    for (const auto &[owner, member] : m_members)
        view.members.push_back(member.view());
    m_stack.push_back(std::move(view));
    if (m_stack.size() > deepest)
        m_stack.erase(m_stack.begin());
}

void ChartGroup::zoomX(double lo, double hi)
{
    if (!(hi > lo) || !std::isfinite(lo) || !std::isfinite(hi) || (m_logX && lo <= 0))
        return;
    // Not beyond what a double can tell apart.
    if (hi - lo < 1e-9 * std::max({std::fabs(lo), std::fabs(hi), 1e-3}))
        return;
    m_lo = lo;
    m_hi = hi;
    markMoved();
    emit viewChanged();
}

void ChartGroup::markMoved()
{
    if (!m_following)
        return;
    m_following = false;
    m_new = 0;
    emit followChanged();
}

void ChartGroup::back()
{
    if (m_stack.empty())
        return;
    const View view = std::move(m_stack.back());
    m_stack.pop_back();
    const bool wasFollowing = m_following;
    m_following = view.following;
    for (std::size_t i = 0; i < m_members.size() && i < view.members.size(); ++i)
        m_members[i].second.setView(view.members[i]);
    if (m_following) {
        m_new = 0;
        settleX();
    } else {
        m_lo = view.lo;
        m_hi = view.hi;
        emit viewChanged();
    }
    if (m_following != wasFollowing)
        emit followChanged();
}

void ChartGroup::fit()
{
    m_stack.clear();
    m_following = true;
    m_new = 0;
    for (const auto &[owner, member] : m_members)
        member.fit();
    if (m_hasData)
        settleX();
    else
        emit viewChanged();
    emit followChanged();
}

void ChartGroup::setFollowing(bool following)
{
    if (following) {
        fit();
    } else if (m_following) {
        remember();
        markMoved();
    }
}

void ChartGroup::setCursor(std::optional<double> x, const QObject *source, double yPixel)
{
    m_cursor = x;
    m_cursorSource = source;
    m_cursorY = yPixel;
    emit cursorMoved();
}

} // namespace rankyard::ui
