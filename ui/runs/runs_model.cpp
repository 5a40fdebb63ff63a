// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/runs/runs_model.h"

#include "ui/common/format.h"

#include <QThread>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

RunsModel::RunsModel(QObject *parent) : QAbstractTableModel(parent) {}

void RunsModel::setRuns(const RunListPtr &runs, std::int64_t nowNs)
{
    Q_ASSERT(QThread::currentThread() == thread());
    m_now = nowNs;
    std::vector<store::RunInfo> fresh(*runs);
    std::stable_sort(fresh.begin(), fresh.end(),
                     [](const auto &a, const auto &b) { return a.startedNs > b.startedNs; });
    // Remove what is gone, then insert and update in place.
    for (int row = static_cast<int>(m_runs.size()) - 1; row >= 0; --row) {
        const std::string &id = m_runs[static_cast<std::size_t>(row)].id;
        if (std::none_of(fresh.begin(), fresh.end(), [&](const auto &each) { return each.id == id; })) {
            beginRemoveRows({}, row, row);
            m_jobs.erase(id);
            m_runs.erase(m_runs.begin() + row);
            endRemoveRows();
        }
    }
    for (std::size_t row = 0; row < fresh.size(); ++row) {
        if (row < m_runs.size() && m_runs[row].id == fresh[row].id) {
            if (m_runs[row].job != fresh[row].job)
                m_jobs.erase(fresh[row].id);
            m_runs[row] = fresh[row];
            emit dataChanged(index(static_cast<int>(row), 0), index(static_cast<int>(row), columnCount_ - 1));
            continue;
        }
        // Moved (its start time changed): take it out first.
        const int old = rowOf(QString::fromStdString(fresh[row].id));
        if (old >= 0) {
            beginRemoveRows({}, old, old);
            m_runs.erase(m_runs.begin() + old);
            endRemoveRows();
        }
        beginInsertRows({}, static_cast<int>(row), static_cast<int>(row));
        m_runs.insert(m_runs.begin() + static_cast<std::ptrdiff_t>(row), fresh[row]);
        endInsertRows();
    }
}

void RunsModel::setNow(std::int64_t nowNs)
{
    m_now = nowNs;
    for (std::size_t row = 0; row < m_runs.size(); ++row) {
        if (m_runs[row].endedNs == 0)
            emit dataChanged(index(static_cast<int>(row), Length), index(static_cast<int>(row), Length),
                             {Qt::DisplayRole});
    }
}

QString RunsModel::idAt(int row) const
{
    return QString::fromStdString(m_runs[static_cast<std::size_t>(row)].id);
}

int RunsModel::rowOf(const QString &id) const
{
    const std::string wanted = id.toStdString();
    for (std::size_t row = 0; row < m_runs.size(); ++row) {
        if (m_runs[row].id == wanted)
            return static_cast<int>(row);
    }
    return -1;
}

int RunsModel::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_runs.size());
}
int RunsModel::columnCount(const QModelIndex &parent) const { return parent.isValid() ? 0 : columnCount_; }

const JobSummary &RunsModel::job(const store::RunInfo &run) const
{
    auto found = m_jobs.find(run.id);
    if (found == m_jobs.end())
        found = m_jobs.emplace(run.id, summariseJob(run.job)).first;
    return found->second;
}

double RunsModel::seconds(const store::RunInfo &run) const
{
    const std::int64_t end = run.endedNs > 0 ? run.endedNs
        : telemetry::isTerminal(run.state)   ? run.lastSeenNs
                                             : m_now;
    return run.startedNs > 0 && end > run.startedNs ? static_cast<double>(end - run.startedNs) / 1e9 : 0;
}

QVariant RunsModel::display(const store::RunInfo &run, int column) const
{
    const auto loss = [](double value) {
        return std::isnan(value) ? QStringLiteral("–") : formatLoss(value);
    };
    switch (column) {
    case State:
        return lookOf(run.state).word;
    case Name:
        return QString::fromStdString(run.name);
    case Layout:
        return job(run).layout();
    case Progress:
        return run.steps > 0 ? tr("%1 / %2").arg(formatStep(run.step), formatStep(run.steps))
                             : formatStep(run.step);
    case LastLoss:
        return run.step == 0 ? QStringLiteral("–") : formatLoss(run.lastLoss);
    case BestLoss:
        return loss(run.step == 0 ? NAN : run.bestLoss);
    case Rate:
        return run.tokensPerS > 0 ? formatShort(run.tokensPerS, Unit::Count) : QStringLiteral("–");
    case Length:
        return run.startedNs > 0 ? formatSeconds(seconds(run)) : QStringLiteral("–");
    case Started:
        return formatWhen(run.startedNs);
    default:
        return {};
    }
}

QVariant RunsModel::sortKey(const store::RunInfo &run, int column) const
{
    switch (column) {
    case State:
        return static_cast<int>(run.state);
    case Progress:
        return run.steps > 0 ? static_cast<double>(run.step) / static_cast<double>(run.steps) : 0.0;
    case LastLoss:
        return std::isfinite(run.lastLoss) ? run.lastLoss : 1e300;
    case BestLoss:
        return std::isfinite(run.bestLoss) ? run.bestLoss : 1e300;
    case Rate:
        return run.tokensPerS;
    case Length:
        return seconds(run);
    case Started:
        return QVariant::fromValue<qint64>(run.startedNs);
    default:
        return display(run, column);
    }
}

QVariant RunsModel::data(const QModelIndex &index, int role) const
{
    if (!index.isValid() || index.row() >= rowCount())
        return {};
    const store::RunInfo &run = m_runs[static_cast<std::size_t>(index.row())];
    switch (role) {
    case Qt::DisplayRole:
        return display(run, index.column());
    case Qt::ToolTipRole: {
        if (run.error && index.column() == State)
            return QString::fromStdString(run.error->text());
        return QString::fromStdString(run.id) + QLatin1Char('\n') + QString::fromStdString(run.runDir);
    }
    case Qt::TextAlignmentRole: {
        const bool number = index.column() == LastLoss || index.column() == BestLoss || index.column() == Rate
            || index.column() == Length || index.column() == Started;
        return QVariant::fromValue(
            Qt::Alignment((number ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter));
    }
    case IdRole:
        return QString::fromStdString(run.id);
    case SortRole:
        return sortKey(run, index.column());
    case FractionRole:
        return run.steps > 0
            ? std::clamp(static_cast<double>(run.step) / static_cast<double>(run.steps), 0.0, 1.0)
            : 0.0;
    case ToneRole:
        return static_cast<int>(lookOf(run.state).tone);
    case IconRole:
        return lookOf(run.state).icon;
    case LiveRole:
        return telemetry::isLive(run.state);
    case FilterRole:
        return QString::fromStdString(run.id + ' ' + run.name + ' ' + run.tags + ' ' + run.node)
            + QLatin1Char(' ') + lookOf(run.state).word + QLatin1Char(' ') + job(run).layout();
    default:
        return {};
    }
}

QVariant RunsModel::headerData(int section, Qt::Orientation orientation, int role) const
{
    if (orientation != Qt::Horizontal)
        return {};
    if (role == Qt::TextAlignmentRole)
        return section >= LastLoss ? QVariant::fromValue(Qt::Alignment(Qt::AlignRight | Qt::AlignVCenter))
                                   : QVariant::fromValue(Qt::Alignment(Qt::AlignLeft | Qt::AlignVCenter));
    if (role != Qt::DisplayRole)
        return {};
    static const char *const names[] = {
        QT_TR_NOOP("State"),    QT_TR_NOOP("Name"),      QT_TR_NOOP("Layout"),
        QT_TR_NOOP("Progress"), QT_TR_NOOP("Last loss"), QT_TR_NOOP("Best loss"),
        QT_TR_NOOP("Tokens/s"), QT_TR_NOOP("Length"),    QT_TR_NOOP("Started")};
    return section < columnCount_ ? tr(names[section]) : QVariant();
}

RunsProxy::RunsProxy(QObject *parent) : QSortFilterProxyModel(parent)
{
    setSortRole(RunsModel::SortRole);
    setSortCaseSensitivity(Qt::CaseInsensitive);
}

void RunsProxy::setWords(const QString &line)
{
    m_words = line.split(QLatin1Char(' '), Qt::SkipEmptyParts);
    invalidateFilter();
}

bool RunsProxy::filterAcceptsRow(int row, const QModelIndex &parent) const
{
    const QString text = sourceModel()->index(row, 0, parent).data(RunsModel::FilterRole).toString();
    return std::all_of(m_words.begin(), m_words.end(),
                       [&](const QString &word) { return text.contains(word, Qt::CaseInsensitive); });
}

} // namespace rankyard::ui
