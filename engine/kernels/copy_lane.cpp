// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/copy_lane.h"

#include "engine/base/units.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace rankyard::kernels {

namespace {

/// What a mapped file has in this process is dropped; what was written stays in the system's cache until it is on the disk.
void giveBack(const std::byte *begin, std::int64_t bytes)
{
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
    const auto last =
        (reinterpret_cast<std::uintptr_t>(begin) + static_cast<std::uintptr_t>(bytes)) / page * page;
    if (first < last)
        ::madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED);
}

} // namespace

/// Posted by run(); finish() waits for it.
class CopyLane::Op : public exec::BoundOp
{
public:
    Op(CopyLane &lane, const Transfer &transfer) : m_lane(lane), m_transfer(transfer) {}
    void run(exec::StepState &) override { m_number = m_lane.post(this); }
    std::int64_t finish() override
    {
        const std::int64_t ended = m_number == 0 ? 0 : m_lane.await(m_number);
        m_number = 0;
        return ended;
    }
    bool isBeside() const override { return true; }
    void copy() const
    {
        std::memcpy(m_transfer.to, m_transfer.from, static_cast<std::size_t>(m_transfer.bytes));
        if (m_transfer.fromDisk)
            giveBack(m_transfer.from, m_transfer.bytes);
        if (m_transfer.toDisk)
            giveBack(m_transfer.to, m_transfer.bytes);
    }

private:
    CopyLane &m_lane;
    Transfer m_transfer;
    std::uint64_t m_number = 0; ///< of the last post that nobody has waited for
};

CopyLane::~CopyLane()
{
    {
        const std::lock_guard lock(m_mutex);
        m_stop = true;
    }
    m_posted.notify_one();
    if (m_thread.joinable())
        m_thread.join();
}

Result<std::unique_ptr<exec::BoundOp>> CopyLane::bind(const Transfer &transfer)
{
    const std::lock_guard lock(m_mutex);
    ++m_ops;
    m_ring.resize(m_ops);
    m_ended.resize(m_ops);
    if (!m_thread.joinable())
        m_thread = std::thread([this] { work(); });
    return std::unique_ptr<exec::BoundOp>(std::make_unique<Op>(*this, transfer));
}

std::uint64_t CopyLane::post(const Op *op)
{
    std::uint64_t number = 0;
    {
        const std::lock_guard lock(m_mutex);
        number = ++m_count;
        m_ring[number % m_ring.size()] = op;
    }
    m_posted.notify_one();
    return number;
}

std::int64_t CopyLane::await(std::uint64_t number)
{
    std::unique_lock lock(m_mutex);
    m_done.wait(lock, [&] { return m_finished >= number; });
    return m_ended[number % m_ended.size()];
}

void CopyLane::work()
{
    std::unique_lock lock(m_mutex);
    for (;;) {
        m_posted.wait(lock, [&] { return m_stop || m_finished < m_count; });
        if (m_stop)
            return;
        const std::uint64_t number = m_finished + 1;
        const Op *op = m_ring[number % m_ring.size()];
        lock.unlock();
        op->copy();
        const std::int64_t now = monotonicNs();
        lock.lock();
        m_ended[number % m_ended.size()] = now;
        m_finished = number;
        m_done.notify_all();
    }
}

} // namespace rankyard::kernels
