// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "remote/agent/run.h"

#include <chrono>
#include <filesystem>

namespace rankyard::agent {

struct DaemonOptions {
    std::chrono::milliseconds idle{600'000}; ///< without runs and clients, then it leaves
    Run::Limits limits;
    std::filesystem::path workerProgram;
    int readyFd = -1; ///< gets "ready\n", or the error as text, and is closed

    /// The defaults, the worker beside this program, and what RANKYARD_AGENT_IDLE_MS, RANKYARD_HANG_MS, RANKYARD_STOP_MS and
    /// RANKYARD_WORKER say (for tests and unusual machines).
    static DaemonOptions fromEnvironment();
};

/// `rankyard-agent serve`: the daemon of this user, host and build, until it is idle or told to end by SIGTERM (which stops its
/// runs). Returns at once, well, when another one serves already. Blocks; the process's main thread.
Status serve(const DaemonOptions &options);

/// `rankyard-agent attach`: starts the daemon when there is none, prints the magic, and carries bytes between its own standard
/// streams and the daemon until either side ends.
Status attach();

/// The folder of this program, or $RANKYARD_LIBEXEC.
std::filesystem::path programFolder();

} // namespace rankyard::agent
