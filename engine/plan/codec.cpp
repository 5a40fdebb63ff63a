// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rankyard::plan {

std::int64_t topCount(const spec::Compression &compression, std::int64_t count)
{
    const auto wish = static_cast<std::int64_t>(std::ceil(compression.density * static_cast<double>(count)));
    return std::clamp<std::int64_t>(wish, std::min<std::int64_t>(1, count), count);
}

std::int64_t codeBytes(CodeForm form, const spec::Compression &compression, DType type, std::int64_t count)
{
    const auto size = static_cast<std::int64_t>(bytesOf(type));
    const std::int64_t blocks = (count + compression.block - 1) / compression.block;
    switch (form) {
    case CodeForm::Half:
        return codeHeaderBytes + 2 * count;
    case CodeForm::Byte:
        return codeHeaderBytes + 2 * blocks * size + count;
    default:
        return codeHeaderBytes + topCount(compression, count) * (size + 4);
    }
}

std::int64_t codeBytes(const spec::Compression &compression, DType type, std::int64_t count)
{
    const std::int64_t half = codeBytes(CodeForm::Half, compression, type, count);
    const std::int64_t byte = codeBytes(CodeForm::Byte, compression, type, count);
    const std::int64_t bytes = compression.mode == "fp16" ? half
        : compression.mode == "int8"                      ? byte
        : compression.mode == "adaptive"                  ? std::max(half, byte)
                                         : codeBytes(CodeForm::Top, compression, type, count);
    return (bytes + 63) / 64 * 64;
}

std::uint32_t usedUnits(CodeForm form, const spec::Compression &compression, DType type, std::int64_t count)
{
    return static_cast<std::uint32_t>((codeBytes(form, compression, type, count) + 63) / 64);
}

std::int64_t usedBytes(const std::byte *code, std::int64_t bytes)
{
    std::uint32_t units = 0;
    if (bytes < codeHeaderBytes)
        return bytes;
    std::memcpy(&units, code + sizeof units, sizeof units);
    return std::min(bytes, 64 * static_cast<std::int64_t>(units));
}

} // namespace rankyard::plan
