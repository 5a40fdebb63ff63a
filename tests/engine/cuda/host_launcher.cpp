// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/cuda/host_launcher.h"

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <ucontext.h>
#include <vector>

namespace rankyard::cuda::test {

namespace {

constexpr std::size_t stackBytes = 64 << 10;
thread_local ThreadOrder threadOrder = ThreadOrder::Forward;

enum class State { Ready, AtBlock, AtWarp, Done };

struct Fiber {
    std::unique_ptr<char[]> stack = std::make_unique<char[]>(stackBytes);
    ucontext_t context{};
    std::jmp_buf jump{};
    State state = State::Done;
    bool started = false;
    unsigned exchanges = 0;
};

/// A block and the fibers of its threads. One a host thread; the fibers are kept from block to block.
class FiberBlock : public Block
{
public:
    void run(Grid all, Grid at, int threads, std::int64_t shared, bool cooperative,
             const std::function<void(Block &)> &work)
    {
        grid = all;
        place = at;
        count = threads;
        m_shared.assign(static_cast<std::size_t>(shared) + 64, '\xff'); // NaN in every floating type
        memory = m_shared.data() + (64 - reinterpret_cast<std::uintptr_t>(m_shared.data()) % 64);
        if (!cooperative) {
            for (current = 0; current < count; ++current)
                work(*this);
            return;
        }
        m_kernel = &work;
        while (m_fibers.size() < static_cast<std::size_t>(threads))
            m_fibers.push_back(std::make_unique<Fiber>());
        m_slots.assign(static_cast<std::size_t>(2 * threads), {});
        for (int i = 0; i < threads; ++i) {
            Fiber &fiber = fiberOf(i);
            fiber.state = State::Ready;
            fiber.started = false;
            fiber.exchanges = 0;
        }
        schedule();
    }

    void sync() override { wait(State::AtBlock); }
    void syncWarp() override { wait(State::AtWarp); }

protected:
    void exchangeBytes(const void *mine, void *other, std::size_t bytes, int mask) override
    {
        // Two sets of slots in turn: whoever is one exchange ahead does not write what others still read.
        const auto set =
            static_cast<std::size_t>(fiberOf(current).exchanges++ % 2) * static_cast<std::size_t>(count);
        std::memcpy(m_slots[set + static_cast<std::size_t>(current)].data(), mine, bytes);
        const auto partner = static_cast<std::size_t>(current ^ mask);
        wait(State::AtWarp);
        std::memcpy(other, m_slots[set + partner].data(), bytes);
    }

private:
    Fiber &fiberOf(int i) { return *m_fibers[static_cast<std::size_t>(i)]; }

    void wait(State state)
    {
        Fiber &fiber = fiberOf(current);
        fiber.state = state;
        if (_setjmp(fiber.jump) == 0)
            _longjmp(m_scheduler, 1);
    }

    static void enter(unsigned high, unsigned low)
    {
        auto *self = reinterpret_cast<FiberBlock *>((static_cast<std::uintptr_t>(high) << 32) | low);
        (*self->m_kernel)(*self);
        self->fiberOf(self->current).state = State::Done;
        _longjmp(self->m_scheduler, 1);
    }

    void resume(int i)
    {
        current = i;
        Fiber &fiber = fiberOf(i);
        fiber.state = State::Ready;
        if (_setjmp(m_scheduler) != 0)
            return;
        if (fiber.started)
            _longjmp(fiber.jump, 1);
        fiber.started = true;
        ::getcontext(&fiber.context);
        fiber.context.uc_stack = {fiber.stack.get(), 0, stackBytes};
        fiber.context.uc_link = nullptr;
        const auto address = reinterpret_cast<std::uintptr_t>(this);
        ::makecontext(&fiber.context, reinterpret_cast<void (*)()>(&FiberBlock::enter), 2,
                      static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
        ::setcontext(&fiber.context);
    }

    void schedule()
    {
        std::vector<int> order(static_cast<std::size_t>(count));
        std::iota(order.begin(), order.end(), 0);
        if (threadOrder == ThreadOrder::Backward)
            std::reverse(order.begin(), order.end());
        for (;;) {
            if (threadOrder == ThreadOrder::Shuffled)
                std::shuffle(order.begin(), order.end(), m_random);
            bool ran = false;
            for (const int i : order) {
                if (fiberOf(i).state == State::Ready) {
                    resume(i);
                    ran = true;
                }
            }
            const bool freed = release(0, count, State::AtBlock) | releaseWarps();
            if (!ran && !freed) {
                for (int i = 0; i < count; ++i) {
                    if (fiberOf(i).state != State::Done)
                        throw std::runtime_error("threads of a block wait for each other for ever");
                }
                return;
            }
        }
    }

    /// When all threads that are not done wait there.
    bool release(int begin, int end, State at)
    {
        bool some = false;
        for (int i = begin; i < end; ++i) {
            if (fiberOf(i).state != State::Done && fiberOf(i).state != at)
                return false;
            some |= fiberOf(i).state == at;
        }
        for (int i = begin; i < end && some; ++i) {
            if (fiberOf(i).state == at)
                fiberOf(i).state = State::Ready;
        }
        return some;
    }
    bool releaseWarps()
    {
        bool some = false;
        for (int first = 0; first < count; first += warpSize)
            some |= release(first, std::min(first + warpSize, count), State::AtWarp);
        return some;
    }

    using Slot = std::array<char, 16>;
    const std::function<void(Block &)> *m_kernel = nullptr;
    std::vector<std::unique_ptr<Fiber>> m_fibers;
    std::vector<Slot> m_slots;
    std::vector<char> m_shared;
    std::jmp_buf m_scheduler{};
    std::minstd_rand m_random{7};
};

} // namespace

void setThreadOrder(ThreadOrder order) { threadOrder = order; }

void runGrid(Grid grid, int threads, std::int64_t shared, bool cooperative,
             const std::function<void(Block &)> &kernel)
{
    thread_local FiberBlock block;
    for (i64 z = 0; z < grid.z; ++z) {
        for (i64 y = 0; y < grid.y; ++y) {
            for (i64 x = 0; x < grid.x; ++x)
                block.run(grid, {x, y, z}, threads, shared, cooperative, kernel);
        }
    }
}

} // namespace rankyard::cuda::test
