// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/kernels/oracle.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>

namespace rankyard::kernels::test {

namespace {

at::Tensor tensor(const Values &values, at::IntArrayRef shape, bool gradient = false)
{
    at::Tensor result = at::empty(shape, at::kDouble);
    std::copy(values.begin(), values.end(), result.data_ptr<double>());
    return result.set_requires_grad(gradient);
}

at::Tensor indices(const std::vector<std::int32_t> &values)
{
    at::Tensor result = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
    std::copy(values.begin(), values.end(), result.data_ptr<std::int64_t>());
    return result;
}

Values valuesOf(const at::Tensor &tensor)
{
    const at::Tensor flat = tensor.detach().contiguous();
    return Values(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
}

std::vector<at::Tensor> gradients(const at::Tensor &output, const std::vector<at::Tensor> &inputs,
                                  const at::Tensor &seed = {})
{
    return torch::autograd::grad({output}, inputs,
                                 seed.defined() ? std::vector<at::Tensor>{seed} : std::vector<at::Tensor>{});
}

/// `count` heads from column head · size of [tokens, …]: [batch, count, seq, size].
at::Tensor headsOf(const at::Tensor &qkv, std::int64_t head, std::int64_t count,
                   const reference::AttentionShape &s)
{
    return qkv.narrow(1, head * s.size, count * s.size).reshape({-1, s.seq, count, s.size}).transpose(1, 2);
}

/// x·cos + rotate_half(x)·sin for x [batch, heads, seq, size].
at::Tensor rotated(const at::Tensor &x, const Values &frequency, const std::vector<std::int32_t> &position)
{
    const std::int64_t half = x.size(-1) / 2;
    const at::Tensor angle = at::outer(indices(position).to(at::kDouble), tensor(frequency, {half}));
    const at::Tensor both = at::cat({angle, angle}, -1);
    const at::Tensor turned = at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
    return x * both.cos() + turned * both.sin();
}

/// Written out instead of a fused call: scores, mask, softmax.
std::pair<at::Tensor, at::Tensor> attend(const at::Tensor &qkv, const reference::AttentionShape &s,
                                         const Values &frequency = {}, const at::Tensor &factors = {})
{
    at::Tensor q = headsOf(qkv, 0, s.heads, s), k = headsOf(qkv, s.heads, s.kvHeads, s);
    at::Tensor v = headsOf(qkv, s.heads + s.kvHeads, s.kvHeads, s);
    if (!frequency.empty()) {
        std::vector<std::int32_t> position(static_cast<std::size_t>(s.seq));
        std::iota(position.begin(), position.end(), 0);
        q = rotated(q, frequency, position);
        k = rotated(k, frequency, position);
    }
    k = k.repeat_interleave(s.heads / s.kvHeads, 1);
    v = v.repeat_interleave(s.heads / s.kvHeads, 1);
    const at::Tensor mask = at::ones({s.seq, s.seq}, at::kBool).triu(1);
    const at::Tensor scores = (at::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(s.size)))
                                  .masked_fill(mask, -INFINITY);
    at::Tensor p = at::softmax(scores, -1);
    if (factors.defined())
        p = p * factors;
    const at::Tensor o = at::matmul(p, v).transpose(1, 2).reshape({qkv.size(0), s.heads * s.size});
    return {o, at::logsumexp(scores, {-1})};
}

at::Tensor rmsNorm(const at::Tensor &x, const at::Tensor &w, double eps)
{
    return x * at::rsqrt(x.pow(2).mean({-1}, true) + eps) * w;
}

at::Tensor gated(const at::Tensor &u)
{
    const std::int64_t width = u.size(1) / 2;
    return at::silu(u.narrow(1, 0, width)) * u.narrow(1, width, width);
}

} // namespace

LayerNormOracle layerNormOracle(const Values &x, const Values &w, const Values &b, std::int64_t width,
                                double eps, const Values &dn)
{
    const at::Tensor input = tensor(x, {static_cast<std::int64_t>(x.size()) / width, width}, true);
    const at::Tensor weight = tensor(w, {width}, true), bias = tensor(b, {width}, true);
    const at::Tensor n = at::layer_norm(input, {width}, weight, bias, eps);
    const auto g = gradients(n, {input, weight, bias}, tensor(dn, n.sizes()));
    return {valuesOf(n), valuesOf(g[0]), valuesOf(g[1]), valuesOf(g[2])};
}

GeluOracle geluOracle(const Values &u, const Values &da)
{
    const at::Tensor input = tensor(u, {static_cast<std::int64_t>(u.size())}, true);
    const at::Tensor a = at::gelu(input, "tanh");
    return {valuesOf(a), valuesOf(gradients(a, {input}, tensor(da, a.sizes()))[0])};
}

NormOracle rmsNormOracle(const Values &x, const Values &w, std::int64_t width, double eps, const Values &dn)
{
    const at::Tensor input = tensor(x, {static_cast<std::int64_t>(x.size()) / width, width}, true);
    const at::Tensor weight = tensor(w, {width}, true);
    const at::Tensor n = rmsNorm(input, weight, eps);
    const auto g = gradients(n, {input, weight}, tensor(dn, n.sizes()));
    return {valuesOf(n), valuesOf(g[0]), valuesOf(g[1])};
}

SwigluOracle swigluOracle(const Values &u, std::int64_t width, const Values &da)
{
    const at::Tensor input = tensor(u, {static_cast<std::int64_t>(u.size()) / (2 * width), 2 * width}, true);
    const at::Tensor a = gated(input);
    return {valuesOf(a), valuesOf(gradients(a, {input}, tensor(da, a.sizes()))[0])};
}

RotateOracle rotateOracle(const Values &x, const Values &frequency, const std::vector<std::int32_t> &position,
                          std::int64_t heads, std::int64_t size, const Values &dy)
{
    const auto rows = static_cast<std::int64_t>(position.size());
    const at::Tensor input = tensor(x, {rows, heads, size}, true);
    const at::Tensor y = rotated(input.transpose(0, 1), frequency, position).transpose(0, 1);
    return {valuesOf(y), valuesOf(gradients(y, {input}, tensor(dy, y.sizes()))[0])};
}

AttentionOracle attentionOracle(const Values &qkv, const reference::AttentionShape &s, const Values &dO,
                                const Values &factors)
{
    const std::int64_t tokens = static_cast<std::int64_t>(qkv.size()) / s.width();
    const at::Tensor input = tensor(qkv, {tokens, s.width()}, true);
    const at::Tensor weights =
        factors.empty() ? at::Tensor() : tensor(factors, {tokens / s.seq, s.heads, s.seq, s.seq});
    const auto [o, lse] = attend(input, s, {}, weights);
    const at::Tensor byHead = lse.transpose(0, 1).reshape({s.heads, tokens});
    return {valuesOf(o), valuesOf(byHead), valuesOf(gradients(o, {input}, tensor(dO, o.sizes()))[0])};
}

LossOracle lossOracle(const Values &logits, const std::vector<std::int32_t> &labels, std::int64_t vocab,
                      double scale)
{
    const at::Tensor input = tensor(logits, {static_cast<std::int64_t>(labels.size()), vocab}, true);
    const at::Tensor wanted = indices(labels);
    const at::Tensor loss =
        at::cross_entropy_loss(input, wanted.masked_fill(wanted < 0, -100), {}, at::Reduction::Sum);
    return {loss.item<double>(), valuesOf(gradients(loss * scale, {input})[0])};
}

ModelOracle modelOracle(const ModelShape &shape, const Parameters &parameters,
                        const std::vector<std::int32_t> &tokens, const std::vector<std::int32_t> &labels,
                        double scale)
{
    std::map<std::string, at::Tensor> p;
    for (const auto &[name, value] : parameters)
        p[name] = tensor(value.second, value.first, true);
    const bool llama = !shape.frequency.empty();
    const auto linear = [&](const at::Tensor &x, const std::string &name) {
        return at::linear(x, p.at(name + ".weight"), llama ? at::Tensor() : p.at(name + ".bias"));
    };
    const auto norm = [&](const at::Tensor &x, const std::string &name) {
        const at::Tensor &w = p.at(name + ".weight");
        return llama ? rmsNorm(x, w, shape.eps)
                     : at::layer_norm(x, {x.size(1)}, w, p.at(name + ".bias"), shape.eps);
    };
    at::Tensor x = at::embedding(p.at("wte.weight"), indices(tokens));
    if (!llama) {
        const at::Tensor positions =
            at::arange(static_cast<std::int64_t>(tokens.size()), at::kLong).remainder(shape.seq);
        x = x + at::embedding(p.at("wpe.weight"), positions);
    }
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        const std::string attn = "layers." + std::to_string(i) + ".attn",
                          mlp = "layers." + std::to_string(i) + ".mlp";
        const at::Tensor qkv = linear(norm(x, attn + ".norm"), attn + ".qkv");
        const reference::AttentionShape s{shape.seq, shape.heads, shape.kvHeads,
                                          qkv.size(1) / (shape.heads + 2 * shape.kvHeads)};
        x = x + linear(attend(qkv, s, shape.frequency).first, attn + ".out");
        const at::Tensor u = linear(norm(x, mlp + ".norm"), mlp + ".up");
        x = x + linear(llama ? gated(u) : at::gelu(u, "tanh"), mlp + ".down");
    }
    const auto head = p.find("head.weight");
    const at::Tensor logits =
        at::linear(norm(x, "norm"), head == p.end() ? p.at("wte.weight") : head->second);
    const at::Tensor wanted = indices(labels);
    const at::Tensor loss =
        at::cross_entropy_loss(logits, wanted.masked_fill(wanted < 0, -100), {}, at::Reduction::Sum) * scale;
    std::vector<at::Tensor> inputs;
    for (const auto &[name, value] : p)
        inputs.push_back(value);
    const auto grads = gradients(loss, inputs);
    ModelOracle result{loss.item<double>(), {}};
    std::size_t place = 0;
    for (const auto &[name, value] : p)
        result.gradients[name] = valuesOf(grads[place++]);
    return result;
}

} // namespace rankyard::kernels::test
