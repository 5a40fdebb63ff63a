// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/units.h"
#include "engine/spec/job.h"

#include <cstddef>
#include <cstdint>

/// What a compressed gradient looks like: the contract between the pass that plans its bytes and the kernels that write them.
///
/// For `count` elements of type A (precision.grad: fp32 or fp64), after a header of 8 bytes (u32 form, u32 bytes of the code ÷ 64, rounded up):
///   fp16  f16 [count]
///   int8  A least [blocks], A largest [blocks], u8 [count]: least + code · (largest − least) ÷ 255, blocks of `block` elements
///   topk  A value [k], u32 place [k], k = ⌈density · count⌉ elements of largest magnitude, by place
/// adaptive is one of the first two, by the norm of the gradient at each step; its buffer holds either, and what a code leaves free of it
/// need not be moved.
namespace rankyard::plan {

enum class CodeForm : std::uint32_t { Half = 1, Byte = 2, Top = 3 };
constexpr std::int64_t codeHeaderBytes = 8;

/// Elements that top-k sends of `count`: at least one of any.
std::int64_t topCount(const spec::Compression &compression, std::int64_t count);
/// Bytes of a form, with the header.
std::int64_t codeBytes(CodeForm form, const spec::Compression &compression, DType type, std::int64_t count);
/// Bytes of the largest form that the mode may write, rounded up to 64: the buffer, and at most the payload of its gather.
std::int64_t codeBytes(const spec::Compression &compression, DType type, std::int64_t count);
/// The second word of a code's header.
std::uint32_t usedUnits(CodeForm form, const spec::Compression &compression, DType type, std::int64_t count);
/// Bytes that a code fills of its buffer of `bytes`, by its header.
std::int64_t usedBytes(const std::byte *code, std::int64_t bytes);

} // namespace rankyard::plan
