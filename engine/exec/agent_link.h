// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/exec/worker.h"
#include "engine/telemetry/wire.h"

#include <atomic>
#include <string>
#include <thread>

namespace rankyard::exec {

/// The worker's end of the socket to its agent, with a thread of its own: sends records, reports and
/// heartbeats, reads control messages. When the agent is gone, so is the run: the process ends at once.
class AgentLink
{
public:
    /// Owns `fd` from now on. `worker` must outlive the link.
    AgentLink(Fd fd, Worker &worker, std::uint32_t epoch, std::int32_t rank);
    ~AgentLink();

    /// Sends what is left and, last, how the rank ended. Then the socket is closed.
    void finish(const Result<WorkerEnd> &end);

private:
    void loop();
    void receive();
    void sendNews();
    void sendHeartbeat();
    void flush();

    Fd m_fd;
    Worker &m_worker;
    std::uint32_t m_epoch;
    std::int32_t m_rank;
    telemetry::wire::FrameDecoder m_decoder;
    std::string m_out;
    std::uint64_t m_sequence = 0;
    std::int64_t m_lastBeat = 0;
    std::uint64_t m_dropped = 0;
    std::atomic<bool> m_ending{false};
    std::thread m_thread;
};

} // namespace rankyard::exec
