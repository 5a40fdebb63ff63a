// SPDX-License-Identifier: GPL-3.0-or-later
// Whole training programs on one rank against what Hugging Face transformers computed (tests/fixtures/make_gpt2_golden.py).
#include "engine/base/file.h"
#include "engine/kernels/cpu_device.h"
#include "tests/engine/kernels/small_job.h"

#include <cstdlib>

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

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

void expectSummary(const Values &got, const Json &wanted, double tolerance, double floor,
                   const std::string &name)
{
    double squares = 0, total = 0;
    for (const double value : got) {
        squares += value * value;
        total += value;
    }
    const double norm = wanted["norm"], slack = tolerance * std::max(norm, floor);
    EXPECT_NEAR(std::sqrt(squares), norm, slack) << name;
    EXPECT_NEAR(total, wanted["sum"].get<double>(), slack * std::sqrt(static_cast<double>(got.size())))
        << name;
    for (std::size_t i = 0; i < wanted["places"].size(); ++i)
        EXPECT_NEAR(got[wanted["places"][i].get<std::size_t>()], wanted["values"][i].get<double>(), slack)
            << name;
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
        EXPECT_NEAR(harness.state().loss, wanted["loss"].get<double>(),
                    lossTolerance * wanted["loss"].get<double>());
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
