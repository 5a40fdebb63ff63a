// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/job_summary.h"
#include "ui/data/run_update.h"

#include <QObject>
#include <QString>

namespace rankyard::ui {

/// Everything that a page knows of one run: the sum of its updates. GUI thread; grows only, until `cleared`.
/// Pages share it: one that comes late finds here what the updates before have told.
class RunData : public QObject
{
    Q_OBJECT
public:
    explicit RunData(const QString &id);

    const QString &id() const { return m_id; }
    const store::RunInfo &info() const { return m_info; }
    const JobSummary &job() const { return m_job; }
    bool isLoaded() const { return m_loaded; } ///< everything that the store had at opening is in
    bool hasInfo() const { return m_hasInfo; }
    std::int64_t rowsLoaded() const { return m_rowsLoaded; }
    std::int64_t rowsExpected() const { return m_rowsExpected; }
    const std::optional<Error> &error() const { return m_error; }

    const std::map<int, RankColumns> &ranks() const { return m_ranks; }
    /// The lowest rank that has steps: the source of what is the same on all ranks. Null before the first step.
    const RankColumns *lead() const;
    /// Steps that a restart ran again, as the epoch before had them, one an epoch: they belong to no line of the run any more.
    const std::vector<RankColumns> &tails() const { return m_tails; }
    const std::vector<telemetry::EvalRecord> &evals() const { return m_evals; }
    const std::vector<telemetry::EventRecord> &events() const { return m_events; }
    /// The newest lines of all updates, at least `mostLogs` of them once there are so many.
    const std::vector<store::LogRow> &logs() const { return m_logs; }
    const std::vector<store::LogRow> &newLogs() const
    {
        return m_newLogs;
    } ///< while `changed` is told: of that update
    std::optional<double> predictedBytes(int rank) const;

    void apply(const RunUpdate &update);

signals:
    void cleared(); ///< what was known is void; `changed` follows
    void changed();

private:
    QString m_id;
    store::RunInfo m_info;
    JobSummary m_job;
    bool m_loaded = false;
    bool m_hasInfo = false;
    std::int64_t m_rowsLoaded = 0;
    std::int64_t m_rowsExpected = 0;
    std::optional<Error> m_error;
    std::map<int, RankColumns> m_ranks;
    std::vector<RankColumns> m_tails;
    std::vector<telemetry::EvalRecord> m_evals;
    std::vector<telemetry::EventRecord> m_events;
    std::vector<store::LogRow> m_logs;
    std::vector<store::LogRow> m_newLogs;
    std::map<int, double> m_predicted;
};

} // namespace rankyard::ui
