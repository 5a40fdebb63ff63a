// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/store/run_store.h"

#include <string>
#include <vector>

/// Runs as the documents that scripts rely on (DESIGN 3.2), from the store alone.
namespace rankyard::ctl {

/// One object a step: {step, loss, grad_norm, lr, loss_scale, overflow, tokens_per_s, step_ms, memory: {kind: bytes}, comm: {group:
/// {payload, wire, moved, ms, exposed_ms}}}. Over the ranks: step_ms the slowest, memory and comm times the largest, the rest of the lowest rank.
Result<OrderedJson> stepsJson(store::RunStore &store, const std::string &run, std::int64_t first = 1,
                              std::int64_t last = INT64_MAX);
/// {run, state, steps, valid: [{step, loss}], error}: the document of `train`, `attach` and `runs metrics`.
Result<OrderedJson> runDocument(store::RunStore &store, const std::string &run);
/// {run, name, state, started, step, steps, loss, best_loss, tokens_per_s, layout}.
OrderedJson summaryJson(const store::RunInfo &run);
/// "dp2·z1": the axes above 1 and the ZeRO stage, from a job document.
std::string layoutText(const std::string &job);
/// "2026-11-30T15:12:00Z"; empty for 0.
std::string timeText(std::int64_t wallNs);

} // namespace rankyard::ctl
