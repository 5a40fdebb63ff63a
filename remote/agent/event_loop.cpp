// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/event_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rankyard::agent {

Result<std::unique_ptr<EventLoop>> EventLoop::create()
{
    std::unique_ptr<EventLoop> loop(new EventLoop);
    loop->m_epoll = Fd(::epoll_create1(EPOLL_CLOEXEC));
    loop->m_wake = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!loop->m_epoll.valid() || !loop->m_wake.valid())
        return Error::fromErrno(errno, "cannot create an event loop", "epoll");
    RY_TRY(loop->add(loop->m_wake.get(), EPOLLIN, [self = loop.get()](std::uint32_t) { self->runPosted(); }));
    return loop;
}

Status EventLoop::add(int fd, std::uint32_t events, std::function<void(std::uint32_t)> ready)
{
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (::epoll_ctl(m_epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return Error::fromErrno(errno, "cannot watch a descriptor", "fd " + std::to_string(fd));
    m_watches[fd] = std::make_shared<Watch>(Watch{std::move(ready)});
    return {};
}

void EventLoop::change(int fd, std::uint32_t events)
{
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    ::epoll_ctl(m_epoll.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd)
{
    if (m_watches.erase(fd) > 0)
        ::epoll_ctl(m_epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::after(std::chrono::milliseconds delay, std::function<void()> due)
{
    const TimerId id = m_nextTimer++;
    m_timers.emplace(Clock::now() + delay, std::make_pair(id, std::move(due)));
    return id;
}

void EventLoop::cancel(TimerId timer)
{
    std::erase_if(m_timers, [timer](const auto &entry) { return entry.second.first == timer; });
}

void EventLoop::post(std::function<void()> work)
{
    {
        const std::lock_guard lock(m_mutex);
        m_posted.push_back(std::move(work));
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(m_wake.get(), &one, sizeof one);
}

void EventLoop::runPosted()
{
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(m_wake.get(), &count, sizeof count);
    std::vector<std::function<void()>> work;
    {
        const std::lock_guard lock(m_mutex);
        work.swap(m_posted);
    }
    for (const auto &one : work)
        one();
}

int EventLoop::waitMs() const
{
    if (m_timers.empty())
        return -1;
    const auto left = m_timers.begin()->first - Clock::now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
}

void EventLoop::fireTimers()
{
    const auto now = Clock::now();
    while (!m_timers.empty() && m_timers.begin()->first <= now && !m_quit) {
        const auto due = std::move(m_timers.begin()->second.second);
        m_timers.erase(m_timers.begin());
        due();
    }
}

void EventLoop::run()
{
    std::array<epoll_event, 64> events{};
    while (!m_quit) {
        const int count =
            ::epoll_wait(m_epoll.get(), events.data(), static_cast<int>(events.size()), waitMs());
        for (int i = 0; i < count && !m_quit; ++i) {
            // A callback of this round may have removed the descriptor, or itself: the copy keeps it alive meanwhile.
            const auto at = m_watches.find(events[static_cast<std::size_t>(i)].data.fd);
            if (at == m_watches.end())
                continue;
            const std::shared_ptr<Watch> watch = at->second;
            watch->ready(events[static_cast<std::size_t>(i)].events);
        }
        fireTimers();
        if (m_afterRound && !m_quit)
            m_afterRound();
    }
}

} // namespace rankyard::agent
