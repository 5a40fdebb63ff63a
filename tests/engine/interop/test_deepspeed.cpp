// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/interop/interop_test.h"

namespace rankyard::interop {
namespace {

Imported read(const Json &document, std::int64_t world = 0)
{
    return imported(dumpJson(document), Engine::DeepSpeed, world);
}

TEST(DeepSpeed, KeysAndUnits)
{
    const Imported in = read(
        {{"train_batch_size", 64},
         {"train_micro_batch_size_per_gpu", 4},
         {"gradient_accumulation_steps", 2},
         {"gradient_clipping", 0.5},
         {"steps_per_print", 10},
         {"bf16", {{"enabled", true}}},
         {"zero_optimization",
          {{"stage", 3},
           {"reduce_bucket_size", 5e8},
           {"stage3_prefetch_bucket_size", 5e7},
           {"max_live_parameters", 2e9},
           {"stage3_param_persistence_threshold", 1e4},
           {"offload_optimizer",
            {{"device", "nvme"}, {"nvme_path", "/fast"}, {"buffer_count", 6}, {"pin_memory", false}}}}},
         {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 2e-4}, {"betas", {0.8, 0.99}}}}}},
         {"scheduler",
          {{"type", "WarmupDecayLR"},
           {"params", {{"total_num_steps", 1000}, {"warmup_num_steps", 50}, {"warmup_type", "linear"}}}}}});
    EXPECT_EQ(at(in, "batch.global"), 64);
    EXPECT_EQ(at(in, "batch.micro"), 4);
    EXPECT_EQ(at(in, "layout.dp"), 8); // 64 = 4 · 2 · 8
    EXPECT_EQ(at(in, "precision.compute"), "bf16");
    EXPECT_EQ(at(in, "zero.stage"), 3);
    EXPECT_EQ(at(in, "zero.bucket_bytes"), 2'000'000'000); // elements of four bytes
    EXPECT_EQ(at(in, "zero.prefetch_bytes"), 100'000'000); // elements of two
    EXPECT_EQ(at(in, "zero.max_live"), 2'000'000'000);
    EXPECT_EQ(at(in, "zero.persistence_threshold"), 10'000);
    EXPECT_EQ(at(in, "comm.overlap_grads"), true); // the default of stage 3
    EXPECT_EQ(at(in, "offload.optimizer"), "nvme");
    EXPECT_EQ(at(in, "offload.nvme_path"), "/fast");
    EXPECT_EQ(at(in, "offload.buffers"), 6);
    EXPECT_EQ(at(in, "offload.pin"), false);
    EXPECT_EQ(at(in, "optimizer.lr"), 2e-4);
    EXPECT_EQ(at(in, "optimizer.weight_decay"), 0.0); // DeepSpeed's default, not ours
    EXPECT_EQ(at(in, "optimizer.betas"), Json({0.8, 0.99}));
    EXPECT_EQ(at(in, "optimizer.clip"), 0.5);
    EXPECT_EQ(at(in, "lr_schedule.kind"), "linear");
    EXPECT_EQ(at(in, "lr_schedule.warmup"), 50);
    EXPECT_EQ(at(in, "lr_schedule.total"), 1000);
    EXPECT_EQ(at(in, "run.log_every"), 10);
    EXPECT_TRUE(has(in, Remark::Kind::Guessed, "model"));
    EXPECT_FALSE(mentions(in.remarks, "gradient_clipping"));
}

// DeepSpeed's table of batch keys, by hand. W = 4.
TEST(DeepSpeed, BatchRules)
{
    struct Row {
        Json given;
        std::int64_t global, micro, steps;
    };
    const Row rows[] = {
        {{{"train_batch_size", 64}, {"train_micro_batch_size_per_gpu", 4}}, 64, 4, 4},
        {{{"train_batch_size", 64}, {"gradient_accumulation_steps", 2}}, 64, 8, 2},
        {{{"train_micro_batch_size_per_gpu", 3}, {"gradient_accumulation_steps", 5}}, 60, 3, 5},
        {{{"train_batch_size", 64}}, 64, 16, 1},
        {{{"train_micro_batch_size_per_gpu", 3}}, 12, 3, 1},
    };
    for (const Row &row : rows) {
        const Imported in = read(row.given, 4);
        EXPECT_EQ(at(in, "batch.global"), row.global) << dumpJson(row.given);
        EXPECT_EQ(at(in, "batch.micro"), row.micro) << dumpJson(row.given);
        EXPECT_EQ(at(in, "batch.global").get<std::int64_t>() / (row.micro * 4), row.steps)
            << dumpJson(row.given);
    }
    EXPECT_EQ(refused(Json({{"gradient_accumulation_steps", 2}}), Engine::DeepSpeed).where,
              "train_batch_size");
    // 100 // 8 // 4 = 3, and 8 · 3 · 4 = 96
    const Error error = refused(Json({{"train_batch_size", 100}, {"train_micro_batch_size_per_gpu", 8}}),
                                Engine::DeepSpeed, 4);
    EXPECT_NE(error.found.find("96"), std::string::npos) << error.text();
    // deepspeedai/DeepSpeed#3228: started without a launcher there is one rank.
    const Json report = {
        {"train_batch_size", 16}, {"train_micro_batch_size_per_gpu", 2}, {"gradient_accumulation_steps", 2}};
    const Error alone = refused(report, Engine::DeepSpeed, 1);
    EXPECT_EQ(alone.expected, "train_batch_size 4, or gradient_accumulation_steps 8");
    EXPECT_EQ(at(read(report, 4), "layout.dp"), 4);
}

// "auto" (DeepSpeed#1270, transformers#36081) never goes downstream: it is resolved or what was there stays, and it is listed.
TEST(DeepSpeed, AutoIsResolvedAndListed)
{
    const Imported in =
        read({{"train_batch_size", "auto"},
              {"train_micro_batch_size_per_gpu", "auto"},
              {"gradient_accumulation_steps", "auto"},
              {"gradient_clipping", "auto"},
              {"fp16", {{"enabled", "auto"}}},
              {"bf16", {{"enabled", "auto"}}},
              {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", "auto"}, {"betas", "auto"}}}}},
              {"zero_optimization",
               {{"stage", 3},
                {"reduce_bucket_size", "auto"},
                {"stage3_prefetch_bucket_size", "auto"},
                {"stage3_param_persistence_threshold", "auto"}}}});
    const auto hidden = at(in, "model.hidden").get<std::int64_t>(); // 384
    EXPECT_EQ(at(in, "zero.bucket_bytes"), 4 * hidden * hidden);
    EXPECT_EQ(at(in, "zero.prefetch_bytes"), 4 * static_cast<std::int64_t>(0.9 * 384 * 384));
    EXPECT_EQ(at(in, "zero.persistence_threshold"), 10 * hidden);
    for (const char *key : {"train_batch_size", "gradient_clipping", "optimizer.params.lr",
                            "optimizer.params.betas", "fp16.enabled", "zero_optimization.reduce_bucket_size"})
        EXPECT_TRUE(has(in, Remark::Kind::Guessed, key)) << key;
    EXPECT_EQ(dumpJson(in.job).find("\"auto\""), std::string::npos);
    EXPECT_EQ(refused(Json({{"train_batch_size", 4},
                            {"zero_optimization", {{"stage3_prefetch_bucket_size", 15099494.4}}}}),
                      Engine::DeepSpeed)
                  .where,
              "zero_optimization.stage3_prefetch_bucket_size");
    for (const int size : {0, -1}) { // DeepSpeed#8260
        const Json bucket = {{"train_batch_size", 4}, {"zero_optimization", {{"reduce_bucket_size", size}}}};
        EXPECT_EQ(refused(bucket, Engine::DeepSpeed).where, "zero_optimization.reduce_bucket_size");
    }
}

TEST(DeepSpeed, OldNamesAndUnknownKeys)
{
    const Imported in = read(
        {{"train_batch_size", 8},
         {"bfloat16", {{"enabled", true}}},
         {"zero_optimization",
          {{"stage", 2}, {"cpu_offload", true}, {"reduce_buckt_size", 3}, {"round_robin_gradients", true}}},
         {"stepz_per_print", 3},
         {"wandb", {{"enabled", true}, {"project", "x"}}}});
    EXPECT_EQ(at(in, "precision.compute"), "bf16");
    EXPECT_EQ(at(in, "offload.optimizer"), "cpu");
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "stepz_per_print"));
    EXPECT_NE(whyOf(in, "stepz_per_print").find("near: steps_per_print"), std::string::npos);
    EXPECT_NE(
        whyOf(in, "zero_optimization.reduce_buckt_size").find("near: zero_optimization.reduce_bucket_size"),
        std::string::npos);
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "wandb.project"));
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "zero_optimization.round_robin_gradients"));
    EXPECT_TRUE(has(in, Remark::Kind::Guessed, "gradient_clipping")); // depends on the version
    const Imported legacy = read({{"train_batch_size", 8}, {"zero_optimization", true}});
    EXPECT_EQ(at(legacy, "zero.stage"), 1);
    EXPECT_EQ(
        refused(Json({{"train_batch_size", 8}, {"fp16", {{"enabled", true}}}, {"bf16", {{"enabled", true}}}}),
                Engine::DeepSpeed)
            .where,
        "fp16.enabled");
}

// DeepSpeed#7303: without a maximum the warm-up goes to the optimizer's rate, not to 1e-3.
TEST(DeepSpeed, WarmupEndsAtTheOptimizersRate)
{
    const Imported in =
        read({{"train_batch_size", 8},
              {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 1e-5}}}}},
              {"scheduler",
               {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 2}, {"warmup_type", "linear"}}}}}});
    const spec::JobSpec job = jobOf(in);
    for (std::int64_t step = 1; step < 20; ++step)
        EXPECT_LE(spec::learningRate(job, step), 1e-5);
    EXPECT_EQ(spec::learningRate(job, 10), 1e-5);
}

TEST(DeepSpeed, RoundTrip)
{
    for (const spec::JobSpec &job : jobsFor(Engine::DeepSpeed))
        expectRoundTrip(job, Engine::DeepSpeed);
}

TEST(DeepSpeed, NothingIsLostWithWhatIsDoneHereInAnyCase)
{
    Json config = {
        {"train_batch_size", 16}, {"train_micro_batch_size_per_gpu", 4}, {"prescale_gradients", false}};
    config["data_types"] = {{"grad_accum_dtype", "fp32"}};
    config["zero_optimization"] = {{"stage", 1}, {"contiguous_gradients", true}, {"reduce_scatter", true}};
    for (const Remark &remark : imported(dumpJson(config), std::nullopt).remarks)
        EXPECT_NE(remark.kind, Remark::Kind::Lost) << remark.path << ": " << remark.why;
    config["data_types"]["grad_accum_dtype"] = "bf16";
    config["zero_optimization"]["contiguous_gradients"] = false;
    const Imported other = imported(dumpJson(config), std::nullopt);
    EXPECT_EQ(whyOf(other, "data_types.grad_accum_dtype"), "gradients accumulate in fp32");
    EXPECT_TRUE(has(other, Remark::Kind::Lost, "zero_optimization.contiguous_gradients"));
}

TEST(DeepSpeed, TheLengthOfARunIsTheScripts)
{
    spec::JobSpec job = standardJob();
    job.run.steps = 100; // the schedule has 200
    const Exported out = exportConfig(job, Engine::DeepSpeed);
    EXPECT_TRUE(mentions(out.remarks, "run.steps"));
    const Imported in = imported(out.text, std::nullopt);
    EXPECT_EQ(at(in, "run.steps"), 200);
    EXPECT_TRUE(has(in, Remark::Kind::Guessed, "run.steps"));
}

} // namespace
} // namespace rankyard::interop
