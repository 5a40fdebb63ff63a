// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/run_data.h"
#include "ui/monitor/across_ranks.h"
#include "ui/plot/chart.h"
#include "ui/plot/chart_group.h"
#include "ui/plot/event_lane.h"
#include "ui/plot/heat_map.h"

#include <QJsonObject>
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
    static constexpr int allRanks = -1;
    static constexpr int mostSingleRanks = 4; ///< a run of more opens on the spread over all ranks

    explicit MonitorCharts(QWidget *parent);

    /// The panels in the order of the grid.
    const std::vector<QWidget *> &panels() const { return m_panels; }
    /// "loss", "throughput", "memory", "scale", "time", "norm", "comm", "ranks", "values".
    static QString nameOf(const QWidget *panel);
    /// By name; null for the two panels that are no charts.
    Chart *chart(const QString &name) const;
    std::vector<Chart *> charts() const;
    /// False for a panel that this run has nothing for: a loss scale without fp16, communication of one rank.
    bool isUsed(const QWidget *panel) const;
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
    int rank() const
    {
        return m_rank;
    } ///< whose memory and step time are shown; allRanks: the spread over all
    void setRank(int rank);
    /// Fraction of communication that ran behind compute, over the last steps; NaN without communication.
    double hiddenFraction() const;

    /// What somebody has set up and wants back: axes and hidden series of each chart, whatever the run.
    QJsonObject looks() const;
    void setLooks(const QJsonObject &looks);
    /// The zoom into this run; empty while it follows.
    QJsonObject zoom() const;
    void setZoom(const QJsonObject &zoom);

signals:
    void panelsChanged(); ///< isUsed of some

private:
    void build(QWidget *parent);
    double xOf(std::int64_t step, std::int64_t wallNs) const;
    const RankColumns *shown() const; ///< of the rank, or the lead when all are shown
    void shapeSeries();
    void shapeLead();
    void shapeRank(const RankColumns &columns);
    void shapeAcross();
    bool shapeChanged() const;
    void appendLead(const RankColumns &lead);
    void appendRank(const RankColumns &columns);
    void appendAcross();
    void appendRanks();
    void addTails();
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
    bool m_rankChosen = false; ///< by somebody, for this run
    double m_smoothing = 0;

    // How far the run's columns are in the charts.
    std::size_t m_leadDone = 0;
    std::size_t m_rankDone = 0;
    AcrossRanks m_across;
    std::map<int, std::size_t> m_heatDone;
    std::size_t m_evalsDone = 0;
    std::int64_t m_originNs = 0;
    std::vector<ChartMark> m_overflows;
    // Which series the stacks have.
    std::vector<int> m_memoryKinds;
    std::vector<std::vector<double> RankColumns::*> m_timeParts;
    std::vector<std::string> m_groups;
    bool m_hasMfu = false;
    std::size_t m_eventsDone = 0;
    std::vector<bool> m_used;
};

} // namespace rankyard::ui
