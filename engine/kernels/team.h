// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace rankyard::kernels {

/// The threads of one rank. The caller is number 0; the others sleep between calls. Work is divided by number, so equal
/// inputs and equal sizes give equal results to the bit. One caller at a time.
class Team
{
public:
    explicit Team(int size);
    ~Team();
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;

    int size() const { return static_cast<int>(m_threads.size()) + 1; }

    /// Calls work(number) on every thread and waits for all. `work` must not throw. Allocates nothing.
    template<typename Work>
    void run(Work &&work)
    {
        if (m_threads.empty()) {
            work(0);
            return;
        }
        start([](void *context,
                 int number) { (*static_cast<std::remove_reference_t<Work> *>(context))(number); },
              const_cast<void *>(static_cast<const void *>(&work)));
        work(0);
        finish();
    }

private:
    using Function = void (*)(void *, int);
    void start(Function function, void *context);
    void finish();
    void loop(int number);

    std::vector<std::thread> m_threads;
    std::atomic<std::uint32_t> m_round{0};
    std::atomic<std::int32_t> m_busy{0};
    std::atomic<bool> m_leave{false};
    Function m_function = nullptr;
    void *m_context = nullptr;
};

/// Part `index` of `count` things divided among `parts`, in multiples of `grain` but for the last.
struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t size() const { return end - begin; }
};
Range share(std::int64_t count, int parts, int index, std::int64_t grain = 1);

/// Subnormal numbers are zeros while this lives, on this thread: in fp32 and bf16 they carry nothing and may cost a lot.
class FlushSubnormals
{
public:
    explicit FlushSubnormals(bool on);
    ~FlushSubnormals();
    FlushSubnormals(const FlushSubnormals &) = delete;
    FlushSubnormals &operator=(const FlushSubnormals &) = delete;

private:
    bool m_on;
    unsigned m_saved = 0;
};

} // namespace rankyard::kernels
