// SPDX-License-Identifier: GPL-3.0-or-later
#define RY_VECTOR_BYTES 32
#define RY_BF16 0
#include "engine/kernels/tuned_tables.h"

namespace rankyard::kernels {

const IsaTables &tablesAvx2()
{
    static constexpr IsaTables tables = makeTables();
    return tables;
}

} // namespace rankyard::kernels
