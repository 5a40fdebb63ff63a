// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"

#include <algorithm>
#include <cmath>

namespace rankyard::plan {

namespace {

constexpr std::int64_t chunkBytes = 32 << 20; ///< about a last-level cache

std::int64_t roundUp(std::int64_t value, std::int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

bool globMatches(std::string_view pattern, std::string_view text)
{
    std::size_t p = 0;
    std::size_t t = 0;
    std::size_t star = std::string_view::npos;
    std::size_t resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] != '*' && pattern[p] == text[t]))) {
            ++p;
            ++t;
        } else if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*')
        ++p;
    return p == pattern.size();
}

/// [out, in] of the linear layer in a segment; zeros where there is none.
struct Linear {
    std::int64_t out = 0;
    std::int64_t in = 0;
};

Linear linearOf(const spec::Model &model, Unit unit, Segment segment)
{
    const std::int64_t hidden = model.hidden;
    switch (segment) {
    case Segment::Qkv:
        return {3 * hidden, hidden};
    case Segment::Out:
        return {hidden, hidden};
    case Segment::Up:
        return {model.ffnSize(), hidden};
    case Segment::Down:
        return {hidden, model.ffnSize()};
    case Segment::Loss:
        return unit.kind == UnitKind::Head ? Linear{model.vocab, hidden} : Linear{};
    default:
        return {};
    }
}

} // namespace

std::vector<TensorSpec> modelTensors(const spec::JobSpec &job)
{
    const spec::Model &model = job.model;
    const std::int64_t hidden = model.hidden;
    const std::int64_t ffn = model.ffnSize();
    constexpr double std0 = 0.02;
    const double stdResidual = std0 / std::sqrt(2.0 * static_cast<double>(model.layers));
    std::vector<TensorSpec> tensors;
    const auto add = [&](std::string name, std::vector<std::int64_t> shape, double initStd,
                         double initValue) {
        const auto &patterns = job.optimizer.noDecay;
        const bool decay = std::none_of(patterns.begin(), patterns.end(),
                                        [&](const std::string &p) { return globMatches(p, name); });
        tensors.push_back({std::move(name), std::move(shape), decay, initStd, initValue});
    };
    const auto addNorm = [&](const std::string &name) {
        add(name + ".weight", {hidden}, 0, 1);
        add(name + ".bias", {hidden}, 0, 0);
    };
    const auto addLinear = [&](const std::string &name, std::int64_t out, std::int64_t in, double initStd) {
        add(name + ".weight", {out, in}, initStd, 0);
        add(name + ".bias", {out}, 0, 0);
    };
    add("wte.weight", {model.vocab, hidden}, std0, 0);
    add("wpe.weight", {model.seq, hidden}, std0, 0);
    for (std::int64_t i = 0; i < model.layers; ++i) {
        const std::string layer = "layers." + std::to_string(i);
        addNorm(layer + ".attn.norm");
        addLinear(layer + ".attn.qkv", 3 * hidden, hidden, std0);
        addLinear(layer + ".attn.out", hidden, hidden, stdResidual);
        addNorm(layer + ".mlp.norm");
        addLinear(layer + ".mlp.up", ffn, hidden, std0);
        addLinear(layer + ".mlp.down", hidden, ffn, stdResidual);
    }
    addNorm("norm");
    if (!model.tied)
        add("head.weight", {model.vocab, hidden}, std0, 0);
    return tensors;
}

std::int64_t lossChunkTokens(const spec::JobSpec &job)
{
    const std::int64_t tokens = job.batch.micro * job.model.seq;
    const std::int64_t row =
        job.model.vocab * static_cast<std::int64_t>(std::max<std::size_t>(4, bytesOf(job.precision.compute)));
    const std::int64_t most = std::max<std::int64_t>(128, chunkBytes / row);
    if (tokens <= most)
        return tokens;
    // Even chunks: no short one at the end that would run at a fraction of the speed.
    const std::int64_t chunks = (tokens + most - 1) / most;
    return std::min(roundUp((tokens + chunks - 1) / chunks, 16), tokens);
}

std::int64_t opFlops(const spec::JobSpec &job, OpKind kind, Unit unit, Segment segment, std::int64_t tokens)
{
    const bool forward = kind == OpKind::Forward || kind == OpKind::Recompute;
    if (!forward && kind != OpKind::BackwardInput && kind != OpKind::BackwardWeight)
        return 0;
    if (segment == Segment::Core) {
        const std::int64_t whole = 4 * tokens * job.model.seq * job.model.hidden;
        return forward ? whole : kind == OpKind::BackwardInput ? 2 * whole : 0;
    }
    const Linear linear = linearOf(job.model, unit, segment);
    return 2 * tokens * linear.in * linear.out;
}

} // namespace rankyard::plan
