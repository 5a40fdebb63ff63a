// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/spec/job.h"
#include "engine/telemetry/record.h"
#include "engine/telemetry/run_state.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The client's run store: SQLite in WAL mode, safe for several processes at once (DESIGN 3.3).
namespace rankyard::store {

struct RunInfo {
    std::string id;      ///< r-<UTC yyyymmddThhmmss>-<6 base32>
    std::string name;
    telemetry::RunState state = telemetry::RunState::Draft;
    std::string node = "local";
    std::string runDir;  ///< on the node
    std::string job;     ///< the job document, as JSON text
    std::int64_t startedNs = 0; ///< wall
    std::int64_t endedNs = 0;   ///< 0 while it lives
    std::int64_t lastSeenNs = 0; ///< wall time of the newest record
    std::int64_t step = 0;      ///< last finished step
    std::int64_t steps = 0;     ///< planned
    int world = 0;
    double lastLoss = 0;        ///< NaN before the first step
    double bestLoss = 0;        ///< lowest validation loss, else lowest training loss
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
    telemetry::StepRecord record;
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

    Status putRun(const RunInfo &run); ///< insert or replace what is known before the first record
    Result<std::vector<RunInfo>> runs();
    Result<RunInfo> run(const std::string &idOrPrefix); ///< a unique prefix, or "last"
    Status removeRun(const std::string &id);
    Status setState(const std::string &id, telemetry::RunState state, const std::optional<Error> &error = {});
    Status setTags(const std::string &id, const std::string &tags);

    /// Appends records of one run in one transaction. What is there already is skipped, so repeats do no harm; a record of an older
    /// epoch than a stored step supersedes nothing. Steps at or after the first step of a newer epoch are replaced by it.
    Status ingest(const std::string &id, const std::vector<telemetry::Record> &records);
    Result<std::vector<StreamPosition>> positions(const std::string &id);

    /// Raw rows of rank `rank` (−1: all ranks), steps first ≤ s ≤ last, by step then rank.
    Result<std::vector<StepRow>> steps(const std::string &id, std::int32_t rank, std::int64_t first, std::int64_t last);
    Result<std::vector<telemetry::EvalRecord>> evals(const std::string &id);
    Result<std::vector<telemetry::EventRecord>> events(const std::string &id);
    /// The newest `limit` lines with id > after, oldest first.
    Result<std::vector<LogRow>> logs(const std::string &id, std::int64_t after, int limit);
    /// At most `points` buckets of a metric over the step range, from the pyramid: every extreme in view is in some bucket.
    Result<std::vector<SeriesPoint>> series(const std::string &id, const std::string &metric, std::int32_t rank,
                                            std::int64_t first, std::int64_t last, int points);
    /// Spans kept for a run: newest first. Files beside the store.
    Result<std::vector<telemetry::SpanRecord>> spans(const std::string &id, std::int32_t rank, std::int64_t step);

    /// Grows with every change that any process made; cheap to poll.
    std::int64_t dataVersion();

private:
    struct Private;
    explicit RunStore(std::unique_ptr<Private> d);
    std::unique_ptr<Private> d;
};

/// A new run id.
std::string makeRunId();

} // namespace rankyard::store
