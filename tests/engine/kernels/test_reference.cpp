// SPDX-License-Identifier: GPL-3.0-or-later
// The plain references against LibTorch's autograd in fp64.
#include "tests/engine/kernels/oracle.h"
#include "tests/engine/kernels/storage.h"

using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

namespace {

constexpr double tolerance = 1e-12;

} // namespace

TEST(Reference, NormIsLayerNorm)
{
    for (const std::int64_t width : {3, 24, 65}) {
        const auto n = static_cast<std::size_t>(5 * width), w = static_cast<std::size_t>(width);
        const Values x = randomValues(n, 1), weight = randomValues(w, 2), bias = randomValues(w, 3),
                     dn = randomValues(n, 4);
        const auto wanted = layerNormOracle(x, weight, bias, width, 1e-5, dn);
        expectClose(reference::norm(x, weight, bias, width, 1e-5).n, wanted.n, tolerance, "n");
        const auto got = reference::normGradients(dn, x, weight, width, 1e-5);
        expectClose(got.dx, wanted.dx, tolerance, "dx");
        expectClose(got.dw, wanted.dw, tolerance, "dw");
        expectClose(got.db, wanted.db, tolerance, "db");
    }
}

TEST(Reference, GeluIsTheTanhForm)
{
    const Values u = randomValues(500, 1, 3), da = randomValues(500, 2);
    const auto wanted = geluOracle(u, da);
    Values a(u.size()), du(u.size());
    for (std::size_t i = 0; i < u.size(); ++i) {
        a[i] = reference::gelu(u[i]);
        du[i] = da[i] * reference::geluSlope(u[i]);
    }
    expectClose(a, wanted.a, tolerance, "a");
    expectClose(du, wanted.du, tolerance, "du");
}

TEST(Reference, RmsNormIsWrittenOutInTensors)
{
    for (const std::int64_t width : {1, 24, 65}) {
        const auto n = static_cast<std::size_t>(5 * width), w = static_cast<std::size_t>(width);
        const Values x = randomValues(n, 1), weight = randomValues(w, 2), dn = randomValues(n, 4);
        const auto wanted = rmsNormOracle(x, weight, width, 1e-5, dn);
        expectClose(reference::rmsNorm(x, weight, width, 1e-5).n, wanted.n, tolerance, "n");
        const auto got = reference::rmsNormGradients(dn, x, weight, width, 1e-5);
        expectClose(got.dx, wanted.dx, width == 1 ? 1e-9 : tolerance,
                    "dx"); // of a row of one nearly nothing is left
        expectClose(got.dw, wanted.dw, tolerance, "dw");
    }
}

TEST(Reference, SwigluIsSiluTimesUp)
{
    const Values u = randomValues(7 * 2 * 13, 1, 3), da = randomValues(7 * 13, 2);
    const auto wanted = swigluOracle(u, 13, da);
    expectClose(reference::swiglu(u, 13), wanted.a, tolerance, "a");
    expectClose(reference::swigluGradients(da, u, 13), wanted.du, tolerance, "du");
}

TEST(Reference, RotationIsHuggingFaces)
{
    const std::vector<std::int32_t> position = {0, 5, 1, 130};
    const Values x = randomValues(4 * 3 * 6, 1), dy = randomValues(x.size(), 2), frequency = {1, 0.25, 0.01};
    const auto wanted = rotateOracle(x, frequency, position, 3, 6, dy);
    expectClose(reference::rotate(x, frequency, 1, position, 3, 6, false), wanted.y, tolerance, "y");
    expectClose(reference::rotate(dy, frequency, 1, position, 3, 6, true), wanted.dx, tolerance, "dx");
}

TEST(Reference, AttentionIsMaskedSoftmax)
{
    struct Case {
        std::int64_t batch;
        reference::AttentionShape shape;
        bool drop;
    };
    for (const Case &c : {Case{1, {1, 1, 1, 1}, false},
                          {2, {7, 3, 3, 3}, false},
                          {1, {40, 2, 2, 16}, true},
                          {2, {9, 6, 2, 4}, false},
                          {1, {11, 4, 1, 3}, true}}) {
        const reference::AttentionShape &s = c.shape;
        const std::int64_t tokens = c.batch * s.seq;
        const Values qkv = randomValues(static_cast<std::size_t>(tokens * s.width()), 1),
                     dO = randomValues(static_cast<std::size_t>(tokens * s.heads * s.size), 2);
        Values factors;
        reference::Factor factor;
        if (c.drop) {
            factors = randomValues(static_cast<std::size_t>(c.batch * s.heads * s.seq * s.seq), 3);
            for (double &f : factors)
                f = f < -0.5 ? 0 : 1.25;
            factor = [&](std::int64_t token, std::int64_t head, std::int64_t key) {
                return factors[static_cast<std::size_t>(
                    ((token / s.seq * s.heads + head) * s.seq + token % s.seq) * s.seq + key)];
            };
        }
        const auto wanted = attentionOracle(qkv, s, dO, factors);
        const auto got = reference::attention(qkv, s, factor);
        expectClose(got.o, wanted.o, tolerance, "o");
        expectClose(got.lse, wanted.lse, tolerance, "lse");
        expectClose(reference::attentionGradients(dO, qkv, s, factor), wanted.dqkv, tolerance, "dqkv");
    }
}

TEST(Reference, LossIsCrossEntropy)
{
    const std::vector<std::int32_t> labels = {0, 60, -1, 13};
    Values logits = randomValues(4 * 61, 1, 4);
    const auto wanted = lossOracle(logits, labels, 61, 0.125);
    EXPECT_NEAR(reference::softmaxLoss(logits, labels, 61, 0.125), wanted.loss, 1e-11);
    expectClose(logits, wanted.dlogits, tolerance, "dlogits");
}
