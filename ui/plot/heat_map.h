// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/format.h"
#include "ui/common/panel.h"
#include "ui/plot/chart_group.h"
#include "ui/plot/series_model.h"

#include <vector>

namespace rankyard::ui {

class Legend;
class LegendItem;

/// Ranks × steps, one value each: darker is more. One cell per rank and pixel column at most, the largest value of it.
/// Shares the x range and the cursor of its group. GUI thread.
class HeatMap : public Panel
{
    Q_OBJECT
public:
    HeatMap(const QString &title, Unit unit, ChartGroup *group, QWidget *parent = nullptr);

    void clear();
    SeriesModel &model(int rank); ///< made when it is new
    int ranks() const { return static_cast<int>(m_rows.size()); }
    void dataChanged();
    /// Rank with the largest mean over the view, and how far above the median of all; −1 with fewer than two ranks.
    int slowest() const { return m_slowest; }

protected:
    void restyle() override;

private:
    class Area;
    class Scale;
    void summarise();

    ChartGroup *m_group;
    Unit m_unit;
    std::vector<SeriesModel> m_rows;
    Area *m_area;
    Scale *m_scale = nullptr;
    Legend *m_legend;
    LegendItem *m_note;
    int m_slowest = -1;
};

} // namespace rankyard::ui
