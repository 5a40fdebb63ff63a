// SPDX-License-Identifier: GPL-3.0-or-later
// DeepSpeed's configuration, as deepspeedai/DeepSpeed has it in August 2026 (runtime/config.py, runtime/zero/config.py,
// runtime/precision_config.py, runtime/lr_schedules.py). Keys that are missing have that version's defaults.
#include "engine/interop/reading.h"

#include <algorithm>
#include <cmath>

namespace rankyard::interop {

namespace {

constexpr Same zeroRows[] = {
    {"zero_optimization.stage", "zero.stage", Type::Whole},
    {"zero_optimization.stage3_param_persistence_threshold", "zero.persistence_threshold", Type::Whole},
    {"zero_optimization.stage3_max_live_parameters", "zero.max_live", Type::Whole},
    {"zero_optimization.stage3_max_reuse_distance", "zero.max_reuse_distance", Type::Whole},
    {"zero_optimization.sub_group_size", "zero.sub_group", Type::Whole},
    {"zero_optimization.overlap_comm", "comm.overlap_grads", Type::Flag},
};
constexpr Same optimizerRows[] = {
    {"optimizer.params.lr", "optimizer.lr", Type::Number},
    {"optimizer.params.eps", "optimizer.eps", Type::Number},
    {"optimizer.params.weight_decay", "optimizer.weight_decay", Type::Number},
};
constexpr Same scaleRows[] = {
    {"fp16.initial_scale_power", "precision.loss_scale.init_power", Type::Whole},
    {"fp16.loss_scale_window", "precision.loss_scale.window", Type::Whole},
    {"fp16.hysteresis", "precision.loss_scale.hysteresis", Type::Whole},
    {"fp16.min_loss_scale", "precision.loss_scale.min", Type::Number},
};

} // namespace

DeepSpeedRows deepspeedRows() { return {zeroRows, optimizerRows, scaleRows}; }

namespace {

constexpr double gradBytes = 4; // gradients accumulate in fp32 here

constexpr Known known[] = {
    {"prescale_gradients", "the loss is divided by the tokens of the global batch; reductions are sums",
     "false"},
    {"gradient_predivide_factor",
     "the loss is divided by the tokens of the global batch; reductions are sums", "1.0"},
    {"gradient_allreduce_op", "the loss is divided by the tokens of the global batch; reductions are sums"},
    {"sparse_gradients", "gradients of the embedding are reduced whole", "false"},
    {"zero_allow_untested_optimizer", "every optimizer here works with every stage", "true"},
    {"zero_force_ds_cpu_optimizer", "the optimizer on the host is our own"},
    {"wall_clock_breakdown", "step times are always split"},
    {"memory_breakdown", "memory is always reported by kind"},
    {"dump_state", "the job file says everything"},
    {"dataloader_drop_last", "samples are counted, not epochs: nothing is dropped"},
    {"data_types.grad_accum_dtype", "gradients accumulate in fp32", "\"fp32\""},
    {"seq_parallel_communication_data_type", "sequence parallelism is in the compute type"},
    {"fp16.auto_cast", "inputs are tokens", "false"},
    {"fp16.consecutive_hysteresis", "hysteresis is refilled at growth only", "false"},
    {"fp16.fp16_master_weights_and_grads", "the master copy is fp32", "false"},
    {"bf16.immediate_grad_update", "gradients accumulate in one buffer"},
    {"bf16.check_grad_overflow", "bf16 runs at scale 1, and a gradient that is not finite ends the run"},
    {"bf16.bf16_master_weights_and_grads", "the master copy is fp32", "false"},
    {"bf16.bf16_optimizer_states", "optimizer states are fp32", "false"},
    {"zero_optimization.contiguous_gradients", "gradients always lie in contiguous buckets", "true"},
    {"zero_optimization.reduce_scatter", "stages 1 to 3 reduce to shards", "true"},
    {"zero_optimization.use_multi_rank_bucket_allreduce", "buckets are reduced to shards"},
    {"zero_optimization.allgather_partitions", "parameters are gathered bucket by bucket", "true"},
    {"zero_optimization.allgather_bucket_size", "gathers have the reductions' buckets"},
    {"zero_optimization.round_robin_gradients", "shards are slices of every bucket"},
    {"zero_optimization.ignore_unused_parameters", "every parameter is used"},
    {"zero_optimization.load_from_fp32_weights", "checkpoints hold the master copy", "true"},
    {"zero_optimization.elastic_checkpoint", "checkpoints load in any layout"},
    {"zero_optimization.stage3_model_persistence_threshold", "the threshold of single tensors decides alone"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "checkpoints are gathered on export"},
    {"zero_optimization.stage3_module_granularity_threshold", "a unit is gathered at a time"},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", "units are gathered", "false"},
    {"zero_optimization.stage3_allgather_sequential", "the program fixes the order of gathers"},
    {"zero_optimization.zero_quantized_weights", "gathers are not quantized", "false"},
    {"zero_optimization.zero_quantized_gradients",
     "reductions to shards are not quantized; near: compression.mode"},
    {"zero_optimization.memory_efficient_linear", "kernels keep what the table of saved tensors says"},
    {"zero_optimization.override_module_apply", "there are no modules"},
    {"zero_optimization.log_trace_cache_warnings", "gathers are planned, not traced"},
    {"zero_optimization.enable_sanity_checks", "the verifier reads every program"},
    {"zero_optimization.offload_optimizer.", "the copies of the program have their own sizes"},
    {"zero_optimization.offload_param.", "the copies of the program have their own sizes"},
    {"activation_checkpointing.", "buffers have planned places; the step's spans show the time"},
    {"pipeline.", "stages are balanced by operations"},
    {"aio.", "the NVMe tier is a mapped file"},
    {"checkpoint.", "checkpoints have one format"},
    {"flops_profiler.", "operations are counted by the plan"},
    {"comms_logger.", "communication is always reported"},
    {"tensorboard.", "metrics are in the run store"},
    {"wandb.", "metrics are in the run store"},
    {"csv_monitor.", "metrics are in the run store"},
    {"comet.", "metrics are in the run store"},
    {"elasticity.", "the number of ranks is the job's"},
    {"autotuning.", "the search takes its place"},
    {"curriculum_learning.", "samples have one length"},
    {"data_efficiency.", "samples are drawn by a permutation"},
    {"compression_training.", "models are trained as they are"},
    {"amp.", "precision has fp16 and bf16 of its own"},
    {"hybrid_engine.", "there is no generation"},
    {"tensor_parallel.", "layers are cut by the plan"},
};

void aliases(Reading &in)
{
    for (const char *key : {"enabled", "immediate_grad_update", "check_grad_overflow"})
        in.rename(std::string("bfloat16.") + key, std::string("bf16.") + key);
    in.rename("optimizer_type", "optimizer.type");
    for (const char *key : {"prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters",
                            "max_reuse_distance", "model_persistence_threshold"})
        in.rename(std::string("zero_optimization.") + key, std::string("zero_optimization.stage3_") + key);
    in.rename("zero_optimization.stage3_gather_fp16_weights_on_model_save",
              "zero_optimization.stage3_gather_16bit_weights_on_model_save");
    // Before it had stages and sections.
    for (const auto &[old, section] :
         {std::pair{"cpu_offload", "offload_optimizer"}, {"cpu_offload_params", "offload_param"}}) {
        const std::string path = std::string("zero_optimization.") + old;
        if (in.flag(path).value_or(false)) {
            in.set(std::string("offload.") + (section[8] == 'o' ? "optimizer" : "params"), "cpu");
            in.guessed(path, true, std::string("the old name of ") + section + ".device cpu");
        }
    }
    if (const Json *legacy = in.take("zero_optimization"); legacy && legacy->is_boolean())
        in.set("zero.stage", *legacy == true ? 1 : 0);
}

/// "auto" of Hugging Face's trainer: made from the model's width.
void autos(Reading &in)
{
    const auto hidden = static_cast<double>(in.getWhole("model.hidden"));
    const std::tuple<const char *, const char *, double> rows[] = {
        {"reduce_bucket_size", "zero.bucket_bytes", gradBytes * hidden * hidden},
        {"stage3_prefetch_bucket_size", "zero.prefetch_bytes",
         (in.get("precision.compute") == "fp32" ? 4 : 2) * std::floor(0.9 * hidden * hidden)},
        {"stage3_param_persistence_threshold", "zero.persistence_threshold", 10 * hidden}};
    for (const auto &[theirs, ours, value] : rows) {
        const std::string path = std::string("zero_optimization.") + theirs;
        if (!in.isAuto(path))
            continue;
        in.set(ours, static_cast<std::int64_t>(value));
        in.guessed(path, static_cast<std::int64_t>(value),
                   "auto: from the model's width, as Hugging Face's trainer makes it");
    }
}

void readPrecision(Reading &in)
{
    const bool half = in.flag("fp16.enabled").value_or(false);
    const bool brain = in.flag("bf16.enabled").value_or(false);
    if (half && brain)
        in.fail(Error::make(Code::BadData, "fp16 and bf16 are both enabled", "fp16.enabled")
                    .withExpected("one of them"));
    const bool known_ = in.has("fp16.enabled") || in.has("bf16.enabled");
    if (!known_)
        in.guessed("precision.compute", "fp32", "neither fp16 nor bf16 is there");
    in.set("precision.compute", half ? "fp16" : brain ? "bf16" : "fp32");
    in.setDefault("precision.grad");
    in.setDefault("precision.master");
    in.set("precision.loss_scale.rule", "deepspeed");
    const double scale = in.number("fp16.loss_scale").value_or(0);
    in.set("precision.loss_scale.mode", scale > 0 ? "static" : "dynamic");
    in.set("precision.loss_scale.value", scale > 0 ? Json(scale) : Json());
    in.same(scaleRows);
    // Not given: what is computed in.
    const std::pair<const char *, DType> types[] = {
        {"fp32", DType::F32}, {"fp16", DType::F16}, {"bf16", DType::BF16}, {"bfp16", DType::BF16}};
    const std::string computed = half ? "fp16" : brain ? "bf16" : "fp32";
    const std::string reduce = in.word("communication_data_type").value_or(computed);
    const auto type = std::find_if(std::begin(types), std::end(types),
                                   [&](const auto &row) { return reduce == row.first; });
    if (type == std::end(types))
        return in.fail(Error::make(Code::BadData, "no such type", "communication_data_type")
                           .withFound(reduce)
                           .withExpected("fp32, fp16, bf16"));
    in.setReduce("communication_data_type", type->second);
}

/// Elements there, bytes here.
void readBuckets(Reading &in, std::int64_t computeBytes)
{
    if (const auto bucket = in.atLeast("zero_optimization.reduce_bucket_size", 1))
        in.set("zero.bucket_bytes", static_cast<std::int64_t>(gradBytes) * *bucket);
    else if (!in.has("zero_optimization.reduce_bucket_size"))
        in.set("zero.bucket_bytes", static_cast<std::int64_t>(gradBytes) * 500'000'000);
    if (const auto ahead = in.atLeast("zero_optimization.stage3_prefetch_bucket_size", 0))
        in.set("zero.prefetch_bytes", computeBytes * *ahead);
    else if (!in.has("zero_optimization.stage3_prefetch_bucket_size"))
        in.set("zero.prefetch_bytes", computeBytes * 50'000'000);
}

void readZero(Reading &in)
{
    if (!in.has("zero_optimization") && !in.has("zero_optimization.stage"))
        in.set("zero.stage", 0);
    for (const char *key :
         {"zero.persistence_threshold", "zero.max_live", "zero.max_reuse_distance", "zero.sub_group"})
        in.setDefault(key);
    autos(in);
    in.same(zeroRows);
    const std::int64_t stage = in.getWhole("zero.stage");
    if (!in.has("zero_optimization.overlap_comm"))
        in.set("comm.overlap_grads", stage == 3);
    readBuckets(in, in.get("precision.compute") == "fp32" ? 4 : 2);
    const auto mics = in.whole("zero_optimization.mics_shard_size").value_or(-1);
    const auto secondary = in.whole("zero_optimization.zero_hpz_partition_size").value_or(1);
    in.set("zero.shard", mics > 0 ? mics : 0);
    if (secondary > 1)
        in.lost(
            "zero_optimization.zero_hpz_partition_size",
            "a second copy inside nodes; near: zero.shard keeps all states inside blocks of so many ranks");
    for (const auto &[section, ours] :
         {std::pair{"offload_optimizer", "offload.optimizer"}, {"offload_param", "offload.params"}}) {
        const std::string path = std::string("zero_optimization.") + section + ".";
        if (const auto device = in.word(path + "device"))
            in.set(ours, *device);
        if (const auto folder = in.word(path + "nvme_path"); folder && in.get(ours) == "nvme")
            in.set("offload.nvme_path", *folder);
        if (const auto buffers = in.atLeast(path + "buffer_count", 1))
            in.set("offload.buffers", *buffers);
        if (const auto pin = in.flag(path + "pin_memory"))
            in.set("offload.pin", *pin);
    }
}

/// DeepSpeed's table: what is not given follows from the rest and the data-parallel ranks W.
void readBatch(Reading &in)
{
    const auto total = in.atLeast("train_batch_size", 1);
    auto micro = in.atLeast("train_micro_batch_size_per_gpu", 1);
    auto steps = in.atLeast("gradient_accumulation_steps", 1);
    if (in.error())
        return;
    const auto &layout = in.options().base.layout;
    const std::int64_t others = std::max<std::int64_t>(
        1, in.getWhole("layout.tp") * in.getWhole("layout.pp") * in.getWhole("layout.cp"));
    std::int64_t ranks = layout.dp;
    if (const auto world = in.options().world)
        ranks = std::max<std::int64_t>(1, *world / others);
    else if (total && micro && steps && *total % (*micro * *steps) == 0)
        ranks = *total / (*micro * *steps);
    else
        in.guessed("layout.dp", ranks,
                   "the file does not say how many ranks there are: that is said at the start");
    if (!total && !micro) {
        if (in.has("train_batch_size") || in.has("train_micro_batch_size_per_gpu")) {
            in.set("layout.dp", ranks); // "auto": the batch of before
            return;
        }
        return in.fail(Error::make(Code::BadData, "no batch size", "train_batch_size")
                           .withExpected("train_batch_size or train_micro_batch_size_per_gpu"));
    }
    if (total && !micro)
        micro = std::max<std::int64_t>(1, *total / ranks / steps.value_or(1));
    else if (total && !steps)
        steps = std::max<std::int64_t>(1, *total / *micro / ranks);
    const std::int64_t all = *micro * steps.value_or(1) * ranks;
    if (total && *total != all)
        return in.fail(
            Error::make(Code::BadData, "is not micro-batch · accumulation steps · data-parallel ranks",
                        "train_batch_size")
                .withFound(std::to_string(*total) + ", and " + std::to_string(*micro) + " · "
                           + std::to_string(steps.value_or(1)) + " · " + std::to_string(ranks) + " = "
                           + std::to_string(all))
                .withExpected("train_batch_size " + std::to_string(all)
                              + (*total % (*micro * ranks) == 0 ? ", or gradient_accumulation_steps "
                                         + std::to_string(*total / (*micro * ranks))
                                                                : std::string()))
                .withHint(in.options().world ? std::string("The ranks are those that were asked for")
                                             : "The ranks are the base job's"));
    in.set("layout.dp", ranks);
    in.set("batch.micro", *micro);
    in.set("batch.global", total.value_or(all));
}

void readOptimizer(Reading &in)
{
    if (const auto type = in.word("optimizer.type")) {
        const bool adam = *type == "Adam" || *type == "AdamW" || *type == "adam" || *type == "adamw";
        for (const auto &[key, value] :
             {std::pair{"optimizer.lr", 1e-3}, {"optimizer.eps", 1e-8}, {"optimizer.weight_decay", 0.0}})
            in.set(key, value);
        in.set("optimizer.betas", {0.9, 0.999});
        in.same(optimizerRows);
        if (const Json *betas = in.take("optimizer.params.betas")) {
            if (betas->is_array() && betas->size() == 2 && (*betas)[0].is_number() && (*betas)[1].is_number())
                in.set("optimizer.betas", *betas);
            else
                in.fail(Error::make(Code::BadData, "has the wrong type", "optimizer.params.betas")
                            .withFound(shown(*betas))
                            .withExpected("two numbers"));
        }
        if (!adam)
            in.guessed("optimizer.type", *type, "AdamW takes its place: there is no other update rule here");
        else if (in.flag("optimizer.params.adam_w_mode") == false)
            in.guessed("optimizer.params.adam_w_mode", false,
                       "AdamW: weight decay is decoupled, not added to the gradient");
    } else if (!in.has("optimizer.type")) {
        in.guessed("optimizer", in.get("optimizer"), "made in the training script; the base job's is taken");
    }
    in.set("optimizer.clip", 1.0);
    if (const auto clip = in.number("gradient_clipping"))
        in.set("optimizer.clip", *clip);
    else if (!in.has("gradient_clipping"))
        in.guessed("gradient_clipping", 1.0,
                   "not given: 1 since DeepSpeed's pull request 8068 (June 2026), no clipping before");
}

void readSchedule(Reading &in)
{
    const auto type = in.word("scheduler.type");
    if (!type) {
        if (!in.has("scheduler.type"))
            in.guessed("lr_schedule", in.get("lr_schedule"),
                       "made in the training script, or constant; the base job's is taken");
        return;
    }
    const std::pair<const char *, const char *> kinds[] = {
        {"WarmupLR", "constant"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}};
    const auto kind =
        std::find_if(std::begin(kinds), std::end(kinds), [&](const auto &row) { return *type == row.first; });
    if (kind == std::end(kinds))
        return in.guessed("scheduler.type", *type, "no such shape here: the base job's schedule is taken");
    in.set("lr_schedule.kind", kind->second);
    const std::string params = "scheduler.params.";
    in.set("lr_schedule.warmup", in.atLeast(params + "warmup_num_steps", 1).value_or(1000));
    if (const auto total = in.atLeast(params + "total_num_steps", 1)) {
        in.set("lr_schedule.total", *total);
        in.set("run.steps", *total);
        in.guessed("run.steps", *total, "how long a run is, is the script's: the schedule's length is taken");
    } else {
        in.set("lr_schedule.total",
               std::max(in.getWhole("run.steps"), in.getWhole("lr_schedule.warmup") + 1));
    }
    in.set("lr_schedule.min_lr", 0.0);
    if (const auto most = in.number(params + "warmup_max_lr"))
        in.set("optimizer.lr", *most);
    const double cosine = in.number(params + "cos_min_ratio").value_or(1e-4);
    if (*type == "WarmupCosineLR")
        in.set("lr_schedule.min_lr", cosine * in.get("optimizer.lr").get<double>());
    if (in.number(params + "warmup_min_lr").value_or(0) != 0)
        in.lost(params + "warmup_min_lr", "the warm-up begins at 0");
    if (in.number(params + "warmup_min_ratio").value_or(0) != 0)
        in.lost(params + "warmup_min_ratio", "the warm-up begins at 0");
    const std::string shape = in.word(params + "warmup_type").value_or("log");
    if (shape != "linear")
        in.guessed(params + "warmup_type", shape, "the warm-up is linear here");
}

void readCheckpointing(Reading &in)
{
    const std::string block = "activation_checkpointing.";
    const bool partition = in.flag(block + "partition_activations").value_or(false);
    const bool host = in.flag(block + "cpu_checkpointing").value_or(false);
    const auto kept = in.atLeast(block + "number_checkpoints", 0);
    const bool there = partition || host || kept;
    if (!there)
        return;
    in.set("recompute.mode", "full");
    in.guessed("recompute.mode", "full",
               "the block alone does nothing: the model must call DeepSpeed's checkpoint function");
    in.set("recompute.to_host", host);
    if (kept && *kept != in.getWhole("model.layers"))
        in.guessed(block + "number_checkpoints", *kept, "every layer keeps its input");
    if (partition && in.getWhole("layout.tp") == 1)
        in.guessed(block + "partition_activations", true, "has no effect without a tensor group");
    else
        in.set("recompute.partition", partition);
}

} // namespace

Result<Imported> importDeepSpeed(const Json &document, const ImportOptions &options)
{
    if (!document.is_object())
        return Error::make(Code::BadData, "not an object", "configuration").withFound(shown(document));
    Reading in(flattened(document), options);
    aliases(in);
    in.guessed("model", Json(spec::writeJob(options.base))["model"]["family"],
               "the file does not describe the model: the base job's is taken");
    in.guessed("optimizer.no_decay", in.get("optimizer.no_decay"), "parameter groups are made in the script");
    if (const auto stages = in.atLeast("pipeline.stages", 1))
        in.set("layout.pp", *stages);
    for (const char *key : {"tensor_parallel.autotp_size", "tensor_parallel.tp_size"}) {
        if (const auto size = in.atLeast(key, 1))
            in.set("layout.tp", *size);
    }
    if (in.atLeast("sequence_parallel_size", 1).value_or(1) > 1)
        in.lost("sequence_parallel_size",
                "sequences are exchanged by heads; near: layout.cp, which is a ring");
    readPrecision(in);
    readZero(in);
    readCheckpointing(in);
    if (const auto interval = in.atLeast("pipeline.activation_checkpoint_interval", 0);
        interval.value_or(0) > 0)
        in.set("recompute.mode", "full");
    readOptimizer(in);
    readSchedule(in);
    readBatch(in);
    if (const auto every = in.atLeast("steps_per_print", 1))
        in.set("run.log_every", *every);
    return in.finish(Engine::DeepSpeed, known, "not a key of DeepSpeed's that is known here");
}

} // namespace rankyard::interop
