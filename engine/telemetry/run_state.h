// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
#include <string>

/// The states of a run and the one table of their transitions (DESIGN 3.4), shared by agent, store and UI.
namespace rankyard::telemetry {

enum class RunState : std::uint8_t {
    Draft,
    Deploying,
    Preflight,
    Starting,
    Running,
    Degraded,
    Pausing,
    Paused,
    Stopping,
    Finished,
    Failed,
    FailedResumable,
    Stopped,
    Preempted,
    Lost,
};

const char *nameOf(RunState state); ///< "draft" … "failed-resumable" …
bool runStateFromName(const std::string &name, RunState &state);
bool isTerminal(RunState state);
bool isLive(RunState state); ///< workers exist: starting … stopping
bool canMove(RunState from, RunState to);

} // namespace rankyard::telemetry
