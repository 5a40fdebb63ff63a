// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/device.h"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

/// The copy stream of a program with files: a thread that works on copies one after the other, in the order in which they were
/// run, so that reading and writing files goes on beside computing.
namespace rankyard::kernels {

struct Transfer {
    const std::byte *from = nullptr;
    std::byte *to = nullptr;
    std::int64_t bytes = 0;
    bool fromDisk = false,
         toDisk = false; ///< in a mapped file, whose pages are given back to the system after
};

/// Owns the thread, which starts with the first bind. bind, and run and finish of what it binds, on the interpreter's thread; must
/// outlive the ops.
class CopyLane
{
public:
    CopyLane() = default;
    ~CopyLane();
    CopyLane(const CopyLane &) = delete;
    CopyLane &operator=(const CopyLane &) = delete;

    Result<std::unique_ptr<exec::BoundOp>> bind(const Transfer &transfer);

private:
    class Op;
    void work();
    std::uint64_t post(const Op *op);
    /// When the copy with that number was done; waits for it.
    std::int64_t await(std::uint64_t number);

    std::thread m_thread;
    std::mutex m_mutex;
    std::condition_variable m_posted, m_done;
    std::vector<const Op *> m_ring; ///< at least as many as there are ops: no op is posted twice at once
    std::vector<std::int64_t> m_ended;
    std::size_t m_ops = 0;
    std::uint64_t m_count = 0, m_finished = 0;
    bool m_stop = false;
};

} // namespace rankyard::kernels
