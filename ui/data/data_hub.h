// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/run_data.h"
#include "ui/data/run_reader.h"

#include <QHash>
#include <QObject>
#include <QThread>

#include <filesystem>
#include <memory>

namespace rankyard::ui {

/// The pages' view of the store. Owns the reader and its thread; everything that it hands out lives on the GUI thread, and none of
/// its calls waits.
class DataHub : public QObject
{
    Q_OBJECT
public:
    explicit DataHub(std::filesystem::path storeFile, MemoryPredictor predict = nullptr,
                     QObject *parent = nullptr);
    ~DataHub() override;

    /// Null until the store was read for the first time.
    RunListPtr runs() const { return m_runs; }
    const store::RunInfo *find(const QString &run) const;
    /// The same object for everybody who asks while somebody holds it; reading goes on as long as it lives.
    std::shared_ptr<RunData> open(const QString &run);
    void requestPreview(const QString &run, int points);
    void poke();
    const std::filesystem::path &file() const { return m_file; }

signals:
    void runsChanged();
    void previewed(const QString &run, const std::vector<double> &losses);
    void failed(const rankyard::Error &error);

private:
    void take(const RunUpdatePtr &update);

    std::filesystem::path m_file;
    QThread m_thread;
    RunReader *m_reader;
    RunListPtr m_runs;
    QHash<QString, std::weak_ptr<RunData>> m_open;
};

} // namespace rankyard::ui
