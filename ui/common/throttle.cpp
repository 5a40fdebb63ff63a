// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/throttle.h"

#include <algorithm>

namespace rankyard::ui {

Throttle::Throttle(int intervalMs, QObject *parent) : QObject(parent), m_timer(this), m_interval(intervalMs)
{
    m_timer.setSingleShot(true);
    m_timer.setTimerType(Qt::PreciseTimer);
    connect(&m_timer, &QTimer::timeout, this, &Throttle::fire);
}

void Throttle::request()
{
    if (m_timer.isActive())
        return;
    const qint64 since = m_last.isValid() ? m_last.elapsed() : m_interval;
    m_timer.start(static_cast<int>(std::clamp<qint64>(m_interval - since, 0, m_interval)));
}

void Throttle::fire()
{
    m_last.start();
    emit triggered();
}

} // namespace rankyard::ui
