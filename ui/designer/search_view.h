// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/search/search.h"

#include <QAbstractTableModel>
#include <QWidget>

#include <memory>

class QBoxLayout;
class QLabel;
class QProgressBar;
class QPushButton;
class QTableView;

namespace rankyard::ui {

class ElidedLabel;
class LayoutScatter;
class SearchTask;

/// What a search found: the best layouts, then faster ones that do not fit.
class SearchModel : public QAbstractTableModel
{
    Q_OBJECT
public:
    using QAbstractTableModel::QAbstractTableModel;

    void setOutcome(std::shared_ptr<const search::Outcome> outcome);
    const search::Candidate &candidate(int row) const
    {
        return *m_rows[static_cast<std::size_t>(row)].candidate;
    }
    int rowCount(const QModelIndex &parent = {}) const override;
    int columnCount(const QModelIndex &parent = {}) const override { return parent.isValid() ? 0 : 6; }
    QVariant data(const QModelIndex &index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

private:
    struct Row {
        const search::Candidate *candidate;
        bool fits;
    };
    std::shared_ptr<const search::Outcome> m_outcome;
    std::vector<Row> m_rows;
};

/// Searches the layouts of the design on its cluster; a double click or Enter takes one.
class SearchView : public QWidget
{
    Q_OBJECT
public:
    explicit SearchView(QWidget *parent = nullptr);

    /// Null: there is nothing that could be searched. A finished search of another model, batch or cluster
    /// stays, is said to be of another, and cannot be taken.
    void setDesign(const std::optional<spec::JobSpec> &job, std::shared_ptr<const cluster::Cluster> cluster);
    void start();
    /// A search that is of this design already stays as it is.
    void startUnlessFound();
    void cancel();
    SearchTask *task() const { return m_task; }
    SearchModel *model() const { return m_model; }
    QTableView *table() const { return m_table; }
    LayoutScatter *scatter() const { return m_scatter; }
    QString summary() const;
    QWidget *entry() const; ///< takes the focus when the view is gone to

signals:
    void chosen(const rankyard::search::Choice &choice);

protected:
    void resizeEvent(QResizeEvent *event) override;

private:
    void refresh();
    bool isStale() const;
    bool isNarrow() const;
    void shareColumns();
    void take(const std::shared_ptr<const search::Outcome> &outcome);

    SearchTask *m_task;
    SearchModel *m_model;
    QTableView *m_table;
    LayoutScatter *m_scatter;
    QPushButton *m_start;
    QPushButton *m_use;
    QProgressBar *m_bar;
    QLabel *m_summary;
    ElidedLabel *m_rejected; ///< by how many layouts each rule was broken
    int m_layoutWidth = 0;   ///< that the longest layout takes
    QBoxLayout *m_row = nullptr;
    std::optional<spec::JobSpec> m_job;
    std::shared_ptr<const cluster::Cluster> m_cluster;
    std::shared_ptr<const search::Outcome> m_outcome;
    std::optional<spec::JobSpec> m_asked; ///< of the newest search: what it was of
    std::shared_ptr<const cluster::Cluster> m_askedOf;
};

} // namespace rankyard::ui
