// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/spec/job.h"
#include "engine/telemetry/record.h"
#include "engine/telemetry/run_state.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The client's run store: SQLite in WAL mode, safe for several processes at once (DESIGN 3.3).
namespace rankyard::store {

struct RunInfo {
    std::string id; ///< r-<UTC yyyymmddThhmmss>-<6 base32>
    std::string name;
    telemetry::RunState state = telemetry::RunState::Draft;
    std::string node = "local";
    std::string runDir;          ///< on the node
    std::string job;             ///< the job document, as JSON text
    std::int64_t startedNs = 0;  ///< wall
    std::int64_t endedNs = 0;    ///< 0 while it lives
    std::int64_t lastSeenNs = 0; ///< wall time of the newest record
    std::int64_t step = 0;       ///< last finished step
    std::int64_t steps = 0;      ///< planned
    int world = 0;
    double lastLoss = std::numeric_limits<double>::quiet_NaN(); ///< NaN before the first step
    double bestLoss =
        std::numeric_limits<double>::quiet_NaN(); ///< lowest validation loss, else lowest training loss
    std::uint32_t epoch = 0;                      ///< newest that records are known of
    double tokensPerS = 0;
    std::string tags;
    std::optional<Error> error;
};

/// How far a stream was ingested, for resuming it.
struct StreamPosition {
    std::uint32_t epoch = 0;
    std::int32_t rank = 0;
    std::uint64_t sequence = 0;
};

/// One point of a downsampled series: what happened in [stepBegin, stepEnd]. NaN samples are counted, not averaged in.
struct SeriesPoint {
    std::int64_t stepBegin = 0;
    std::int64_t stepEnd = 0;
    double min = 0;
    double max = 0;
    double last = 0;
    std::int64_t nonFinite = 0;
};

struct StepRow {
    std::int32_t rank = 0;
    std::uint32_t epoch = 0;
    telemetry::StepRecord record;
};

struct HelloRow {
    std::uint32_t epoch = 0;
    std::int32_t rank = 0;
    Json detail;
};

struct LogRow {
    std::int64_t id = 0; ///< grows; for paging
    std::int32_t rank = 0;
    telemetry::LogRecord record;
};

/// One connection; one thread at a time. Open one per thread.
class RunStore
{
public:
    /// Creates the file and its folder when absent. `readOnly` never writes, not even the schema. A newer schema opens read-only
    /// with Code::Newer when writing was asked for.
    static Result<std::unique_ptr<RunStore>> open(const std::filesystem::path &file, bool readOnly = false);
    static std::filesystem::path defaultFile(); ///< dataDir()/runs.sqlite
    ~RunStore();

    /// Inserts a run. Of one that is there, replaces only what is known before the first record (name, node, runDir, job,
    /// steps, world; tags when given; state unless Draft); what its records said stays.
    Status putRun(const RunInfo &run);
    Result<std::vector<RunInfo>> runs();                ///< newest first
    Result<RunInfo> run(const std::string &idOrPrefix); ///< a unique prefix, or "last"
    Status removeRun(const std::string &id);
    Status setState(const std::string &id, telemetry::RunState state, const std::optional<Error> &error = {});
    Status setTags(const std::string &id, const std::string &tags);

    /// Appends records of one run in one transaction. What is there already is skipped, so repeats do no harm; a hole in a stream
    /// is BadData and nothing of the batch is kept. Steps at or after the first step of a newer epoch are superseded by it, and
    /// kept apart; a late record of an older epoch supersedes nothing. "state" events move the run's state.
    Status ingest(const std::string &id, const std::vector<telemetry::Record> &records);
    Result<std::vector<StreamPosition>> positions(const std::string &id);

    /// Raw rows of rank `rank` (−1: all ranks), steps first ≤ s ≤ last, by step then rank.
    Result<std::vector<StepRow>> steps(const std::string &id, std::int32_t rank, std::int64_t first,
                                       std::int64_t last);
    /// Abandoned tails: steps that a later epoch ran again, by epoch, step, rank. Of all ranks when rank is −1.
    Result<std::vector<StepRow>> superseded(const std::string &id, std::int32_t rank);
    Result<std::vector<telemetry::EvalRecord>> evals(const std::string &id);   ///< by step
    Result<std::vector<telemetry::EventRecord>> events(const std::string &id); ///< as they came
    Result<std::vector<HelloRow>> hellos(const std::string &id);               ///< by epoch, rank
    /// The newest `limit` lines with id > after, oldest first.
    Result<std::vector<LogRow>> logs(const std::string &id, std::int64_t after, int limit);
    /// At most `points` (≥ 2) buckets of a metric of metricNames() over the step range, ascending, from the pyramid: every extreme in
    /// view is in some bucket, nothing outside the range is. Rank −1: over all ranks, `last` that of the lowest.
    Result<std::vector<SeriesPoint>> series(const std::string &id, const std::string &metric,
                                            std::int32_t rank, std::int64_t first, std::int64_t last,
                                            int points);
    /// Spans kept of a rank (of the last 8 steps, of the first, of 1 in 100, and of steps that overflowed), newest first; of one step, or of all when
    /// `step` is −1. Files beside the store.
    Result<std::vector<telemetry::SpanRecord>> spans(const std::string &id, std::int32_t rank,
                                                     std::int64_t step);

    /// Grows with every change that any process made; cheap to poll.
    std::int64_t dataVersion();

private:
    struct Private;
    explicit RunStore(std::unique_ptr<Private> d);
    std::unique_ptr<Private> d;
};

/// A new run id.
std::string makeRunId();
/// Whether a text has the form of a run id: what may become the name of a folder.
bool isRunId(const std::string &text);

} // namespace rankyard::store
