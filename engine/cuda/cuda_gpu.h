// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cuda/gpu.h"

namespace rankyard::cuda {

/// GPUs that CUDA shows to this process (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER); 0 without a driver.
int gpuCount();
/// GPU `index` of them, by the CUDA runtime, cuBLAS and NCCL. NotHere when it cannot be used, or is older than what the kernels are
/// compiled for.
Result<std::shared_ptr<Gpu>> openGpu(int index);

} // namespace rankyard::cuda
