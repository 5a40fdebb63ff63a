// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cuda/kernels/tables_of.h"

namespace rankyard::cuda {

const Tables &compiledTables()
{
    static const Tables tables = makeTables();
    return tables;
}

} // namespace rankyard::cuda
