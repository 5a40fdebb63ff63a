// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Names of GPT-2's parameters here and in Hugging Face's checkpoints. Source: transformers' modeling_gpt2.py. Its Conv1D stores
/// weights [in, out]; ours are [out, in], rows of attn.qkv being all of q, then k, then v, which is its order too.
namespace rankyard::checkpoint {

struct TensorName {
    std::string name;
    bool transposed = false; ///< the other side stores this matrix transposed
};

/// "layers.3.attn.qkv.weight" → {"h.3.attn.c_attn.weight", transposed}; without the optional prefix "transformer.". Nothing for what is no
/// parameter of GPT-2.
std::optional<TensorName> toHuggingFace(std::string_view canonical);

enum class ForeignKind {
    Parameter,
    Buffer,  ///< attention masks that old checkpoints carry: ignore
    Unknown, ///< refuse
};
struct ForeignName {
    ForeignKind kind = ForeignKind::Unknown;
    TensorName canonical; ///< for parameters
};
/// The opposite direction, with or without "transformer.".
ForeignName fromHuggingFace(std::string_view name);

/// The shape on the other side: reversed for a transposed matrix.
std::vector<std::int64_t> foreignShape(const std::vector<std::int64_t> &shape, bool transposed);

/// Writes the transpose of a [rows, columns] matrix of items of 1, 2, 4 or 8 bytes to `out`, [columns, rows]. The two do not overlap.
void transpose(const void *in, std::int64_t rows, std::int64_t columns, std::size_t itemBytes, void *out);

} // namespace rankyard::checkpoint
