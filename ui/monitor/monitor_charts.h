// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/run_data.h"
#include "ui/plot/chart.h"
#include "ui/plot/chart_group.h"
#include "ui/plot/event_lane.h"
#include "ui/plot/heat_map.h"

#include <QObject>

#include <map>
#include <string>
#include <vector>

class QComboBox;

namespace rankyard::ui {

class ValuesPanel;

enum class XMode { Step, Tokens, Time };

/// The Monitor's charts and how a run's columns become their series. Owns the group, not the widgets. GUI thread.
class MonitorCharts : public QObject
{
    Q_OBJECT
public:
    explicit MonitorCharts(QWidget *parent);

    /// The panels in the order of the grid.
    const std::vector<QWidget *> &panels() const { return m_panels; }
    Chart *chart(
        const QString &name) const; ///< "loss", "throughput", "memory", "scale", "time", "norm", "comm"
    HeatMap *heatMap() const { return m_ranks; }
    ValuesPanel *values() const { return m_values; }
    EventLane *lane() const { return m_lane; }
    ChartGroup *group() const { return m_group; }

    void setMode(XMode mode);
    XMode mode() const { return m_mode; }
    void setSmoothing(double weight);
    /// Everything anew, from `run`; null: empty charts.
    void reset(RunData *run);
    /// What is new in `run`.
    void update();
    void drawNow();
    int rank() const { return m_rank; }
    void setRank(int rank);
    /// Fraction of communication that ran behind compute, over the last steps; NaN without communication.
    double hiddenFraction() const;

private:
    void build(QWidget *parent);
    double xOf(std::int64_t step, std::int64_t wallNs) const;
    void shapeSeries();
    bool shapeChanged() const;
    void appendLead(const RankColumns &lead);
    void appendRank(const RankColumns &columns);
    void appendRanks();
    void updateEvals();
    void updateEvents();
    void updateMessages();
    void updateRankChoice();
    void put(Chart *chart, int series, double x, double y);

    RunData *m_run = nullptr;
    ChartGroup *m_group;
    std::vector<QWidget *> m_panels;
    Chart *m_loss = nullptr;
    Chart *m_throughput = nullptr;
    Chart *m_memory = nullptr;
    Chart *m_scale = nullptr;
    Chart *m_time = nullptr;
    Chart *m_norm = nullptr;
    Chart *m_comm = nullptr;
    HeatMap *m_ranks = nullptr;
    ValuesPanel *m_values = nullptr;
    EventLane *m_lane = nullptr;
    QComboBox *m_rankBox = nullptr;
    XMode m_mode = XMode::Step;
    int m_rank = 0;
    double m_smoothing = 0;

    // How far the run's columns are in the charts.
    std::size_t m_leadDone = 0;
    std::size_t m_rankDone = 0;
    std::map<int, std::size_t> m_heatDone;
    std::size_t m_evalsDone = 0;
    std::int64_t m_originNs = 0;
    std::vector<ChartMark> m_overflows;
    // Which series the stacks have.
    std::vector<int> m_memoryKinds;
    std::vector<int> m_timeParts;
    std::vector<std::string> m_groups;
    bool m_hasMfu = false;
    std::size_t m_eventsDone = 0;
};

} // namespace rankyard::ui
