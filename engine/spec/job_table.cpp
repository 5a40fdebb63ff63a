// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/job_table.h"

namespace rankyard::spec {

namespace {

constexpr double million = 1e6;
constexpr double maxBytes = 1LL << 50;

Rule any(std::string doc)
{
    Rule rule;
    rule.doc = std::move(doc);
    return rule;
}

Rule text(std::string doc)
{
    Rule rule = any(std::move(doc));
    rule.mayBeEmpty = false;
    return rule;
}

Rule range(double low, double high, std::string doc)
{
    Rule rule = any(std::move(doc));
    rule.low = low;
    rule.high = high;
    return rule;
}

/// low < value ≤ high
Rule above(double low, double high, std::string doc)
{
    Rule rule = range(low, high, std::move(doc));
    rule.lowOpen = true;
    return rule;
}

/// low ≤ value < high
Rule below(double low, double high, std::string doc)
{
    Rule rule = range(low, high, std::move(doc));
    rule.highOpen = true;
    return rule;
}

Rule oneOf(std::vector<std::string> values, std::string doc)
{
    Rule rule = any(std::move(doc));
    rule.values = std::move(values);
    return rule;
}

Rule needed(Rule rule)
{
    rule.required = true;
    return rule;
}

using Fields = std::vector<Field>;

void addModel(Fields &f, Model &m)
{
    f.push_back({"model.family", &m.family, oneOf({"gpt2", "llama"}, "Architecture")});
    f.push_back({"model.layers", &m.layers, range(1, 10000, "Transformer layers")});
    f.push_back(
        {"model.hidden", &m.hidden, range(1, 1 << 18, "Width of the residual stream; a multiple of heads")});
    f.push_back({"model.heads", &m.heads, range(1, 1 << 16, "Attention heads")});
    f.push_back({"model.kv_heads", &m.kvHeads, range(1, 1 << 16, "Heads of keys and values; null: heads")});
    f.push_back({"model.head_dim", &m.headDim, range(1, 1 << 16, "Width of a head; null: hidden / heads")});
    f.push_back({"model.ffn", &m.ffn, range(1, 1 << 22, "Inner width of the MLP; null: 4 · hidden")});
    f.push_back(
        {"model.seq", &m.seq, range(1, maxMicroBatchTokens, "Tokens of a sample, the context length")});
    f.push_back({"model.vocab", &m.vocab,
                 range(1, 1 << 24, "Vocabulary; at least the largest token of the corpus + 1")});
    f.push_back({"model.tied", &m.tied, any("The head shares the token embedding")});
    f.push_back({"model.dropout", &m.dropout, below(0, 1, "Dropout probability")});
    f.push_back({"model.norm_eps", &m.normEps, above(0, 1, "Added to the variance in norms")});
    f.push_back(
        {"model.rope", &m.rope,
         any("Llama's rotary positions as in Hugging Face's configurations; null: rope_theta 10000")});
}

void addInputs(Fields &f, JobSpec &j)
{
    f.push_back({"init.seed", &j.init.seed, any("Seed of the initial weights")});
    f.push_back(
        {"init.from", &j.init.from,
         text("A safetensors file or folder with starting weights, relative to the job file; canonical or "
              "Hugging Face GPT-2 names")});
    f.push_back(
        {"data.train", &j.data.train,
         needed(text(
             "Prefix of a .bin/.idx pair, relative to the job file, or the name of a prepared corpus"))});
    f.push_back({"data.valid", &j.data.valid,
                 text("The same for validation; null: the tail of the training corpus")});
    f.push_back({"data.valid_fraction", &j.data.validFraction,
                 range(0, 0.9, "Part of the training corpus kept for validation when data.valid is null")});
    f.push_back({"data.documents", &j.data.documents,
                 oneOf({"pack"}, "pack: samples run across document boundaries")});
    f.push_back({"data.seed", &j.data.seed, any("Seed of the order of samples; null: file order")});
    f.push_back(
        {"batch.global", &j.batch.global, range(1, 1e8, "Samples of an optimizer step; dp · micro · m")});
    f.push_back({"batch.micro", &j.batch.micro, range(1, maxMicroBatchTokens, "Samples of a micro-batch")});
}

void addLayout(Fields &f, Layout &l)
{
    constexpr double ranks = 65536;
    f.push_back({"layout.dp", &l.dp, range(1, ranks, "Data-parallel replicas")});
    f.push_back({"layout.tp", &l.tp, range(1, ranks, "Tensor-parallel ranks")});
    f.push_back({"layout.pp", &l.pp, range(1, ranks, "Pipeline stages")});
    f.push_back({"layout.cp", &l.cp, range(1, ranks, "Context-parallel ranks")});
    f.push_back({"layout.virtual", &l.virtualStages, range(1, 1024, "Virtual stages a rank")});
    f.push_back(
        {"layout.stages", &l.stages, range(0, 10000, "Layers of each stage; null: balanced by cost")});
    f.push_back({"layout.schedule", &l.schedule,
                 oneOf({"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}, "Pipeline schedule")});
    f.push_back({"layout.sequence_parallel", &l.sequenceParallel,
                 any("Split the residual stream over the tensor group")});
    f.push_back({"layout.order", &l.order, text("Axes of the rank grid, fastest first")});
}

void addZero(Fields &f, Zero &z)
{
    f.push_back(
        {"zero.stage", &z.stage,
         range(0, 3, "1: optimizer states, 2: gradients too, 3: parameters too are sharded over dp")});
    f.push_back({"zero.shard", &z.shard, range(0, 65536, "Ranks that share one copy; 0: all of dp")});
    f.push_back(
        {"zero.bucket_bytes", &z.bucketBytes, range(1, maxBytes, "Size of a gradient bucket in bytes")});
    f.push_back(
        {"zero.prefetch_bytes", &z.prefetchBytes,
         range(0, maxBytes, "Stage 3: bytes gathered ahead of use, the next unit in any case; 0: none")});
    f.push_back({"zero.persistence_threshold", &z.persistenceThreshold,
                 range(0, maxBytes, "Stage 3: parameters of fewer elements stay whole")});
    f.push_back({"zero.max_live", &z.maxLive,
                 range(1, maxBytes, "Stage 3: gathered parameters at once, in elements")});
    f.push_back({"zero.max_reuse_distance", &z.maxReuseDistance,
                 range(0, maxBytes, "Stage 3: kept when used again within so many elements")});
    f.push_back(
        {"zero.sub_group", &z.subGroup, range(1, maxBytes, "Elements of one offloaded optimizer step")});
}

void addComm(Fields &f, Comm &c)
{
    f.push_back({"comm.algorithm", &c.algorithm,
                 oneOf({"ring", "direct", "library"}, "How a reduction is carried out")});
    f.push_back({"comm.overlap_grads", &c.overlapGrads, any("Reduce gradient buckets during backward")});
    f.push_back({"comm.overlap_params", &c.overlapParams, any("Gather parameters during forward")});
    f.push_back({"comm.env", &c.env, any("Variables of the workers: OMP_*, MKL_*, LC_ALL, CUDA_*, NCCL_*")});
}

void addPrecision(Fields &f, Precision &p)
{
    const std::vector<std::string> all = {"fp32", "bf16", "fp16", "fp64"};
    f.push_back(
        {"precision.compute", &p.compute,
         oneOf(all,
               "Type of activations and of the parameters that kernels read; fp64 forces the three below")});
    f.push_back(
        {"precision.grad", &p.grad, oneOf(all, "Type that gradients accumulate in").only({"fp32", "fp64"})});
    f.push_back({"precision.master", &p.master,
                 oneOf(all, "Type of the optimizer's weights").only({"fp32", "fp64"})});
    f.push_back(
        {"precision.reduce", &p.reduce, oneOf(all, "Type in which gradients are summed over the replicas")});
    f.push_back(
        {"precision.loss_in_16bit", &p.lossIn16bit, any("Cross-entropy in the compute type").onlyDefault()});

    LossScale &s = p.lossScale;
    f.push_back(
        {"precision.loss_scale.mode", &s.mode, oneOf({"dynamic", "static"}, "In force for fp16 only")});
    f.push_back(
        {"precision.loss_scale.value", &s.value, above(0, 1e30, "The scale of mode static, else null")});
    f.push_back({"precision.loss_scale.rule", &s.rule,
                 oneOf({"deepspeed", "megatron", "simple"}, "How a dynamic scale moves")});
    f.push_back({"precision.loss_scale.init_power", &s.initPower,
                 range(0, 100, "The first scale is 2 to this power")});
    f.push_back({"precision.loss_scale.min", &s.min, above(0, 1e30, "Smallest scale")});
    f.push_back({"precision.loss_scale.max_power", &s.maxPower,
                 range(0, 100, "The largest scale is 2 to this power; null: no limit")});
    f.push_back({"precision.loss_scale.window", &s.window,
                 range(1, 1e9, "Steps without overflow before the scale doubles")});
    f.push_back({"precision.loss_scale.hysteresis", &s.hysteresis,
                 range(1, 1e9, "Overflows before the scale halves")});
}

void addMemory(Fields &f, JobSpec &j)
{
    Recompute &r = j.recompute;
    f.push_back({"recompute.mode", &r.mode,
                 oneOf({"none", "selective", "attention", "full"}, "What backward computes again")});
    f.push_back({"recompute.every", &r.every, range(1, 10000, "Every so many layers")});
    f.push_back({"recompute.ratio", &r.ratio, range(0, 1, "Part of the layers; null: by every")});
    f.push_back({"recompute.partition", &r.partition, any("Keep a tensor-parallel slice of what is saved")});
    f.push_back({"recompute.to_host", &r.toHost, any("Keep what is saved in host memory")});

    Offload &o = j.offload;
    f.push_back(
        {"offload.optimizer", &o.optimizer, oneOf({"none", "cpu", "nvme"}, "Where optimizer states live")});
    f.push_back({"offload.params", &o.params,
                 oneOf({"none", "cpu", "nvme"}, "Where parameters live").only({"none", "cpu"})});
    f.push_back(
        {"offload.pin", &o.pin, any("Page-locked host buffers, where a GPU copies from and to them")});
    f.push_back({"offload.nvme_path", &o.nvmePath, text("Folder of the NVMe tier")});
    f.push_back({"offload.buffers", &o.buffers,
                 range(1, 1024, "Staging buffers, and units whose parameters are fetched ahead")});

    Compression &c = j.compression;
    f.push_back({"compression.mode", &c.mode,
                 oneOf({"none", "fp16", "int8", "adaptive", "topk"}, "Codec of data-parallel reductions")});
    f.push_back({"compression.density", &c.density, above(0, 1, "topk: part of the elements that is sent")});
    f.push_back({"compression.threshold", &c.threshold,
                 range(0, 1e30, "adaptive: gradient norm above which fp16 is used")});
    f.push_back({"compression.block", &c.block, range(1, 1 << 24, "int8: elements that share a scale")});
    f.push_back({"compression.error_feedback", &c.errorFeedback, any("Add what was lost to the next step")});
}

void addOptimizer(Fields &f, JobSpec &j)
{
    Optimizer &o = j.optimizer;
    f.push_back({"optimizer.kind", &o.kind, oneOf({"adamw"}, "Update rule")});
    f.push_back({"optimizer.lr", &o.lr, range(0, million, "Peak learning rate")});
    f.push_back({"optimizer.betas", PairSlot{&o.beta1, &o.beta2}, below(0, 1, "Decay of the two moments")});
    f.push_back({"optimizer.eps", &o.eps, above(0, 1, "Added to the root of the second moment")});
    f.push_back({"optimizer.weight_decay", &o.weightDecay, range(0, million, "Decoupled weight decay")});
    f.push_back({"optimizer.no_decay", &o.noDecay,
                 text("Patterns (* and ?) of parameter names without weight decay")});
    f.push_back({"optimizer.clip", &o.clip, range(0, 1e30, "Largest gradient norm; 0: no clipping")});

    LrSchedule &s = j.lrSchedule;
    f.push_back(
        {"lr_schedule.kind", &s.kind, oneOf({"constant", "linear", "cosine"}, "Shape after the warm-up")});
    f.push_back({"lr_schedule.warmup", &s.warmup, range(0, 1e9, "Steps of linear warm-up from 0")});
    f.push_back({"lr_schedule.total", &s.total, range(1, 1e9, "Step at which min_lr is reached")});
    f.push_back({"lr_schedule.min_lr", &s.minLr, range(0, million, "Learning rate from step total on")});
}

void addRun(Fields &f, JobSpec &j)
{
    Run &r = j.run;
    f.push_back({"run.steps", &r.steps, range(0, 1e9, "Optimizer steps; 0 ends at once")});
    f.push_back({"run.epochs", &r.epochs,
                 above(0, million, "Passes over the corpus instead of steps").onlyDefault()});
    f.push_back({"run.eval_every", &r.evalEvery, range(0, 1e9, "Steps between validations; 0: never")});
    f.push_back({"run.eval_batches", &r.evalBatches,
                 range(1, million, "Global batches of the fixed validation set")});
    f.push_back({"run.checkpoint_every", &r.checkpointEvery,
                 range(0, 1e9, "Steps between checkpoints; 0: only at stop and end")});
    f.push_back(
        {"run.checkpoint_dir", &r.checkpointDir, text("Folder of checkpoints; null: ckpt/ of the run")});
    f.push_back({"run.keep", &r.keep, range(1, million, "Checkpoints that are kept")});
    f.push_back({"run.log_every", &r.logEvery, range(1, 1e9, "Steps between progress lines")});
    f.push_back(
        {"run.threads", &r.threads, range(1, 4096, "Threads a rank; null: cores / ranks of the node")});
    f.push_back({"run.compact_every", &r.compactEvery,
                 range(0, 1e9, "Steps between compactions of allocator caches; 0: never").only({100, 0})});
    f.push_back(
        {"cluster", &j.cluster,
         text(
             "Cluster that the job is planned for and runs on: local (this machine), a preset, a cluster file")});
}

Fields bind(JobSpec &job)
{
    Fields fields;
    fields.reserve(110);
    fields.push_back({"name", &job.name, text("Name of the run, for people")});
    addModel(fields, job.model);
    addInputs(fields, job);
    addLayout(fields, job.layout);
    addZero(fields, job.zero);
    addComm(fields, job.comm);
    addPrecision(fields, job.precision);
    addMemory(fields, job);
    addOptimizer(fields, job);
    addRun(fields, job);
    return fields;
}

} // namespace

std::vector<Field> jobFields(JobSpec &job)
{
    JobSpec defaults;
    const Fields standard = bind(defaults);
    Fields fields = bind(job);
    for (std::size_t i = 0; i < fields.size(); ++i) {
        if (fields[i].rule.fixed)
            fields[i].rule.supported = {slotValue(standard[i].slot)};
    }
    return fields;
}

std::string_view sectionDoc(std::string_view path)
{
    static constexpr std::pair<std::string_view, std::string_view> docs[] = {
        {"model", "The transformer"},
        {"init", "Starting weights"},
        {"data", "The corpus and the order of its samples"},
        {"batch", "Samples of a step"},
        {"layout", "How ranks share the work"},
        {"zero", "Sharding of states over the data-parallel ranks"},
        {"comm", "Communication between ranks"},
        {"precision", "Number types"},
        {"precision.loss_scale", "Loss scaling, in force for fp16 only"},
        {"recompute", "Activation checkpointing"},
        {"offload", "States kept outside device memory"},
        {"compression", "Compressed gradient reductions"},
        {"optimizer", "Parameter update"},
        {"lr_schedule", "Learning rate over the steps"},
        {"run", "Length, validation, checkpoints, logging"},
    };
    for (const auto &[name, doc] : docs) {
        if (name == path)
            return doc;
    }
    return {};
}

} // namespace rankyard::spec
