// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/spec/job.h"
#include "engine/store/run_store.h"
#include "engine/telemetry/record.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// The client's side of a node: one connection to `rankyard-agent attach`, local or remote alike (DESIGN section 2).
namespace rankyard::session {

struct StartRequest {
    spec::JobSpec job;
    std::string jobDir; ///< where relative paths of the job start; empty with `resume`: as that run had it
    std::string runId;  ///< empty: a new one. Starting an id that exists is no second start
    std::string runDir; ///< empty: the node's default
    std::string resume; ///< id of a run whose newest checkpoint to start from; the same id continues that run
};

struct RunStatus {
    std::string id;
    std::string name;
    telemetry::RunState state = telemetry::RunState::Draft;
    std::string runDir;
    std::uint32_t epoch = 0;
    int world = 0;
    std::int64_t startedNs = 0; ///< wall
    std::int64_t step = 0;
    std::int64_t steps = 0;                                 ///< planned
    double loss = std::numeric_limits<double>::quiet_NaN(); ///< of the last step
    std::optional<Error> error;
    std::string logFile;                ///< on the node, of the rank that failed first, else of rank 0
    std::vector<std::string> lastLines; ///< of that file
    std::vector<int> pids;              ///< by rank
};

/// What the agent said of itself.
struct AgentInfo {
    std::string build;
    std::string host;
    std::string bootId;
    int pid = 0;
};

/// A connection. Thread-safe; callbacks come on its own thread, in order, never after the destructor returned. A callback must not
/// ask the session anything: the reply comes on the thread that it would block.
class Session
{
public:
    struct Callbacks {
        /// Records of a run, in order per stream, without gaps or repeats; batches of ≤ 200 ms.
        std::function<void(const std::string &run, std::vector<telemetry::Record>)> records;
        std::function<void(const RunStatus &)> status;
        /// A subscribed run has ended and everything that it recorded was given to `records`.
        std::function<void(const std::string &run)> caughtUp;
        std::function<void(const Error &)> lost; ///< the link broke; it is not opened again by itself
    };

    /// Starts `rankyard-agent attach` beside this program's own executable (or $RANKYARD_LIBEXEC) on a socket pair.
    static Result<std::unique_ptr<Session>> openLocal(Callbacks callbacks);
    virtual ~Session() = default;

    virtual AgentInfo agent() const = 0;
    virtual Result<RunStatus> start(const StartRequest &request) = 0;
    /// Gives the run's status as it is, then records after `from` (all streams; empty: from the begin), then what comes.
    virtual Status subscribe(const std::string &run, const std::vector<store::StreamPosition> &from) = 0;
    virtual Status stop(
        const std::string &run) = 0; ///< at the next step boundary, with a checkpoint; exit state stopped
    virtual Status kill(const std::string &run) = 0; ///< at once
    virtual Status pause(const std::string &run) = 0;
    virtual Status resume(const std::string &run) = 0;     ///< of a paused run
    virtual Status checkpoint(const std::string &run) = 0; ///< at the next step boundary
    virtual Result<std::vector<RunStatus>> list() = 0;
    /// A run with its job document.
    virtual Result<std::pair<RunStatus, Json>> describe(const std::string &run) = 0;
    virtual Status remove(
        const std::string &run) = 0; ///< the run's folder on the node; refused while it lives
};

/// Session + store: what ctl and the workbench use. Ingests whatever the agent sends into the store, on its own thread.
class RunService
{
public:
    struct Callbacks {
        std::function<void(const std::string &run)> changed; ///< the store has news of this run
        std::function<void(const RunStatus &)> status;
        std::function<void(const Error &)> lost; ///< the agent; the runs go on
        std::function<void(const Error &)>
            trouble; ///< the store does not take what came; it is tried again. May be empty
    };

    /// Connects, and follows every run that the store still takes for live, so that ends that nobody saw are learned.
    static Result<std::unique_ptr<RunService>> open(const std::filesystem::path &storeFile,
                                                    Callbacks callbacks);
    virtual ~RunService() = default;

    virtual Result<std::string> start(const StartRequest &request) = 0; ///< the run's id
    virtual Status follow(const std::string &run) = 0; ///< catch up from the store's positions, then live
    virtual Session &session() = 0;
    /// Waits until the run has ended and everything it sent is stored. Looks at `cancelled` every 20 ms: Stopped when it says so.
    /// NodeFailed when the agent was lost.
    virtual Result<RunStatus> waitUntilEnded(const std::string &run, std::function<bool()> cancelled) = 0;
};

} // namespace rankyard::session
