// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/kernels/oracle.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

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

/// [batch, heads, seq, size] from columns of [tokens, 3·width].
at::Tensor headsOf(const at::Tensor &qkv, std::int64_t part, std::int64_t seq, std::int64_t heads)
{
    const std::int64_t width = qkv.size(1) / 3;
    return qkv.narrow(1, part * width, width).reshape({-1, seq, heads, width / heads}).transpose(1, 2);
}

/// Written out instead of a fused call: scores, mask, softmax.
std::pair<at::Tensor, at::Tensor> attend(const at::Tensor &qkv, std::int64_t seq, std::int64_t heads)
{
    const at::Tensor q = headsOf(qkv, 0, seq, heads), k = headsOf(qkv, 1, seq, heads),
                     v = headsOf(qkv, 2, seq, heads);
    const at::Tensor mask = at::ones({seq, seq}, at::kBool).triu(1);
    const at::Tensor scores =
        (at::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1))))
            .masked_fill(mask, -INFINITY);
    const at::Tensor o =
        at::matmul(at::softmax(scores, -1), v).transpose(1, 2).reshape({qkv.size(0), qkv.size(1) / 3});
    return {o, at::logsumexp(scores, {-1})};
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

AttentionOracle attentionOracle(const Values &qkv, std::int64_t seq, std::int64_t heads, std::int64_t size,
                                const Values &dO)
{
    const std::int64_t width = heads * size, tokens = static_cast<std::int64_t>(qkv.size()) / (3 * width);
    const at::Tensor input = tensor(qkv, {tokens, 3 * width}, true);
    const auto [o, lse] = attend(input, seq, heads);
    const at::Tensor byHead = lse.transpose(0, 1).reshape({heads, tokens});
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
    const auto linear = [&](const at::Tensor &x, const std::string &name) {
        return at::linear(x, p.at(name + ".weight"), p.at(name + ".bias"));
    };
    const auto norm = [&](const at::Tensor &x, const std::string &name) {
        return at::layer_norm(x, {x.size(1)}, p.at(name + ".weight"), p.at(name + ".bias"), shape.eps);
    };
    const at::Tensor positions =
        at::arange(static_cast<std::int64_t>(tokens.size()), at::kLong).remainder(shape.seq);
    at::Tensor x =
        at::embedding(p.at("wte.weight"), indices(tokens)) + at::embedding(p.at("wpe.weight"), positions);
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        const std::string attn = "layers." + std::to_string(i) + ".attn",
                          mlp = "layers." + std::to_string(i) + ".mlp";
        const at::Tensor qkv = linear(norm(x, attn + ".norm"), attn + ".qkv");
        x = x + linear(attend(qkv, shape.seq, shape.heads).first, attn + ".out");
        x = x + linear(at::gelu(linear(norm(x, mlp + ".norm"), mlp + ".up"), "tanh"), mlp + ".down");
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
