// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cuda/cuda_queue.h"
#include "engine/kernels/cpu_device.h"

#include <memory>
#include <string>
#include <vector>

namespace rankyard::cuda {

/// A GPU as a device: the binding of all kernel tables (engine/kernels/bind.h) with a GPU's, its memory and its queue. Ops whose
/// buffers are all on the host (an offloaded optimizer, files) are the CPU's, between two waits. From the rank's interpreter
/// thread.
class CudaDevice : public kernels::KernelDevice
{
public:
    /// `threads`: of the ops on the host.
    CudaDevice(std::shared_ptr<Gpu> gpu, int threads);

    std::string name() const override { return m_gpu->name(); }
    void setThreads(int threads) override { m_host.setThreads(threads); }
    Result<std::unique_ptr<exec::BoundOp>> bind(const exec::BindContext &context,
                                                const plan::Op &op) override;
    /// "kernel scratch", "position tables", what libraries have taken, "host scratch".
    std::vector<std::pair<std::string, std::int64_t>> libraryWorkspace() const override;
    exec::DeviceMemory *memory() override { return &m_memory; }
    exec::DeviceQueue *queue() override { return &m_queue; }

    const kernels::IsaTables &tables() const override { return m_gpu->tables().all; }
    kernels::Team &team() override { return m_team; }
    void reserve(std::int64_t bytes) override;
    std::byte *scratch(int thread) const override;
    const void *keep(const void *data, std::int64_t bytes) override;
    void fill(void *at, std::int64_t bytes) override;
    void copy(void *to, const void *from, std::int64_t bytes) override;
    void fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows) override;
    void copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                  std::int64_t bytes, std::int64_t rows) override;
    void add(DType type, const void *from, void *to, std::int64_t count) override;
    void encode(const kernels::Encoding &encoding) override;
    void decode(const kernels::Decoding &decoding) override;
    Result<std::unique_ptr<exec::BoundOp>> bindFileCopy(const kernels::Transfer &transfer) override;

private:
    class OnLane;
    class OnHost;
    friend class OnLane;

    Result<std::unique_ptr<exec::BoundOp>> bindBatch(const exec::BindContext &context, const plan::Op &op);
    Result<std::unique_ptr<exec::BoundOp>> bindTransfer(const exec::BindContext &context, const plan::Op &op);
    Status reservePartials(const exec::BindContext &context, const plan::Op &op);

    std::shared_ptr<Gpu> m_gpu;
    CudaMemory m_memory;
    CudaQueue m_queue;
    kernels::CpuDevice m_host;
    kernels::Team m_team{1};
    std::vector<std::shared_ptr<std::byte>> m_kept;
    CudaLane *m_lane = nullptr; ///< of the op that is bound or runs
    Status m_reserved;          ///< what reserve() and keep() could not get
};

} // namespace rankyard::cuda
