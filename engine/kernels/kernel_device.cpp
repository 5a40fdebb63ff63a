// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/kernel_device.h"

#include "engine/kernels/bind.h"
#include "engine/spec/rope.h"

#include <cmath>

namespace rankyard::kernels {

const RowPlaces &KernelDevice::places(std::int64_t first, std::int64_t rows, std::int64_t length,
                                      const std::function<std::int64_t(std::int64_t)> &positionOf)
{
    const auto [place, added] = m_places.try_emplace({first, rows, length});
    RowPlaces &result = place->second;
    if (added) {
        std::vector<std::int32_t> samples;
        for (std::int64_t row = first; row < first + rows; ++row) {
            samples.push_back(static_cast<std::int32_t>(row / length));
            result.positions.push_back(static_cast<std::int32_t>(positionOf(row % length)));
        }
        result.sample = static_cast<const std::int32_t *>(keep(samples.data(), 4 * rows));
        result.position = static_cast<const std::int32_t *>(keep(result.positions.data(), 4 * rows));
        m_tableBytes += 8 * rows;
    }
    return result;
}

Result<const void *> KernelDevice::angles(const spec::Model &model, DType compute)
{
    const DType type = compute == DType::F64 ? DType::F64 : DType::F32;
    const auto [place, added] = m_angles.try_emplace(type, nullptr);
    if (!added)
        return place->second;
    RY_ASSIGN(const spec::Rope rope, spec::ropeOf(model));
    std::vector<double> angles;
    for (std::int64_t position = 0; position < model.seq; ++position) {
        for (const double frequency : rope.frequency)
            angles.push_back(rope.scale * std::cos(static_cast<double>(position) * frequency));
        for (const double frequency : rope.frequency)
            angles.push_back(rope.scale * std::sin(static_cast<double>(position) * frequency));
    }
    const std::vector<float> singles(angles.begin(), angles.end());
    const auto bytes = static_cast<std::int64_t>(angles.size() * bytesOf(type));
    place->second =
        keep(type == DType::F64 ? static_cast<const void *>(angles.data()) : singles.data(), bytes);
    m_tableBytes += bytes;
    return place->second;
}

Result<std::unique_ptr<exec::BoundOp>> KernelDevice::bindKernel(const exec::BindContext &context,
                                                                const plan::Op &op)
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
