// SPDX-License-Identifier: GPL-3.0-or-later
#define RY_VECTOR_BYTES 16
#define RY_BF16 0
#include "engine/kernels/tuned_tables.h"

namespace rankyard::kernels {

const IsaTables &tablesBaseline()
{
    static constexpr IsaTables tables = makeTables();
    return tables;
}

} // namespace rankyard::kernels
