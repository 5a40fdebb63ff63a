// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/capacity.h"

namespace rankyard::predict {

Capacity capacityOf(const Machine &machine)
{
    constexpr double mebi = 1024.0 * 1024.0;
    Capacity capacity;
    capacity.bytes = machine.memoryBytes;
    if (!machine.device.empty()) {
        capacity.context = 1573 * mebi;
        capacity.communicators = 1024 * mebi;
    }
    capacity.headroom = 0.04 * machine.memoryBytes;
    return capacity;
}

} // namespace rankyard::predict
