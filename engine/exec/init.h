// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/arena.h"
#include "engine/plan/plan.h"
#include "engine/plan/units.h"

#include <cstdint>
#include <functional>

namespace rankyard::exec {

/// The initial values of elements [begin, begin + count) of a tensor: element e is draw e mod 4 of block e ÷
/// 4 of the tensor's stream, so any layout makes its shard alone. `index`: place of the tensor in
/// plan::modelTensors().
void initialValues(const plan::TensorSpec &spec, std::uint64_t seed, std::uint32_t index, std::int64_t begin,
                   std::int64_t count, double *values);

/// Fills this rank's parameter slices (and master copies) by `init.seed`. The other slices come with the
/// first all-gather. `alive` is called between pieces of work.
Status initialiseParameters(const plan::Plan &plan, const Arenas &arenas, int rank,
                            const std::function<void()> &alive = {});

} // namespace rankyard::exec
