// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/machine_use.h"
#include "ui/data/data_hub.h"
#include "ui/data/run_data.h"

#include <QObject>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace rankyard::ui {

/// How busy this machine's devices are, and what the ranks of the run that is on report: read on a thread of its own while
/// somebody looks. Calls and signals on the GUI thread.
class LiveUse : public QObject
{
    Q_OBJECT
public:
    /// What a rank said last. Negative: not known.
    struct Rank {
        double bytes = -1;
        double mfu = -1;
        double tokensPerS = -1; ///< of the whole run
    };
    using Read = std::function<std::vector<cluster::DeviceUse>()>;
    /// Makes, on the reading thread, what reads a machine; the default is cluster::UseReader with the driver where there is one.
    using MakeRead = std::function<Read(const cluster::Node &machine)>;

    /// `hub` may be null: then there are no runs.
    explicit LiveUse(DataHub *hub, QObject *parent = nullptr, MakeRead make = {},
                     std::chrono::milliseconds every = std::chrono::seconds(1));
    ~LiveUse() override;

    void watch(const cluster::Node &machine);
    void stop();                                                                 ///< and forgets
    const std::vector<cluster::DeviceUse> &devices() const { return m_devices; } ///< empty: nothing is known
    QString run() const; ///< name of the run that is on; empty: none
    std::optional<Rank> rank(int slot) const;

signals:
    void changed();

private:
    void loop(const std::stop_token &end, const cluster::Node &machine, std::uint64_t number);
    void findRun();

    DataHub *m_hub;
    MakeRead m_make;
    std::chrono::milliseconds m_every;
    std::vector<cluster::DeviceUse> m_devices;
    std::shared_ptr<RunData> m_run;
    std::uint64_t m_number = 0; ///< of the watch: what an older one still brings is dropped
    std::mutex m_mutex;
    std::condition_variable_any m_wake;
    std::jthread m_thread; ///< last: ends before the rest goes
};

} // namespace rankyard::ui
