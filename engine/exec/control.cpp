// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/control.h"

namespace rankyard::exec {

void Control::take(const WorkerMessage &message)
{
    using Request = WorkerMessage::Request;
    {
        const std::lock_guard lock(m_mutex);
        if (!message.pids.empty())
            m_pids = message.pids;
        m_stop = m_stop || message.request == Request::Stop;
        m_checkpoint = m_checkpoint || message.request == Request::Checkpoint;
        if (message.request == Request::Pause && m_pauses == m_resumed)
            ++m_pauses;
        if (message.request == Request::Resume)
            m_resumed = m_pauses;
    }
    m_changed.notify_all();
}

Vote Control::vote() const
{
    const std::lock_guard lock(m_mutex);
    return {m_stop, m_checkpoint, m_pauses > m_resumed && !m_stop};
}

void Control::checkpointTaken()
{
    const std::lock_guard lock(m_mutex);
    m_checkpoint = false;
}

void Control::sleepWhilePaused(std::chrono::milliseconds grace)
{
    std::unique_lock lock(m_mutex);
    m_changed.wait_for(lock, grace, [this] { return m_pauses > m_obeyed || m_stop; });
    m_changed.wait(lock, [this] { return m_pauses == m_resumed || m_stop; });
    m_obeyed = m_pauses;
    if (m_stop)
        m_resumed = m_pauses;
}

std::vector<int> Control::waitForPids(std::chrono::milliseconds timeout)
{
    std::unique_lock lock(m_mutex);
    m_changed.wait_for(lock, timeout, [this] { return !m_pids.empty(); });
    return m_pids;
}

} // namespace rankyard::exec
