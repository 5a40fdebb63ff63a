// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/plan/step_program.h"

#include <cstdint>

namespace rankyard::exec {

/// Where LoadBatch ops get their tokens. Called from the interpreter's thread.
class DataSource
{
public:
    virtual ~DataSource() = default;

    /// Writes tokens and labels of one micro-batch, each [micro, seq] row by row. `batch`: the global batch,
    /// from 0: of training (optimizer step − 1) or of the validation set.
    virtual Status fill(plan::ProgramKind kind, std::int64_t batch, std::int64_t replica,
                        std::int64_t microBatch, std::int32_t *tokens, std::int32_t *labels) = 0;
    /// Global batches of the validation set that an evaluation runs over; 0: there is none.
    virtual std::int64_t evalBatches() const = 0;
};

} // namespace rankyard::exec
