// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <functional>
#include <vector>

namespace rankyard::probe {

/// Binds the calling thread, and those that it starts, to its part of this process's cores, as an agent binds workers: cores ÷ ranks
/// each, in order. With more ranks than cores nothing is bound.
void bindToCores(int rank, int ranks);

/// This process's cores by the memory node that they are near to, in order; one list where the system does not say.
std::vector<std::vector<int>> coresByMemory();

/// Calls `body` for all ranks at once, each in a thread of its own; the first error by rank. Threads are bound as above, or, given
/// `cores`, one to each of them.
Status crew(int ranks, const std::function<Status(int rank)> &body, const std::vector<int> &cores = {});

} // namespace rankyard::probe
