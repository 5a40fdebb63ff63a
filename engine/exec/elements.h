// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/units.h"

#include <cstddef>
#include <cstdint>

namespace rankyard::exec {

/// Converts and stores values[i] at element `at` + i of a buffer of the given type.
void storeElements(DType type, std::byte *buffer, std::int64_t at, const double *values, std::int64_t count);
/// Loads elements `at` … of a buffer of the given floating type.
void loadElements(DType type, const std::byte *buffer, std::int64_t at, double *values, std::int64_t count);

} // namespace rankyard::exec
