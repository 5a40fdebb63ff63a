// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cuda/kernels/codec.h"
#include "engine/cuda/kernels/table.h"
#include "engine/cuda/tables.h"

namespace rankyard::cuda {

inline Tables makeTables()
{
    return {{makeTable<float>(), makeTable<double>(), makeTable<Bf16>(), makeTable<Half>()},
            {encodeAs<float>, encodeAs<double>},
            {decodeAs<float>, decodeAs<double>},
            {addInto<float>, addInto<double>, addInto<Bf16>, addInto<Half>}};
}

} // namespace rankyard::cuda
