// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/predict/verdict.h"

#include <QAbstractTableModel>
#include <QWidget>

#include <memory>
#include <optional>

class QLabel;
class QPushButton;
class QTableView;

namespace rankyard::ui {

/// A design as it is compared: what it says and what it costs.
struct KeptDesign {
    Json document;
    std::shared_ptr<const predict::Verdict> verdict; ///< null while it is not known
};

/// Two designs side by side: the numbers of the verdict, then the keys of the job, only where they differ.
class CompareModel : public QAbstractTableModel
{
    Q_OBJECT
public:
    using QAbstractTableModel::QAbstractTableModel;

    void setDesigns(const std::optional<KeptDesign> &kept, const KeptDesign &now);
    int rowCount(const QModelIndex &parent = {}) const override;
    int columnCount(const QModelIndex &parent = {}) const override { return parent.isValid() ? 0 : 3; }
    QVariant data(const QModelIndex &index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

private:
    struct Row {
        QString name;
        QString kept;
        QString now;
        int better = 0; ///< of numbers: 1 the present design, −1 the kept one
    };
    void addFigures(const KeptDesign &kept, const KeptDesign &now);
    void addKeys(const KeptDesign &kept, const KeptDesign &now);

    std::vector<Row> m_rows;
};

/// The comparison with its buttons: keep the present design, go back to the kept one.
class CompareView : public QWidget
{
    Q_OBJECT
public:
    explicit CompareView(QWidget *parent = nullptr);

    void keep();
    const std::optional<KeptDesign> &kept() const { return m_kept; }
    void setNow(const KeptDesign &now);
    CompareModel *model() const { return m_model; }
    QTableView *table() const { return m_table; }
    QWidget *entry() const; ///< takes the focus when the view is gone to

signals:
    void loadRequested(const rankyard::Json &document);

private:
    void refresh();

    std::optional<KeptDesign> m_kept;
    KeptDesign m_now;
    CompareModel *m_model;
    QTableView *m_table;
    QLabel *m_hint;
    QPushButton *m_load;
    QPushButton *m_keep = nullptr;
};

} // namespace rankyard::ui
