// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cuda/queue.h"
#include "engine/kernels/kernel_table.h"

/// The kernels of a GPU by type: compiled by nvcc in the plug-in, and by the host's compiler in tests.
namespace rankyard::cuda {

/// A code's form: plain numbers of engine/plan/codec.h.
struct CodecShape {
    std::int64_t count = 0, block = 1, header = 0;
    std::uint32_t half = 0, byte = 0;           ///< the forms' numbers
    std::uint32_t halfUnits = 0, byteUnits = 0; ///< plan::usedUnits of them
};
struct EncodeCall {
    CodecShape shape;
    std::uint32_t form = 0; ///< of what is not adaptive; else that above the threshold
    bool adaptive = false;
    double lossScale = 1, threshold = 0;
    const void *gradient = nullptr;
    void *error = nullptr, *code = nullptr, *scratch = nullptr; ///< kernels::Encoding
};
struct DecodeCall {
    CodecShape shape;
    const void *codes = nullptr;
    std::int64_t stride = 0, ranks = 0, begin = 0, count = 0; ///< kernels::Decoding
    void *out = nullptr;
    bool accumulate = false;
};

struct Tables {
    kernels::IsaTables all;
    /// Of gradients in F32 and F64.
    void (*encode[2])(const EncodeCall &);
    void (*decode[2])(const DecodeCall &);
    /// to += from on the current queue, by Number.
    void (*add[4])(const void *from, void *to, std::int64_t count);
};
/// Those that nvcc has compiled; in the plug-in.
const Tables &compiledTables();

} // namespace rankyard::cuda
