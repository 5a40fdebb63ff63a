// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/cost.h"

#include <algorithm>

namespace rankyard::predict {

/// What of a device's memory a plan may use, line by line: a plan that fits to the last byte does not run.
struct Capacity {
    double bytes = 0;         ///< of the device, as sold; of a host without GPUs: a rank's share
    double context = 0;       ///< driver and kernels
    double communicators = 0; ///< buffers of the communication library
    double headroom = 0;      ///< for what kernels allocate inside, and for what nobody knows
    double host =
        0; ///< of the host's memory, what a device's rank may take; 0: not known, or the same as `bytes`
    /// Nothing where the device is smaller than what is kept back.
    double usable() const { return std::max(0.0, bytes - context - communicators - headroom); }
};

/// Context: 1,573 MiB measured on an A100 (BigScience), nothing on hosts. Communicators: 1 GiB where a layout has several groups
/// (rule of thumb 0.2–2 GB). Headroom: 4 %.
Capacity capacityOf(const Machine &machine);
/// Of a GPU with so much memory; all 0 when that is not known.
Capacity capacityOf(double gpuBytes);
/// Of a rank without a GPU, whose share of its host's memory is so much.
Capacity capacityOfShare(double hostBytes);

} // namespace rankyard::predict
