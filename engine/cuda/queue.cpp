// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cuda/queue.h"

#include "engine/cuda/failure.h"
#include "engine/cuda/gpu.h"

#include <utility>

namespace rankyard::cuda {

namespace {
thread_local Queue current;
thread_local Status failure;
} // namespace

Queue &currentQueue() { return current; }

void startProduct(const kernels::Gemm &gemm, Number type)
{
    noteFailure(current.gpu->multiply(gemm, type, current.stream));
}

void startFailed(const char *why)
{
    noteFailure(Error::make(Code::Internal, "a kernel could not be started").withFound(why));
}

Status takeFailure() { return std::exchange(failure, Status()); }

void noteFailure(const Status &status)
{
    if (!status.ok() && failure.ok())
        failure = status;
}

void *partials(std::int64_t bytes)
{
    if (bytes > current.partialBytes)
        startFailed("there is too little memory for partial sums");
    return current.partials;
}

} // namespace rankyard::cuda
