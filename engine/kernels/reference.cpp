// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/reference.h"

#include "engine/exec/random.h"

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

Norm rmsNorm(const Values &x, const Values &w, std::int64_t width, double eps)
{
    const std::int64_t rows = rowsOf(x, width);
    Norm result{Values(x.size()), Values(at(rows))};
    for (std::int64_t r = 0; r < rows; ++r) {
        double square = 0;
        for (std::int64_t i = 0; i < width; ++i)
            square += x[at(r * width + i)] * x[at(r * width + i)] / static_cast<double>(width);
        result.stats[at(r)] = 1 / std::sqrt(square + eps);
        for (std::int64_t i = 0; i < width; ++i)
            result.n[at(r * width + i)] = x[at(r * width + i)] * result.stats[at(r)] * w[at(i)];
    }
    return result;
}

NormGradients rmsNormGradients(const Values &dn, const Values &x, const Values &w, std::int64_t width,
                               double eps)
{
    const Values scale = rmsNorm(x, w, width, eps).stats;
    NormGradients g{Values(x.size()), Values(at(width)), {}};
    for (std::int64_t r = 0; r < rowsOf(x, width); ++r) {
        double slope = 0;
        for (std::int64_t i = 0; i < width; ++i) {
            const double hat = x[at(r * width + i)] * scale[at(r)], dy = dn[at(r * width + i)];
            g.dw[at(i)] += dy * hat;
            slope += dy * w[at(i)] * hat / static_cast<double>(width);
        }
        for (std::int64_t i = 0; i < width; ++i)
            g.dx[at(r * width + i)] =
                (dn[at(r * width + i)] * w[at(i)] - x[at(r * width + i)] * scale[at(r)] * slope)
                * scale[at(r)];
    }
    return g;
}

Values swiglu(const Values &u, std::int64_t width)
{
    Values a(u.size() / 2);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(a.size()); ++i) {
        const double gate = u[at(i / width * 2 * width + i % width)];
        a[at(i)] = gate / (1 + std::exp(-gate)) * u[at(i / width * 2 * width + width + i % width)];
    }
    return a;
}

Values swigluGradients(const Values &da, const Values &u, std::int64_t width)
{
    Values du(u.size());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(da.size()); ++i) {
        const std::size_t gate = at(i / width * 2 * width + i % width), up = gate + at(width);
        const double sigma = 1 / (1 + std::exp(-u[gate]));
        du[up] = da[at(i)] * u[gate] * sigma;
        du[gate] = da[at(i)] * u[up] * sigma * (1 + u[gate] * (1 - sigma));
    }
    return du;
}

Values rotate(const Values &x, const Values &frequency, double scale,
              const std::vector<std::int32_t> &position, std::int64_t heads, std::int64_t size, bool back)
{
    Values y = x;
    for (std::size_t head = 0; head < position.size() * at(heads); ++head) {
        for (std::size_t i = 0; i < at(size / 2); ++i) {
            const double angle = (back ? -1 : 1) * position[head / at(heads)] * frequency[i];
            const std::size_t low = head * at(size) + i, high = low + at(size / 2);
            y[low] = scale * (x[low] * std::cos(angle) - x[high] * std::sin(angle));
            y[high] = scale * (x[high] * std::cos(angle) + x[low] * std::sin(angle));
        }
    }
    return y;
}

std::uint32_t dropWord(const Dropout &dropout, std::uint32_t sample, std::uint32_t position,
                       std::uint32_t head, std::uint32_t feature)
{
    return exec::philox({feature / 4, position, sample, dropout.purpose + (head << 8)},
                        {dropout.key[0], dropout.key[1]})[feature % 4];
}

double dropFactor(const Dropout &dropout, std::uint32_t sample, std::uint32_t position, std::uint32_t head,
                  std::uint32_t feature)
{
    return dropWord(dropout, sample, position, head, feature) < dropout.threshold ? 0 : dropout.scale;
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

namespace {

/// Where things of a token and head lie in qkv.
struct Places {
    std::int64_t ld, first, query, own, keys, values;

    Places(const AttentionShape &s, std::int64_t token, std::int64_t head)
        : ld(s.width()),
          first(token / s.seq * s.seq),
          query(token - first),
          own(token * ld + head * s.size),
          keys(first * ld + (s.heads + head * s.kvHeads / s.heads) * s.size),
          values(keys + s.kvHeads * s.size)
    {}
};

} // namespace

AttentionResult attention(const Values &qkv, const AttentionShape &s, const Factor &factor)
{
    const std::int64_t width = s.heads * s.size, tokens = rowsOf(qkv, s.width());
    AttentionResult result{Values(at(tokens * width)), Values(at(s.heads * tokens))};
    Values p(at(s.seq));
    for (std::int64_t token = 0; token < tokens; ++token) {
        for (std::int64_t head = 0; head < s.heads; ++head) {
            const Places place(s, token, head);
            result.lse[at(head * tokens + token)] =
                probabilities(&qkv[at(place.own)], &qkv[at(place.keys)], place.ld, place.query, s.size, p);
            for (std::int64_t key = 0; key <= place.query; ++key) {
                const double weight = p[at(key)] * (factor ? factor(token, head, key) : 1);
                for (std::int64_t d = 0; d < s.size; ++d)
                    result.o[at(token * width + head * s.size + d)] +=
                        weight * qkv[at(place.values + key * place.ld + d)];
            }
        }
    }
    return result;
}

Values attentionGradients(const Values &dO, const Values &qkv, const AttentionShape &s, const Factor &factor)
{
    const std::int64_t width = s.heads * s.size, tokens = rowsOf(qkv, s.width());
    const double scale = 1 / std::sqrt(static_cast<double>(s.size));
    Values dqkv(qkv.size()), p(at(s.seq)), dp(at(s.seq));
    for (std::int64_t token = 0; token < tokens; ++token) {
        for (std::int64_t head = 0; head < s.heads; ++head) {
            const Places place(s, token, head);
            const double *q = &qkv[at(place.own)], *g = &dO[at(token * width + head * s.size)];
            probabilities(q, &qkv[at(place.keys)], place.ld, place.query, s.size, p);
            double dot = 0;
            for (std::int64_t key = 0; key <= place.query; ++key) {
                const double weight = factor ? factor(token, head, key) : 1;
                dp[at(key)] = 0;
                for (std::int64_t d = 0; d < s.size; ++d) {
                    const std::size_t value = at(place.values + key * place.ld + d);
                    dp[at(key)] += weight * g[d] * qkv[value];
                    dqkv[value] += weight * p[at(key)] * g[d];
                }
                dot += p[at(key)] * dp[at(key)];
            }
            for (std::int64_t key = 0; key <= place.query; ++key) {
                const double ds = p[at(key)] * (dp[at(key)] - dot) * scale;
                for (std::int64_t d = 0; d < s.size; ++d) {
                    dqkv[at(place.own + d)] += ds * qkv[at(place.keys + key * place.ld + d)];
                    dqkv[at(place.keys + key * place.ld + d)] += ds * q[d];
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
