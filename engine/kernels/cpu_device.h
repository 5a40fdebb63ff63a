// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/kernels/kernel_device.h"

#include <memory>
#include <string>
#include <vector>

namespace rankyard::kernels {

/// Memory aligned to 64 that only grows. `clear` keeps it.
class Scratch
{
public:
    void reserve(std::int64_t bytes);
    std::byte *data() const { return m_data; }
    std::int64_t bytes() const { return m_bytes; }

private:
    std::unique_ptr<std::byte[]> m_owner;
    std::byte *m_data = nullptr;
    std::int64_t m_bytes = 0;
};

/// The CPU as a device: tuned kernels of the best instruction set, a team of threads and a scratch for each of them. Owns
/// threads and scratch; the ops it has bound use them and must not outlive it. Called from the rank's interpreter thread.
class CpuDevice : public KernelDevice
{
public:
    CpuDevice(int threads, Isa isa);

    std::string name() const override;
    /// Before the first bind: scratch is measured for this number.
    void setThreads(int threads) override;
    Result<std::unique_ptr<exec::BoundOp>> bind(const exec::BindContext &context,
                                                const plan::Op &op) override;
    /// "kernel scratch": packed blocks and partial sums of all threads.
    std::vector<std::pair<std::string, std::int64_t>> libraryWorkspace() const override;

    const IsaTables &tables() const override { return m_tables; }
    Team &team() override { return *m_team; }
    void reserve(std::int64_t bytes) override;
    std::byte *scratch(int thread) const override
    {
        return m_scratch[static_cast<std::size_t>(thread)].data();
    }
    const void *keep(const void *data, std::int64_t bytes) override;
    void fill(void *at, std::int64_t bytes) override;
    void copy(void *to, const void *from, std::int64_t bytes) override;
    void fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows) override;
    void copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                  std::int64_t bytes, std::int64_t rows) override;
    void add(DType type, const void *from, void *to, std::int64_t count) override;
    bool converts() const override { return true; }
    void convert(const Conversion &conversion) override;
    void encode(const Encoding &encoding) override;
    void decode(const Decoding &decoding) override;
    Result<std::unique_ptr<exec::BoundOp>> bindFileCopy(const Transfer &transfer) override;

private:
    Isa m_isa;
    const IsaTables &m_tables;
    std::unique_ptr<Team> m_team;
    CopyLane m_copyLane;
    std::vector<Scratch> m_scratch;
    std::int64_t m_reserved = 0;
    std::vector<Scratch> m_kept;
};

} // namespace rankyard::kernels
