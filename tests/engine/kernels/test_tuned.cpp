// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/kernels/tuned_fixture.h"

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

TEST_P(Tuned, Gemm)
{
    struct Shape {
        std::int64_t m, n, k;
    };
    unsigned seed = 1;
    for (const Shape s : {Shape{1, 1, 1},
                          {2, 3, 5},
                          {14, 32, 7},
                          {15, 33, 64},
                          {29, 70, 131},
                          {64, 96, 128},
                          {40, 100, 1100},
                          {3, 130, 2500},
                          {20, 40, 4100},
                          {7, 40, 1024},
                          {5, 8, 16},
                          {120, 40, 300}}) {
        const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
        for (const auto &[aT, bT] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
            Storage a = random(count(s.m * s.k), ++seed), b = random(count(s.k * s.n), ++seed);
            Storage biases = random(count(s.n), ++seed);
            const Values product = reference::multiply(a.values(), aT, b.values(), bT, s.m, s.n, s.k);
            Gemm g;
            g.m = s.m;
            g.n = s.n;
            g.k = s.k;
            g.a = a.data();
            g.lda = aT ? s.m : s.k;
            g.aTransposed = aT;
            g.b = b.data();
            g.ldb = bT ? s.k : s.n;
            g.bTransposed = bT;
            g.ldc = s.n;
            for (const auto &[wide, accumulate, bias] : {std::tuple{false, false, false},
                                                         {false, false, true},
                                                         {false, true, false},
                                                         {true, false, false},
                                                         {true, false, true},
                                                         {true, true, false}}) {
                const DType stored = wide ? acc() : type();
                Storage c(stored, randomValues(product.size(), ++seed)), gelus(type(), product.size());
                Values wanted = product;
                for (std::size_t i = 0; i < wanted.size(); ++i)
                    wanted[i] += (accumulate ? c.get(i) : 0) + (bias ? biases.get(i % count(s.n)) : 0);
                g.c = c.data();
                g.wide = wide;
                g.accumulate = accumulate;
                g.bias = bias ? biases.data() : nullptr;
                g.gelu = wide ? nullptr : gelus.data();
                ScratchArea scratch(table().gemmScratch(g));
                g.scratch = scratch.data();
                table().gemm(g);
                const std::string what = std::to_string(s.m) + "x" + std::to_string(s.n) + "x"
                    + std::to_string(s.k) + (aT ? " a turned" : "") + (bT ? " b turned" : "")
                    + (wide ? " wide" : "") + (accumulate ? " added" : "") + (bias ? " bias" : "");
                expectClose(c.values(), wanted, bound(static_cast<double>(s.k), stored), what);
                if (!wide) {
                    Values gelu = c.values();
                    std::transform(gelu.begin(), gelu.end(), gelu.begin(), reference::gelu);
                    expectClose(gelus.values(), gelu, bound(1), what + " gelu");
                }
            }
        }
    }
}

TEST_P(Tuned, Norm)
{
    for (const std::int64_t width : {1, 3, 16, 24, 65, 384}) {
        const std::int64_t rows = 7;
        const auto n = static_cast<std::size_t>(rows * width), w = static_cast<std::size_t>(width);
        Storage x = random(n, 1, 2), weight = random(w, 2), bias = random(w, 3), out(type(), n);
        Storage stats(acc(), static_cast<std::size_t>(2 * rows));
        const double eps = width == 1 ? 0.5 : 1e-5;
        table().normForward[Layer](x.data(), weight.data(), bias.data(), out.data(), stats.data(), rows,
                                   width, eps);
        const auto wanted = reference::norm(x.values(), weight.values(), bias.values(), width, eps);
        expectClose(out.values(), wanted.n, 8 * bound(4), "n");
        expectClose(stats.values(), wanted.stats, 8 * bound(4, acc()), "stats");

        Storage dn = random(n, 4), residual = random(n, 5);
        Storage dw(acc(), Values(w, 1.0)), db(acc(), Values(w, 2.0));
        auto gradients = reference::normGradients(dn.values(), x.values(), weight.values(), width, eps);
        for (std::size_t i = 0; i < n; ++i)
            gradients.dx[i] += residual.get(i);
        for (std::size_t i = 0; i < w; ++i) {
            gradients.dw[i] += 1;
            gradients.db[i] += 2;
        }
        table().normBackward[Layer](dn.data(), x.data(), stats.data(), weight.data(), residual.data(),
                                    dw.data(), db.data(), rows, width);
        expectClose(dn.values(), gradients.dx, 8 * bound(8), "dx");
        expectClose(dw.values(), gradients.dw, 8 * bound(8, acc()), "dw");
        expectClose(db.values(), gradients.db, 8 * bound(8, acc()), "db");
    }
}

TEST_P(Tuned, Gelu)
{
    Values inputs = randomValues(999, 7, 3);
    for (int i = 0; i < 200; ++i)
        inputs.push_back(i - 100);
    Storage u(type(), inputs), a(type(), inputs.size());
    table().geluForward(u.data(), a.data(), static_cast<std::int64_t>(inputs.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const double wanted = reference::gelu(u.get(i));
        // tanh cancels for large negative inputs, ours does not: an absolute part. Subnormal halves are 2^-24 apart.
        const double absolute = type() == DType::F64 ? 0 : type() == DType::F16 ? 0x1p-25 : 1e-9;
        EXPECT_NEAR(a.get(i), wanted, 1e-15 + bound(1) * std::abs(wanted) + absolute) << u.get(i);
    }
    const std::int64_t width = 109, rows = 11;
    Storage grad = random(inputs.size(), 8), sums(acc(), Values(static_cast<std::size_t>(width), 1.0));
    Values wanted(inputs.size()), columns(static_cast<std::size_t>(width), 1.0);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        wanted[i] = grad.get(i) * reference::geluSlope(u.get(i));
        columns[i % static_cast<std::size_t>(width)] += wanted[i];
    }
    ASSERT_EQ(inputs.size(), static_cast<std::size_t>(width * rows));
    table().geluBackward(grad.data(), u.data(), sums.data(), rows, width);
    expectClose(grad.values(), wanted, 4 * bound(1), "du");
    expectClose(sums.values(), columns, 8 * bound(4, acc()), "db");
}

TEST_P(Tuned, RmsNorm)
{
    for (const std::int64_t width : {1, 3, 24, 65, 384}) {
        const std::int64_t rows = 7;
        const auto n = static_cast<std::size_t>(rows * width), w = static_cast<std::size_t>(width);
        Storage x = random(n, 1, 2), weight = random(w, 2), out(type(), n);
        Storage stats(acc(), static_cast<std::size_t>(rows));
        const double eps = width == 1 ? 0.5 : 1e-5;
        table().normForward[Rms](x.data(), weight.data(), nullptr, out.data(), stats.data(), rows, width,
                                 eps);
        const auto wanted = reference::rmsNorm(x.values(), weight.values(), width, eps);
        expectClose(out.values(), wanted.n, 8 * bound(4), "n");
        expectClose(stats.values(), wanted.stats, 8 * bound(4, acc()), "stats");

        Storage dn = random(n, 4), residual = random(n, 5), dw(acc(), Values(w, 1.0));
        auto gradients = reference::rmsNormGradients(dn.values(), x.values(), weight.values(), width, eps);
        for (std::size_t i = 0; i < n; ++i)
            gradients.dx[i] += residual.get(i);
        for (std::size_t i = 0; i < w; ++i)
            gradients.dw[i] += 1;
        table().normBackward[Rms](dn.data(), x.data(), stats.data(), weight.data(), residual.data(),
                                  dw.data(), nullptr, rows, width);
        expectClose(dn.values(), gradients.dx, 8 * bound(8), "dx");
        expectClose(dw.values(), gradients.dw, 8 * bound(8, acc()), "dw");
    }
}

TEST_P(Tuned, Swiglu)
{
    for (const std::int64_t width : {1, 7, 16, 67}) {
        const std::int64_t rows = 9;
        const auto n = static_cast<std::size_t>(rows * width);
        Storage u = random(2 * n, 1, 3), a(type(), n), da = random(n, 2), du(type(), 2 * n);
        table().swigluForward(u.data(), a.data(), rows, width);
        expectClose(a.values(), reference::swiglu(u.values(), width), 4 * bound(1), "a");
        const Values wanted = reference::swigluGradients(da.values(), u.values(), width);
        table().swigluBackward(da.data(), u.data(), du.data(), rows, width);
        expectClose(du.values(), wanted, 4 * bound(1), "du");
        table().swigluBackward(da.data(), u.data(), u.data(), rows, width);
        EXPECT_EQ(u.values(), du.values()) << "in place";
    }
}

TEST_P(Tuned, Rotate)
{
    for (const std::int64_t size : {2, 6, 64}) {
        const std::int64_t heads = 3, ld = heads * size + 5;
        const std::vector<std::int32_t> position = {0, 3, 7, 7, 1};
        const auto rows = static_cast<std::int64_t>(position.size());
        Values frequency, angles;
        for (std::int64_t i = 0; i < size / 2; ++i)
            frequency.push_back(std::pow(10.0, -2.0 * static_cast<double>(i) / static_cast<double>(size)));
        for (int p = 0; p < 8; ++p) {
            for (const auto turn :
                 {+[](double x) { return std::cos(x); }, +[](double x) { return std::sin(x); }})
                for (const double f : frequency)
                    angles.push_back(turn(p * f));
        }
        Storage table8(acc(), angles), x = random(static_cast<std::size_t>(rows * ld), 1);
        for (const bool back : {false, true}) {
            Values wanted = x.values();
            for (std::int64_t r = 0; r < rows; ++r) {
                const auto row = wanted.begin() + r * ld;
                const Values turned =
                    reference::rotate(Values(row, row + heads * size), frequency, 1,
                                      {position[static_cast<std::size_t>(r)]}, heads, size, back);
                std::copy(turned.begin(), turned.end(), row);
            }
            Storage y = x;
            table().rotate(y.data(), ld, table8.data(), position.data(), rows, heads, size, back);
            expectClose(y.values(), wanted, 4 * bound(1), back ? "back" : "forth");
        }
    }
}

TEST_P(Tuned, DropRows)
{
    for (const std::int64_t width : {1, 30, 64, 200}) {
        const std::vector<std::int32_t> sample = {0, 0, 1, 1, 1}, position = {4, 5, 0, 1, 2};
        const auto rows = static_cast<std::int64_t>(sample.size());
        const auto n = static_cast<std::size_t>(rows * width), w = static_cast<std::size_t>(width);
        Dropout d{{17, 99}, 2, 0x4ccccccc, 1 / 0.7, sample.data(), position.data(), (1LL << 32) + 10};
        Storage x = random(n, 1), bias = random(w, 2), residual = random(n, 3), y(type(), n);
        Values wanted(n), masked(n);
        for (std::size_t i = 0; i < n; ++i) {
            const double factor = reference::dropFactor(d, static_cast<std::uint32_t>(10 + sample[i / w]),
                                                        static_cast<std::uint32_t>(position[i / w]), 0,
                                                        static_cast<std::uint32_t>(i % w));
            masked[i] = x.get(i) * factor;
            wanted[i] = residual.get(i) + factor * (x.get(i) + bias.get(i % w));
        }
        table().dropRows(d, x.data(), bias.data(), residual.data(), y.data(), rows, width);
        expectClose(y.values(), wanted, 3 * bound(3), "join");
        table().dropRows(d, x.data(), nullptr, nullptr, x.data(), rows, width);
        expectClose(x.values(), masked, bound(1), "mask");
        if (width == 200) {
            const auto kept = std::count_if(masked.begin(), masked.end(), [](double v) { return v != 0; });
            EXPECT_NEAR(static_cast<double>(kept), 700, 4 * std::sqrt(1000 * 0.7 * 0.3));
        }
    }
}

TEST_P(Tuned, RowsAndColumns)
{
    for (const std::int64_t width : {1, 5, 24, 67}) {
        const std::int64_t rows = 21, seq = 4;
        const auto n = static_cast<std::size_t>(rows * width), w = static_cast<std::size_t>(width);
        Storage x = random(n, 1), y = random(n, 2), bias = random(w, 3), sums(acc(), Values(w, 1.0)),
                table4 = random(4 * w, 4);
        Values joined(n), columns(w, 1.0), positioned(n);
        std::vector<std::int32_t> position;
        for (std::int64_t r = 0; r < rows; ++r)
            position.push_back(static_cast<std::int32_t>((2 + r) % seq));
        for (std::size_t i = 0; i < n; ++i) {
            joined[i] = x.get(i) + y.get(i) + bias.get(i % w);
            columns[i % w] += x.get(i);
            positioned[i] = x.get(i) + table4.get((2 + i / w) % 4 * w + i % w);
        }
        table().columnSum(x.data(), width, rows, width, sums.data());
        expectClose(sums.values(), columns, bound(21, acc()), "column sums");
        table().join(x.data(), y.data(), bias.data(), rows, width);
        expectClose(y.values(), joined, bound(3), "join");

        const std::vector<std::int32_t> index = {3, 0, 0, 2, 1, 3, 3};
        Storage looked(type(), index.size() * w);
        table().lookup(index.data(), table4.data(), 0, 4, looked.data(),
                       static_cast<std::int64_t>(index.size()), width);
        for (std::size_t i = 0; i < looked.size(); ++i)
            EXPECT_EQ(looked.get(i), table4.get(static_cast<std::size_t>(index[i / w]) * w + i % w));
        // A rank that has rows 2 and 3.
        Storage some(type(), index.size() * w);
        table().lookup(index.data(), table4.data(), 2, 2, some.data(),
                       static_cast<std::int64_t>(index.size()), width);
        for (std::size_t i = 0; i < some.size(); ++i) {
            const bool mine = index[i / w] >= 2;
            EXPECT_EQ(some.get(i),
                      mine ? table4.get(static_cast<std::size_t>(index[i / w] - 2) * w + i % w) : 0);
        }
        for (const GradientStorage storage : {Wide, Same}) {
            Storage grads(storage == Wide ? acc() : type(), Values(4 * w, 0.5));
            Values wanted(4 * w, 0.5);
            for (std::size_t i = 0; i < looked.size(); ++i) {
                if (i % w >= w / 2)
                    wanted[static_cast<std::size_t>(index[i / w]) * w + i % w] += x.get(i);
            }
            table().scatterAdd[storage](index.data(), x.data(), grads.data(), 0, 4,
                                        static_cast<std::int64_t>(index.size()), width, width / 2, width);
            expectClose(grads.values(), wanted, 3 * bound(3, grads.type()), "scatter");
            Storage part(storage == Wide ? acc() : type(), Values(w, 0.0));
            table().scatterAdd[storage](index.data(), x.data(), part.data(), 2, 1,
                                        static_cast<std::int64_t>(index.size()), width, 0, width);
            for (std::size_t i = 0; i < w; ++i)
                EXPECT_EQ(part.get(i), x.get(3 * w + i));
        }
        table().addPositions(x.data(), table4.data(), position.data(), rows, width);
        expectClose(x.values(), positioned, bound(2), "positions");
    }
}

TEST_P(Tuned, GradientsNormAndAdam)
{
    const std::size_t n = 1003;
    for (const GradientStorage storage : {Wide, Same}) {
        const DType gradType = storage == Wide ? acc() : type();
        Storage grad(gradType, randomValues(n, 1, 0.1));
        const Values g = grad.values();
        double squares = 0;
        for (const double value : g)
            squares += value * value;
        double sum = 2, bad = 0; // both are added to
        table().sumSquares[storage](grad.data(), n, &sum, &bad);
        EXPECT_NEAR(sum - 2, squares, 1e-12 * (squares + 2));
        EXPECT_EQ(bad, 0);
        Storage broken = grad;
        broken.set(0, INFINITY);
        broken.set(n - 1, -INFINITY);
        broken.set(500, bytesOf(gradType) == 2 ? INFINITY : NAN);
        table().sumSquares[storage](broken.data(), n, &sum, &bad);
        EXPECT_EQ(bad, 3);

        Storage sums(acc(), randomValues(n, 2));
        Values added = sums.values();
        for (std::size_t i = 0; i < n; ++i)
            added[i] += g[i];
        Storage target = grad;
        table().writeGradient[storage](sums.data(), target.data(), n, true);
        expectClose(target.values(), added, bound(2, gradType), "added");
        table().writeGradient[storage](sums.data(), target.data(), n, false);
        expectClose(target.values(), sums.values(), bound(1, gradType), "written");

        const bool master = bytesOf(type()) == 2;
        Storage param = random(n, 3), exp1(acc(), n), exp2(acc(), n), copy(acc(), param.values());
        Values p = param.values(), m(n), v(n);
        const reference::AdamRule rule{0.01, 0.9, 0.95, 1e-8, 0.1};
        for (std::int64_t step = 1; step <= 3; ++step) {
            Adam adam;
            adam.grad = grad.data();
            adam.param = param.data();
            adam.exp1 = exp1.data();
            adam.exp2 = exp2.data();
            adam.master = master ? copy.data() : nullptr;
            adam.count = n;
            adam.gradFactor = 0.5;
            adam.beta1 = rule.beta1;
            adam.beta2 = rule.beta2;
            adam.eps = rule.eps;
            adam.shrink = 1 - rule.lr * rule.decay;
            adam.stepSize = rule.lr / (1 - std::pow(rule.beta1, step));
            adam.rootCorrection = 1 / std::sqrt(1 - std::pow(rule.beta2, step));
            table().adam[storage](adam);
            reference::adam(p, m, v, g, 0.5, step, rule);
        }
        expectClose((master ? copy : param).values(), p, bound(9, acc()), "parameters");
        expectClose(param.values(), p, bound(9), "stored parameters");
        expectClose(exp1.values(), m, bound(9, acc()), "first moment");
        expectClose(exp2.values(), v, bound(9, acc()), "second moment");
    }
}

/// 2 units in the last place of fp32; exact limits.
TEST_P(Tuned, Exponential)
{
    if (acc() == DType::F64)
        return;
    std::vector<float> x, y;
    for (float value = -87.0f; value < 88.722f; value += 0.00137f)
        x.push_back(value);
    for (const float value : {0.0f, -0.0f, 1e-30f, -1e-30f})
        x.push_back(value);
    y.resize(x.size());
    table().exponential(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double wanted = std::exp(static_cast<double>(x[i]));
        int exponent;
        std::frexp(wanted, &exponent);
        worst =
            std::max(worst, std::abs(static_cast<double>(y[i]) - wanted) / std::ldexp(1.0, exponent - 24));
    }
    EXPECT_LE(worst, 2.0);
    const float limits[] = {-87.1f, -1000.0f, -INFINITY, 88.9f, INFINITY, NAN};
    float results[6];
    table().exponential(limits, results, 6);
    EXPECT_NEAR(results[0], 0, 2e-38);
    EXPECT_EQ(results[1], 0);
    EXPECT_EQ(results[2], 0);
    EXPECT_EQ(results[3], INFINITY);
    EXPECT_EQ(results[4], INFINITY);
    EXPECT_TRUE(std::isnan(results[5]));
}

INSTANTIATE_TEST_SUITE_P(Isas, Tuned, testing::ValuesIn(casesUnderTest()), caseName);
