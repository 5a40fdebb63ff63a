// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/data/run_data.h"

namespace rankyard::ui {

RunData::RunData(const QString &id) : m_id(id) {}

const RankColumns *RunData::lead() const
{
    for (const auto &[rank, columns] : m_ranks) {
        if (columns.size() > 0)
            return &columns;
    }
    return nullptr;
}

std::optional<double> RunData::predictedBytes(int rank) const
{
    const auto found = m_predicted.find(rank);
    return found == m_predicted.end() ? std::nullopt : std::optional<double>(found->second);
}

void RunData::apply(const RunUpdate &update)
{
    m_error = update.error;
    if (update.reset) {
        m_ranks.clear();
        m_tails = update.tails;
        m_evals.clear();
        m_events.clear();
        m_logs.clear();
        m_loaded = false;
        if (!update.predictedBytes.empty())
            m_predicted = update.predictedBytes;
        emit cleared();
    }
    if (!update.info.id.empty()) {
        if (!m_hasInfo || m_info.job != update.info.job)
            m_job = summariseJob(update.info.job);
        m_info = update.info;
        m_hasInfo = true;
    }
    for (const auto &[rank, columns] : update.ranks)
        m_ranks[rank].append(columns);
    if (update.evals)
        m_evals = *update.evals;
    if (update.events)
        m_events = *update.events;
    m_newLogs = update.logs;
    m_logs.insert(m_logs.end(), m_newLogs.begin(), m_newLogs.end());
    // Some more than needed stay, so that a full list does not shift with every line.
    if (m_logs.size() > mostLogs + mostLogs / 20)
        m_logs.erase(m_logs.begin(), m_logs.end() - mostLogs);
    m_rowsLoaded = update.rowsLoaded;
    m_rowsExpected = update.rowsExpected;
    m_loaded = m_loaded || update.complete;
    emit changed();
    m_newLogs.clear();
}

} // namespace rankyard::ui
