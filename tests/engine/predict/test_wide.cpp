// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "engine/cluster/sources.h"
#include "engine/predict/verdict.h"
#include "engine/predict/wide.h"
#include "engine/spec/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace rankyard::predict {
namespace {

Json document(Json planOnly)
{
    return {{"schema", "rankyard/job/1"},
            {"data", {{"train", "corpus"}}},
            {"model", {{"seq", 4096}}},
            {"plan_only", std::move(planOnly)},
            {"layout", {{"dp", 64}, {"pp", 4}, {"schedule", "interleaved"}, {"virtual", 4}}},
            {"batch", {{"global", 4096}, {"micro", 1}}},
            {"zero", {{"stage", 1}}},
            {"precision", {{"compute", "bf16"}}}};
}

Result<WidePlan> planned(Json planOnly, const char *cluster = "gb200-nvl72 x 64")
{
    RY_ASSIGN(const auto job, spec::readWideJob(document(std::move(planOnly)), "job"));
    return planWide(job, cluster::openCluster(cluster).value());
}

/// All and active parameters as the models' papers have them: DeepSeek-V3 671 B, 37 B (arXiv:2412.19437), Mixtral 8x7B 46.7 B, 12.9 B
/// (arXiv:2401.04088). Its active ones leave the table of tokens out.
TEST(Wide, ModelsOfThePapers)
{
    const auto deepseek = planned({{"model", "DeepSeek-V3"}});
    ASSERT_TRUE(deepseek) << deepseek.error().text();
    EXPECT_NEAR(deepseek->params, 671e9, 1e9);
    EXPECT_NEAR(deepseek->activeParams, 37e9, 1e9);
    const auto mixtral = planned({{"model", "Mixtral 8x7B"}});
    ASSERT_TRUE(mixtral) << mixtral.error().text();
    EXPECT_NEAR(mixtral->params, 46.7e9, 0.1e9);
    EXPECT_NEAR(mixtral->activeParams, 12.9e9, 0.2e9);
}

/// The same sizes said one by one are the same model: Mixtral 8x7B.
TEST(Wide, SizesOneByOne)
{
    Json job = document({{"experts", 8}, {"top_k", 2}, {"expert_ffn", 14336}});
    job["model"] = {{"family", "llama"}, {"layers", 32}, {"hidden", 4096}, {"heads", 32},  {"kv_heads", 8},
                    {"ffn", 14336},      {"seq", 4096},  {"vocab", 32000}, {"tied", false}};
    const auto read = spec::readWideJob(job, "job");
    ASSERT_TRUE(read) << read.error().text();
    const auto shape = shapeOf(*read);
    ASSERT_TRUE(shape) << shape.error().text();
    EXPECT_NEAR(static_cast<double>(paramsOf(*shape)), 46.7e9, 0.1e9);
    // Squared ReLU has two matrices where SwiGLU has three.
    job["plan_only"]["activation"] = "relu2";
    EXPECT_EQ(paramsOf(*shape) - paramsOf(*shapeOf(*spec::readWideJob(job, "job"))), 32LL * 8 * 4096 * 14336);
}

/// What `validate` says of a published run of DeepSeek-V3 (256 GB200, pp 4 in 4 chunks, ep 64, MXFP8), `plan` says of such a job.
TEST(Wide, PlansWhatValidatePredicts)
{
    const char *source = std::getenv("RANKYARD_SOURCE_DIR");
    ASSERT_NE(source, nullptr);
    const std::string file = std::string(source) + "/tests/fixtures/published/published_runs.csv";
    const auto rows = readRuns(*readFile(file), file);
    ASSERT_TRUE(rows) << rows.error().text();
    const auto row =
        std::find_if(rows->begin(), rows->end(), [](const Row &r) { return r.id == "mbridge-002"; });
    ASSERT_NE(row, rows->end());
    ASSERT_TRUE(row->run);
    const auto plan = planned({{"model", "DeepSeek-V3"}, {"ep", 64}, {"compute", "fp8"}});
    ASSERT_TRUE(plan) << plan.error().text();
    EXPECT_EQ(plan->run.devices, row->run->devices);
    EXPECT_NEAR(plan->step.seconds / predictRun(*row->run, fittedCalibrations()).seconds, 1, 0.02);
}

/// Two bytes a parameter, four a gradient, twelve of states over the replicas, an expert's over those of its group: first stage of 16 of
/// 61 layers, 58 of all with experts, by hand.
TEST(Wide, StatesByHand)
{
    const auto plan = planned({{"model", "DeepSeek-V3"}, {"ep", 64}});
    ASSERT_TRUE(plan) << plan.error().text();
    const Shape &s = plan->run.shape;
    const double sparse = 58.0 / 61;
    const double experts = 16 * sparse * static_cast<double>(sparseMlpParams(s)) / 64;
    const double dense = 16
            * (static_cast<double>(attentionParams(s) + normParams(s))
               + (1 - sparse) * static_cast<double>(denseMlpParams(s)))
        + 129280.0 * 7168;
    const ClosedMemory &first = plan->stages.front();
    EXPECT_NEAR(first.params / (2 * (dense + experts)), 1, 1e-6);
    EXPECT_NEAR(first.grads / (4 * (dense + experts)), 1, 1e-6);
    EXPECT_NEAR(first.optimizer / (12 * (dense / 64 + experts)), 1,
                1e-6); // one replica of each expert: 64 ÷ ep
}

/// Of models that can be run: what the arithmetic counts is what their programs keep.
TEST(Wide, ActivationsAsProgramsKeepThem)
{
    for (const char *family : {"gpt2", "llama"}) {
        for (const auto &[tp, rows] : {std::pair{1, false}, {2, false}, {2, true}}) {
            spec::JobSpec job;
            job.model.family = family;
            job.model.hidden = 1024;
            job.model.heads = 16;
            job.model.ffn = 3072;
            job.model.seq = 512;
            job.precision.compute = DType::BF16;
            job.layout.tp = tp;
            job.layout.sequenceParallel = rows;
            job.batch.micro = job.batch.global = 2;
            for (const char *mode : {"none", "selective", "full"}) {
                job.recompute.mode = mode;
                const double program = unitMemory(job)->kept / (2 * 512);
                const double counted = keptBytes(shapeOf(job.model), microOf(job), recomputeOf(mode));
                std::printf("%s tp %d %s %s: %.0f, %.0f\n", family, tp, rows ? "sp" : "", mode, counted,
                            program);
                EXPECT_NEAR(counted / program, 1, 0.05) << family << tp << rows << mode;
            }
        }
    }
}

TEST(Wide, RefusesWhatIsNoModel)
{
    const std::tuple<Json, const char *, const char *> cases[] = {
        {{{"model", "Foo"}}, "plan_only.model", "DeepSeek-V3"},
        {{{"model", "DeepSeek-V3"}, {"ep", 48}}, "plan_only.ep", "32"},
        {{{"model", "DeepSeek-V3"}, {"top_k", 300}}, "plan_only.top_k", "256"},
        {{{"top_k", 2}}, "plan_only.top_k", "plan_only.experts"},
        {{{"model", "Llama 3 8B"}, {"ep", 2}}, "plan_only.ep", "1"},
        {{{"key_rank", 512}}, "plan_only.nope_dim", "above 0"},
        {{{"expert", 8}}, "plan_only.expert", "plan_only.experts"},
        {{{"compute", "fp9"}}, "plan_only.compute", "fp8"},
        {{{"experts", -1}}, "plan_only.experts", "0"},
        {{{"experts", "many"}}, "plan_only.experts", "integer"},
    };
    for (const auto &[section, where, expected] : cases) {
        const auto plan = planned(section);
        ASSERT_FALSE(plan) << section.dump();
        EXPECT_EQ(plan.error().where, where);
        EXPECT_THAT(plan.error().expected, testing::HasSubstr(expected));
    }
    EXPECT_EQ(planned({{"model", "Llama 3 8B"}, {"compute", "fp8"}}, "dgx-a100-80 x 32").error().code,
              Code::NotHere);
    EXPECT_EQ(planned({{"model", "DeepSeek-V3"}}, "gb200-nvl72 x 2").error().code, Code::DoesNotFit);
    // Nothing runs it.
    const auto run = spec::readJob(document({{"experts", 8}}), "job");
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().where, "plan_only");
}

/// Each is in the catalogue, once, and nothing that a job could run.
TEST(Wide, NamesOfPlannedModels)
{
    std::set<const Shape *> seen;
    for (const char *name : plannedModels()) {
        const Shape *shape = findModel(name);
        ASSERT_TRUE(shape) << name;
        EXPECT_TRUE(seen.insert(shape).second) << name;
        EXPECT_TRUE(shape->sparse() || !shape->gated) << name;
    }
}

/// The files that the models' authors publish, as far as they say sizes: all and active parameters as their papers have them
/// (arXiv:2401.04088, 2505.09388, 2412.19437).
TEST(Wide, ConfigsOfExperts)
{
    const Json mixtral = {{"model_type", "mixtral"},
                          {"hidden_size", 4096},
                          {"intermediate_size", 14336},
                          {"num_attention_heads", 32},
                          {"num_hidden_layers", 32},
                          {"num_key_value_heads", 8},
                          {"num_local_experts", 8},
                          {"num_experts_per_tok", 2},
                          {"vocab_size", 32000},
                          {"tie_word_embeddings", false},
                          {"max_position_embeddings", 32768}};
    const Json qwen = {{"model_type", "qwen3_moe"},
                       {"hidden_size", 2048},
                       {"intermediate_size", 6144},
                       {"head_dim", 128},
                       {"moe_intermediate_size", 768},
                       {"num_attention_heads", 32},
                       {"num_hidden_layers", 48},
                       {"num_key_value_heads", 4},
                       {"num_experts", 128},
                       {"num_experts_per_tok", 8},
                       {"vocab_size", 151936},
                       {"decoder_sparse_step", 1},
                       {"mlp_only_layers", Json::array()}};
    const Json deepseek = {{"model_type", "deepseek_v3"}, {"hidden_size", 7168},
                           {"intermediate_size", 18432},  {"moe_intermediate_size", 2048},
                           {"num_attention_heads", 128},  {"num_hidden_layers", 61},
                           {"num_key_value_heads", 128},  {"n_routed_experts", 256},
                           {"n_shared_experts", 1},       {"num_experts_per_tok", 8},
                           {"first_k_dense_replace", 3},  {"q_lora_rank", 1536},
                           {"kv_lora_rank", 512},         {"qk_nope_head_dim", 128},
                           {"qk_rope_head_dim", 64},      {"v_head_dim", 128},
                           {"vocab_size", 129280}};
    const std::tuple<Json, double, double> cases[] = {
        {mixtral, 46.7e9, 12.9e9}, {qwen, 30.5e9, 3.3e9}, {deepseek, 671e9, 37e9}};
    for (const auto &[config, all, active] : cases) {
        const auto sections = spec::readHfSections(config, "config.json");
        ASSERT_TRUE(sections) << sections.error().text();
        Json job = document(sections->at("plan_only"));
        job["model"] = sections->at("model");
        const auto read = spec::readWideJob(job, "job");
        ASSERT_TRUE(read) << read.error().text();
        const auto shape = shapeOf(*read);
        ASSERT_TRUE(shape) << shape.error().text();
        EXPECT_NEAR(static_cast<double>(paramsOf(*shape)) / all, 1, 0.01) << config["model_type"];
        EXPECT_NEAR(static_cast<double>(activeParams(*shape)) / active, 1, 0.03) << config["model_type"];
    }
    Json odd = qwen;
    odd["mlp_only_layers"] = {0, 1};
    EXPECT_NE(spec::readHfSections(odd, "config.json").error().text().find("mlp_only_layers"),
              std::string::npos);
    odd = deepseek;
    odd["n_routed_experts"] = "many";
    EXPECT_NE(spec::readHfSections(odd, "config.json").error().text().find("n_routed_experts"),
              std::string::npos);
    EXPECT_FALSE(spec::readHfSections({{"model_type", "gpt2"}}, "config.json")->contains("plan_only"));
    EXPECT_FALSE(spec::readHfSections(Json::array(), "config.json"));
}

/// The Design page's verdict is what `plan` says, to the byte; a part that is missing is a problem at its key.
TEST(Wide, TheVerdictIsThePlan)
{
    const auto cluster = cluster::openCluster("gb200-nvl72 x 64").value();
    for (const Json &asked : {Json{{"model", "DeepSeek-V3"}, {"ep", 64}, {"compute", "fp8"}},
                              Json{{"model", "Llama 3 8B"}, {"activation", "relu2"}}}) {
        const auto plan = planned(asked);
        ASSERT_TRUE(plan) << plan.error().text();
        const Verdict verdict = judgeWide(document(asked), cluster);
        EXPECT_TRUE(verdict.isPlanOnly());
        EXPECT_FALSE(verdict.isEarly());
        const double left = plan->capacity.usable() - plan->peak();
        EXPECT_EQ(verdict.answer, left >= 0 ? Verdict::Answer::Fits : Verdict::Answer::DoesNotFit);
        ASSERT_EQ(verdict.stages.size(), 4u);
        for (std::size_t i = 0; i < 4; ++i) {
            EXPECT_NEAR(static_cast<double>(verdict.stages[i].peak()), plan->stages[i].peak(), 8);
            EXPECT_EQ(verdict.stages[i].rank, static_cast<int>(64 * i));
            double sum = 0;
            for (const Figure &figure : verdict.stages[i].figures) {
                EXPECT_FALSE(figure.formula.empty() || figure.source.empty()) << figure.key;
                sum += figure.value;
            }
            EXPECT_NEAR(sum, static_cast<double>(verdict.stages[i].used), 8);
        }
        EXPECT_NEAR(verdict.figure("headroom")->value, left, 16);
        EXPECT_EQ(verdict.figure("step")->value, plan->step.seconds);
        EXPECT_EQ(verdict.figure("mfu")->value, plan->mfu);
        EXPECT_EQ(verdict.figure("parameters")->value, plan->params);
        EXPECT_NEAR(verdict.figure("day")->value, 4096.0 * 4096 / plan->step.seconds * 86400, 1);
    }
    const Verdict wrong = judgeWide(document({{"model", "Foo"}}), cluster);
    EXPECT_EQ(wrong.answer, Verdict::Answer::Illegal);
    EXPECT_FALSE(wrong.isPlanOnly());
    ASSERT_EQ(wrong.problems.size(), 1u);
    EXPECT_EQ(wrong.problems[0].path, "plan_only.model");
    EXPECT_TRUE(judgeWide(document({{"model", "DeepSeek-V3"}}), cluster::openCluster("cpu-host").value())
                    .problems.size()
                == 1u);
}

} // namespace
} // namespace rankyard::predict
