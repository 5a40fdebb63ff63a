// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/store/run_store.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rankyard::ui {

struct CommColumns {
    std::vector<double> payload;
    std::vector<double> ms;
    std::vector<double> exposedMs;
};

/// Steps of one rank, column by column, ascending.
struct RankColumns {
    std::vector<std::int64_t> step;
    std::vector<std::int64_t> wallNs;
    std::vector<double> loss, gradNorm, lr, lossScale, tokensPerS, mfu;
    std::vector<double> stepMs, computeMs, optimizerMs, dataMs, bubbleMs, exposedMs;
    std::vector<char> overflow;
    std::array<std::vector<double>, plan::memoryKindCount> memory;
    std::map<std::string, CommColumns> comm; ///< of as many rows as `step`

    std::size_t size() const { return step.size(); }
    void append(const telemetry::StepRecord &record);
    void append(const RankColumns &other);
};

/// Log lines that are kept of a run: of those, the newest.
inline constexpr int mostLogs = 100'000;

/// News of one run, made on the reader's thread and never changed afterwards. Updates of a run come in order, none is left out;
/// `reset` says that what came before is void.
struct RunUpdate {
    std::string run;
    bool reset = false;
    bool complete = false; ///< everything that the store had is in
    store::RunInfo info;
    std::map<int, RankColumns> ranks;
    std::vector<store::LogRow> logs;
    std::optional<std::vector<telemetry::EvalRecord>> evals;   ///< all of them, when they changed
    std::optional<std::vector<telemetry::EventRecord>> events; ///< all of them, when they changed
    std::vector<RankColumns> tails;       ///< with a reset: what restarts ran again, one an epoch
    std::map<int, double> predictedBytes; ///< peak by rank, with the first update
    std::int64_t rowsLoaded = 0;
    std::int64_t rowsExpected = 0;
    std::optional<Error> error;
};

using RunUpdatePtr = std::shared_ptr<const RunUpdate>;
using RunListPtr = std::shared_ptr<const std::vector<store::RunInfo>>;

/// Peak bytes by rank of a job document, from its plan. Called on the reader's thread; empty when it cannot be planned.
using MemoryPredictor = std::map<int, double> (*)(const std::string &job);

} // namespace rankyard::ui
