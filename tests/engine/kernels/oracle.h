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

struct AttentionOracle {
    Values o, lse, dqkv;
};
AttentionOracle attentionOracle(const Values &qkv, std::int64_t seq, std::int64_t heads, std::int64_t size,
                                const Values &dO);

struct LossOracle {
    double loss;
    Values dlogits;
};
/// Labels below 0 do not count.
LossOracle lossOracle(const Values &logits, const std::vector<std::int32_t> &labels, std::int64_t vocab,
                      double scale);

struct ModelShape {
    std::int64_t layers, heads, seq;
    double eps = 1e-5;
};
struct ModelOracle {
    double loss; ///< Σ token losses · scale
    std::map<std::string, Values> gradients;
};
/// GPT-2 by canonical names (engine/plan/units.h); the head is `head.weight` when there is one, else `wte.weight`.
ModelOracle modelOracle(const ModelShape &shape, const Parameters &parameters,
                        const std::vector<std::int32_t> &tokens, const std::vector<std::int32_t> &labels,
                        double scale);

} // namespace rankyard::kernels::test
