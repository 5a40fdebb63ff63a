// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>

namespace rankyard::kernels {
struct Gemm;
}

/// Where the kernels go that this thread starts: kernel tables are plain functions without a context, so the device names it
/// around each op, as CUDA itself has a current device per thread. Plain data: nvcc's files include it too.
namespace rankyard::cuda {

class Gpu;

struct Queue {
    Gpu *gpu = nullptr;
    void *stream = nullptr;        ///< a cudaStream_t
    std::byte *partials = nullptr; ///< of sums over blocks, device memory; used by one kernel after the other
    std::int64_t partialBytes = 0;
};
Queue &currentQueue();

/// Makes `queue` the current one for a scope.
class QueueScope
{
public:
    explicit QueueScope(const Queue &queue) : m_before(currentQueue()) { currentQueue() = queue; }
    ~QueueScope() { currentQueue() = m_before; }
    QueueScope(const QueueScope &) = delete;
    QueueScope &operator=(const QueueScope &) = delete;

private:
    Queue m_before;
};

/// Types of a product's inputs.
enum class Number : std::uint8_t { F32, F64, Bf16, Half };

/// A (+)= of the product on the current queue, by the library; without bias and gelu.
void startProduct(const kernels::Gemm &gemm, Number type);
/// A kernel could not be started: said once, by the next call of the device that returns a status.
void startFailed(const char *why);
/// The partials of the current queue; a failure when they are too few.
void *partials(std::int64_t bytes);

} // namespace rankyard::cuda
