// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/codec.h"

#include <cstddef>
#include <cstdint>

/// Compressed gradients (engine/plan/codec.h has their form). Plain loops: they are bound by memory.
namespace rankyard::kernels {

/// A gradient of `count` elements to be encoded.
struct Encoding {
    const spec::Compression *compression = nullptr;
    DType type = DType::F32; ///< of gradient and error: F32 or F64
    std::int64_t count = 0;
    const void *gradient = nullptr;
    /// Error feedback (Seide et al. 2014; Karimireddy et al. 2019), may be null: what earlier codes have left out, unscaled. It is
    /// added before encoding, and becomes what this code leaves out; where that is not finite, 0.
    void *error = nullptr;
    double lossScale = 1; ///< that the gradient has
    std::byte *code = nullptr;
    void *scratch = nullptr; ///< encodeScratch() bytes
};

/// The sum of a group's codes, in its ranks' order.
struct Decoding {
    const spec::Compression *compression = nullptr;
    DType type = DType::F32;
    std::int64_t all = 0;             ///< elements of a code
    const std::byte *codes = nullptr; ///< that of rank r at r · stride
    std::int64_t stride = 0, ranks = 0;
    std::int64_t begin = 0, count = 0; ///< the elements that are wanted; beyond `all` they are padding, zeros
    void *out = nullptr;               ///< [count]
    bool accumulate = false;
};

std::int64_t encodeScratch(const spec::Compression &compression, DType type, std::int64_t count);
/// Which form the mode takes for this gradient: adaptive fp16 where its unscaled norm is above the threshold, else int8.
plan::CodeForm encode(const Encoding &encoding);
/// Adds elements [begin, end) of what a code of `count` elements says to out[0 …]. A value that was not finite stays so.
void decodeAdd(const spec::Compression &compression, DType type, std::int64_t count, const std::byte *code,
               std::int64_t begin, std::int64_t end, void *out);

} // namespace rankyard::kernels
