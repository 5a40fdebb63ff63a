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

TEST(Reference, AttentionIsMaskedSoftmax)
{
    struct Shape {
        std::int64_t batch, seq, heads, size;
    };
    for (const Shape s : {Shape{1, 1, 1, 1}, {2, 7, 3, 3}, {1, 40, 2, 16}}) {
        const auto n = static_cast<std::size_t>(s.batch * s.seq * s.heads * s.size);
        const Values qkv = randomValues(3 * n, 1), dO = randomValues(n, 2);
        const auto wanted = attentionOracle(qkv, s.seq, s.heads, s.size, dO);
        const auto got = reference::attention(qkv, s.seq, s.heads, s.size);
        expectClose(got.o, wanted.o, tolerance, "o");
        expectClose(got.lse, wanted.lse, tolerance, "lse");
        expectClose(reference::attentionGradients(dO, qkv, s.seq, s.heads, s.size), wanted.dqkv, tolerance,
                    "dqkv");
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
