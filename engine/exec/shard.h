// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <vector>

/// Which elements of which tensor a rank owns, and conversions of its storage.
namespace rankyard::exec {

/// Elements [begin, end) of a tensor that lie in a rank's slice of the tensor's bucket, `at` elements from
/// the slice's begin.
struct ShardRange {
    plan::TensorId tensor = plan::none;
    std::int32_t bucket = plan::none;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t at = 0;
};

/// By bucket, then by place. A bucket that is whole on every rank (slices = 1) gives whole tensors. Padding
/// is in no range.
std::vector<ShardRange> shardOf(const plan::StepProgram &program, int sliceRank);

/// Converts and stores values[i] at element `at` + i of a buffer of the given type.
void storeElements(DType type, std::byte *buffer, std::int64_t at, const double *values, std::int64_t count);

} // namespace rankyard::exec
