// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/cuda/tables.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// What the device needs of CUDA, cuBLAS and NCCL, and no more: cuda_gpu.cpp has it by those libraries, tests by the CPU
/// (tests/engine/cuda/host_gpu.h).
namespace rankyard::cuda {

using Stream = void *;
using Event = void *;

enum class Where { Device, PinnedHost };

/// Names a communicator that its members are about to make (ncclUniqueId).
using LinkId = std::array<std::byte, 128>;

/// A communicator among GPUs (ncclComm_t). Its operations are started in the order of the calls and done in the order of their
/// streams; all members start the same ones in the same order. From the rank's interpreter thread.
class Link
{
public:
    virtual ~Link() = default;
    /// In place.
    virtual Status allReduce(void *data, std::int64_t count, DType type, Stream stream) = 0;
    /// `to` becomes slice `rank` of the sum of `from`, which has `count` elements a rank; may be that slice itself.
    virtual Status reduceScatter(const void *from, void *to, std::int64_t count, DType type,
                                 Stream stream) = 0;
    /// `to` becomes the `from` of all, `count` elements each; may be the own slice of it.
    virtual Status allGather(const void *from, void *to, std::int64_t count, DType type, Stream stream) = 0;
    virtual Status send(const void *data, std::int64_t bytes, int peer, Stream stream) = 0;
    virtual Status receive(void *data, std::int64_t bytes, int peer, Stream stream) = 0;
    /// To one peer and from one, at once.
    virtual Status exchange(const void *out, void *in, std::int64_t bytes, int to, int from,
                            Stream stream) = 0;
    /// What has gone wrong since in operations under way.
    virtual Status health() = 0;
};

/// One GPU as one rank uses it. Everything from the rank's interpreter thread; streams and events live as long as it does.
class Gpu
{
public:
    virtual ~Gpu() = default;
    virtual std::string name() const = 0; ///< "NVIDIA H200, 139 GiB, PCI 0000:1b:00.0"
    virtual const Tables &tables() const = 0;
    virtual std::int64_t freeBytes() const = 0; ///< of device memory

    virtual Result<std::byte *> allocate(std::int64_t bytes, Where where) = 0; ///< zeros
    virtual void release(std::byte *memory, Where where) = 0;
    virtual Result<Stream> makeStream() = 0;
    virtual Result<Event> makeEvent() = 0;

    // In the order of a stream:
    virtual Status record(Event event, Stream stream) = 0;
    virtual Status wait(Stream stream, Event event) = 0; ///< for its last record
    virtual Status copy(void *to, const void *from, std::int64_t bytes, Stream stream) = 0;
    virtual Status copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                            std::int64_t bytes, std::int64_t rows, Stream stream) = 0;
    virtual Status fill(void *at, std::int64_t bytes, Stream stream) = 0; ///< with zeros
    virtual Status fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows,
                            Stream stream) = 0;
    /// C (+)= A·B; neither bias nor gelu. Sums in fp32, of fp64 in fp64.
    virtual Status multiply(const kernels::Gemm &gemm, Number type, Stream stream) = 0;

    // On the host:
    virtual Result<bool> done(Event event) = 0; ///< what it was last recorded behind
    /// Nanoseconds from one recorded event to another; both are done.
    virtual Result<std::int64_t> between(Event begin, Event end) = 0;
    /// A copy that is made when this returns, beside all streams: nothing under way may touch the memory.
    virtual Status copyNow(void *to, const void *from, std::int64_t bytes) = 0;

    virtual Result<LinkId> makeLinkId() = 0; ///< by one of the members
    /// Called by all members at once; returns when all are there.
    virtual Result<std::unique_ptr<Link>> link(const LinkId &id, int rank, int size) = 0;
    /// Bytes that libraries have taken of the device: names for the memory report.
    virtual std::vector<std::pair<std::string, std::int64_t>> libraryBytes() const = 0;
};

} // namespace rankyard::cuda
