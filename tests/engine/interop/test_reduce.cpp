// SPDX-License-Identifier: GPL-3.0-or-later
// In which type gradients are summed: each engine's key for it, and what it is without the key.
#include "tests/engine/interop/interop_test.h"

namespace rankyard::interop {
namespace {

std::string deepspeed(const char *compute, const char *reduce)
{
    Json json = {{"train_batch_size", 8}, {"train_micro_batch_size_per_gpu", 1}};
    if (*compute)
        json[compute] = {{"enabled", true}};
    if (*reduce)
        json["communication_data_type"] = reduce;
    return dumpJson(json);
}

std::string megatron(const std::string &flags)
{
    return "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
           "--max-position-embeddings 32 --vocab-size 512 --micro-batch-size 1 --global-batch-size 8 "
           "--train-iters 30 --lr 1e-3 "
        + flags;
}

std::string torchtitan(const char *reduce)
{
    return std::string("[model]\nname = \"llama3\"\n[training]\nlocal_batch_size = 1\nsteps = 300\n"
                       "mixed_precision_param = \"bfloat16\"\n")
        + (*reduce ? std::string("mixed_precision_reduce = \"") + reduce + "\"\n" : std::string());
}

TEST(Reduce, IsReadAsTheEngineMeansIt)
{
    struct Case {
        std::string text;
        Engine engine;
        const char *reduce;
        const char *remark; ///< of what is not possible here; none: ""
    };
    const Case cases[] = {
        {deepspeed("bf16", "fp32"), Engine::DeepSpeed, "fp32", ""},
        {deepspeed("bf16", "bfp16"), Engine::DeepSpeed, "bf16", ""},
        {deepspeed("bf16", ""), Engine::DeepSpeed, "bf16", ""}, // what is computed in
        {deepspeed("fp16", ""), Engine::DeepSpeed, "fp16", ""},
        {deepspeed("", ""), Engine::DeepSpeed, "fp32", ""},
        {deepspeed("bf16", "fp16"), Engine::DeepSpeed, "fp32", "communication_data_type"}, // no loss scale
        {megatron("--bf16"), Engine::Megatron, "fp32", ""},
        {megatron("--bf16 --grad-reduce-in-bf16"), Engine::Megatron, "bf16", ""},
        {megatron("--fp16"), Engine::Megatron, "fp16", ""},
        {megatron("--fp16 --accumulate-allreduce-grads-in-fp32"), Engine::Megatron, "fp32", ""},
        {torchtitan(""), Engine::Torchtitan, "fp32", ""},
        {torchtitan("bfloat16"), Engine::Torchtitan, "bf16", ""},
        {torchtitan("float16"), Engine::Torchtitan, "fp32", "training.mixed_precision_reduce"},
    };
    for (const Case &one : cases) {
        const Imported in = imported(one.text, one.engine, 8);
        EXPECT_EQ(at(in, "precision.reduce"), one.reduce) << one.text;
        if (*one.remark) {
            EXPECT_TRUE(has(in, Remark::Kind::Guessed, one.remark)) << one.text;
        }
        jobOf(in);
    }
    EXPECT_EQ(refused(Json::parse(deepspeed("bf16", "int8")), Engine::DeepSpeed).where,
              "communication_data_type");
}

/// A type that the other side has comes back; one that it has not is in the remarks.
TEST(Reduce, IsWrittenOrLost)
{
    for (const Engine engine : {Engine::DeepSpeed, Engine::Megatron, Engine::Torchtitan}) {
        for (const DType compute : {DType::BF16, DType::F16}) {
            for (const DType reduce : {DType::F32, DType::BF16, compute}) {
                spec::JobSpec job = standardJob();
                job.layout.dp = 2;
                job.precision.compute = compute;
                job.precision.reduce = reduce;
                const Exported out = exportConfig(job, engine);
                ImportOptions options;
                options.base = job;
                options.base.precision.reduce = DType::F64; // not from there
                const auto in = importConfig(out.text, "there", options);
                ASSERT_TRUE(in) << in.error().text();
                if (!mentions(out.remarks, "precision.reduce")) {
                    EXPECT_EQ(at(*in, "precision.reduce"), nameOf(reduce)) << out.text;
                }
                EXPECT_EQ(mentions(out.remarks, "precision.reduce"),
                          reduce != DType::F32
                              && (engine == Engine::Torchtitan
                                  || (engine == Engine::Megatron && reduce != compute)))
                    << out.text;
            }
        }
    }
}

} // namespace
} // namespace rankyard::interop
