// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/bootstrap.h"
#include "engine/exec/vote.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace rankyard::exec {

/// What the agent asks of a rank: written by the thread that reads the agent's messages, read by the
/// interpreter's at step boundaries. Thread-safe.
class Control
{
public:
    void take(const WorkerMessage &message);

    /// This rank's word for the boundary after the next step.
    Vote vote() const;
    /// All ranks have agreed to save: the request is met.
    void checkpointTaken();

    /// All ranks have agreed to pause: returns when this rank is to go on, by a resume or a stop. A resume
    /// that came already counts; a pause that is still on its way to this rank is waited for, at most
    /// `grace`.
    void sleepWhilePaused(std::chrono::milliseconds grace = std::chrono::seconds(5));

    /// The process ids by global rank, when the agent has sent them; empty after `timeout`.
    std::vector<int> waitForPids(std::chrono::milliseconds timeout);

private:
    mutable std::mutex m_mutex;
    std::condition_variable m_changed;
    std::vector<int> m_pids;
    bool m_stop = false;
    bool m_checkpoint = false;
    int m_pauses = 0;  ///< pause requests so far
    int m_resumed = 0; ///< how many of them a resume has ended
    int m_obeyed = 0;  ///< how many of them are over for this rank
};

} // namespace rankyard::exec
