// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <functional>

namespace rankyard::probe {

/// Binds the calling thread, and those that it starts, to its part of this process's cores, as an agent binds workers: cores ÷ ranks
/// each, in order. With more ranks than cores nothing is bound.
void bindToCores(int rank, int ranks);

/// Calls `body` for all ranks at once, each in a bound thread of its own; the first error by rank.
Status crew(int ranks, const std::function<Status(int rank)> &body);

} // namespace rankyard::probe
