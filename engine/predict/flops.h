// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/shape.h"

#include <optional>
#include <string_view>

/// Floating-point operations of a training step by the conventions in circulation; a multiply-add counts two. Matrix products only.
/// A number of TFLOP/s without its tag says nothing: recomputation moves it by a third, the causal half by the attention's share.
namespace rankyard::predict {

enum class Convention : std::uint8_t {
    Hardware4, ///< "HW4": forward, backward and full recomputation, attention whole (Narayanan et al. 2021: 96BLsh²(1 + s/6h + V/16Lh))
    Model3, ///< "M3": forward and backward, attention whole (Korthikanti et al. 2022: 72BLsh²(1 + s/6h + V/12Lh))
    Model3Causal,  ///< "M3C": the same, attention halved (current Megatron-LM)
    EightN,        ///< "8N": 8 · parameters · tokens
    SixN,          ///< "6N": 6 · parameters · tokens
    SixNAttention, ///< "6N+12Lhs": PaLM's (Chowdhery et al. 2022), embeddings counted as parameters
};
const char *nameOf(Convention convention);
/// By the tags above; also the words that tables use ("8N*tokens", "6N-like").
std::optional<Convention> conventionFrom(std::string_view tag);

/// Of one token's forward pass. `causal` halves the attention's scores and values.
double forwardFlops(const Shape &shape, bool causal);
/// Of one layer of those, averaged over dense and sparse ones; without the head.
double layerForwardFlops(const Shape &shape, bool causal);
/// Of a step of `sequences` sequences.
double stepFlops(const Shape &shape, double sequences, Convention convention);

/// Share of `peak` (FLOP/s of one device) that `devices` reach with a step of `seconds`. MFU counts Model3; HFU what the hardware
/// really does: with full recomputation Hardware4.
double utilisation(double flops, double seconds, double devices, double peak);

} // namespace rankyard::predict
