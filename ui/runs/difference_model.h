// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QAbstractTableModel>

#include <string>
#include <vector>

namespace rankyard::ui {

/// The keys in which some jobs differ, one a row; one column a job.
class DifferenceModel : public QAbstractTableModel
{
    Q_OBJECT
public:
    using QAbstractTableModel::QAbstractTableModel;

    /// Documents as stored; names as heads. "name" itself is left out.
    void setJobs(const std::vector<std::pair<QString, std::string>> &jobs);

    int rowCount(const QModelIndex &parent = {}) const override;
    int columnCount(const QModelIndex &parent = {}) const override;
    QVariant data(const QModelIndex &index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

private:
    struct Row {
        QString key;
        QStringList values;
    };
    std::vector<Row> m_rows;
    QStringList m_names;
};

} // namespace rankyard::ui
