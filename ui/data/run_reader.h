// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/throttle.h"
#include "ui/data/run_update.h"

#include <QElapsedTimer>
#include <QMetaType>
#include <QObject>
#include <QString>
#include <QTimer>

#include <filesystem>
#include <map>
#include <memory>

namespace rankyard::ui {

/// Reads the store for the pages, on a thread of its own with its own connection. Polls the store's data version, reads what is
/// new in bounded pieces, and publishes at most 30 times a second; the last news is never left out.
class RunReader : public QObject
{
    Q_OBJECT
public:
    RunReader(std::filesystem::path file, MemoryPredictor predict);
    ~RunReader() override;

    // On the reader's thread:
    void start();
    void poke(); ///< something changed: look now
    void openRun(const QString &run);
    void closeRun(const QString &run);
    void preview(const QString &run, int points);
    void stop();

signals:
    void runs(rankyard::ui::RunListPtr list);
    void update(rankyard::ui::RunUpdatePtr update);
    void previewed(const QString &run, const std::vector<double> &losses);
    void failed(const rankyard::Error &error);

private:
    struct OpenRun {
        std::map<int, std::int64_t> lastStep;
        std::int64_t lastLog = 0;
        std::map<int, std::uint32_t> rowEpoch; ///< of the last step
        std::size_t evals = 0;
        std::size_t events = 0;
        bool first = true;
        bool caughtUp = false;
        std::shared_ptr<RunUpdate> pending;
        std::int64_t rows = 0;
    };

    bool connectStore();
    void look();
    bool read(const std::string &id, OpenRun &run); ///< true: there is more
    bool readSteps(const std::string &id, OpenRun &run, RunUpdate &news);
    std::vector<RankColumns> readTails(const std::string &id);
    bool superseded(const std::string &id, const OpenRun &run, std::uint32_t epoch);
    void readList();
    void flush();

    std::filesystem::path m_file;
    MemoryPredictor m_predict;
    std::unique_ptr<store::RunStore> m_store;
    std::map<std::string, OpenRun> m_open;
    std::unique_ptr<QTimer> m_poll;
    std::unique_ptr<Throttle> m_publish;
    RunListPtr m_list;
    bool m_listDirty = true;
    QElapsedTimer m_listRead;
    bool m_toldFailure = false;
    std::int64_t m_version = -1;
};

} // namespace rankyard::ui

Q_DECLARE_METATYPE(rankyard::ui::RunListPtr)
Q_DECLARE_METATYPE(rankyard::ui::RunUpdatePtr)
Q_DECLARE_METATYPE(rankyard::Error)
