// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/run_update.h"

#include <QAbstractListModel>
#include <QSortFilterProxyModel>
#include <QStringList>

#include <deque>

namespace rankyard::ui {

/// Log lines of all ranks, merged by time within what arrives together; bounded, the oldest go first.
class LogModel : public QAbstractListModel
{
    Q_OBJECT
public:
    enum Roles { LevelRole = Qt::UserRole + 1, StepRole, RankRole, TextRole, TimeRole };
    static constexpr int most = mostLogs;

    explicit LogModel(QObject *parent = nullptr);
    void clear();
    void append(std::vector<store::LogRow> rows);

    int rowCount(const QModelIndex &parent = {}) const override;
    QVariant data(const QModelIndex &index, int role) const override;

private:
    std::deque<store::LogRow> m_rows;
};

/// Level and words; a word like "r1" or "agent" chooses by who wrote it.
class LogProxy : public QSortFilterProxyModel
{
    Q_OBJECT
public:
    using QSortFilterProxyModel::QSortFilterProxyModel;
    void setLeast(telemetry::Level level);
    void setWords(const QString &line);

protected:
    bool filterAcceptsRow(int row, const QModelIndex &parent) const override;

private:
    int m_least = 0;
    QStringList m_words;
};

} // namespace rankyard::ui
