// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/gpt2_names.h"

#include <algorithm>
#include <cstring>

namespace rankyard::checkpoint {

namespace {

struct Row {
    std::string_view ours;
    std::string_view theirs;
    bool transposed;
};

constexpr Row globalRows[] = {
    {"wte.weight", "wte.weight", false},      {"wpe.weight", "wpe.weight", false},
    {"norm.weight", "ln_f.weight", false},    {"norm.bias", "ln_f.bias", false},
    {"head.weight", "lm_head.weight", false},
};

/// Below "layers.<i>." and "h.<i>.".
constexpr Row layerRows[] = {
    {"attn.norm.weight", "ln_1.weight", false},      {"attn.norm.bias", "ln_1.bias", false},
    {"attn.qkv.weight", "attn.c_attn.weight", true}, {"attn.qkv.bias", "attn.c_attn.bias", false},
    {"attn.out.weight", "attn.c_proj.weight", true}, {"attn.out.bias", "attn.c_proj.bias", false},
    {"mlp.norm.weight", "ln_2.weight", false},       {"mlp.norm.bias", "ln_2.bias", false},
    {"mlp.up.weight", "mlp.c_fc.weight", true},      {"mlp.up.bias", "mlp.c_fc.bias", false},
    {"mlp.down.weight", "mlp.c_proj.weight", true},  {"mlp.down.bias", "mlp.c_proj.bias", false},
};

/// Splits "h.12.attn.bias" into "12" and "attn.bias"; false when the text has another form.
bool splitLayer(std::string_view name, std::string_view prefix, std::string_view &index,
                std::string_view &rest)
{
    if (!name.starts_with(prefix))
        return false;
    name.remove_prefix(prefix.size());
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos || dot == 0 || dot > 9)
        return false;
    index = name.substr(0, dot);
    rest = name.substr(dot + 1);
    const bool digits = std::all_of(index.begin(), index.end(), [](char c) { return c >= '0' && c <= '9'; });
    return digits && (index.size() == 1 || index.front() != '0');
}

template<typename T>
void transposeItems(const std::byte *in, std::int64_t rows, std::int64_t columns, std::byte *out)
{
    constexpr std::int64_t block = 32; // both sides of a block stay in the first-level cache
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t r0 = 0; r0 < rows; r0 += block) {
        for (std::int64_t c0 = 0; c0 < columns; c0 += block) {
            for (std::int64_t r = r0; r < std::min(rows, r0 + block); ++r) {
                for (std::int64_t c = c0; c < std::min(columns, c0 + block); ++c)
                    std::memcpy(out + (c * rows + r) * size, in + (r * columns + c) * size, sizeof(T));
            }
        }
    }
}

} // namespace

std::optional<TensorName> toHuggingFace(std::string_view canonical)
{
    for (const Row &row : globalRows) {
        if (canonical == row.ours)
            return TensorName{std::string(row.theirs), row.transposed};
    }
    std::string_view index;
    std::string_view rest;
    if (splitLayer(canonical, "layers.", index, rest)) {
        for (const Row &row : layerRows) {
            if (rest == row.ours)
                return TensorName{"h." + std::string(index) + "." + std::string(row.theirs), row.transposed};
        }
    }
    return {};
}

ForeignName fromHuggingFace(std::string_view name)
{
    constexpr std::string_view prefix = "transformer.";
    if (name.starts_with(prefix))
        name.remove_prefix(prefix.size());
    for (const Row &row : globalRows) {
        if (name == row.theirs)
            return {ForeignKind::Parameter, {std::string(row.ours), row.transposed}};
    }
    std::string_view index;
    std::string_view rest;
    if (splitLayer(name, "h.", index, rest)) {
        for (const Row &row : layerRows) {
            if (rest == row.theirs)
                return {ForeignKind::Parameter,
                        {"layers." + std::string(index) + "." + std::string(row.ours), row.transposed}};
        }
        if (rest == "attn.bias" || rest == "attn.masked_bias")
            return {ForeignKind::Buffer, {}};
    }
    return {};
}

std::vector<std::int64_t> foreignShape(const std::vector<std::int64_t> &shape, bool transposed)
{
    return transposed ? std::vector<std::int64_t>(shape.rbegin(), shape.rend()) : shape;
}

void transpose(const void *in, std::int64_t rows, std::int64_t columns, std::size_t itemBytes, void *out)
{
    const auto *from = static_cast<const std::byte *>(in);
    auto *to = static_cast<std::byte *>(out);
    switch (itemBytes) {
    case 1:
        return transposeItems<std::uint8_t>(from, rows, columns, to);
    case 2:
        return transposeItems<std::uint16_t>(from, rows, columns, to);
    case 4:
        return transposeItems<std::uint32_t>(from, rows, columns, to);
    default:
        return transposeItems<std::uint64_t>(from, rows, columns, to);
    }
}

} // namespace rankyard::checkpoint
