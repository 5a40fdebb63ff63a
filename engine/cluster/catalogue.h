// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rankyard::cluster {

/// What a GPU can do at most. Rates are dense, in FLOP/s; 0: it cannot, or it is not known. Memory is as it is sold, in GB of
/// 10⁹ bytes. Vendors' data sheets, compared with the tables of stas00/ml-engineering (compute/accelerator), torchtitan
/// (tools/utils.py) and Lightning (fabric/utilities/throughput.py).
struct GpuModel {
    const char *name;
    double memoryBytes;
    double memoryBandwidth; ///< bytes/s
    double fp32;
    double tf32;
    double bf16; ///< fp16 on GPUs before bf16 existed
    double fp8;
    double linkBandwidth; ///< NVLink or xGMI, all lanes, one direction; 0: none
    double pcieBandwidth; ///< one direction
    bool hasBf16 = true;
};

std::span<const GpuModel> gpuModels();
/// By name, or by what drivers call it ("NVIDIA A100-SXM4-80GB"); null when it is none of ours.
const GpuModel *findGpu(std::string_view name);

} // namespace rankyard::cluster
