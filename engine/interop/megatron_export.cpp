// SPDX-License-Identifier: GPL-3.0-or-later
// A job as a shell script that starts Megatron-LM (versions and sources: megatron.cpp).
#include "engine/interop/reading.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <numeric>

namespace rankyard::interop {

std::span<const Same> megatronRows()
{
    static constexpr Same rows[] = {
        {"num-layers", "model.layers", Type::Whole},
        {"hidden-size", "model.hidden", Type::Whole},
        {"num-attention-heads", "model.heads", Type::Whole},
        {"seq-length", "model.seq", Type::Whole},
        {"norm-epsilon", "model.norm_eps", Type::Number},
        {"tensor-model-parallel-size", "layout.tp", Type::Whole},
        {"pipeline-model-parallel-size", "layout.pp", Type::Whole},
        {"context-parallel-size", "layout.cp", Type::Whole},
        {"sequence-parallel", "layout.sequence_parallel", Type::Flag},
        {"micro-batch-size", "batch.micro", Type::Whole},
        {"global-batch-size", "batch.global", Type::Whole},
        {"overlap-grad-reduce", "comm.overlap_grads", Type::Flag},
        {"overlap-param-gather", "comm.overlap_params", Type::Flag},
        {"distribute-saved-activations", "recompute.partition", Type::Flag},
        {"min-loss-scale", "precision.loss_scale.min", Type::Number},
        {"loss-scale-window", "precision.loss_scale.window", Type::Whole},
        {"hysteresis", "precision.loss_scale.hysteresis", Type::Whole},
        {"lr", "optimizer.lr", Type::Number},
        {"min-lr", "lr_schedule.min_lr", Type::Number},
        {"adam-eps", "optimizer.eps", Type::Number},
        {"weight-decay", "optimizer.weight_decay", Type::Number},
        {"clip-grad", "optimizer.clip", Type::Number},
        {"train-iters", "run.steps", Type::Whole},
        {"save-interval", "run.checkpoint_every", Type::Whole},
        {"eval-interval", "run.eval_every", Type::Whole},
        {"eval-iters", "run.eval_batches", Type::Whole},
        {"log-interval", "run.log_every", Type::Whole},
    };
    return rows;
}

namespace {

void writeModel(Writing &out, const spec::JobSpec &job)
{
    const spec::Model &model = job.model;
    out.use("model");
    out.put("max-position-embeddings", model.seq);
    if (model.ffn || model.family != "gpt2") // a gated MLP without it has two thirds of that
        out.put("ffn-hidden-size", model.ffnSize());
    if (model.kvHeads && *model.kvHeads != model.heads) {
        out.put("group-query-attention", true);
        out.put("num-query-groups", *model.kvHeads);
    }
    if (model.headDim)
        out.put("kv-channels", *model.headDim);
    out.put("attention-dropout", model.dropout);
    out.put("hidden-dropout", model.dropout);
    if (!model.tied)
        out.put("untie-embeddings-and-output-weights", true);
    if (model.family == "llama") {
        out.put("swiglu", true);
        out.put("normalization", "RMSNorm");
        out.put("position-embedding-type", "rope");
        out.put("disable-bias-linear", true);
        if (model.rope.is_object() && model.rope.contains("rope_theta"))
            out.put("rotary-base", model.rope["rope_theta"]);
        if (model.rope.is_object() && model.rope.size() > (model.rope.contains("rope_theta") ? 1U : 0U))
            out.lost("model.rope", "only the base of the angles is an argument");
    }
    out.put("vocab-size", model.vocab);
    out.put("make-vocab-size-divisible-by", 1);
    if (model.vocab % job.layout.tp != 0)
        out.lost("model.vocab", "Megatron-LM pads it to a multiple of tp");
}

void writeLayout(Writing &out, const spec::JobSpec &job)
{
    const spec::Layout &layout = job.layout;
    for (const char *key :
         {"layout.dp", "layout.virtual", "layout.schedule", "layout.stages", "layout.order"})
        out.use(key);
    if (layout.schedule == "interleaved" && layout.virtualStages > 1)
        out.put("num-virtual-stages-per-pipeline-rank", layout.virtualStages);
    else if (layout.schedule != "1f1b" && layout.pp > 1)
        out.lost("layout.schedule", "Megatron-LM runs 1f1b, interleaved with virtual stages");
    if (layout.schedule != "interleaved" && layout.virtualStages > 1)
        out.lost("layout.virtual", "virtual stages are of the interleaved schedule");
    if (layout.order == "tp-cp-pp-dp")
        out.put("use-tp-pp-dp-mapping", true);
    else if (layout.order != "tp-cp-dp-pp")
        out.lost("layout.order", "ranks are ordered tp, cp, dp, pp, or with pp before dp");
    if (layout.pp < 2)
        return;
    if (!layout.stages)
        return out.guessed("layout.stages", nullptr, "stages are equal there, balanced by operations here");
    if (layout.virtualStages > 1)
        return out.lost("layout.stages", "virtual stages are equal there");
    const auto &stages = *layout.stages;
    const std::int64_t between = stages[1]; // of two stages it is the last
    if (stages.size() > 2 && !std::all_of(stages.begin() + 1, stages.end() - 1, [&](std::int64_t layers) {
            return layers == between;
        }))
        return out.lost("layout.stages", "only the first and the last stage may differ");
    if (stages.front() != between)
        out.put("decoder-first-pipeline-num-layers", stages.front());
    if (stages.back() != between)
        out.put("decoder-last-pipeline-num-layers", stages.back());
}

/// A part of the layers is so many at the beginning of each stage there.
void writeFullRecompute(Writing &out, const spec::JobSpec &job)
{
    const double share = job.recompute.ratio.value_or(1.0 / static_cast<double>(job.recompute.every));
    const double each =
        static_cast<double>(job.model.layers) / static_cast<double>(job.layout.pp * job.layout.virtualStages);
    const std::int64_t layers = share < 1 ? std::max<std::int64_t>(1, std::llround(share * each)) : 1;
    out.put("recompute-granularity", "full");
    out.put("recompute-method", share < 1 ? "block" : "uniform");
    out.put("recompute-num-layers", layers);
    const std::string written = std::to_string(layers) + " layers of each stage are written";
    if (!job.recompute.ratio && job.recompute.every > 1)
        out.lost("recompute.every", "a stage's first layers are computed again there: " + written);
    else if (share < 1 && std::abs(static_cast<double>(layers) - share * each) > 1e-9 * each)
        out.lost("recompute.ratio", "whole layers of each stage are computed again there: " + written);
}

void writeMemory(Writing &out, const spec::JobSpec &job)
{
    for (const char *key : {"recompute.mode", "recompute.every", "recompute.ratio", "zero.stage",
                            "zero.shard", "zero.bucket_bytes", "offload.optimizer"})
        out.use(key);
    const std::string &mode = job.recompute.mode;
    if (mode == "attention" || mode == "selective")
        out.put("recompute-granularity", "selective");
    if (mode == "selective")
        out.put("recompute-modules", Json{"layernorm", "mlp_act"});
    if (mode == "full")
        writeFullRecompute(out, job);
    if (job.zero.stage >= 1)
        out.put("use-distributed-optimizer", true);
    if (job.zero.stage >= 2) {
        out.put("use-megatron-fsdp", true);
        out.put("data-parallel-sharding-strategy",
                job.zero.stage == 2 ? "optim_grads" : "optim_grads_params");
    }
    if (job.zero.stage > 0 && job.zero.shard > 0)
        out.put("num-distributed-optimizer-instances", job.layout.dp * job.layout.cp / job.zero.shard);
    const std::int64_t bucket = std::max<std::int64_t>(1, job.zero.bucketBytes / 4);
    out.put("ddp-bucket-size", bucket);
    if (4 * bucket != job.zero.bucketBytes)
        out.lost("zero.bucket_bytes",
                 "counted in elements there: " + std::to_string(4 * bucket) + " bytes are written");
    if (job.offload.optimizer != "none")
        out.put("optimizer-cpu-offload", true);
    if (job.offload.optimizer == "nvme")
        out.lost("offload.optimizer", "states go to host memory only");
}

void writePrecision(Writing &out, const spec::JobSpec &job)
{
    out.use("precision");
    const spec::LossScale &scale = job.precision.lossScale;
    const DType compute = job.precision.compute, reduce = job.precision.reduce;
    const bool narrow = reduce == DType::BF16 && compute == DType::BF16;
    if (compute == DType::BF16)
        out.put("bf16", true);
    else if (compute == DType::F64)
        out.lost("precision.compute", "there is no fp64: fp32 is written");
    if (narrow)
        out.put("grad-reduce-in-bf16", true);
    else if (reduce != DType::F32 && compute != DType::F64
             && !(reduce == DType::F16 && compute == DType::F16))
        out.lost("precision.reduce", "gradients are summed in fp32, or in the type that is computed in");
    if (job.precision.lossIn16bit)
        out.lost("precision.loss_in_16bit", "logits are in fp32");
    if (compute != DType::F16)
        return;
    out.put("fp16", true);
    if (scale.maxPower)
        out.lost("precision.loss_scale.max_power", "scales grow without a limit there");
    if (reduce == DType::F32)
        out.put("accumulate-allreduce-grads-in-fp32", true);
    if (scale.mode == "static")
        out.put("loss-scale", scale.value.value_or(1));
    else
        out.put("initial-loss-scale", std::exp2(static_cast<double>(scale.initPower)));
    if (scale.rule != "megatron")
        out.lost("precision.loss_scale.rule", "scales move by Megatron-LM's rule there");
}

/// A word as a shell takes it.
std::string quoted(const std::string &word)
{
    const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("_-./,:+", c); };
    if (!word.empty() && std::all_of(word.begin(), word.end(), plain))
        return word;
    std::string text = "'";
    for (const char c : word)
        text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

/// Arguments in the order of writing, behind a launcher for so many ranks.
std::string script(const Writing &out, const spec::JobSpec &job)
{
    const std::int64_t world = job.layout.world();
    const std::int64_t each = world <= 8 ? world : std::gcd(world, std::int64_t(8));
    std::string text = "#!/bin/sh\ntorchrun --nnodes " + std::to_string(world / each) + " --nproc_per_node "
        + std::to_string(each) + " pretrain_gpt.py";
    for (const auto &[name, value] : out.values()) {
        if (value == false || value.is_null())
            continue;
        text += " \\\n    --" + name;
        for (const Json &item : value.is_array() ? value : Json())
            text += " " + quoted(item.get<std::string>());
        if (value != true && !value.is_array())
            text += " " + (value.is_string() ? quoted(value.get<std::string>()) : dumpJson(value));
    }
    return text + "\n";
}

} // namespace

Exported exportMegatron(const spec::JobSpec &job)
{
    Writing out(job);
    out.same(megatronRows());
    writeModel(out, job);
    writeLayout(out, job);
    writeMemory(out, job);
    writePrecision(out, job);
    out.put("adam-beta1", job.optimizer.beta1);
    out.put("adam-beta2", job.optimizer.beta2);
    for (const char *key : {"optimizer.betas", "optimizer.kind", "lr_schedule", "init.seed", "data.seed",
                            "data.train", "data.valid_fraction", "run.checkpoint_dir"})
        out.use(key);
    out.put("lr-decay-style", job.lrSchedule.kind);
    out.put("lr-decay-iters", job.lrSchedule.total);
    out.put("lr-warmup-iters", job.lrSchedule.warmup);
    out.put("seed", static_cast<std::int64_t>(job.init.seed));
    if (job.data.seed != job.init.seed)
        out.lost("data.seed", "one seed for weights and data");
    if (!job.data.train.empty())
        out.put("data-path", job.data.train);
    // In thousandths, as people write it, where that is exact.
    const double valid = 1000 * job.data.validFraction;
    const double whole = std::abs(valid - std::round(valid)) < 1e-9 ? std::round(valid) : valid;
    out.put("split", formatNumber(1000 - whole, 17) + "," + formatNumber(whole, 17) + ",0");
    if (job.run.checkpointDir)
        out.put("save", *job.run.checkpointDir);
    const std::string text = script(out, job);
    return {text, out.finish()};
}

} // namespace rankyard::interop
