// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/host_layout.h"
#include "engine/telemetry/run_state.h"
#include "engine/telemetry/spool.h"
#include "remote/agent/failure.h"
#include "remote/agent/log_capture.h"
#include "remote/agent/preflight.h"
#include "remote/agent/run_files.h"
#include "remote/agent/worker_process.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rankyard::agent {

/// What clients are told about a run.
struct RunReport {
    RunFile run;
    std::string folder;
    telemetry::RunState state = telemetry::RunState::Draft;
    std::int64_t step = 0;
    double loss = 0; ///< NaN before the first step
    std::optional<Error> error;
    std::string logFile;
    std::vector<std::string> lastLines;
    Json ranks = Json::array();
};
Json writeReport(const RunReport &report);

/// One epoch of a run on this host: its workers, its records, its state. Authority for all of it while it lives. On the loop's
/// thread.
///
/// A failure ends it at once: the first sign of it kills every rank; when all are gone the cause is chosen, the exit record
/// written and the state event sent. What the user wants (stop, kill) does not pass for a failure.
class Run
{
public:
    struct Callbacks {
        std::function<void()> changed; ///< the state or the error
        std::function<void()> records; ///< the spools have news
        std::function<void()> ended;   ///< all is written; comes after changed(); may destroy the run
    };

    struct Limits {
        std::chrono::milliseconds hang{10'000};
        std::chrono::milliseconds stop{10'000}; ///< from the first stop to SIGTERM, and 2 s more to SIGKILL
    };

    /// Opens the folder (claimed and locked by the caller), starts the workers. After an error nothing runs and the folder holds
    /// an exit record.
    static Result<std::unique_ptr<Run>> start(EventLoop &loop, Prepared prepared,
                                              std::filesystem::path folder, Fd lock,
                                              std::filesystem::path workerProgram, Limits limits,
                                              Callbacks callbacks);
    ~Run();

    RunReport report() const;
    telemetry::RunState state() const { return m_state; }
    const std::string &id() const { return m_file.id; }
    const std::filesystem::path &folder() const { return m_folder; }
    bool owns(int pid) const;
    /// The stream's writer, when it belongs to this epoch.
    const telemetry::Spool *spool(telemetry::StreamId stream) const;

    /// At the next step boundary, with a checkpoint. A second time: at once.
    void stop(const std::string &actor);
    void kill(const std::string &actor);
    Status pause(const std::string &actor);
    Status resume(const std::string &actor);
    Status checkpoint(const std::string &actor);

    /// Hands new records to readers; at the end of each round of the loop.
    void flush();

private:
    struct Rank {
        int number = 0;
        std::unique_ptr<WorkerProcess> process;
        std::unique_ptr<telemetry::Spool> spool;
        std::unique_ptr<LogCapture> log;
        bool ready = false;
        bool paused = false;
        bool saidEnd = false;
        bool ended = false;
        ExitStatus exit;
        int pid = 0;
        std::int64_t step = 0;
        bool beats = false; ///< it has sent a heartbeat
        std::int64_t beatNs = 0;
        std::int64_t progressNs = 0;
        std::uint64_t progress = 0;
    };

    Run(EventLoop &loop, Prepared prepared, std::filesystem::path folder, Fd lock, Limits limits,
        Callbacks callbacks);
    Status openSpools();
    void declareLostSteps();
    void tellSkippedCheckpoints();
    void tellIdleSettings();
    Status writeDocuments();
    Status startWorkers(const std::filesystem::path &program);
    Status startWorker(Rank &rank, const WorkerProcess::Setup &setup);

    void frame(Rank &rank, const telemetry::wire::FrameView &frame);
    void record(Rank &rank, const telemetry::wire::FrameView &frame);
    void note(Rank &rank, const Json &message);
    void skipped(const telemetry::StepRecord &step);
    void beat(Rank &rank, std::uint64_t progress);
    void line(Rank &rank, std::string text);
    void ended(Rank &rank, const ExitStatus &status);
    bool wellEnded(const Rank &rank, const ExitStatus &status) const;
    void fail(Evidence evidence);
    void conclude();
    void killAll(int signal);
    void killOrphans() const;
    void tick();
    void checkBeats(std::int64_t now);
    void checkSpools();
    void command(exec::WorkerMessage::Request request);
    void moveTo(telemetry::RunState state, const std::string &cause, const std::string &actor);
    void event(std::string kind, Json detail);
    void ails(const std::string &what, const Error &error);
    void heals(const std::string &what);
    void settleHealth();
    const Rank *culprit() const;

    EventLoop &m_loop;
    Prepared m_prepared;
    std::filesystem::path m_folder;
    Fd m_lock;
    Limits m_limits;
    Callbacks m_callbacks;
    RunFile m_file;
    telemetry::RunState m_state = telemetry::RunState::Draft;
    std::unique_ptr<telemetry::Spool> m_spool; ///< of the agent itself
    std::vector<Rank> m_ranks;
    OomWatch m_oom;
    std::vector<Evidence> m_evidence;
    std::optional<Error> m_error;
    std::int64_t m_step = 0;
    double m_loss = 0;
    double m_stepMs = 0;
    int m_skipped = 0; ///< steps in a row without an update
    bool m_failing = false;
    bool m_stopping = false; ///< the user has asked for the end
    bool m_killing = false;  ///< … at once
    std::string m_actor;
    std::int64_t m_killedNs = 0;
    std::int64_t m_syncedNs = 0;
    std::int64_t m_tickNs = 0; ///< of the last tick
    bool m_dirty = false;
    std::map<std::string, Error> m_ailments; ///< what a live run does not do as it should, by what it is
    bool m_concluded = false;
    EventLoop::TimerId m_tick = 0;
    EventLoop::TimerId m_deadline = 0;
    exec::HostMemory m_memory;
    std::shared_ptr<bool> m_alive = std::make_shared<bool>(true); ///< for work that was posted
};

} // namespace rankyard::agent
