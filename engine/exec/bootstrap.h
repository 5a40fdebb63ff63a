// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"

#include <cstdint>
#include <string>
#include <vector>

/// What an agent tells a worker before it starts, and how (DESIGN section 2).
///
/// The agent makes a SOCK_STREAM socket pair and the memfds, forks, and runs `rankyard-worker --fd N`. On N
/// the worker reads one bootstrap document: u32 little-endian length, then that many bytes of JSON.
/// Everything after it, in both directions, is frames of engine/telemetry/wire.h. Agent → worker: Control
/// frames, see WorkerMessage. Worker → agent: the records of the rank's stream; its first error is an
/// EventRecord "error" whose detail is the Error, sent just before `_exit` with the status of its code.
///
///   {"schema": "rankyard/bootstrap/1", "run": "r-…", "epoch": 1, "rank": 0, "world": 2,
///    "job": {rankyard/job/1}, "job_dir": "/…", "run_dir": "/…", "ckpt_dir": "/…",
///    "build_id": "0.1.0-…", "plan_digest": "…", "resume": null, "start_step": 0,
///    "threads": 1, "cores": [0], "spare_core": false, "hang_ms": 10000, "peak_seconds": 0.25,
///    "host": {"ranks": [0, 1], "segments": [{"group": "dp", "ranks": [0, 1], "fd": 5}],
///             "arenas": [{"rank": 0, "arena": 1, "fd": 6}, {"rank": 1, "arena": 1, "fd": 7}]}}
namespace rankyard::exec {

/// The control and staging segment of one group on this host: a memfd of comm::hostSegmentBytes(ranks.size())
/// zero bytes.
struct BootstrapSegment {
    std::string group;      ///< name of the plan::Group
    std::vector<int> ranks; ///< global ranks, in group order
    int fd = -1;
};

/// A shared arena of one rank: a memfd of the arena's bytes. Every rank of the host gets those of all of
/// them.
struct BootstrapArena {
    int rank = 0;
    std::int32_t arena = 0; ///< plan::ArenaId
    int fd = -1;
};

struct Bootstrap {
    std::string run;
    std::uint32_t epoch = 1;
    int rank = 0;
    int world = 1;
    Json job;           ///< a rankyard/job/1 document with every key
    std::string jobDir; ///< relative paths of the job start here
    std::string runDir;
    std::string ckptDir;        ///< where checkpoints go: one folder a step below it
    std::string buildId;        ///< the agent's; another one is exit 3
    std::string planDigest;     ///< the agent's; another one is exit 3
    std::string resume;         ///< a checkpoint's folder; empty (null): start from the initial parameters
    std::int64_t startStep = 0; ///< steps that are done already, as the checkpoint says; 0 without `resume`
    int threads = 1;            ///< of the kernels
    std::vector<int> cores;     ///< that this rank may run on; empty: leave the affinity as it is
    bool spareCore = false;     ///< `cores` holds one more than `threads`, for the progress thread
    std::int64_t hangMs = 10000;
    double peakSeconds = 0; ///< a step's model FLOPs at the peak rate of all ranks; 0: not known, then no MFU
    std::vector<int> hostRanks;             ///< global ranks on this host, ascending
    std::vector<BootstrapSegment> segments; ///< of the groups that this rank is in
    std::vector<BootstrapArena> arenas; ///< of all ranks of this host, none when the plan has no shared arena
};

Json writeBootstrap(const Bootstrap &bootstrap);
/// Unknown keys are ignored (the build id says that both ends agree); a missing one or a wrong type is an
/// error.
Result<Bootstrap> readBootstrap(const Json &document, const std::string &name);

/// The document over a blocking stream descriptor, with its length before it.
Status sendBootstrap(int fd, const Bootstrap &bootstrap);
Result<Bootstrap> receiveBootstrap(int fd);

/// A JSON message to a worker. {"pids": [1234, 1235]}: process ids by global rank (0: not on this host), sent
/// once, when all ranks of the host are forked; the worker waits for it. {"command": "stop"}: see Request.
struct WorkerMessage {
    /// Taken at the next step boundary at which all ranks have agreed (in band, with the step's own
    /// all-reduce), so one rank's word is enough; sending it to all is fine too. Stop saves a checkpoint
    /// first.
    enum class Request { None, Stop, Pause, Resume, Checkpoint };
    std::vector<int> pids;
    Request request = Request::None;
};

Json writeWorkerMessage(const WorkerMessage &message);
Result<WorkerMessage> readWorkerMessage(const Json &document);

} // namespace rankyard::exec
