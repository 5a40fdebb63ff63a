// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/kernels/kernel_device.h"

/// Between floating types on the CPU; to nearest even, an fp16 beyond its range becomes infinite.
namespace rankyard::kernels {

bool canConvert(DType type); ///< F64, F32, BF16, F16
void convert(const Conversion &conversion);

} // namespace rankyard::kernels
