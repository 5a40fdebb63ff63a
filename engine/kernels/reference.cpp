// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rankyard::kernels::reference {

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t rowsOf(const Values &x, std::int64_t width)
{
    return static_cast<std::int64_t>(x.size()) / width;
}

/// Softmax of the scaled scores of one query, keys 0 … query; returns their log-sum-exp.
double probabilities(const double *q, const double *keys, std::int64_t ld, std::int64_t query,
                     std::int64_t size, Values &p)
{
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    double top = -std::numeric_limits<double>::infinity();
    for (std::int64_t key = 0; key <= query; ++key) {
        double dot = 0;
        for (std::int64_t d = 0; d < size; ++d)
            dot += q[d] * keys[key * ld + d];
        p[at(key)] = dot * scale;
        top = std::max(top, p[at(key)]);
    }
    double total = 0;
    for (std::int64_t key = 0; key <= query; ++key) {
        p[at(key)] = std::exp(p[at(key)] - top);
        total += p[at(key)];
    }
    for (std::int64_t key = 0; key <= query; ++key)
        p[at(key)] /= total;
    return top + std::log(total);
}

} // namespace

Values multiply(const Values &a, bool aTransposed, const Values &b, bool bTransposed, std::int64_t m,
                std::int64_t n, std::int64_t k)
{
    Values c(at(m * n));
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
            double total = 0;
            for (std::int64_t l = 0; l < k; ++l)
                total +=
                    a[at(aTransposed ? l * m + i : i * k + l)] * b[at(bTransposed ? j * k + l : l * n + j)];
            c[at(i * n + j)] = total;
        }
    }
    return c;
}

Norm norm(const Values &x, const Values &w, const Values &b, std::int64_t width, double eps)
{
    const std::int64_t rows = rowsOf(x, width);
    Norm result{Values(x.size()), Values(at(2 * rows))};
    for (std::int64_t r = 0; r < rows; ++r) {
        double mean = 0, square = 0;
        for (std::int64_t i = 0; i < width; ++i)
            mean += x[at(r * width + i)] / static_cast<double>(width);
        for (std::int64_t i = 0; i < width; ++i)
            square +=
                (x[at(r * width + i)] - mean) * (x[at(r * width + i)] - mean) / static_cast<double>(width);
        const double scale = 1 / std::sqrt(square + eps);
        for (std::int64_t i = 0; i < width; ++i)
            result.n[at(r * width + i)] = (x[at(r * width + i)] - mean) * scale * w[at(i)] + b[at(i)];
        result.stats[at(2 * r)] = mean;
        result.stats[at(2 * r + 1)] = scale;
    }
    return result;
}

NormGradients normGradients(const Values &dn, const Values &x, const Values &w, std::int64_t width,
                            double eps)
{
    const std::int64_t rows = rowsOf(x, width);
    const Values stats = norm(x, w, Values(at(width)), width, eps).stats;
    NormGradients g{Values(x.size()), Values(at(width)), Values(at(width))};
    for (std::int64_t r = 0; r < rows; ++r) {
        const auto hat = [&](std::int64_t i) {
            return (x[at(r * width + i)] - stats[at(2 * r)]) * stats[at(2 * r + 1)];
        };
        double mid = 0, slope = 0;
        for (std::int64_t i = 0; i < width; ++i) {
            const double dy = dn[at(r * width + i)];
            g.dw[at(i)] += dy * hat(i);
            g.db[at(i)] += dy;
            mid += dy * w[at(i)] / static_cast<double>(width);
            slope += dy * w[at(i)] * hat(i) / static_cast<double>(width);
        }
        for (std::int64_t i = 0; i < width; ++i)
            g.dx[at(r * width + i)] =
                (dn[at(r * width + i)] * w[at(i)] - mid - hat(i) * slope) * stats[at(2 * r + 1)];
    }
    return g;
}

double gelu(double u)
{
    return 0.5 * u * (1 + std::tanh(0.79788456080286535588 * (u + 0.044715 * u * u * u)));
}

double geluSlope(double u)
{
    const double t = std::tanh(0.79788456080286535588 * (u + 0.044715 * u * u * u));
    return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * u * u);
}

AttentionResult attention(const Values &qkv, std::int64_t seq, std::int64_t heads, std::int64_t size)
{
    const std::int64_t width = heads * size, ld = 3 * width, tokens = rowsOf(qkv, ld);
    AttentionResult result{Values(at(tokens * width)), Values(at(heads * tokens))};
    Values p(at(seq));
    for (std::int64_t token = 0; token < tokens; ++token) {
        const std::int64_t first = token / seq * seq;
        for (std::int64_t head = 0; head < heads; ++head) {
            const double *q = &qkv[at(token * ld + head * size)];
            const double *keys = &qkv[at(first * ld + width + head * size)], *values = keys + width;
            result.lse[at(head * tokens + token)] = probabilities(q, keys, ld, token - first, size, p);
            for (std::int64_t d = 0; d < size; ++d) {
                double total = 0;
                for (std::int64_t key = 0; key <= token - first; ++key)
                    total += p[at(key)] * values[key * ld + d];
                result.o[at(token * width + head * size + d)] = total;
            }
        }
    }
    return result;
}

Values attentionGradients(const Values &dO, const Values &qkv, std::int64_t seq, std::int64_t heads,
                          std::int64_t size)
{
    const std::int64_t width = heads * size, ld = 3 * width, tokens = rowsOf(qkv, ld);
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    Values dqkv(qkv.size()), p(at(seq)), dp(at(seq));
    for (std::int64_t token = 0; token < tokens; ++token) {
        const std::int64_t first = token / seq * seq, query = token - first;
        for (std::int64_t head = 0; head < heads; ++head) {
            const std::int64_t own = token * ld + head * size, keys = first * ld + width + head * size;
            const double *q = &qkv[at(own)], *g = &dO[at(token * width + head * size)];
            probabilities(q, &qkv[at(keys)], ld, query, size, p);
            double dot = 0;
            for (std::int64_t key = 0; key <= query; ++key) {
                dp[at(key)] = 0;
                for (std::int64_t d = 0; d < size; ++d)
                    dp[at(key)] += g[d] * qkv[at(keys + width + key * ld + d)];
                dot += p[at(key)] * dp[at(key)];
            }
            for (std::int64_t key = 0; key <= query; ++key) {
                const double ds = p[at(key)] * (dp[at(key)] - dot) * scale;
                for (std::int64_t d = 0; d < size; ++d) {
                    dqkv[at(own + d)] += ds * qkv[at(keys + key * ld + d)];
                    dqkv[at(keys + key * ld + d)] += ds * q[d];
                    dqkv[at(keys + width + key * ld + d)] += p[at(key)] * g[d];
                }
            }
        }
    }
    return dqkv;
}

double softmaxLoss(Values &logits, const std::vector<std::int32_t> &labels, std::int64_t vocab, double scale)
{
    double loss = 0;
    for (std::size_t r = 0; r < labels.size(); ++r) {
        double *row = &logits[r * at(vocab)];
        const std::int32_t label = labels[r];
        if (label < 0) {
            std::fill(row, row + vocab, 0.0);
            continue;
        }
        const double top = *std::max_element(row, row + vocab), target = row[label] - top;
        double total = 0;
        for (std::int64_t i = 0; i < vocab; ++i) {
            row[i] = std::exp(row[i] - top);
            total += row[i];
        }
        for (std::int64_t i = 0; i < vocab; ++i)
            row[i] = (row[i] / total - (i == label ? 1 : 0)) * scale;
        loss += std::log(total) - target;
    }
    return loss;
}

void adam(Values &param, Values &exp1, Values &exp2, const Values &grad, double gradFactor, std::int64_t step,
          const AdamRule &rule)
{
    const double correction1 = 1 - std::pow(rule.beta1, static_cast<double>(step));
    const double correction2 = 1 - std::pow(rule.beta2, static_cast<double>(step));
    for (std::size_t i = 0; i < param.size(); ++i) {
        const double g = grad[i] * gradFactor;
        exp1[i] = rule.beta1 * exp1[i] + (1 - rule.beta1) * g;
        exp2[i] = rule.beta2 * exp2[i] + (1 - rule.beta2) * g * g;
        param[i] *= 1 - rule.lr * rule.decay;
        param[i] -=
            rule.lr / correction1 * exp1[i] / (std::sqrt(exp2[i]) / std::sqrt(correction2) + rule.eps);
    }
}

} // namespace rankyard::kernels::reference
