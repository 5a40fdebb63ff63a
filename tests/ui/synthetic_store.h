// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/telemetry/run_state.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rankyard::test {

/// A run as a training would leave it: losses that fall, a scaler that overflows, evals, checkpoints, logs of both ranks.
/// The same values every time.
struct SyntheticRun {
    std::string id = "r-20261130T120000-abcdef";
    std::string name = "gpt-kjv";
    telemetry::RunState state = telemetry::RunState::Finished;
    std::int64_t steps = 2000; ///< planned
    std::int64_t done = 2000;
    int world = 2;
    std::string compute = "fp16";
    double lr = 3e-4;
    unsigned seed = 7;
    std::vector<std::int64_t> nan;      ///< steps with a NaN loss
    std::vector<std::int64_t> overflow; ///< steps that overflow
    std::int64_t startedNs = 1'796'040'000'000'000'000;
    std::int64_t endedAgoNs =
        0; ///< shifts the start so that the run ends this long before now; 0: as it stands
    bool mfu = false;
    std::optional<Error> error;
};

std::string jobOf(const SyntheticRun &run);
double lossAt(const SyntheticRun &run, std::int64_t step); ///< as ingested
Status putRun(const std::filesystem::path &store, const SyntheticRun &run);
/// Further steps of a run that is there.
Status putSteps(const std::filesystem::path &store, const SyntheticRun &run, std::int64_t first,
                std::int64_t last, std::uint32_t epoch = 1);
/// A store as a week of work would leave it: one live run, finished, stopped and failed ones.
Status putDemo(const std::filesystem::path &store);

} // namespace rankyard::test
