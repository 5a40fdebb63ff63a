// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace rankyard::agent {

/// epoll, timers and work handed over from other threads: the one thread that everything of the agent happens on. Callbacks
/// may add and remove descriptors and timers, their own as well.
class EventLoop
{
public:
    using Clock = std::chrono::steady_clock;
    using TimerId = std::uint64_t;

    static Result<std::unique_ptr<EventLoop>> create();

    /// `ready` is called with the EPOLL* bits. The descriptor stays the caller's; remove() it before closing it.
    Status add(int fd, std::uint32_t events, std::function<void(std::uint32_t)> ready);
    void change(int fd, std::uint32_t events);
    void remove(int fd);

    /// Once, after `delay`.
    TimerId after(std::chrono::milliseconds delay, std::function<void()> due);
    void cancel(TimerId timer);

    /// Any thread: runs `work` on the loop's thread.
    void post(std::function<void()> work);

    /// Called after each round of events: the place for what is done once for many events.
    void setAfterRound(std::function<void()> work) { m_afterRound = std::move(work); }

    void run(); ///< until quit()
    void quit() { m_quit = true; }

private:
    EventLoop() = default;
    int waitMs() const;
    void fireTimers();
    void runPosted();

    struct Watch {
        std::function<void(std::uint32_t)> ready;
    };

    Fd m_epoll;
    Fd m_wake;
    std::map<int, std::shared_ptr<Watch>> m_watches;
    std::multimap<Clock::time_point, std::pair<TimerId, std::function<void()>>> m_timers;
    TimerId m_nextTimer = 1;
    std::mutex m_mutex; ///< of m_posted
    std::vector<std::function<void()>> m_posted;
    std::function<void()> m_afterRound;
    bool m_quit = false;
};

} // namespace rankyard::agent
