// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/team.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rankyard::kernels {

Team::Team(int size)
{
    for (int number = 1; number < size; ++number)
        m_threads.emplace_back([this, number] { loop(number); });
}

Team::~Team()
{
    m_leave = true;
    ++m_round;
    m_round.notify_all();
    for (std::thread &thread : m_threads)
        thread.join();
}

void Team::start(Function function, void *context)
{
    m_function = function;
    m_context = context;
    m_busy.store(static_cast<std::int32_t>(m_threads.size()), std::memory_order_relaxed);
    m_round.fetch_add(1, std::memory_order_release);
    m_round.notify_all();
}

void Team::finish()
{
    for (std::int32_t busy = m_busy.load(std::memory_order_acquire); busy != 0;
         busy = m_busy.load(std::memory_order_acquire))
        m_busy.wait(busy, std::memory_order_acquire);
}

void Team::loop(int number)
{
    for (std::uint32_t seen = 0;;) {
        m_round.wait(seen, std::memory_order_acquire);
        seen = m_round.load(std::memory_order_acquire);
        if (m_leave)
            return;
        m_function(m_context, number);
        if (m_busy.fetch_sub(1, std::memory_order_acq_rel) == 1)
            m_busy.notify_one();
    }
}

Range share(std::int64_t count, int parts, int index, std::int64_t grain)
{
    const std::int64_t grains = (count + grain - 1) / grain;
    const std::int64_t begin = grains * index / parts * grain, end = grains * (index + 1) / parts * grain;
    return {std::min(begin, count), std::min(end, count)};
}

FlushSubnormals::FlushSubnormals(bool on) : m_on(on)
{
#if defined(__x86_64__)
    if (m_on) {
        m_saved = _mm_getcsr();
        _mm_setcsr(m_saved | 0x8040); // flush to zero, denormals are zeros
    }
#endif
}

FlushSubnormals::~FlushSubnormals()
{
#if defined(__x86_64__)
    if (m_on)
        _mm_setcsr(m_saved);
#endif
}

} // namespace rankyard::kernels
