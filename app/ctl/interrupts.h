// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <csignal>
#include <iterator>
#include <semaphore.h>
#include <stop_token>
#include <thread>

namespace rankyard::ctl {

/// Ctrl-C and termination are counted while one lives, in place of ending the program. One at a time, on the main thread.
class Interrupts
{
public:
    Interrupts();
    ~Interrupts();
    Interrupts(const Interrupts &) = delete;
    Interrupts &operator=(const Interrupts &) = delete;

    /// Since the program has started.
    static int count();

private:
    static constexpr int signals[] = {SIGINT, SIGTERM};
    struct sigaction m_before[std::size(signals)];
};

/// The first of them asks work to stop; the second ends the program as usual.
class StopOnInterrupt
{
public:
    StopOnInterrupt();
    ~StopOnInterrupt();
    std::stop_token token() const { return m_source.get_token(); }

private:
    std::stop_source m_source;
    Interrupts m_interrupts;
    std::thread m_waiter;
};

} // namespace rankyard::ctl
