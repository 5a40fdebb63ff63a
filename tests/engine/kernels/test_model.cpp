// SPDX-License-Identifier: GPL-3.0-or-later
// Whole training programs on one rank, as planned: against LibTorch's autograd and against what Hugging Face transformers
// computed (tests/fixtures/make_gpt2_golden.py).
#include "engine/base/file.h"
#include "engine/kernels/cpu_device.h"
#include "tests/engine/kernels/harness.h"
#include "tests/engine/kernels/storage.h"

#include <cstdlib>

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

namespace {

spec::JobSpec smallJob(DType compute)
{
    spec::JobSpec job;
    job.model.layers = 2;
    job.model.hidden = 21;
    job.model.heads = 7; // head size 3
    job.model.seq = 13;
    job.model.vocab = 67;
    job.batch.global = 6;
    job.batch.micro = 2;
    job.zero.bucketBytes = 4096;
    job.precision.compute = compute;
    if (compute == DType::F64)
        job.precision.grad = job.precision.master = job.precision.reduce = DType::F64;
    return job;
}

std::vector<std::int32_t> randomTokens(std::size_t count, std::int64_t vocab, unsigned seed)
{
    std::mt19937 engine(seed);
    std::vector<std::int32_t> tokens(count);
    for (auto &token : tokens)
        token = static_cast<std::int32_t>(engine() % static_cast<unsigned>(vocab));
    return tokens;
}

void randomize(Harness &harness)
{
    unsigned seed = 100;
    for (const auto &[name, value] : harness.parameters()) {
        Values values = randomValues(value.second.size(), ++seed, 0.2);
        if (name.ends_with("norm.weight")) {
            for (double &v : values)
                v += 1;
        }
        harness.setParameter(name, values);
    }
}

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

void expectLikeAutograd(const spec::JobSpec &job, exec::Device &device, Bounds bounds, bool ignoreSome = false)
{
    Harness harness(job, device);
    randomize(harness);
    const auto count = static_cast<std::size_t>(job.batch.global * job.model.seq);
    const auto tokens = randomTokens(count, job.model.vocab, 1);
    auto labels = randomTokens(count, job.model.vocab, 2);
    if (ignoreSome)
        labels[3] = labels[20] = -1;
    harness.state().lossScale = job.precision.compute == DType::F64 ? 1 : 8;
    for (int repeat = 0; repeat < 2; ++repeat) { // the second finds the first one's gradients in place
        harness.train(tokens, labels, false);
        const ModelOracle oracle = modelOracle({job.model.layers, job.model.heads, job.model.seq}, harness.parameters(), tokens,
                                               labels, harness.state().lossWeight * harness.state().lossScale);
        EXPECT_NEAR(harness.state().loss, oracle.loss / harness.state().lossScale, bounds.loss * harness.state().loss);
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

TEST(Model, RepeatsToTheBit)
{
    for (const DType type : {DType::F32, DType::BF16}) {
        const spec::JobSpec job = smallJob(type);
        CpuDevice device(2, detectIsa());
        Harness one(job, device), two(job, device);
        const auto count = static_cast<std::size_t>(job.batch.global * job.model.seq);
        const auto tokens = randomTokens(count, job.model.vocab, 1), labels = randomTokens(count, job.model.vocab, 2);
        for (Harness *harness : {&one, &two}) {
            randomize(*harness);
            harness->state().lr = 1e-2;
            for (int step = 0; step < 3; ++step)
                harness->train(tokens, labels, true);
        }
        EXPECT_EQ(one.state().loss, two.state().loss);
        for (const auto &[name, value] : one.parameters())
            EXPECT_EQ(value.second, two.parameter(name)) << name;
    }
}

namespace {

struct Golden {
    Json document;
    std::map<std::string, Values> weights; ///< under transformers' names
    std::map<std::string, std::vector<std::int64_t>> shapes;
};

Golden readGolden()
{
    const std::string folder = std::string(std::getenv("RANKYARD_SOURCE_DIR")) + "/tests/fixtures/gpt2/";
    Golden golden;
    golden.document = parseJson(readFile(folder + "golden.json").value(), "golden.json").value();
    const std::string bytes = readFile(folder + "model.safetensors").value();
    std::uint64_t length;
    std::memcpy(&length, bytes.data(), 8);
    const Json header = parseJson(std::string_view(bytes).substr(8, length), "model.safetensors").value();
    for (const auto &[name, entry] : header.items()) {
        if (name == "__metadata__")
            continue;
        const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
        std::vector<float> floats((end - begin) / 4);
        std::memcpy(floats.data(), bytes.data() + 8 + length + begin, end - begin);
        golden.weights[name] = Values(floats.begin(), floats.end());
        golden.shapes[name] = entry["shape"].get<std::vector<std::int64_t>>();
    }
    return golden;
}

/// Our name for a parameter → theirs.
std::string theirName(std::string name)
{
    const auto replace = [&](const std::string &from, const std::string &to) {
        if (const auto place = name.find(from); place != std::string::npos)
            name.replace(place, from.size(), to);
    };
    if (name.starts_with("norm."))
        name = "ln_f" + name.substr(4);
    replace("layers.", "h.");
    replace("attn.norm", "ln_1");
    replace("mlp.norm", "ln_2");
    replace("attn.qkv", "attn.c_attn");
    replace("attn.out", "attn.c_proj");
    replace("mlp.up", "mlp.c_fc");
    replace("mlp.down", "mlp.c_proj");
    return "transformer." + name;
}

void loadGolden(const Golden &golden, Harness &harness)
{
    for (const auto &[name, parameter] : harness.parameters()) {
        Values values = golden.weights.at(theirName(name));
        const auto &shape = golden.shapes.at(theirName(name));
        // Their linear layers are [in, out].
        if (shape.size() == 2 && name.starts_with("layers.")) {
            const auto in = static_cast<std::size_t>(shape[0]), out = static_cast<std::size_t>(shape[1]);
            Values turned(values.size());
            for (std::size_t i = 0; i < in; ++i) {
                for (std::size_t o = 0; o < out; ++o)
                    turned[o * in + i] = values[i * out + o];
            }
            values = turned;
        }
        harness.setParameter(name, values);
    }
}

spec::JobSpec goldenJob(const Json &document, DType compute)
{
    spec::JobSpec job = smallJob(compute);
    const Json &model = document["model"], &optimizer = document["optimizer"];
    job.model.layers = model["layers"];
    job.model.hidden = model["hidden"];
    job.model.heads = model["heads"];
    job.model.seq = model["seq"];
    job.model.vocab = model["vocab"];
    job.batch.global = document["batch"]["global"];
    job.batch.micro = document["batch"]["micro"];
    job.optimizer.beta1 = optimizer["betas"][0];
    job.optimizer.beta2 = optimizer["betas"][1];
    job.optimizer.eps = optimizer["eps"];
    job.optimizer.weightDecay = optimizer["weight_decay"];
    job.optimizer.clip = optimizer["clip"];
    return job;
}

void expectSummary(const Values &got, const Json &wanted, double tolerance, double floor, const std::string &name)
{
    double squares = 0, total = 0;
    for (const double value : got) {
        squares += value * value;
        total += value;
    }
    const double norm = wanted["norm"], slack = tolerance * std::max(norm, floor);
    EXPECT_NEAR(std::sqrt(squares), norm, slack) << name;
    EXPECT_NEAR(total, wanted["sum"].get<double>(), slack * std::sqrt(static_cast<double>(got.size()))) << name;
    for (std::size_t i = 0; i < wanted["places"].size(); ++i)
        EXPECT_NEAR(got[wanted["places"][i].get<std::size_t>()], wanted["values"][i].get<double>(), slack) << name;
}

void expectGolden(DType compute, double lossTolerance, double gradientTolerance, double weightTolerance)
{
    const Golden golden = readGolden();
    CpuDevice device(1, detectIsa());
    Harness harness(goldenJob(golden.document, compute), device);
    loadGolden(golden, harness);
    harness.state().lr = golden.document["optimizer"]["lr"];
    for (std::size_t step = 0; step < golden.document["steps"].size(); ++step) {
        std::vector<std::int32_t> tokens, labels;
        for (const Json &micro : golden.document["samples"][step]) {
            for (const Json &sample : micro) {
                const auto values = sample.get<std::vector<std::int32_t>>();
                tokens.insert(tokens.end(), values.begin(), values.end() - 1);
                labels.insert(labels.end(), values.begin() + 1, values.end());
            }
        }
        harness.train(tokens, labels, true);
        const Json &wanted = golden.document["steps"][step];
        EXPECT_NEAR(harness.state().loss, wanted["loss"].get<double>(), lossTolerance * wanted["loss"].get<double>());
        EXPECT_NEAR(harness.state().gradNorm, wanted["grad_norm"].get<double>(),
                    gradientTolerance * wanted["grad_norm"].get<double>());
        if (step == 0) {
            for (const auto &[name, summary] : golden.document["gradients"].items())
                expectSummary(harness.gradient(name), summary, gradientTolerance, 1e-3, name);
        }
    }
    for (const auto &[name, summary] : golden.document["weights"].items())
        expectSummary(harness.parameter(name), summary, weightTolerance, 1e-3, name);
}

} // namespace

TEST(Golden, TransformersGpt2InFp64) { expectGolden(DType::F64, 1e-12, 1e-10, 1e-9); }
TEST(Golden, TransformersGpt2InFp32) { expectGolden(DType::F32, 1e-5, 1e-4, 1e-3); }
TEST(Golden, TransformersGpt2InBf16) { expectGolden(DType::BF16, 1e-2, 0.1, 0.1); }
