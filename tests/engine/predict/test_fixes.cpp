// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/plan.h"
#include "engine/plan/units.h"
#include "engine/predict/fixes.h"
#include "engine/spec/hf_config.h"
#include "engine/spec/model_presets.h"
#include "tests/engine/long.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

using namespace rankyard;
using namespace rankyard::predict;

namespace {

Json job(const std::vector<std::string> &changes = {})
{
    spec::JobSpec standard;
    standard.data.train = "corpus";
    return changed(Json(spec::writeJob(standard)), changes);
}

Problem problemOfJob(const Json &document)
{
    const auto read = readDesign(document);
    EXPECT_FALSE(read);
    return problemOf(read.error(), document);
}

std::int64_t parameters(const spec::Model &model)
{
    spec::JobSpec spec;
    spec.model = model;
    std::int64_t sum = 0;
    for (const auto &tensor : plan::modelTensors(spec))
        sum += plan::numelOf(tensor.shape);
    return sum;
}

} // namespace

TEST(Fixes, ChangesKeysAndMakesSections)
{
    const Json document =
        changed(Json::object(), {"layout.tp=8", "layout.schedule=\"zbv\"", "name=a b", "model.rope=null"});
    EXPECT_EQ(document,
              (Json{{"layout", {{"tp", 8}, {"schedule", "zbv"}}},
                    {"name", "a b"},
                    {"model", {{"rope", nullptr}}}}));
}

// The ways out are those that arithmetic gives: 16 samples on 2 replicas are 8 each, which 3 does not divide.
TEST(Fixes, NearestValuesOfTheBatch)
{
    const Problem problem = problemOfJob(job({"batch.global=16", "batch.micro=3", "layout.dp=2"}));
    EXPECT_EQ(problem.path, "batch.micro");
    ASSERT_EQ(problem.fixes.size(), 2u);
    EXPECT_EQ(problem.fixes[0].changes, std::vector<std::string>{"batch.micro=2"});
    EXPECT_EQ(problem.fixes[0].words, "micro 2");
    EXPECT_EQ(problem.fixes[1].changes, std::vector<std::string>{"batch.global=18"});
}

// Whatever an error proposes is tried before it is offered.
TEST(Fixes, EveryFixLeadsOut)
{
    const std::vector<std::vector<std::string>> broken = {
        {"model.heads=5"},
        {"model.kv_heads=4"},
        {"model.layers=0"},
        {"layout.dp=0"},
        {"layout.dp=100000"},
        {"layout.dp=3"},
        {"layout.schedule=\"1f1x\""},
        {"layout.order=\"tp-dp\""},
        {"precision.compute=\"fp17\""},
        {"precision.grad=\"bf16\""},
        {"zero.stage=4"},
        {"lr_schedule.warmup=500"},
        {"model.hidden=\"many\""},
        {"batch.micro=2.5"},
        {"run.eval_every=5", "data.valid_fraction=0"},
    };
    int offered = 0;
    for (const auto &changes : broken) {
        const Json document = job(changes);
        const Problem problem = problemOfJob(document);
        EXPECT_FALSE(problem.path.empty());
        EXPECT_FALSE(problem.text.empty());
        for (const Fix &fix : problem.fixes) {
            const auto again = readDesign(changed(document, fix.changes));
            EXPECT_TRUE(again || again.error().where != problem.path)
                << problem.path << " by " << fix.changes[0];
            ++offered;
        }
    }
    EXPECT_GE(offered, 13);
}

TEST(Fixes, ADesignMayNameAnyCluster)
{
    const auto read = readDesign(job({"cluster=dgx-a100-80 x 32"}));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->cluster, "dgx-a100-80 x 32");
    EXPECT_FALSE(readDesign(Json::array()));
}

// Counts as the models' cards and checkpoints have them.
TEST(ModelPresets, HaveTheKnownNumberOfParameters)
{
    const std::pair<const char *, std::int64_t> known[] = {
        {"gpt2", 124'439'808},           {"gpt2-medium", 354'823'168},        {"gpt2-large", 774'030'080},
        {"gpt2-xl", 1'557'611'200},      {"llama-7b", 6'738'415'616},         {"llama-13b", 13'015'864'320},
        {"llama-2-70b", 68'976'648'192}, {"llama-3.2-1b", 1'235'814'400},     {"llama-3-8b", 8'030'261'248},
        {"llama-3-70b", 70'553'706'496}, {"llama-3.1-405b", 405'853'388'800},
    };
    for (const auto &[id, count] : known) {
        const auto *preset = spec::findModelPreset(id);
        ASSERT_TRUE(preset) << id;
        EXPECT_EQ(parameters(preset->model), count) << id;
    }
    for (const auto &preset : spec::modelPresets()) {
        spec::JobSpec job;
        job.data.train = "corpus";
        job.model = preset.model;
        EXPECT_TRUE(spec::validateJob(job)) << preset.id;
    }
}

TEST(ModelPresets, ReadConfigs)
{
    const Json gpt2 = {
        {"model_type", "gpt2"}, {"n_layer", 24}, {"n_embd", 1024}, {"n_head", 16}, {"n_inner", nullptr}};
    const auto medium = spec::readHfConfig(gpt2, "config.json");
    ASSERT_TRUE(medium);
    EXPECT_EQ(parameters(*medium), 354'823'168);
    EXPECT_EQ(medium->dropout, 0.1);
    const Json llama = {{"model_type", "llama"},
                        {"num_hidden_layers", 32},
                        {"hidden_size", 4096},
                        {"num_attention_heads", 32},
                        {"num_key_value_heads", 8},
                        {"intermediate_size", 14336},
                        {"vocab_size", 128256},
                        {"max_position_embeddings", 131072},
                        {"rope_theta", 500000.0},
                        {"rope_scaling",
                         {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}}}};
    const auto eight = spec::readHfConfig(llama, "config.json");
    ASSERT_TRUE(eight);
    EXPECT_EQ(parameters(*eight), 8'030'261'248);
    spec::JobSpec job;
    job.data.train = "corpus";
    job.model = *eight;
    const Status legal = spec::validateJob(job);
    EXPECT_TRUE(legal) << (legal ? "" : legal.error().text());
    const auto mixtral = spec::readHfConfig({{"model_type", "mixtral"}}, "config.json");
    ASSERT_FALSE(mixtral);
    EXPECT_NE(mixtral.error().text().find("mixtral"), std::string::npos);
    const auto wrong = spec::readHfConfig({{"model_type", "gpt2"}, {"n_layer", "many"}}, "config.json");
    ASSERT_FALSE(wrong);
    EXPECT_EQ(
        wrong.error().text(),
        "config.json: the key n_layer cannot be used (found \"many\", expected a whole number from 1 on)");
    for (const Json &none : {Json::object(), Json({{"hidden_size", 64}})})
        EXPECT_EQ(spec::readHfConfig(none, "config.json").error().text(),
                  "config.json: this kind of model is not in this version (found no model_type, expected "
                  "model_type gpt2, llama, or mistral without a sliding window)");
}

// A job with four faults shows all of them (5 tensor ranks do not divide the heads), each with its way out; what is right stays as it was.
TEST(Fixes, EveryErrorOfAJobIsFound)
{
    spec::JobSpec standard;
    standard.data.train = "corpus";
    const Json document =
        changed(Json(spec::writeJob(standard)),
                {"layout.tp=5", "precision.compute=\"bf17\"", "zero.stage=7", "model.depth=3"});
    const std::vector<Problem> problems = problemsOf(document);
    std::vector<std::string> paths;
    for (const Problem &problem : problems)
        paths.push_back(problem.path);
    std::sort(paths.begin(), paths.end());
    EXPECT_EQ(paths,
              (std::vector<std::string>{"model.depth", "model.heads", "precision.compute", "zero.stage"}));
    EXPECT_TRUE(problemsOf(Json(spec::writeJob(standard))).empty());
    // Errors that only the planner sees are among them.
    const auto both =
        problemsOf(changed(Json(spec::writeJob(standard)), {"layout.pp=4", "layout.virtual=3"}));
    EXPECT_FALSE(both.empty());
    // No document makes it run in circles.
    EXPECT_FALSE(problemsOf(Json::array()).empty());
    EXPECT_FALSE(problemsOf(Json{{"model", 3}, {"layout", "x"}}).empty());
}

namespace {

/// A small job with each key drawn from more than what is legal.
Json drawn(std::mt19937 &random)
{
    const auto one = [&](std::initializer_list<const char *> values) {
        return std::string(values.begin()[random() % values.size()]);
    };
    const auto rarely = [&](const std::string &change, std::vector<std::string> &to) {
        if (random() % 4 == 0)
            to.push_back(change);
    };
    std::vector<std::string> changes = {
        "model.family=" + one({"gpt2", "llama"}),
        "model.layers=" + one({"1", "2", "3", "4", "6", "7"}),
        "model.hidden=" + one({"24", "32", "36", "40", "48"}),
        "model.heads=" + one({"2", "3", "4", "6", "8"}),
        "model.seq=" + one({"5", "6", "8", "12", "16", "18"}),
        "model.vocab=257",
        "batch.global=" + one({"1", "4", "6", "10", "12", "24"}),
        "batch.micro=" + one({"1", "2", "3"}),
        "layout.dp=" + one({"1", "2", "3"}),
        "layout.tp=" + one({"1", "1", "2", "3"}),
        "layout.cp=" + one({"1", "1", "2", "3"}),
        "layout.pp=" + one({"1", "1", "2", "3"}),
        "layout.schedule=" + one({"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}),
        "layout.virtual=" + one({"1", "1", "2", "3"}),
        "zero.stage=" + one({"0", "1", "2", "3"}),
    };
    rarely("model.kv_heads=" + one({"1", "2", "3", "4", "5"}), changes);
    rarely("layout.stages=" + one({"[]", "[1]", "[2,2]", "[1,1,1]", "[0,4]", "[4,0]"}), changes);
    rarely("layout.sequence_parallel=true", changes);
    rarely("zero.shard=" + one({"1", "2", "3", "4"}), changes);
    rarely("zero.sub_group=" + one({"1", "1000"}), changes);
    rarely("recompute.mode=" + one({"full", "selective", "attention"}), changes);
    rarely("recompute.partition=true", changes);
    rarely("recompute.to_host=true", changes);
    rarely("offload.optimizer=" + one({"cpu", "nvme"}), changes);
    rarely("offload.params=cpu", changes);
    rarely("compression.mode=" + one({"fp16", "int8", "adaptive", "topk"}), changes);
    rarely("comm.algorithm=" + one({"ring", "direct"}), changes);
    rarely("precision.compute=" + one({"bf16", "fp16", "fp64"}), changes);
    rarely("precision.reduce=" + one({"bf16", "fp16", "fp64"}), changes);
    rarely("precision.grad=" + one({"bf16", "fp64"}), changes);
    rarely("lr_schedule.warmup=100000", changes);
    return job(changes);
}

} // namespace

// Who follows the nearest values that errors name comes to a job that runs, without being sent in a circle.
TEST(Fixes, FollowingTheNearestValuesLeadsToAJobThatRuns)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    std::mt19937 random(11);
    const int wanted = isLong() ? 5000 : 400;
    constexpr int most = 16; // a drawn job may have as many faults
    std::array<int, most + 1> rounds{};
    for (int illegal = 0; illegal < wanted;) {
        Json document = drawn(random);
        const Json first = document;
        std::string way;
        int round = 0;
        for (; round <= most; ++round) {
            const Status verdict = checkDesign(document);
            if (verdict)
                break;
            illegal += round == 0 ? 1 : 0;
            const Problem problem = problemOf(verdict.error(), document);
            way += "  " + verdict.error().text();
            ASSERT_FALSE(problem.fixes.empty()) << first.dump() << "\n" << way;
            const std::string &change = problem.fixes.front().changes.front();
            ASSERT_EQ(way.find(" -> " + change + "\n"), std::string::npos) << "a circle: " << change << way;
            way += " -> " + change + "\n";
            document = changed(document, problem.fixes.front().changes);
        }
        ASSERT_LE(round, most) << first.dump() << "\n" << way;
        ++rounds[static_cast<std::size_t>(round)];
        if (!isLong() && illegal % 20 != 0)
            continue;
        const auto plan = plan::makePlan(*readDesign(document), plan::PlanDepth::Checked);
        EXPECT_TRUE(plan) << plan.error().text() << '\n' << document.dump() << '\n' << way;
    }
    for (std::size_t i = 1; i < rounds.size(); ++i)
        std::printf("%zu rounds: %d jobs\n", i, rounds[i]);
}
