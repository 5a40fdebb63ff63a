// SPDX-License-Identifier: GPL-3.0-or-later
// Every tuned kernel, of every instruction set that this machine runs and every storage type, against the plain reference.
// The reference gets the inputs as rounded to the storage type. Bounds, relative to the largest value: fp64 1e-12; fp32 a small
// multiple of 2^-24 that grows with the length of the sums; bf16 rounds each stored result, and between two products
// probabilities too, by 2^-9.
#include "tests/engine/kernels/storage.h"

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

namespace {

struct Case {
    Isa isa;
    DType type;
};

std::vector<Case> allCases()
{
    std::vector<Case> cases;
    for (const Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16}) {
        if (isa <= detectIsa()) {
            for (const DType type : {DType::F32, DType::F64, DType::BF16})
                cases.push_back({isa, type});
        }
    }
    return cases;
}

class Tuned : public testing::TestWithParam<Case>
{
protected:
    DType type() const { return GetParam().type; }
    DType acc() const { return type() == DType::F64 ? DType::F64 : DType::F32; }
    const KernelTable &table() const
    {
        const IsaTables &tables = tablesFor(GetParam().isa);
        return type() == DType::F32 ? tables.f32 : type() == DType::F64 ? tables.f64 : tables.bf16;
    }
    /// Of sums of `length` terms that are stored as `stored`.
    double bound(double length, DType stored) const
    {
        const double sums = type() == DType::F64 ? 1e-12 : 6e-7 * std::sqrt(length);
        return stored == DType::BF16 ? sums + 1.0 / 256 : sums;
    }
    double bound(double length) const { return bound(length, type()); }
    Storage random(std::size_t count, unsigned seed, double spread = 1) const
    {
        return Storage(type(), randomValues(count, seed, spread));
    }
};

std::string caseName(const testing::TestParamInfo<Case> &info)
{
    std::string name = std::string(nameOf(info.param.isa)) + "_" + nameOf(info.param.type);
    std::erase_if(name, [](char c) { return c == '-' || c == ' '; });
    return name;
}

/// Scratch of exactly the size that was asked for, aligned to 64, with a fence behind.
class ScratchArea
{
public:
    explicit ScratchArea(std::int64_t bytes)
        : m_size(static_cast<std::size_t>(bytes)),
          m_bytes(m_size + 192, 0x5a)
    {}
    ~ScratchArea()
    {
        const auto *end = static_cast<unsigned char *>(data()) + m_size;
        EXPECT_TRUE(std::all_of(end, end + 64, [](unsigned char c) { return c == 0x5a; }))
            << "scratch overrun";
    }
    void *data()
    {
        const auto address = reinterpret_cast<std::uintptr_t>(m_bytes.data());
        return m_bytes.data() + (64 - address % 64) % 64;
    }

private:
    std::size_t m_size;
    std::vector<unsigned char> m_bytes;
};

} // namespace

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
        table().normForward(x.data(), weight.data(), bias.data(), out.data(), stats.data(), rows, width, eps);
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
        table().normBackward(dn.data(), x.data(), stats.data(), weight.data(), residual.data(), dw.data(),
                             db.data(), rows, width);
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
        // tanh cancels for large negative inputs, ours does not: an absolute part.
        EXPECT_NEAR(a.get(i), wanted, 1e-15 + bound(1) * std::abs(wanted) + (type() == DType::F64 ? 0 : 1e-9))
            << u.get(i);
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

TEST_P(Tuned, Attention)
{
    struct Shape {
        std::int64_t batch, seq, heads, size;
    };
    for (const Shape s : {Shape{1, 1, 1, 1},
                          {2, 5, 1, 3},
                          {1, 16, 3, 8},
                          {2, 33, 2, 5},
                          {1, 100, 1, 64},
                          {1, 257, 2, 16},
                          {1, 700, 1, 40}}) {
        const std::int64_t tokens = s.batch * s.seq, width = s.heads * s.size;
        const auto count = static_cast<std::size_t>(tokens * width);
        Storage qkv = random(3 * count, 1), o(type(), count),
                lse(acc(), static_cast<std::size_t>(s.heads * tokens));
        Storage dO = random(count, 2), dqkv(type(), 3 * count);
        Attention a;
        a.seq = s.seq;
        a.heads = s.heads;
        a.size = s.size;
        a.tokens = tokens;
        a.qkv = qkv.data();
        a.o = o.data();
        a.lse = lse.data();
        ScratchArea scratch(table().attentionScratch(a));
        a.scratch = scratch.data();
        for (std::int64_t pair = 0; pair < s.batch * s.heads; ++pair)
            table().attentionForward(a, pair);
        const std::string what = "seq " + std::to_string(s.seq) + " size " + std::to_string(s.size);
        const auto wanted = reference::attention(qkv.values(), s.seq, s.heads, s.size);
        expectClose(o.values(), wanted.o, 4 * bound(16), what + " o");
        expectClose(lse.values(), wanted.lse, 8 * bound(16, acc()), what + " lse");

        a.dO = dO.data();
        a.dqkv = dqkv.data();
        for (std::int64_t pair = 0; pair < s.batch * s.heads; ++pair)
            table().attentionBackward(a, pair);
        expectClose(dqkv.values(),
                    reference::attentionGradients(dO.values(), qkv.values(), s.seq, s.heads, s.size),
                    4 * bound(16), what + " dqkv");
    }
}

TEST_P(Tuned, SoftmaxLoss)
{
    for (const bool wide : {true, false}) {
        for (const std::int64_t vocab : {1, 2, 61, 512}) {
            const std::vector<std::int32_t> labels = {0, static_cast<std::int32_t>(vocab - 1), -1,
                                                      static_cast<std::int32_t>(vocab / 2)};
            const auto count = labels.size() * static_cast<std::size_t>(vocab);
            Storage logits(wide ? acc() : type(), randomValues(count, 3, 4));
            Values wanted = logits.values();
            const double loss = reference::softmaxLoss(wanted, labels, vocab, 0.25);
            SoftmaxLoss s;
            s.wide = wide;
            s.ld = vocab;
            s.labels = labels.data();
            s.rows = static_cast<std::int64_t>(labels.size());
            s.vocab = vocab;
            Storage untouched = logits;
            s.logits = untouched.data();
            EXPECT_NEAR(table().softmaxLoss(s), loss, std::abs(loss) * 8 * bound(1, acc()) + 1e-12);
            EXPECT_EQ(untouched.values(), logits.values());
            s.backward = true;
            s.scale = 0.25;
            s.logits = logits.data();
            EXPECT_NEAR(table().softmaxLoss(s), loss, std::abs(loss) * 8 * bound(1, acc()) + 1e-12);
            // The narrower gradients begin where the rows of logits began.
            Storage gradients(type(), count);
            const std::size_t gap = bytesOf(logits.type()) / bytesOf(type());
            for (std::size_t r = 0; r < labels.size(); ++r)
                std::memcpy(static_cast<char *>(gradients.data())
                                + r * static_cast<std::size_t>(vocab) * bytesOf(type()),
                            static_cast<char *>(logits.data())
                                + r * static_cast<std::size_t>(vocab) * bytesOf(type()) * gap,
                            static_cast<std::size_t>(vocab) * bytesOf(type()));
            expectClose(gradients.values(), wanted, vocab == 1 ? 1e-6 : 4 * bound(1), "dlogits");
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
        table().lookup(index.data(), table4.data(), looked.data(), static_cast<std::int64_t>(index.size()),
                       width);
        for (std::size_t i = 0; i < looked.size(); ++i)
            EXPECT_EQ(looked.get(i), table4.get(static_cast<std::size_t>(index[i / w]) * w + i % w));
        for (const GradientStorage storage : {Wide, Same}) {
            Storage grads(storage == Wide ? acc() : type(), Values(4 * w, 0.5));
            Values wanted(4 * w, 0.5);
            for (std::size_t i = 0; i < looked.size(); ++i) {
                if (i % w >= w / 2)
                    wanted[static_cast<std::size_t>(index[i / w]) * w + i % w] += x.get(i);
            }
            table().scatterAdd[storage](index.data(), x.data(), grads.data(),
                                        static_cast<std::int64_t>(index.size()), width, width / 2, width);
            expectClose(grads.values(), wanted, 3 * bound(3, grads.type()), "scatter");
        }
        table().addPositions(x.data(), table4.data(), 2, seq, rows, width);
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
        std::int64_t bad = -1;
        EXPECT_NEAR(table().sumSquares[storage](grad.data(), n, &bad), squares, 1e-12 * squares);
        EXPECT_EQ(bad, 0);
        Storage broken = grad;
        broken.set(0, INFINITY);
        broken.set(n - 1, -INFINITY);
        broken.set(500, gradType == DType::BF16 ? INFINITY : NAN);
        table().sumSquares[storage](broken.data(), n, &bad);
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

        const bool master = type() == DType::BF16;
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

/// A NaN anywhere must reach the loss, not be dropped by a comparison.
TEST_P(Tuned, NanReachesTheLoss)
{
    for (const std::size_t place : {0u, 17u, 60u}) {
        Storage logits(acc(), randomValues(61, 5));
        logits.set(place, NAN);
        const std::int32_t label = 3;
        SoftmaxLoss s;
        s.logits = logits.data();
        s.ld = s.vocab = 61;
        s.labels = &label;
        s.rows = 1;
        EXPECT_TRUE(std::isnan(table().softmaxLoss(s))) << place;
    }
}

INSTANTIATE_TEST_SUITE_P(Isas, Tuned, testing::ValuesIn(allCases()), caseName);
