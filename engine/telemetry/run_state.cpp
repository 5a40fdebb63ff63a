// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/run_state.h"

#include <cstddef>
#include <initializer_list>
#include <iterator>

namespace rankyard::telemetry {

namespace {

using enum RunState;

constexpr std::uint32_t bit(RunState state) { return 1u << static_cast<unsigned>(state); }

constexpr std::uint32_t anyOf(std::initializer_list<RunState> states)
{
    std::uint32_t mask = 0;
    for (const RunState state : states)
        mask |= bit(state);
    return mask;
}

constexpr std::uint32_t terminal = anyOf({Finished, Failed, FailedResumable, Stopped, Preempted, Lost});
constexpr std::uint32_t live = anyOf({Starting, Running, Degraded, Pausing, Paused, Stopping});
constexpr std::uint32_t broken = anyOf({Failed, FailedResumable, Preempted, Lost});

struct StateRow {
    RunState state;
    const char *name;
    std::uint32_t next;
};

/// The table. A terminal state leads to preflight again when the run is continued under a new epoch; a lost run may turn out
/// to be in any state once its node answers.
constexpr StateRow table[] = {
    {Draft, "draft", anyOf({Deploying, Preflight, Failed, Stopped})},
    {Deploying, "deploying", anyOf({Preflight, Stopping, Failed, Stopped, Lost})},
    {Preflight, "preflight", anyOf({Starting, Stopping, Failed, Stopped, Lost})},
    {Starting, "starting", anyOf({Running, Stopping, Stopped}) | broken},
    {Running, "running", anyOf({Degraded, Pausing, Stopping, Finished, Stopped}) | broken},
    {Degraded, "degraded", anyOf({Running, Pausing, Stopping, Finished, Stopped}) | broken},
    {Pausing, "pausing", anyOf({Paused, Running, Stopping, Finished, Stopped}) | broken},
    {Paused, "paused", anyOf({Running, Stopping, Stopped}) | broken},
    {Stopping, "stopping", terminal},
    {Finished, "finished", bit(Preflight)},
    {Failed, "failed", bit(Preflight)},
    {FailedResumable, "failed-resumable", bit(Preflight)},
    {Stopped, "stopped", bit(Preflight)},
    {Preempted, "preempted", bit(Preflight)},
    {Lost, "lost", live | (terminal & ~bit(Lost)) | bit(Preflight)},
};

constexpr bool inOrder()
{
    for (std::size_t i = 0; i < std::size(table); ++i) {
        if (static_cast<std::size_t>(table[i].state) != i)
            return false;
    }
    return true;
}
static_assert(inOrder(), "the rows stand in the order of the enum");

} // namespace

const char *nameOf(RunState state) { return table[static_cast<std::size_t>(state)].name; }

bool runStateFromName(const std::string &name, RunState &state)
{
    for (const StateRow &row : table) {
        if (name == row.name) {
            state = row.state;
            return true;
        }
    }
    return false;
}

bool isTerminal(RunState state) { return (terminal & bit(state)) != 0; }
bool isLive(RunState state) { return (live & bit(state)) != 0; }
bool canMove(RunState from, RunState to)
{
    return (table[static_cast<std::size_t>(from)].next & bit(to)) != 0;
}

} // namespace rankyard::telemetry
