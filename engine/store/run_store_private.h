// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/store/run_store.h"
#include "engine/store/sqlite.h"

namespace rankyard::store {

constexpr std::int64_t rawStepsKept = 100'000;
constexpr std::int64_t logLinesKept = 200'000;
constexpr int spanStepsKept = 8;
constexpr int spanStepEvery = 100;

struct RunStore::Private {
    std::filesystem::path file;
    bool readOnly = false;
    Database database;

    std::filesystem::path runFolder(const std::string &id) const { return file.parent_path() / "runs" / id; }
    /// The key of a run by its exact id, or NotFound.
    Result<std::int64_t> keyOf(const std::string &id);
    /// Ranks ≥ 0 that have sent anything.
    Result<std::vector<std::int32_t>> ranksOf(std::int64_t key);
    Status setUp();
};

/// When a state is set: also the end of the run and its error. Within the caller's transaction.
Status writeState(Database &database, std::int64_t key, telemetry::RunState state,
                  const std::optional<Error> &error, std::int64_t wallNs);

} // namespace rankyard::store
