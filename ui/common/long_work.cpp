// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/long_work.h"

#include "ui/common/format.h"

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

int LongWork::percent() const { return static_cast<int>(std::floor(100 * m_share + 1e-9)); }

double LongWork::secondsLeft() const
{
    const double took = static_cast<double>(m_since.elapsed()) / 1e3;
    return m_running && took >= 1 && m_share >= 0.05 ? took * (1 - m_share) / m_share : -1;
}

QString LongWork::progress() const
{
    const double left = std::ceil(secondsLeft());
    const QString done = tr("%1 %").arg(percent());
    return left < 0 ? done : tr("%1, about %2 left").arg(done, formatSeconds(std::max(1.0, left)));
}

void LongWork::begin(const QString &title)
{
    m_running = true;
    m_title = title;
    m_doing.clear();
    m_share = 0;
    m_since.start();
    emit changed();
}

void LongWork::tell(double share, const QString &doing)
{
    m_share = std::clamp(share, 0.0, 1.0);
    m_doing = doing;
    emit changed();
}

void LongWork::end()
{
    m_running = false;
    emit changed();
}

} // namespace rankyard::ui
