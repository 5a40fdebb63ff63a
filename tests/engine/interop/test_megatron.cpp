// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/interop/interop_test.h"

namespace rankyard::interop {
namespace {

constexpr const char *script = R"(#!/bin/bash
# GPT-3 175B on 32 nodes
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${NNODES:-32}
CHECKPOINT_PATH=$1
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE   # eight a node
    --nnodes $NNODES
    --master_addr localhost
)
GPT_MODEL_ARGS=(
    --num-layers 96 --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048 --max-position-embeddings 2048
)
PARALLEL="--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 \
    --sequence-parallel --use-distributed-optimizer"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    "${GPT_MODEL_ARGS[@]}" $PARALLEL \
    --micro-batch-size=4 --global-batch-size 1024 \
    --lr 6.0e-5 --lr-warmup-samples 102400 --lr-decay-iters 430000 --lr-decay-style cosine \
    --train-iters 500000 --vocab-size 50257 --fp16 --initial-loss-scale 4096 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --data-path 'my corpus_text_document' --split 949,50,1 --save $CHECKPOINT_PATH \
    --attention-dropout 0.0 --hidden-dropout 0.0 --tensorboard-dir /tmp/tb --my-own-flag 3
)";

TEST(Megatron, AScriptWithVariablesAndArrays)
{
    const Imported in = imported(script, std::nullopt);
    EXPECT_EQ(in.engine, Engine::Megatron);
    EXPECT_EQ(at(in, "model.layers"), 96);
    EXPECT_EQ(at(in, "model.hidden"), 12288);
    EXPECT_EQ(at(in, "layout.tp"), 8);
    EXPECT_EQ(at(in, "layout.pp"), 4);
    EXPECT_EQ(at(in, "layout.dp"), 8); // 32 · 8 / 32
    EXPECT_EQ(at(in, "layout.sequence_parallel"), true);
    EXPECT_EQ(at(in, "batch.micro"), 4);
    EXPECT_EQ(at(in, "batch.global"), 1024);
    EXPECT_EQ(at(in, "zero.stage"), 1);
    EXPECT_EQ(at(in, "precision.compute"), "fp16");
    EXPECT_EQ(at(in, "precision.loss_scale.rule"), "megatron");
    EXPECT_EQ(at(in, "precision.loss_scale.init_power"), 12);
    EXPECT_EQ(at(in, "recompute.mode"), "full");
    EXPECT_EQ(at(in, "lr_schedule.warmup"), 100); // samples over the global batch
    EXPECT_EQ(at(in, "lr_schedule.total"), 430000);
    EXPECT_EQ(at(in, "data.train"), "my corpus_text_document");
    EXPECT_EQ(at(in, "data.valid_fraction"), 0.05);
    EXPECT_EQ(at(in, "model.vocab"), 51200); // 50257 padded to 128 · 8
    EXPECT_EQ(at(in, "optimizer.betas"), Json({0.9, 0.999}));
    EXPECT_TRUE(has(in, Remark::Kind::Guessed, "vocab-size"));
    EXPECT_TRUE(has(in, Remark::Kind::Guessed, "save")); // $1 is nobody's
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "my-own-flag"));
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "tensorboard-dir"));
    EXPECT_TRUE(has(in, Remark::Kind::Lost, "split"));
    jobOf(in); // and it can run
}

// Sizes that Megatron-LM computes, by its rule: a multiple of 128 · tp.
TEST(Megatron, PaddedVocabularies)
{
    for (const auto &[tp, padded] : {std::pair{1, 50304}, {2, 50432}, {4, 50688}, {8, 51200}}) {
        const Imported in = imported(
            "--num-layers 8 --hidden-size 64 --num-attention-heads 8 --micro-batch-size 1 --vocab-size 50257 "
            "--tensor-model-parallel-size "
                + std::to_string(tp),
            std::nullopt);
        EXPECT_EQ(at(in, "model.vocab"), padded);
    }
}

TEST(Megatron, LlamaAndItsDefaults)
{
    const Imported in = imported(
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
        "--swiglu --normalization RMSNorm --position-embedding-type rope --rotary-base 500000 "
        "--untie-embeddings-and-output-weights --bf16 --micro-batch-size 1 --seq-length 4096 --padded_vocab_size 128256 "
        "--recompute-activations --num-layers-per-virtual-pipeline-stage 4 --pipeline-model-parallel-size 4",
        std::nullopt, 8);
    EXPECT_EQ(at(in, "model.family"), "llama");
    EXPECT_EQ(at(in, "model.kv_heads"), 8);
    EXPECT_EQ(at(in, "model.ffn"), 10880); // int(4 · 4096 · 2 / 3 / 64) · 64
    EXPECT_EQ(at(in, "model.tied"), false);
    EXPECT_EQ(at(in, "model.rope"), Json({{"rope_theta", 500000}}));
    EXPECT_EQ(at(in, "model.dropout"), 0.1); // Megatron-LM's default
    EXPECT_EQ(at(in, "recompute.mode"), "attention");
    EXPECT_EQ(at(in, "layout.schedule"), "interleaved");
    EXPECT_EQ(at(in, "layout.virtual"), 2);
    EXPECT_EQ(at(in, "layout.dp"), 2);
    EXPECT_EQ(at(in, "batch.global"), 2); // micro · dp
    EXPECT_EQ(at(in, "zero.stage"), 0);
}

TEST(Megatron, Yaml)
{
    const Imported in =
        imported("language_model:\n  num_layers: 24\n  hidden_size: 1024\n  num_attention_heads: 16\n"
                 "model_parallel:\n  tensor_model_parallel_size: 2\n  sequence_parallel: true\n"
                 "bf16: true\nmicro_batch_size: 2\nglobal_batch_size: 8\nuse_distributed_optimizer: True\n"
                 "seq_length: 1024\nvocab_size: 50257\n",
                 std::nullopt, 4);
    EXPECT_EQ(in.engine, Engine::Megatron);
    EXPECT_EQ(at(in, "model.layers"), 24);
    EXPECT_EQ(at(in, "layout.tp"), 2);
    EXPECT_EQ(at(in, "layout.dp"), 2);
    EXPECT_EQ(at(in, "layout.sequence_parallel"), true);
    EXPECT_EQ(at(in, "zero.stage"), 1);
    EXPECT_EQ(at(in, "precision.compute"), "bf16");
}

TEST(Megatron, ShardsStagesAndBlocks)
{
    const std::string model =
        "--num-layers 22 --hidden-size 64 --num-attention-heads 8 --micro-batch-size 1 ";
    const Imported sharded =
        imported(model
                     + "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads "
                       "--num-distributed-optimizer-instances 2",
                 std::nullopt, 8);
    EXPECT_EQ(at(sharded, "zero.stage"), 2);
    EXPECT_EQ(at(sharded, "zero.shard"), 4);
    const Imported uneven =
        imported(model
                     + "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5 "
                       "--decoder-last-pipeline-num-layers 3",
                 std::nullopt, 4);
    EXPECT_EQ(at(uneven, "layout.stages"), Json({5, 7, 7, 3}));
    const Imported block =
        imported(model + "--recompute-granularity full --recompute-method block --recompute-num-layers 11",
                 std::nullopt, 1);
    EXPECT_EQ(at(block, "recompute.ratio"), 0.5);
    EXPECT_FALSE(tryImport(model + "--fp16 --bf16", std::nullopt));
    EXPECT_FALSE(tryImport(model + "--hidden-dropout much", std::nullopt));
}

TEST(Megatron, RoundTrip)
{
    for (const spec::JobSpec &job : jobsFor(Engine::Megatron))
        expectRoundTrip(job, Engine::Megatron);
    spec::JobSpec odd = standardJob();
    odd.data.train = "it's a $corpus; rm -rf \"x\"";
    const Imported again = imported(exportConfig(odd, Engine::Megatron).text, std::nullopt, 1);
    EXPECT_EQ(at(again, "data.train"), odd.data.train);
}

TEST(Megatron, TorchrunSaysHowManyRanksThereAre)
{
    const std::string rest =
        " pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
        "--micro-batch-size 1 --tensor-model-parallel-size 2 --vocab-size 512";
    const Imported in = imported("torchrun --nnodes 3 --nproc_per_node=4" + rest, std::nullopt);
    EXPECT_EQ(at(in, "layout.dp"), 3 * 4 / 2);
    EXPECT_FALSE(mentions(in.remarks, "nnodes") || mentions(in.remarks, "nproc-per-node"));

    const Imported asked = imported("torchrun --nnodes 3 --nproc_per_node=4" + rest, std::nullopt, 8);
    EXPECT_EQ(at(asked, "layout.dp"), 4) << "what was asked for counts";
    EXPECT_FALSE(has(asked, Remark::Kind::Lost, "nnodes"));

    const Imported elastic = imported("torchrun --nnodes 2:5 --nproc_per_node 4" + rest, std::nullopt);
    EXPECT_EQ(at(elastic, "layout.dp"), 2 * 4 / 2);
    EXPECT_TRUE(has(elastic, Remark::Kind::Guessed, "nnodes"));

    const Imported known =
        imported("torchrun --nnodes 2 --nproc_per_node gpu --rdzv-conf a=1" + rest, std::nullopt);
    EXPECT_TRUE(has(known, Remark::Kind::Guessed, "nproc-per-node"));
    EXPECT_EQ(at(known, "layout.dp"), standardJob().layout.dp);
    EXPECT_EQ(whyOf(known, "rdzv-conf"), "of the launcher");
}

} // namespace
} // namespace rankyard::interop
