// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
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

/// 0.5·u·(1 + tanh(√(2/π)·(u + 0.044715·u³))) (Hendrycks & Gimpel 2016) and its derivative.
double gelu(double u);
double geluSlope(double u);

struct AttentionResult {
    Values o, lse; ///< o [tokens, heads·size], lse [heads, tokens]
};
/// Causal softmax(q·kᵀ ÷ √size)·v in each sequence; qkv [tokens, 3·heads·size].
AttentionResult attention(const Values &qkv, std::int64_t seq, std::int64_t heads, std::int64_t size);
/// dqkv
Values attentionGradients(const Values &dO, const Values &qkv, std::int64_t seq, std::int64_t heads,
                          std::int64_t size);

/// Σ −log softmax(logits)[label] over the rows with label ≥ 0; logits become (softmax − onehot)·scale, zero where label < 0.
double softmaxLoss(Values &logits, const std::vector<std::int32_t> &labels, std::int64_t vocab, double scale);

struct AdamRule {
    double lr, beta1, beta2, eps, decay;
};
/// torch.optim.AdamW on one tensor; `step` counts from 1.
void adam(Values &param, Values &exp1, Values &exp2, const Values &grad, double gradFactor, std::int64_t step,
          const AdamRule &rule);

} // namespace rankyard::kernels::reference
