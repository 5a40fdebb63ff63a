// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cuda/kernels/tables_of.h"
#include "tests/engine/cuda/host_launcher.h"

namespace rankyard::cuda::test {

const Tables &hostTables()
{
    static const Tables tables = makeTables();
    return tables;
}

} // namespace rankyard::cuda::test
