// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"

#include <cstdint>
#include <vector>

/// Which elements of the model's tensors a rank has: what the optimizer, the gradient's norm, initial values and checkpoints go by.
namespace rankyard::plan {

/// A run of a tensor's elements in this rank's slice of the tensor's bucket.
struct ShardRange {
    TensorId tensor = none;
    std::int32_t bucket = none;
    std::int64_t begin = 0; ///< elements [begin, end) of the model's whole tensor, row by row
    std::int64_t end = 0;
    std::int64_t at = 0; ///< elements from the slice's begin
    bool owned =
        true; ///< counted in the norm and saved by this rank; the others that have it hold copies (units.h, GradNorm)
};

/// By place in the slice; a bucket that is whole on every rank (slices = 1) has one slice. Padding is in no range.
std::vector<ShardRange> shardOf(const StepProgram &program, const RankGrid &grid, int rank,
                                std::int32_t bucket);
/// What the whole bucket holds on this rank, `at` from the bucket's begin: nothing of it is sliced. `owned` as if it were not
/// (of copies in the tensor group the first, and what is `counted`).
std::vector<ShardRange> wholeOf(const StepProgram &program, const RankGrid &grid, int rank,
                                std::int32_t bucket);
/// Of all buckets in order.
std::vector<ShardRange> shardOf(const StepProgram &program, const RankGrid &grid, int rank);

} // namespace rankyard::plan
