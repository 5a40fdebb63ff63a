// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/telemetry/record.h"

#include <filesystem>

/// Spans of one execution of a program in a file of its own, zstd over wire::packSpans, beside the store.
namespace rankyard::store {

std::filesystem::path spanFile(const std::filesystem::path &runFolder, std::int32_t rank, std::int64_t step,
                               plan::ProgramKind program, std::uint32_t epoch);
/// Creates the folder. Not fsynced: spans are the one thing that a power failure may cost.
Status writeSpans(const std::filesystem::path &file, const telemetry::SpanRecord &spans);
Result<telemetry::SpanRecord> readSpans(const std::filesystem::path &file);

} // namespace rankyard::store
