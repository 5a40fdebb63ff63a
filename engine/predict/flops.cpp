// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/flops.h"

#include <array>
#include <utility>

namespace rankyard::predict {

namespace {

constexpr std::array<std::pair<const char *, Convention>, 9> tags{{
    {"HW4", Convention::Hardware4},
    {"M3", Convention::Model3},
    {"M3C", Convention::Model3Causal},
    {"8N", Convention::EightN},
    {"6N", Convention::SixN},
    {"6N+12Lhs", Convention::SixNAttention},
    {"8N*tokens", Convention::EightN},
    {"6N*tokens", Convention::SixN},
    {"6N-like", Convention::SixN},
}};

/// Weights of a layer's matrix products that a token passes.
double layerWeights(const Shape &shape)
{
    const auto h = static_cast<double>(shape.hidden);
    const auto n = static_cast<double>(shape.mlpMatrices());
    // Biases and norms are no matrix products.
    Shape bare = shape;
    bare.biases = false;
    bare.queryBias = false;
    double attention = static_cast<double>(attentionParams(bare));
    if (shape.latent)
        attention -= static_cast<double>(shape.latent->keyRank + shape.latent->queryRank);
    const double dense = n * h * static_cast<double>(shape.ffn);
    if (!shape.sparse())
        return attention + dense;
    const Experts &e = shape.experts;
    const double sparse = h * static_cast<double>(e.count)
        + static_cast<double>(e.topK + e.shared) * n * h * static_cast<double>(e.ffn);
    const double share = static_cast<double>(e.denseLayers) / static_cast<double>(shape.layers);
    return attention + share * dense + (1 - share) * sparse;
}

} // namespace

const char *nameOf(Convention convention)
{
    for (const auto &[tag, value] : tags) {
        if (value == convention)
            return tag;
    }
    return "";
}

std::optional<Convention> conventionFrom(std::string_view tag)
{
    for (const auto &[name, value] : tags) {
        if (tag == name)
            return value;
    }
    return std::nullopt;
}

double layerForwardFlops(const Shape &shape, bool causal)
{
    const double width = shape.latent
        ? static_cast<double>(shape.heads * (shape.latent->nope + shape.latent->rope + shape.latent->value))
            / 2
        : static_cast<double>(shape.queryWidth());
    return 2 * layerWeights(shape) + (causal ? 2 : 4) * static_cast<double>(shape.seq) * width;
}

double forwardFlops(const Shape &shape, bool causal)
{
    return static_cast<double>(shape.layers) * layerForwardFlops(shape, causal)
        + 2 * static_cast<double>(tableParams(shape, shape.vocab));
}

double stepFlops(const Shape &shape, double sequences, Convention convention)
{
    const double tokens = sequences * static_cast<double>(shape.seq);
    const auto params = static_cast<double>(activeParams(shape));
    switch (convention) {
    case Convention::Hardware4:
        return tokens
            * (3 * forwardFlops(shape, false)
               + static_cast<double>(shape.layers) * layerForwardFlops(shape, false));
    case Convention::Model3:
        return tokens * 3 * forwardFlops(shape, false);
    case Convention::Model3Causal:
        return tokens * 3 * forwardFlops(shape, true);
    case Convention::EightN:
        return tokens * 8 * params;
    case Convention::SixN:
        return tokens * 6 * params;
    case Convention::SixNAttention:
        return tokens
            * (6 * params
               + 12.0 * static_cast<double>(shape.layers * shape.queryWidth())
                   * static_cast<double>(shape.seq));
    }
    return 0;
}

double utilisation(double flops, double seconds, double devices, double peak)
{
    return seconds > 0 && devices > 0 && peak > 0 ? flops / (seconds * devices * peak) : 0;
}

} // namespace rankyard::predict
