// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/cpu_device.h"

#include "engine/kernels/bind.h"
#include "engine/spec/rope.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace rankyard::kernels {

void Scratch::reserve(std::int64_t bytes)
{
    if (bytes <= m_bytes)
        return;
    m_owner = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes)
                                            + 64); // zeroed: touched before the first step
    const auto address = reinterpret_cast<std::uintptr_t>(m_owner.get());
    m_data = m_owner.get() + ((64 - address % 64) % 64);
    m_bytes = bytes;
}

CpuDevice::CpuDevice(int threads, Isa isa) : m_isa(isa), m_tables(tablesFor(isa)) { setThreads(threads); }

void CpuDevice::setThreads(int threads)
{
    const int count = std::max(threads, 1);
    if (!m_team || m_team->size() != count)
        m_team = std::make_unique<Team>(count);
    m_scratch.resize(static_cast<std::size_t>(count));
    reserve(m_reserved);
}

void CpuDevice::reserve(std::int64_t bytes)
{
    m_reserved = std::max(m_reserved, bytes);
    for (Scratch &scratch : m_scratch)
        scratch.reserve(m_reserved);
}

const RowPlaces &CpuDevice::places(std::int64_t first, std::int64_t rows, std::int64_t length,
                                   const std::function<std::int64_t(std::int64_t)> &positionOf)
{
    const auto [place, added] = m_places.try_emplace({first, rows, length});
    if (added) {
        for (std::int64_t row = first; row < first + rows; ++row) {
            place->second.sample.push_back(static_cast<std::int32_t>(row / length));
            place->second.position.push_back(static_cast<std::int32_t>(positionOf(row % length)));
        }
    }
    return place->second;
}

const void *CpuDevice::angles(DType compute) const
{
    if (compute == DType::F64)
        return m_angles64.data();
    return m_angles32.data();
}

Status CpuDevice::prepareAngles(const spec::Model &model, DType compute)
{
    if (!m_angles64.empty() || !m_angles32.empty())
        return {};
    RY_ASSIGN(const spec::Rope rope, spec::ropeOf(model));
    std::vector<double> angles;
    for (std::int64_t position = 0; position < model.seq; ++position) {
        for (const double frequency : rope.frequency)
            angles.push_back(rope.scale * std::cos(static_cast<double>(position) * frequency));
        for (const double frequency : rope.frequency)
            angles.push_back(rope.scale * std::sin(static_cast<double>(position) * frequency));
    }
    if (compute == DType::F64)
        m_angles64 = std::move(angles);
    else
        m_angles32.assign(angles.begin(), angles.end());
    return {};
}

std::string CpuDevice::name() const
{
    std::string model = "CPU";
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("model name")) {
            model = line.substr(std::min(line.find(": ") + 2, line.size()));
            break;
        }
    }
    const int threads = m_team->size();
    return model + ", " + nameOf(m_isa) + ", " + std::to_string(threads)
        + (threads == 1 ? " thread" : " threads");
}

std::vector<std::pair<std::string, std::int64_t>> CpuDevice::libraryWorkspace() const
{
    std::int64_t bytes = 0;
    for (const Scratch &scratch : m_scratch)
        bytes += scratch.bytes();
    std::int64_t tables = static_cast<std::int64_t>(m_angles32.size() * 4 + m_angles64.size() * 8);
    for (const auto &[key, places] : m_places)
        tables += static_cast<std::int64_t>(8 * places.sample.size());
    return {{"kernel scratch", bytes}, {"position tables", tables}};
}

Result<std::unique_ptr<exec::BoundOp>> CpuDevice::bind(const exec::BindContext &context, const plan::Op &op)
{
    switch (op.kind) {
    case plan::OpKind::Forward:
    case plan::OpKind::Recompute:
        return bindForward(*this, context, op);
    case plan::OpKind::BackwardInput:
        return bindBackwardInput(*this, context, op);
    case plan::OpKind::BackwardWeight:
        return bindBackwardWeight(*this, context, op);
    case plan::OpKind::Add:
        return bindAdd(*this, context, op);
    case plan::OpKind::Copy:
        return bindCopy(*this, context, op);
    case plan::OpKind::Encode:
        return bindEncode(*this, context, op);
    case plan::OpKind::Decode:
        return bindDecode(*this, context, op);
    case plan::OpKind::GradNorm:
        return bindGradNorm(*this, context, op);
    case plan::OpKind::Optimizer:
        return bindOptimizer(*this, context, op);
    default:
        return Binder(*this, context, op).missing("no kernel");
    }
}

} // namespace rankyard::kernels

namespace rankyard::exec {

std::unique_ptr<Device> makeCpuDevice(int threads)
{
    return std::make_unique<kernels::CpuDevice>(threads, kernels::detectIsa());
}

} // namespace rankyard::exec
