// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "remote/agent/worker_process.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Why a run failed: which of several pieces of evidence is the cause, and in which words.
namespace rankyard::agent {

/// "SIGKILL" …; "signal 40" for others.
std::string signalName(int signal);

/// Kills by the kernel for want of memory, as the cgroup of this process (v1 or v2) counts them, and on the whole host.
class OomWatch
{
public:
    OomWatch(); ///< remembers the counts of now
    /// What speaks for "out of memory" since then: "the cgroup's limit of 60.0 MiB, oom_kill +1"; empty: nothing does.
    std::string evidence() const;

private:
    struct Counts {
        std::int64_t cgroup = -1;
        std::int64_t host = -1;
    };
    Counts read() const;

    std::string m_file;  ///< memory.events or memory.oom_control
    std::string m_limit; ///< memory.max or memory.limit_in_bytes
    Counts m_before;
};

/// Something that is not as it should be, of one rank, in the order in which the agent saw it.
struct Evidence {
    enum class Kind {
        OwnError,  ///< the rank said what went wrong
        PeerError, ///< the rank said that another one is gone or hangs
        Signal,    ///< killed, not by us
        ExitCode,  ///< exited with a status that is none of the good ones
        Hang,      ///< no heartbeat or no progress
        Broken,    ///< sent what is no frame
    };
    Kind kind = Kind::ExitCode;
    int rank = 0;
    int pid = 0;
    ExitStatus status;
    Error error; ///< of the errors, the hang and the broken frame
};

/// An error that a worker reported: about itself, or only that a peer went away.
Evidence::Kind kindOfError(const Error &error, int rank);

/// The first cause: a rank's own error or its death by a foreign signal, whichever came first; then an exit status, a hang, and
/// last what ranks say of each other. Code::RankFailed (or the own error's code) with where = "rank N".
Error firstCause(const std::vector<Evidence> &evidence, const std::string &oomEvidence);

} // namespace rankyard::agent
