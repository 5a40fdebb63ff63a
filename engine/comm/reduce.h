// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/units.h"
#include "engine/comm/communicator.h"

#include <cstdint>

namespace rankyard::comm {

/// Element by element, output[i] = inputs[0][i] ∘ inputs[1][i] ∘ …, in this order: every rank that does it
/// gets the same bits. fp16 and bf16 are accumulated in fp32 and rounded once, to nearest even. Max keeps
/// NaN. `output` may be one of the inputs; partial overlap is not allowed.
void reduce(DType type, ReduceOp op, const void *const *inputs, int inputCount, void *output,
            std::int64_t count);

/// Whether reduce() knows the type: the floating types, I64 and I32.
bool canReduce(DType type);

} // namespace rankyard::comm
