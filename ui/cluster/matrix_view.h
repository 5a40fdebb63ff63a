// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"
#include "ui/common/panel.h"

#include <QAbstractTableModel>

class QLabel;
class QTableView;

namespace rankyard::ui {

/// Links between the GPUs and network cards of one kind of node; NUMA nodes where there are no GPUs. GUI thread.
class MatrixModel : public QAbstractTableModel
{
    Q_OBJECT
public:
    enum Role { PathRole = Qt::UserRole + 1 };

    using QAbstractTableModel::QAbstractTableModel;
    void setNode(const cluster::Node *node); ///< outlives the model, or is replaced
    int rowCount(const QModelIndex &parent = {}) const override;
    int columnCount(const QModelIndex &parent = {}) const override { return rowCount(parent); }
    QVariant data(const QModelIndex &index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
    /// "GPU 0 to nic 3: several PCIe switches, 32 GB/s"
    QString sentence(const QModelIndex &index) const;

private:
    const cluster::Node *m_node = nullptr;
    std::vector<int> m_ends;
};

/// The matrix, the sentence of the cell under the cursor, and what the colours mean.
class MatrixView : public Panel
{
    Q_OBJECT
public:
    explicit MatrixView(QWidget *parent = nullptr);
    void setNode(const cluster::Node *node, const QString &title);
    MatrixModel *model() const { return m_model; }
    QTableView *table() const { return m_table; }

protected:
    void restyle() override;

private:
    MatrixModel *m_model;
    QTableView *m_table;
    QLabel *m_sentence;
};

} // namespace rankyard::ui
