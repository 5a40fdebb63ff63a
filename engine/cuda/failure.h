// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

/// Kernel tables and the device's memory calls return nothing: what goes wrong in them on this thread is kept until it is asked for.
namespace rankyard::cuda {

void noteFailure(const Status &status);
/// The first one since the last call.
Status takeFailure();

} // namespace rankyard::cuda
