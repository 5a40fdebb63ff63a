// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "remote/agent/run.h"

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace rankyard::agent {

/// All runs of this node: those that live here, and those that are only folders. On the loop's thread.
class RunManager
{
public:
    struct Callbacks {
        std::function<void(const RunReport &)> status;    ///< a run's state changed
        std::function<void(const std::string &)> records; ///< a live run has new records
    };
    using StartReply = std::function<void(const Result<RunReport> &)>;

    RunManager(EventLoop &loop, std::filesystem::path workerProgram, Run::Limits limits, Callbacks callbacks);
    ~RunManager();

    /// Runs that were live when an agent died get an exit record and a last event.
    void recover();

    /// Checks in a thread of its own, then starts; `reply` comes when the workers are started, or with what is wrong. Starting an id that lives,
    /// or is about to, is no second start; one that has ended is continued when `resume` names it, else reported as it is.
    void start(StartOrder order, StartReply reply);

    /// Calls off a start that is still being checked. False when there is none.
    bool cancel(const std::string &id);

    Run *live(const std::string &id);
    Result<RunReport> report(const std::string &id);
    Result<Json> job(const std::string &id);
    std::vector<RunReport> list();
    Status remove(const std::string &id);

    bool starting(const std::string &id) const { return m_pending.contains(id); }
    bool idle() const { return m_live.empty() && m_pending.empty(); }
    void stopAll(const std::string &actor);
    /// Hands out what came in this round.
    void flush();
    /// Ends zombies that are none of our workers (re-parented to this process).
    void reapStrangers();

private:
    void startPrepared(const std::string &id, const std::shared_ptr<Result<Prepared>> &prepared);
    Result<RunReport> startHere(Prepared prepared);
    void recoverOne(const std::string &id);
    Result<RunReport> reportFromDisk(const std::string &id) const;

    EventLoop &m_loop;
    std::filesystem::path m_workerProgram;
    Run::Limits m_limits;
    Callbacks m_callbacks;
    std::map<std::string, std::unique_ptr<Run>> m_live;
    struct Pending {
        std::vector<StartReply> replies;
        std::thread thread;
        std::stop_source stop; ///< requested: called off
    };
    std::map<std::string, Pending> m_pending;
};

} // namespace rankyard::agent
