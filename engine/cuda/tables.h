// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cuda/queue.h"
#include "engine/kernels/kernel_table.h"

/// The kernels of a GPU by type: compiled by nvcc in the plug-in, and by the host's compiler in tests.
namespace rankyard::cuda {

struct Tables {
    kernels::IsaTables all;
    /// to += from on the current queue, by Number.
    void (*add[4])(const void *from, void *to, std::int64_t count);
};
/// Those that nvcc has compiled; in the plug-in.
const Tables &compiledTables();

} // namespace rankyard::cuda
