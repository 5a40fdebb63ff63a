// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/job_summary.h"
#include "ui/data/run_update.h"

#include <QAbstractTableModel>
#include <QSortFilterProxyModel>

#include <unordered_map>

namespace rankyard::ui {

/// The runs of the store, one a row, newest first. Rows keep their identity when the list changes, so that selections stay.
class RunsModel : public QAbstractTableModel
{
    Q_OBJECT
public:
    enum Column { State, Name, Layout, Progress, LastLoss, BestLoss, Rate, Length, Started, columnCount_ };
    enum Roles {
        IdRole = Qt::UserRole + 1,
        SortRole,
        FractionRole,
        ToneRole,
        IconRole,
        FilterRole,
        LiveRole
    };

    explicit RunsModel(QObject *parent = nullptr);

    void setRuns(const RunListPtr &runs, std::int64_t nowNs);
    /// Lengths of live runs grow without news from the store.
    void setNow(std::int64_t nowNs);
    QString idAt(int row) const;
    int rowOf(const QString &id) const; ///< −1
    const store::RunInfo &at(int row) const { return m_runs[static_cast<std::size_t>(row)]; }

    int rowCount(const QModelIndex &parent = {}) const override;
    int columnCount(const QModelIndex &parent = {}) const override;
    QVariant data(const QModelIndex &index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

private:
    const JobSummary &job(const store::RunInfo &run) const;
    QVariant display(const store::RunInfo &run, int column) const;
    QVariant sortKey(const store::RunInfo &run, int column) const;
    double seconds(const store::RunInfo &run) const;

    std::vector<store::RunInfo> m_runs;
    mutable std::unordered_map<std::string, JobSummary> m_jobs;
    std::int64_t m_now = 0;
};

/// Filter line over names, ids, states, layouts and tags: every word must be found.
class RunsProxy : public QSortFilterProxyModel
{
    Q_OBJECT
public:
    explicit RunsProxy(QObject *parent = nullptr);
    void setWords(const QString &line);

protected:
    bool filterAcceptsRow(int row, const QModelIndex &parent) const override;

private:
    QStringList m_words;
};

} // namespace rankyard::ui
