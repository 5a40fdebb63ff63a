// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/kernels/kernel_table.h"

#include <cstdint>
#include <functional>
#include <vector>

/// What each kernel computes, written plainly in fp64: the measure for every tuned kernel, and the text to read first.
/// Matrices are row-major without gaps. No threads, no state.
namespace rankyard::kernels::reference {

using Values = std::vector<double>;

/// A[m,k]·B[k,n], either of them given transposed.
Values multiply(const Values &a, bool aTransposed, const Values &b, bool bTransposed, std::int64_t m,
                std::int64_t n, std::int64_t k);

struct Norm {
    Values n, stats; ///< stats [rows, 2]: mean, 1 ÷ √(variance + eps)
};
Norm norm(const Values &x, const Values &w, const Values &b, std::int64_t width, double eps);
struct NormGradients {
    Values dx, dw, db;
};
NormGradients normGradients(const Values &dn, const Values &x, const Values &w, std::int64_t width,
                            double eps);

/// x ÷ √(mean of squares + eps) · w; stats [rows]: 1 ÷ √(…) (Zhang & Sennrich 2019).
Norm rmsNorm(const Values &x, const Values &w, std::int64_t width, double eps);
/// db is empty.
NormGradients rmsNormGradients(const Values &dn, const Values &x, const Values &w, std::int64_t width,
                               double eps);

/// silu(gate)·up of rows [gates, ups] of 2·width (Shazeer 2020).
Values swiglu(const Values &u, std::int64_t width);
Values swigluGradients(const Values &da, const Values &u, std::int64_t width);

/// Row r of heads [heads, size]: the pair (i, i + size/2) of each turned by position[r]·frequency[i] (Su et al. 2021), by its
/// negative when `back`; lengths times `scale`.
Values rotate(const Values &x, const Values &frequency, double scale,
              const std::vector<std::int32_t> &position, std::int64_t heads, std::int64_t size, bool back);

/// 0.5·u·(1 + tanh(√(2/π)·(u + 0.044715·u³))) (Hendrycks & Gimpel 2016) and its derivative.
double gelu(double u);
double geluSlope(double u);

struct AttentionShape {
    std::int64_t seq, heads, kvHeads, size; ///< head h attends to the keys of h · kvHeads ÷ heads
    std::int64_t width() const { return (heads + 2 * kvHeads) * size; }
};
struct AttentionResult {
    Values o, lse; ///< o [tokens, heads·size], lse [heads, tokens]
};
/// What a probability is multiplied with: 0 or 1 ÷ (1 − p) under dropout. Arguments: token, head, key in its sequence.
using Factor = std::function<double(std::int64_t, std::int64_t, std::int64_t)>;
/// Causal softmax(q·kᵀ ÷ √size)·v in each sequence; qkv [tokens, width()]: heads of q, then of k, then of v.
AttentionResult attention(const Values &qkv, const AttentionShape &shape, const Factor &factor = {});
/// dqkv
Values attentionGradients(const Values &dO, const Values &qkv, const AttentionShape &shape,
                          const Factor &factor = {});

/// Word `feature` mod 4 of the block of Philox that decides about an element (its place: engine/plan/units.h).
std::uint32_t dropWord(const Dropout &dropout, std::uint32_t sample, std::uint32_t position,
                       std::uint32_t head, std::uint32_t feature);
/// 0 where the word is below the threshold, else the scale.
double dropFactor(const Dropout &dropout, std::uint32_t sample, std::uint32_t position, std::uint32_t head,
                  std::uint32_t feature);

/// Σ −log softmax(logits)[label] over the rows with label ≥ 0; logits become (softmax − onehot)·scale, zero where label < 0.
double softmaxLoss(Values &logits, const std::vector<std::int32_t> &labels, std::int64_t vocab, double scale);

struct AdamRule {
    double lr, beta1, beta2, eps, decay;
};
/// torch.optim.AdamW on one tensor; `step` counts from 1.
void adam(Values &param, Values &exp1, Values &exp2, const Values &grad, double gradFactor, std::int64_t step,
          const AdamRule &rule);

} // namespace rankyard::kernels::reference
