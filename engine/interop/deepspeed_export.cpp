// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/interop/reading.h"

#include <algorithm>

namespace rankyard::interop {

namespace {

void writeZero(Writing &out, const spec::JobSpec &job)
{
    out.same(deepspeedRows().zero);
    const auto elements = [&](const char *ours, std::int64_t bytes, std::int64_t each, std::int64_t least) {
        out.use(ours);
        const std::int64_t count = std::max(least, bytes / each);
        if (count * each != bytes)
            out.lost(ours,
                     "counted in elements there: " + std::to_string(count * each) + " bytes are written");
        return count;
    };
    out.put("zero_optimization.reduce_bucket_size",
            elements("zero.bucket_bytes", job.zero.bucketBytes, 4, 1));
    const std::int64_t each = job.precision.compute == DType::F64 ? 4 : bytesOf(job.precision.compute);
    out.put("zero_optimization.stage3_prefetch_bucket_size",
            elements("zero.prefetch_bytes", job.zero.prefetchBytes, each, 0));
    if (job.zero.shard > 0)
        out.put("zero_optimization.mics_shard_size", out.use("zero.shard"));
    for (const auto &[section, ours] :
         {std::pair{"zero_optimization.offload_optimizer.", "offload.optimizer"},
          {"zero_optimization.offload_param.", "offload.params"}}) {
        const Json device = out.use(ours);
        if (device == "none")
            continue;
        out.put(std::string(section) + "device", device);
        out.put(std::string(section) + "pin_memory", out.use("offload.pin"));
        out.put(std::string(section) + "buffer_count", out.use("offload.buffers"));
        if (device == "nvme")
            out.put(std::string(section) + "nvme_path", out.use("offload.nvme_path"));
    }
}

void writePrecision(Writing &out, const spec::JobSpec &job)
{
    out.use("precision.compute");
    if (job.precision.compute == DType::F64)
        out.lost("precision.compute", "there is no fp64: fp32 is written");
    out.put("fp16.enabled", job.precision.compute == DType::F16);
    if (job.precision.compute == DType::F16) {
        const spec::LossScale &scale = job.precision.lossScale;
        out.put("fp16.loss_scale", scale.mode == "static" ? scale.value.value_or(0) : 0.0);
        out.use("precision.loss_scale.mode");
        out.use("precision.loss_scale.value");
        out.same(deepspeedRows().scale);
        out.use("precision.loss_scale.rule");
        if (scale.rule != "deepspeed")
            out.lost("precision.loss_scale.rule", "scales move by DeepSpeed's rule there");
    } else {
        out.use("precision.loss_scale");
    }
    out.put("bf16.enabled", job.precision.compute == DType::BF16);
    out.put("data_types.grad_accum_dtype", "fp32");
    const bool wide = job.precision.reduce == DType::F64;
    out.put("communication_data_type", wide ? "fp32" : nameOf(job.precision.reduce));
    for (const char *fixed : {"precision.grad", "precision.reduce", "precision.master"})
        out.use(fixed); // of precision.compute
}

void writeSchedule(Writing &out, const spec::JobSpec &job)
{
    const spec::LrSchedule &schedule = job.lrSchedule;
    const bool cosine = schedule.kind == "cosine";
    out.put("scheduler.type",
            cosine                          ? "WarmupCosineLR"
                : schedule.kind == "linear" ? "WarmupDecayLR"
                                            : "WarmupLR");
    for (const char *key : {"lr_schedule.kind", "lr_schedule.warmup", "lr_schedule.total", "run.steps"})
        out.use(key);
    if (schedule.kind == "constant" || schedule.total != job.run.steps)
        out.lost("run.steps", "how long a run is, is the script's");
    const std::string params = "scheduler.params.";
    if (!cosine)
        out.put(params + "warmup_max_lr", out.use("optimizer.lr"));
    out.put(params + "warmup_num_steps", std::max<std::int64_t>(1, schedule.warmup));
    out.put(params + "warmup_type", "linear");
    if (schedule.kind != "constant")
        out.put(params + "total_num_steps", schedule.total);
    out.use("lr_schedule.min_lr");
    if (cosine && job.optimizer.lr > 0)
        out.put(params + "cos_min_ratio", schedule.minLr / job.optimizer.lr);
    else if (schedule.minLr > 0 && schedule.kind == "linear")
        out.lost("lr_schedule.min_lr", "WarmupDecayLR goes down to 0");
    if (schedule.warmup < 1)
        out.lost("lr_schedule.warmup", "DeepSpeed warms up for one step at least");
}

} // namespace

Exported exportDeepSpeed(const spec::JobSpec &job)
{
    Writing out(job);
    out.put("train_batch_size", out.use("batch.global"));
    out.put("train_micro_batch_size_per_gpu", out.use("batch.micro"));
    out.put("gradient_accumulation_steps", job.microBatches());
    out.use("layout.dp");
    out.put("gradient_clipping", out.use("optimizer.clip"));
    out.put("steps_per_print", out.use("run.log_every"));
    writePrecision(out, job);
    writeZero(out, job);
    out.use("optimizer.kind");
    out.put("optimizer.type", "AdamW");
    out.same(deepspeedRows().optimizer);
    out.put("optimizer.params.betas", out.use("optimizer.betas"));
    writeSchedule(out, job);
    out.use("recompute.mode");
    if (job.recompute.mode == "full") {
        out.put("activation_checkpointing.partition_activations", out.use("recompute.partition"));
        out.put("activation_checkpointing.cpu_checkpointing", out.use("recompute.to_host"));
        out.put("activation_checkpointing.number_checkpoints", job.model.layers);
        out.guessed("activation_checkpointing", "full",
                    "the block alone does nothing: the model must call DeepSpeed's checkpoint function");
    } else if (job.recompute.mode != "none") {
        out.lost("recompute.mode", "what is computed again is the model's code there");
    }
    if (job.layout.pp > 1) {
        out.put("pipeline.stages", out.use("layout.pp"));
        out.use("layout.schedule");
        if (job.layout.schedule != "1f1b")
            out.lost("layout.schedule", "DeepSpeed's pipeline runs 1f1b");
    }
    if (job.layout.tp > 1)
        out.put("tensor_parallel.autotp_size", out.use("layout.tp"));
    out.lost("model", "the model is code there");
    out.use("data.train");
    if (!job.data.train.empty())
        out.lost("data.train", "the corpus is the script's");
    out.lostRest("data.", "the corpus is the script's");
    const std::string text = dumpJson(nested(out.values()), 4) + "\n";
    return {text, out.finish()};
}

} // namespace rankyard::interop
