// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/log_model.h"

#include "ui/common/format.h"

#include <QThread>

#include <algorithm>

namespace rankyard::ui {

namespace {

QString who(int rank) { return rank < 0 ? QStringLiteral("agent") : QStringLiteral("r%1").arg(rank); }

} // namespace

LogModel::LogModel(QObject *parent) : QAbstractListModel(parent) {}

void LogModel::clear()
{
    beginResetModel();
    m_rows.clear();
    endResetModel();
}

void LogModel::append(std::vector<store::LogRow> rows)
{
    Q_ASSERT(QThread::currentThread() == thread());
    if (rows.empty())
        return;
    if (rows.size() > most)
        rows.erase(rows.begin(), rows.end() - most);
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto &a, const auto &b) { return a.record.wallNs < b.record.wallNs; });
    const int over = static_cast<int>(m_rows.size() + rows.size()) - most;
    if (over > 0) {
        // Some more than needed, so that a full model does not shift with every line.
        const int drop = std::min<int>(static_cast<int>(m_rows.size()), std::max(over, most / 20));
        beginRemoveRows({}, 0, drop - 1);
        m_rows.erase(m_rows.begin(), m_rows.begin() + drop);
        endRemoveRows();
    }
    const int first = static_cast<int>(m_rows.size());
    beginInsertRows({}, first, first + static_cast<int>(rows.size()) - 1);
    std::move(rows.begin(), rows.end(), std::back_inserter(m_rows));
    endInsertRows();
}

int LogModel::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_rows.size());
}

QVariant LogModel::data(const QModelIndex &index, int role) const
{
    if (!index.isValid() || index.row() >= rowCount())
        return {};
    const store::LogRow &row = m_rows[static_cast<std::size_t>(index.row())];
    switch (role) {
    case Qt::DisplayRole:
        return QStringLiteral("%1 %2 %3")
            .arg(formatStep(row.record.step), who(row.rank), QString::fromStdString(row.record.text));
    case Qt::ToolTipRole:
        return QStringLiteral("%1, %2\n%3")
            .arg(formatWhen(row.record.wallNs), who(row.rank), QString::fromStdString(row.record.text));
    case LevelRole:
        return static_cast<int>(row.record.level);
    case StepRole:
        return QVariant::fromValue<qint64>(row.record.step);
    case RankRole:
        return row.rank;
    case TextRole:
        return QString::fromStdString(row.record.text);
    case TimeRole:
        return QVariant::fromValue<qint64>(row.record.wallNs);
    default:
        return {};
    }
}

void LogProxy::setLeast(telemetry::Level level)
{
    m_least = static_cast<int>(level);
    invalidateFilter();
}

void LogProxy::setWords(const QString &line)
{
    m_words = line.split(QLatin1Char(' '), Qt::SkipEmptyParts);
    invalidateFilter();
}

bool LogProxy::filterAcceptsRow(int row, const QModelIndex &parent) const
{
    const QModelIndex at = sourceModel()->index(row, 0, parent);
    if (at.data(LogModel::LevelRole).toInt() < m_least)
        return false;
    if (m_words.isEmpty())
        return true;
    const QString from = who(at.data(LogModel::RankRole).toInt());
    const QString text = at.data(LogModel::TextRole).toString();
    return std::all_of(m_words.begin(), m_words.end(), [&](const QString &word) {
        return from.compare(word, Qt::CaseInsensitive) == 0 || text.contains(word, Qt::CaseInsensitive);
    });
}

} // namespace rankyard::ui
