// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rankyard::telemetry {

/// A bounded queue from one producing thread to one consuming thread, without locks and, after the constructor, without
/// allocations of its own. The producer never waits: a full ring drops what is new and counts it.
template<typename T>
class Ring
{
public:
    /// `capacity` is rounded up to a power of two.
    explicit Ring(std::size_t capacity)
        : m_slots(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity)),
          m_mask(m_slots.size() - 1)
    {}
    Ring(const Ring &) = delete;
    Ring &operator=(const Ring &) = delete;

    std::size_t capacity() const { return m_slots.size(); }

    /// Producer: false when it was full.
    template<typename U>
    bool push(U &&value)
    {
        const std::uint64_t head = m_head.load(std::memory_order_relaxed);
        if (head - m_seenTail >= m_slots.size()) {
            m_seenTail = m_tail.load(std::memory_order_acquire);
            if (head - m_seenTail >= m_slots.size()) {
                m_dropped.fetch_add(1, std::memory_order_relaxed);
                return false;
            }
        }
        m_slots[head & m_mask] = std::forward<U>(value);
        m_head.store(head + 1, std::memory_order_release);
        return true;
    }

    /// Consumer: false when it is empty.
    bool pop(T &value)
    {
        const std::uint64_t tail = m_tail.load(std::memory_order_relaxed);
        if (tail == m_seenHead) {
            m_seenHead = m_head.load(std::memory_order_acquire);
            if (tail == m_seenHead)
                return false;
        }
        value = std::move(m_slots[tail & m_mask]);
        m_tail.store(tail + 1, std::memory_order_release);
        return true;
    }

    /// Consumer: hands all that is there to `take(T &&)`, without a limit but one turn of the ring; how many.
    template<typename Take>
    std::size_t drain(Take &&take)
    {
        const std::uint64_t tail = m_tail.load(std::memory_order_relaxed);
        const std::uint64_t head = m_head.load(std::memory_order_acquire);
        for (std::uint64_t i = tail; i != head; ++i)
            take(std::move(m_slots[i & m_mask]));
        m_seenHead = head;
        m_tail.store(head, std::memory_order_release);
        return static_cast<std::size_t>(head - tail);
    }

    /// How many pushes found it full. Any thread.
    std::uint64_t dropped() const { return m_dropped.load(std::memory_order_relaxed); }

private:
    static constexpr std::size_t line = 64;

    std::vector<T> m_slots;
    std::size_t m_mask;
    alignas(line) std::atomic<std::uint64_t> m_head{0};
    std::uint64_t m_seenTail = 0; ///< the producer's copy, so that it seldom reads the consumer's cache line
    std::atomic<std::uint64_t> m_dropped{0};
    alignas(line) std::atomic<std::uint64_t> m_tail{0};
    std::uint64_t m_seenHead = 0; ///< the consumer's copy
};

} // namespace rankyard::telemetry
