// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/plan/step_program.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

/// What a run tells (DESIGN 3.3): records, each with its place in its rank's stream.
namespace rankyard::telemetry {

/// Communication of one group in one step of one rank.
struct GroupFigures {
    std::string group; ///< "dp", "world"
    std::int64_t payload = 0;
    std::int64_t wire = 0;
    std::int64_t moved = 0;
    double ms = 0;        ///< from start to completion, summed over ops
    double exposedMs = 0; ///< time that compute stood still for it
};

/// One step of one rank. NaN and infinities are kept as they are.
struct StepRecord {
    std::int64_t step = 0;  ///< from 1
    std::int64_t endNs = 0; ///< monotonic
    std::int64_t wallNs = 0;
    double loss = 0;
    double gradNorm = 0;
    double lr = 0;
    double lossScale = 1;
    bool overflow = false;
    double tokensPerS = 0; ///< of the whole job
    double stepMs = 0;
    double computeMs = 0;   ///< forward and backward
    double optimizerMs = 0; ///< from the first GradNorm to the end, less waiting
    double dataMs = 0;
    double bubbleMs = 0;
    double mfu = 0;                                           ///< 0 when the device's peak is not known
    std::array<std::int64_t, plan::memoryKindCount> memory{}; ///< bytes in arenas, by MemoryKind
    std::vector<GroupFigures> comm;

    double exposedMs() const;
};

struct EvalRecord {
    std::int64_t step = 0;
    double loss = 0;
    std::int64_t tokens = 0;
    std::int64_t wallNs = 0;
};

enum class Level : std::uint8_t { Debug, Info, Warning, Error };

struct LogRecord {
    std::int64_t wallNs = 0;
    Level level = Level::Info;
    std::int64_t step = 0;
    std::string text; ///< one line, UTF-8
};

/// State changes, checkpoints, overflows, restarts: rare, and never shed. `kind`: "state", "checkpoint", "overflow", "restart",
/// "error", "gap", "note". State: detail = {from, to, cause, actor[, error]}. Gap: records [detail.from, detail.to] of this stream
/// were lost for the reason detail.why; the event stands at the sequence detail.to in their place. A gap with detail.first_step and
/// detail.last_step instead: these steps were done and saved, but their records died with the agent.
struct EventRecord {
    std::int64_t wallNs = 0;
    std::int64_t step = 0;
    std::string kind;
    Json detail;
};

/// Spans of one execution of one program: column by column, op ids ascending in time of begin.
struct SpanRecord {
    std::int64_t step = 0;
    std::string digest;
    plan::ProgramKind program = plan::ProgramKind::Train;
    std::int64_t originNs = 0; ///< monotonic; begins and ends are relative to it
    std::vector<std::int32_t> op;
    std::vector<std::int64_t> beginNs;
    std::vector<std::int64_t> endNs;
};

/// Once per rank and epoch: what stays. detail = {host, boot_id, pid, device, threads, program digest, arenas …}.
struct HelloRecord {
    Json detail;
};

using Payload = std::variant<HelloRecord, StepRecord, EvalRecord, LogRecord, EventRecord, SpanRecord>;

/// Place of a record: streams are (run, epoch, rank); sequence counts from 1 without holes. rank −1 is the agent.
struct Record {
    std::uint32_t epoch = 0; ///< +1 with every start of the run's workers
    std::int32_t rank = 0;
    std::uint64_t sequence = 0;
    Payload payload;
};

/// Which of "loss", "grad_norm", "memory.params", "comm.exposed_ms", … of a StepRecord by name; the scalar metrics that charts and
/// tables can show. metric() also knows "comm.<group>.{ms,exposed_ms,payload,wire,moved}"; NaN for a name that is none.
const std::vector<std::string> &metricNames();
double metric(const StepRecord &record, const std::string &name);
/// All of them at once, in the order of metricNames().
void metrics(const StepRecord &record, std::vector<double> &values);

} // namespace rankyard::telemetry
