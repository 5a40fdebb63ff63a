// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/device.h"
#include "engine/kernels/copy_lane.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kernels/team.h"

#include <array>
#include <functional>
#include <map>
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

/// Of each row of a micro-batch: its sequence and its position in it.
struct RowPlaces {
    std::vector<std::int32_t> sample, position;
};

/// The CPU as a device: tuned kernels of the best instruction set, a team of threads and a scratch for each of them. Owns
/// threads and scratch; the ops it has bound use them and must not outlive it. Called from the rank's interpreter thread.
class CpuDevice : public exec::Device
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

    Team &team() { return *m_team; }
    CopyLane &copyLane() { return m_copyLane; }
    const IsaTables &tables() const { return m_tables; }
    /// Every thread will have at least `bytes` of scratch. While binding, never in run().
    void reserve(std::int64_t bytes);
    /// Rows first … first + rows of a micro-batch whose sequences have `length` rows on this rank, row i of them at position
    /// positionOf(i). Made while binding, once for equal rows; lives as long as the device, which is one rank's.
    const RowPlaces &places(std::int64_t first, std::int64_t rows, std::int64_t length,
                            const std::function<std::int64_t(std::int64_t)> &positionOf);
    /// Cosines and sines of the rotary positions, [seq, head size] of fp64 for fp64, else fp32; after prepareAngles().
    const void *angles(DType compute) const;
    Status prepareAngles(const spec::Model &model, DType compute);
    std::byte *scratch(int thread) const { return m_scratch[static_cast<std::size_t>(thread)].data(); }

private:
    Isa m_isa;
    const IsaTables &m_tables;
    std::unique_ptr<Team> m_team;
    CopyLane m_copyLane;
    std::vector<Scratch> m_scratch;
    std::int64_t m_reserved = 0;
    std::map<std::array<std::int64_t, 3>, RowPlaces> m_places;
    std::vector<float> m_angles32;
    std::vector<double> m_angles64;
};

} // namespace rankyard::kernels
