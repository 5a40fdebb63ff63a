// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cuda/gpu.h"
#include "engine/exec/device.h"

#include <array>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace rankyard::cuda {

/// A lane of a program: a stream, and memory that its kernels use one after the other.
struct CudaLane {
    Stream stream = nullptr;
    Event reached = nullptr; ///< that the host waits for
    std::shared_ptr<std::byte> scratch, partials;
    std::int64_t scratchBytes = 0, partialBytes = 0;
};

/// Device memory, and pinned memory of the host, of a GPU.
class CudaMemory : public exec::DeviceMemory
{
public:
    explicit CudaMemory(std::shared_ptr<Gpu> gpu) : m_gpu(std::move(gpu)) {}
    Result<std::shared_ptr<std::byte>> allocate(std::int64_t bytes, bool host) override;
    Status copy(void *to, const void *from, std::int64_t bytes) override
    {
        return m_gpu->copyNow(to, from, bytes);
    }
    std::int64_t freeBytes() const override { return m_gpu->freeBytes(); }

private:
    std::shared_ptr<Gpu> m_gpu;
};

/// The order of ops on a GPU: a stream a lane, events around each op, and the links of transfers. A group has one link for its
/// collectives. Sends and receives have one a channel and pair of neighbours: within a link NCCL does one operation after the
/// other, so a Send that waits for its Recv would hold up what the peer needs to get there. All ranks make them in one order.
class CudaQueue : public exec::DeviceQueue
{
public:
    CudaQueue(std::shared_ptr<Gpu> gpu, CudaMemory &memory) : m_gpu(std::move(gpu)), m_memory(memory) {}

    Status connect(const plan::Plan &plan, int rank,
                   const std::map<std::string, comm::Communicator *> &host) override;
    exec::HostBatch batchOf(const exec::BindContext &context, const plan::Op &op) override;
    Status beginRun(const plan::StepProgram &program) override;
    Status begin(const plan::Op &op) override;
    Status end(const plan::Op &op) override;
    Status await(const plan::Op *op, const Poll &poll) override;
    Status times(std::span<std::int64_t> begin, std::span<std::int64_t> end) override;

    /// The lane of an op, made when the first op of it is bound, and events for the op.
    Result<CudaLane *> prepare(const plan::Op &op);
    std::int64_t scratchBytes() const; ///< of all lanes
    /// Two buffers' worth of pinned memory for a LoadBatch.
    Status prepareBatch(const exec::BindContext &context, const plan::Op &op);
    /// Of a collective's group; null: there is none.
    Link *linkOf(const std::string &group) const;
    /// Of a Send or Recv: between two places of the group.
    Link *linkOf(const std::string &group, int channel, int sender, int receiver) const;

private:
    /// A directed pair of places of a group, and what flows.
    using Pair = std::tuple<std::string, int, int, int>; ///< group, channel, sender, receiver

    std::vector<Pair> pairsOf(const plan::Plan &plan, int rank, const std::string &group) const;
    Result<std::unique_ptr<Link>> meet(comm::Communicator &host, int maker, int own, int size);
    Status awaitEvents(std::span<const Event> events, const Poll &poll);

    std::shared_ptr<Gpu> m_gpu;
    CudaMemory &m_memory;
    std::array<std::unique_ptr<CudaLane>, plan::laneCount> m_lanes;
    std::map<std::string, std::unique_ptr<Link>> m_links;
    std::map<Pair, std::unique_ptr<Link>> m_pairs;
    std::map<std::pair<const plan::StepProgram *, plan::OpId>, std::shared_ptr<std::byte>> m_batches;
    std::vector<Event> m_begin, m_end; ///< by op
    Event m_base = nullptr;            ///< recorded when the host's clock was m_baseNs
    std::int64_t m_baseNs = 0;
    const plan::StepProgram *m_program = nullptr; ///< of the run
};

} // namespace rankyard::cuda
