// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/panel.h"
#include "ui/common/theme.h"

#include <QAbstractTableModel>

#include <vector>

class QLabel;
class QTableView;

namespace rankyard::ui {

class Chart;
class ChartGroup;

/// Series, raw, smoothed: the values at the cursor, nearest to the pointer first; without a cursor the newest ones.
class ValuesModel : public QAbstractTableModel
{
    Q_OBJECT
public:
    struct Row {
        QString series;
        QString raw;
        QString smooth;
        Ink ink;
        QString why{};
        bool operator==(const Row &) const = default;
    };
    using QAbstractTableModel::QAbstractTableModel;
    void setRows(std::vector<Row> rows);

    int rowCount(const QModelIndex &parent = {}) const override;
    int columnCount(const QModelIndex &parent = {}) const override { return parent.isValid() ? 0 : 3; }
    QVariant data(const QModelIndex &index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

private:
    std::vector<Row> m_rows;
};

class ValuesPanel : public Panel
{
    Q_OBJECT
public:
    ValuesPanel(ChartGroup *group, QWidget *parent = nullptr);
    void setCharts(std::vector<Chart *> charts) { m_charts = std::move(charts); }
    /// Rows at the end that have no series: what this run does not use.
    struct Fact {
        QString name;
        QString value;
        QString why;
        bool operator==(const Fact &) const = default;
    };
    void setFacts(std::vector<Fact> facts) { m_facts = std::move(facts); }
    void refresh();
    ValuesModel *model() const { return m_model; }

protected:
    void restyle() override;

private:
    ChartGroup *m_group;
    std::vector<Chart *> m_charts;
    std::vector<Fact> m_facts;
    ValuesModel *m_model;
    QTableView *m_table;
    QLabel *m_hint;
};

} // namespace rankyard::ui
