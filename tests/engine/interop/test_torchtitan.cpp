// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/interop/interop_test.h"

namespace rankyard::interop {
namespace {

constexpr const char *llama = R"([job]
dump_folder = "./outputs"

[model]
name = "llama3"
flavor = "8B"
tokenizer_path = "./tokenizer.model"

[optimizer]
name = "AdamW"
lr = 3e-4

[training]
local_batch_size = 2
seq_len = 8192
steps = 1000
dataset = "c4"

[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 4

[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"

[checkpoint]
enable_checkpoint = true
interval = 250
)";

TEST(Torchtitan, Llama)
{
    const Imported in = imported(llama, std::nullopt, 64);
    EXPECT_EQ(in.engine, Engine::Torchtitan);
    EXPECT_EQ(at(in, "model.layers"), 32);
    EXPECT_EQ(at(in, "model.vocab"), 128256);
    EXPECT_EQ(at(in, "model.seq"), 8192);
    EXPECT_EQ(at(in, "layout.tp"), 4);
    EXPECT_EQ(at(in, "layout.sequence_parallel"), true);
    EXPECT_EQ(at(in, "layout.dp"), 16); // 64 / 4: 2 replicas of 8 shards
    EXPECT_EQ(at(in, "zero.stage"), 3);
    EXPECT_EQ(at(in, "zero.shard"), 8);
    EXPECT_EQ(at(in, "batch.micro"), 2);
    EXPECT_EQ(at(in, "batch.global"), 32);
    EXPECT_EQ(at(in, "precision.compute"), "bf16");
    EXPECT_EQ(at(in, "recompute.mode"), "full"); // every other layer
    EXPECT_EQ(at(in, "recompute.every"), 2);
    EXPECT_EQ(at(in, "run.checkpoint_every"), 250);
    EXPECT_EQ(at(in, "lr_schedule.warmup"), 200);
    EXPECT_TRUE(has(in, Remark::Kind::Guessed, "training.dataset"));
    EXPECT_TRUE(has(in, Remark::Kind::Guessed, "parallelism.data_parallel_shard_degree"));
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "model.tokenizer_path"));
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "job.dump_folder"));
    jobOf(in);
}

TEST(Torchtitan, PipelinesAndOldNames)
{
    const Imported in = imported(
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nbatch_size = 8\nwarmup_steps = 5\n"
        "data_parallel_degree = 2\nglobal_batch_size = 32\n[experimental]\npipeline_parallel_degree = 4\n"
        "pipeline_parallel_schedule = \"Interleaved1F1B\"\n[training2]\nx = 1\n",
        std::nullopt, 8);
    EXPECT_EQ(at(in, "layout.pp"), 4);
    EXPECT_EQ(at(in, "layout.dp"), 2);
    EXPECT_EQ(at(in, "layout.schedule"), "interleaved");
    EXPECT_EQ(at(in, "layout.virtual"), 2);
    EXPECT_EQ(at(in, "batch.micro"), 1);
    EXPECT_EQ(at(in, "batch.global"), 32);
    EXPECT_EQ(at(in, "zero.stage"), 1); // the nearest that runs with stages
    EXPECT_EQ(at(in, "lr_schedule.warmup"), 5);
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "training2.x"));
    EXPECT_FALSE(
        tryImport("[model]\nname = \"llama3\"\n[training]\nglobal_batch_size = 7\n", std::nullopt, 2));
}

TEST(Torchtitan, RoundTrip)
{
    for (const spec::JobSpec &job : jobsFor(Engine::Torchtitan))
        expectRoundTrip(job, Engine::Torchtitan);
}

} // namespace
} // namespace rankyard::interop
