// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/device.h"
#include "engine/kernels/codec.h"
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

/// Of each row of a micro-batch: its sequence and its position in it. The arrays are where kernels read them.
struct RowPlaces {
    const std::int32_t *sample = nullptr, *position = nullptr;
    std::vector<std::int32_t> positions; ///< those of `position`, to be read while binding
};

/// Elements of one type into another.
struct Conversion {
    DType fromType = DType::F32;
    const void *from = nullptr;
    DType toType = DType::F32;
    void *to = nullptr;
    std::int64_t count = 0;
    bool accumulate = false; ///< adds, in the wider of the two types, rounded once
};

/// A device whose ops are calls of a kernel table. Binding (bind.h) is the same for all of them; they differ in where memory is
/// and in when a call has done its work: on the CPU when it returns, on a GPU in the order of the current stream. Called from the
/// rank's interpreter thread; what it has bound must not outlive it.
class KernelDevice : public exec::Device
{
public:
    virtual const IsaTables &tables() const = 0;
    /// Threads that share the rows of an op; one where kernels divide them themselves.
    virtual Team &team() = 0;

    /// Every thread will have at least `bytes` of scratch. While binding, never in run().
    virtual void reserve(std::int64_t bytes) = 0;
    virtual std::byte *scratch(int thread) const = 0;
    /// A copy where kernels can read it, aligned to 64, that lives as long as the device. While binding.
    virtual const void *keep(const void *data, std::int64_t bytes) = 0;

    // In the order of the kernels' calls:
    virtual void fill(void *at, std::int64_t bytes) = 0; ///< with zeros
    virtual void copy(void *to, const void *from, std::int64_t bytes) = 0;
    /// `rows` rows of `bytes` each; strides in bytes.
    virtual void fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows) = 0;
    virtual void copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                          std::int64_t bytes, std::int64_t rows) = 0;
    /// to += from, of floating types.
    virtual void add(DType type, const void *from, void *to, std::int64_t count) = 0;
    /// to = from, or to += from, each in its floating type; only where `converts`.
    virtual bool converts() const { return false; }
    virtual void convert(const Conversion &) {}
    virtual void encode(const Encoding &encoding) = 0;
    virtual void decode(const Decoding &decoding) = 0;
    /// A copy from or to a file that may go on beside the interpreter; null where copy() will do.
    virtual Result<std::unique_ptr<exec::BoundOp>> bindFileCopy(const Transfer &transfer) = 0;

    /// Rows first … first + rows of a micro-batch whose sequences have `length` rows on this rank, row i of them at position
    /// positionOf(i). Made while binding, once for equal rows; lives as long as the device, which is one rank's.
    const RowPlaces &places(std::int64_t first, std::int64_t rows, std::int64_t length,
                            const std::function<std::int64_t(std::int64_t)> &positionOf);
    /// Cosines and sines of the rotary positions, [seq, head size] of fp64 for fp64, else fp32.
    Result<const void *> angles(const spec::Model &model, DType compute);

protected:
    /// The op by the table in engine/plan/units.h.
    Result<std::unique_ptr<exec::BoundOp>> bindKernel(const exec::BindContext &context, const plan::Op &op);
    std::int64_t tableBytes() const { return m_tableBytes; } ///< of what places() and angles() keep

private:
    std::map<std::array<std::int64_t, 3>, RowPlaces> m_places;
    std::map<DType, const void *> m_angles;
    std::int64_t m_tableBytes = 0;
};

} // namespace rankyard::kernels
