// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/telemetry/run_state.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// A run's folder on its node: {job.json, run.json, program/, spool/, log/, ckpt/, exit.json, lock}.
namespace rankyard::agent {

std::filesystem::path runsDir(); ///< stateDir()/runs: a folder a run, or a link to it when it lies elsewhere
std::filesystem::path runLink(const std::string &id); ///< runsDir()/<id>

/// run.json, written once an epoch, before anything starts: what must be known when nobody is left who remembers.
struct RunFile {
    std::string id;
    std::string name;
    std::uint32_t epoch = 0;
    int world = 0;
    std::int64_t steps = 0;
    std::int64_t startedNs = 0; ///< wall, of the first epoch
    std::string jobDir;
    std::string checkpointDir;
    std::string build;
};

/// exit.json: how an epoch ended.
struct ExitFile {
    std::string id;
    std::uint32_t epoch = 0;
    telemetry::RunState state = telemetry::RunState::Lost;
    std::int64_t step = 0;
    double loss = 0; ///< NaN before the first step
    std::int64_t endedNs = 0;
    std::optional<Error> error;
    std::string logFile;
    std::vector<std::string> lastLines;
    Json ranks = Json::array(); ///< [{rank, pid, exit | signal}]
};

Status writeRunFile(const std::filesystem::path &folder, const RunFile &run);
Result<RunFile> readRunFile(const std::filesystem::path &folder);
Status writeExitFile(const std::filesystem::path &folder, const ExitFile &exit);
Result<ExitFile> readExitFile(const std::filesystem::path &folder);

/// An advisory lock on <folder>/lock, held for as long as the descriptor lives. InUse when somebody else has it.
Result<Fd> lockFolder(const std::filesystem::path &folder);

/// Creates the folder of a new run, `wanted` or the default, with its link; or finds that of a run which is continued. Errors: InUse when the
/// folder holds another run or anything else, Io when it cannot be created or written.
Result<std::filesystem::path> claimFolder(const std::string &id, const std::string &wanted);

/// Ids of all runs of this node, ascending.
std::vector<std::string> knownRuns();

/// Removes a run's folder and its link.
Status removeFolder(const std::string &id);

} // namespace rankyard::agent
