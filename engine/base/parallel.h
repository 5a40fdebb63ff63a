// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace rankyard {

inline int processorCores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

/// Runs `work(i, thread)` for i = 0 … count − 1, taken in order, on up to `threads` threads; the calling one is thread 0. Returns when
/// all are done. `work` must not throw.
inline void inParallel(std::size_t count, int threads,
                       const std::function<void(std::size_t i, int thread)> &work)
{
    std::atomic<std::size_t> next{0};
    const auto loop = [&](int thread) {
        for (std::size_t i = next++; i < count; i = next++)
            work(i, thread);
    };
    std::vector<std::jthread> workers;
    for (int thread = 1; thread < threads && static_cast<std::size_t>(thread) < count; ++thread)
        workers.emplace_back(loop, thread);
    loop(0);
}

} // namespace rankyard
