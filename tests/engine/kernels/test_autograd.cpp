// SPDX-License-Identifier: GPL-3.0-or-later
// Whole training programs on one rank, as planned, against LibTorch's autograd in fp64.
#include "engine/kernels/cpu_device.h"
#include "tests/engine/kernels/oracle.h"
#include "tests/engine/kernels/small_job.h"

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

namespace {

/// ‖g − g_ref‖ ÷ max(‖g_ref‖, 1e-6·‖g_ref,all‖·√(numel_p ÷ numel_all)) (DESIGN 4), the worst over the parameters.
double worstError(const Harness &harness, const std::map<std::string, Values> &wanted, std::string &where)
{
    const auto norm = [](const Values &v) {
        double squares = 0;
        for (const double x : v)
            squares += x * x;
        return std::sqrt(squares);
    };
    double all = 0, count = 0, worst = 0;
    for (const auto &[name, values] : wanted) {
        all += norm(values) * norm(values);
        count += static_cast<double>(values.size());
    }
    for (const auto &[name, values] : wanted) {
        Values difference = harness.gradient(name);
        for (std::size_t i = 0; i < values.size(); ++i)
            difference[i] -= values[i];
        const double floor = 1e-6 * std::sqrt(all) * std::sqrt(static_cast<double>(values.size()) / count);
        const double error = norm(difference) / std::max(norm(values), floor);
        if (!(error <= worst)) {
            worst = error;
            where = name;
        }
    }
    return worst;
}

struct Bounds {
    double loss, gradient;
};

void expectLikeAutograd(const spec::JobSpec &job, exec::Device &device, Bounds bounds,
                        bool ignoreSome = false)
{
    Harness harness(job, device);
    randomize(harness);
    const auto count = static_cast<std::size_t>(job.batch.global * job.model.seq);
    const auto tokens = randomTokens(count, job.model.vocab, 1);
    auto labels = randomTokens(count, job.model.vocab, 2);
    if (ignoreSome)
        labels[3] = labels[20] = -1;
    harness.state().lossScale = job.precision.compute == DType::F64 ? 1
        : job.precision.compute == DType::F16                       ? 1024
                                                                    : 8;
    for (int repeat = 0; repeat < 2; ++repeat) { // the second finds the first one's gradients in place
        harness.train(tokens, labels, false);
        const ModelOracle oracle = modelOracle(
            {job.model.layers, job.model.heads, job.model.keyHeads(), job.model.seq}, harness.parameters(),
            tokens, labels, harness.state().lossWeight * harness.state().lossScale);
        EXPECT_NEAR(harness.state().loss, oracle.loss / harness.state().lossScale,
                    bounds.loss * harness.state().loss);
        std::string where;
        const double worst = worstError(harness, oracle.gradients, where);
        EXPECT_LE(worst, bounds.gradient) << where;
        EXPECT_FALSE(harness.state().overflow);
        double squares = 0;
        for (const auto &[name, values] : oracle.gradients) {
            for (const double g : values)
                squares += g * g;
        }
        EXPECT_NEAR(harness.state().gradNorm, std::sqrt(squares) / harness.state().lossScale,
                    bounds.gradient * harness.state().gradNorm);
    }
    if (harness.plan().has(plan::ProgramKind::Eval)) {
        const double loss = harness.state().loss;
        EXPECT_NEAR(harness.evaluate(tokens, labels), loss, bounds.loss * loss);
    }
}

std::vector<Isa> isas()
{
    std::vector<Isa> result;
    for (const Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16}) {
        if (isa <= detectIsa())
            result.push_back(isa);
    }
    return result;
}

} // namespace

TEST(Model, GradientsAreAutogradsInFp64)
{
    for (const Isa isa : isas()) {
        CpuDevice device(1, isa);
        expectLikeAutograd(smallJob(DType::F64), device, {1e-13, 1e-12});
    }
}

TEST(Model, GradientsAreAutogradsInFp32)
{
    for (const Isa isa : isas()) {
        CpuDevice device(1, isa);
        expectLikeAutograd(smallJob(DType::F32), device, {1e-6, 2e-5});
    }
}

/// The oracle computes in fp64 from the rounded weights; activations of two layers are rounded by 2^-9 about twenty times.
TEST(Model, GradientsAreNearAutogradsInBf16)
{
    for (const Isa isa : isas()) {
        CpuDevice device(1, isa);
        expectLikeAutograd(smallJob(DType::BF16), device, {1e-2, 6e-2});
    }
}

/// As bf16, with 2^-12 of rounding and a loss scale that keeps the small gradients from vanishing.
TEST(Model, GradientsAreNearAutogradsInFp16)
{
    for (const Isa isa : isas()) {
        CpuDevice device(1, isa);
        expectLikeAutograd(smallJob(DType::F16), device, {2e-3, 8e-3});
    }
}

TEST(Model, UntiedHeadAndIgnoredLabels)
{
    spec::JobSpec job = smallJob(DType::F64);
    job.model.tied = false;
    CpuDevice device(1, detectIsa());
    expectLikeAutograd(job, device, {1e-13, 1e-12}, true);
}

TEST(Model, SeveralThreads)
{
    for (const int threads : {2, 3}) {
        CpuDevice device(threads, detectIsa());
        expectLikeAutograd(smallJob(DType::F64), device, {1e-13, 1e-12});
        spec::JobSpec wide = smallJob(DType::F32);
        wide.model.hidden = 160;
        wide.model.heads = 5;
        expectLikeAutograd(wide, device, {1e-6, 2e-5});
    }
}
