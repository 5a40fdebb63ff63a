// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/data_hub.h"

#include <QWidget>

class QLabel;
class QTableView;

namespace rankyard::ui {

class Chart;
class ChartGroup;
class DifferenceModel;

/// The losses of the selected runs in one chart, beside them the job keys in which they differ.
class ComparePanel : public QWidget
{
    Q_OBJECT
public:
    ComparePanel(DataHub *hub, QWidget *parent = nullptr);
    void setRuns(const QStringList &runs);
    void setSmoothing(double weight);
    Chart *chart() const { return m_chart; }
    DifferenceModel *differences() const { return m_differences; }
    bool isLoaded() const;

signals:
    void loaded();

private:
    void refill();
    void refillDifferences();

    DataHub *m_hub;
    ChartGroup *m_group;
    Chart *m_chart;
    DifferenceModel *m_differences;
    QTableView *m_table;
    QLabel *m_same;
    std::vector<std::shared_ptr<RunData>> m_runs;
};

} // namespace rankyard::ui
