// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/capacity.h"

namespace rankyard::predict {

Capacity capacityOf(double gpuBytes)
{
    constexpr double mebi = 1024.0 * 1024.0;
    return gpuBytes > 0 ? Capacity{gpuBytes, 1573 * mebi, 1024 * mebi, 0.04 * gpuBytes} : Capacity{};
}

Capacity capacityOfShare(double hostBytes) { return {hostBytes, 0, 0, 0.04 * hostBytes}; }

Capacity capacityOf(const Machine &machine)
{
    if (!machine.device.empty()) {
        Capacity capacity = capacityOf(machine.memoryBytes);
        capacity.host = machine.hostBytes;
        return capacity;
    }
    return capacityOfShare(machine.memoryBytes);
}

} // namespace rankyard::predict
