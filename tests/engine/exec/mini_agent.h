// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/bootstrap.h"
#include "engine/spec/job.h"
#include "engine/telemetry/wire.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace rankyard::exec::test {

/// What one rank of a run sent, and how it ended.
struct RankOutcome {
    std::vector<telemetry::Record> records;
    std::vector<Json> reports;
    std::int64_t heartbeats = 0;
    int waitStatus = 0;
    std::int64_t endedNs = 0;

    std::vector<telemetry::StepRecord> steps() const;
    std::vector<telemetry::EvalRecord> evals() const;
    std::size_t count(const char *reportKind) const;
    /// The error that it reported; a default one when it reported none.
    Error error() const;
    int exitCode() const;
};

/// The agent's part, as small as it can be: memfds, fork, bootstrap, pids, then it listens until all ranks
/// have ended. The ranks are forks of this process that run Worker and AgentLink as the worker program does.
struct MiniAgent {
    spec::JobSpec job;
    std::filesystem::path folder; ///< jobs, checkpoints
    std::string resume;           ///< folder of a checkpoint
    std::int64_t startStep = 0;
    std::string planDigest; ///< empty: the right one
    std::int64_t hangMs = 10000;
    /// Called for every report and step record as it comes: rank, kind ("step" for records), its step. May
    /// send messages and signals.
    std::function<void(MiniAgent &, int rank, const std::string &kind, std::int64_t step)> onNews;

    std::vector<RankOutcome> run();
    void control(WorkerMessage::Request request);
    std::vector<int> pids;

private:
    std::vector<int> m_sockets;
};

/// A folder of its own under the temporary directory, removed at the end.
class TemporaryFolder
{
public:
    TemporaryFolder();
    ~TemporaryFolder();
    const std::filesystem::path &path() const { return m_path; }

private:
    std::filesystem::path m_path;
};

/// Writes an indexed dataset of `tokens` tokens with structure, all below `vocab`.
void writeCorpus(const std::filesystem::path &prefix, std::int64_t tokens, std::int64_t vocab);

} // namespace rankyard::exec::test
