// SPDX-License-Identifier: GPL-3.0-or-later
// librankyard-cuda.so: what rankyard-worker opens where a GPU is (engine/exec/plugin.h).
#include "engine/exec/plugin.h"
#include "engine/base/build_id.h"
#include "engine/cuda/cuda_device.h"
#include "engine/cuda/cuda_gpu.h"

namespace {

using namespace rankyard;

Result<std::unique_ptr<exec::Device>> makeDevice(int threads, int index)
{
    RY_ASSIGN(auto gpu, cuda::openGpu(index));
    return std::unique_ptr<exec::Device>(std::make_unique<cuda::CudaDevice>(std::move(gpu), threads));
}

const exec::DevicePlugin table = {exec::Device::abi, buildId(), "CUDA", cuda::gpuCount, makeDevice};

} // namespace

extern "C" __attribute__((visibility("default"))) const exec::DevicePlugin *rankyard_device_plugin()
{
    return &table;
}
