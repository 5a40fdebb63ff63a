// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/interrupts.h"

#include <atomic>
#include <cerrno>

namespace rankyard::ctl {

namespace {

std::atomic<int> interrupts{0};

/// Posting is one of the few things that a signal's handler may do.
sem_t &woken()
{
    static sem_t *semaphore = [] {
        static sem_t made;
        ::sem_init(&made, 0, 0);
        return &made;
    }();
    return *semaphore;
}

void onInterrupt(int)
{
    const int before = errno;
    interrupts.fetch_add(1);
    ::sem_post(&woken());
    errno = before;
}

} // namespace

Interrupts::Interrupts()
{
    woken(); // made before a handler needs it
    struct sigaction action {};
    action.sa_handler = onInterrupt;
    for (std::size_t i = 0; i < std::size(signals); ++i)
        ::sigaction(signals[i], &action, &m_before[i]);
}

Interrupts::~Interrupts()
{
    for (std::size_t i = 0; i < std::size(signals); ++i)
        ::sigaction(signals[i], &m_before[i], nullptr);
}

int Interrupts::count() { return interrupts.load(); }

StopOnInterrupt::StopOnInterrupt()
{
    m_waiter = std::thread([this] {
        while (::sem_wait(&woken()) != 0) // interrupted by another signal
            ;
        m_source.request_stop();
        for (const int number : {SIGINT, SIGTERM})
            ::signal(number, SIG_DFL);
    });
}

StopOnInterrupt::~StopOnInterrupt()
{
    ::sem_post(&woken());
    m_waiter.join();
    while (::sem_trywait(&woken()) == 0) // what nobody waits for any more
        ;
}

} // namespace rankyard::ctl
