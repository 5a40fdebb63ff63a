// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "tests/engine/kernels/harness.h"

#include <map>
#include <string>
#include <vector>

/// LibTorch's autograd in fp64 behind plain types, so that one file includes its headers.
namespace rankyard::kernels::test {

struct LayerNormOracle {
    Values n, dx, dw, db;
};
LayerNormOracle layerNormOracle(const Values &x, const Values &w, const Values &b, std::int64_t width,
                                double eps, const Values &dn);

struct GeluOracle {
    Values a, du;
};
GeluOracle geluOracle(const Values &u, const Values &da);

struct NormOracle {
    Values n, dx, dw;
};
NormOracle rmsNormOracle(const Values &x, const Values &w, std::int64_t width, double eps, const Values &dn);

struct SwigluOracle {
    Values a, du;
};
SwigluOracle swigluOracle(const Values &u, std::int64_t width, const Values &da);

struct RotateOracle {
    Values y, dx;
};
/// As Hugging Face's apply_rotary_pos_emb: x·cos + rotate_half(x)·sin, of rows [heads, size].
RotateOracle rotateOracle(const Values &x, const Values &frequency, const std::vector<std::int32_t> &position,
                          std::int64_t heads, std::int64_t size, const Values &dy);

struct AttentionOracle {
    Values o, lse, dqkv;
};
/// `factors` [batch, heads, seq, seq] multiply the probabilities; empty: ones.
AttentionOracle attentionOracle(const Values &qkv, const reference::AttentionShape &shape, const Values &dO,
                                const Values &factors = {});

struct LossOracle {
    double loss;
    Values dlogits;
};
/// Labels below 0 do not count.
LossOracle lossOracle(const Values &logits, const std::vector<std::int32_t> &labels, std::int64_t vocab,
                      double scale);

struct ModelShape {
    std::int64_t layers, heads, kvHeads, seq;
    double eps = 1e-5;
    Values frequency = {}; ///< of rotary positions; llama when there are any
};
struct ModelOracle {
    double loss; ///< Σ token losses · scale
    std::map<std::string, Values> gradients;
};
/// GPT-2 or Llama by canonical names (engine/plan/units.h); the head is `head.weight` when there is one, else `wte.weight`.
ModelOracle modelOracle(const ModelShape &shape, const Parameters &parameters,
                        const std::vector<std::int32_t> &tokens, const std::vector<std::int32_t> &labels,
                        double scale);

} // namespace rankyard::kernels::test
