// SPDX-License-Identifier: GPL-3.0-or-later
// torchtitan's TOML, as pytorch/torchtitan read it until February 2026 (its pull request 2386 made configurations Python code), with
// the older names that files still have. Keys that are missing have that version's defaults.
#include "engine/interop/reading.h"
#include "engine/spec/model_presets.h"

#include <algorithm>

namespace rankyard::interop {

namespace {

constexpr Same rows[] = {
    {"training.seq_len", "model.seq", Type::Whole},
    {"training.steps", "run.steps", Type::Whole},
    {"training.max_norm", "optimizer.clip", Type::Number},
    {"parallelism.tensor_parallel_degree", "layout.tp", Type::Whole},
    {"parallelism.pipeline_parallel_degree", "layout.pp", Type::Whole},
    {"parallelism.context_parallel_degree", "layout.cp", Type::Whole},
    {"optimizer.lr", "optimizer.lr", Type::Number},
    {"optimizer.eps", "optimizer.eps", Type::Number},
    {"optimizer.weight_decay", "optimizer.weight_decay", Type::Number},
    {"lr_scheduler.warmup_steps", "lr_schedule.warmup", Type::Whole},
    {"metrics.log_freq", "run.log_every", Type::Whole},
};

constexpr Known known[] = {
    {"job.", "the run's folder and name are its own"},
    {"profiling.", "every step has its spans"},
    {"metrics.", "metrics are in the run store"},
    {"model.tokenizer_path", "the corpus is prepared with its tokenizer: data prepare"},
    {"model.hf_assets_path", "the corpus is prepared with its tokenizer: data prepare"},
    {"model.converters", "kernels are our own"},
    {"model.norm_type", "norms are the family's"},
    {"model.print_after_conversion", "kernels are our own"},
    {"optimizer.implementation", "the optimizer is one fused pass"},
    {"optimizer.fused", "the optimizer is one fused pass"},
    {"optimizer.early_step_in_backward", "no update before every norm is known"},
    {"training.dataset_path", "near: data.train, a prepared corpus"},
    {"training.gc_freq", "there is nothing to collect"},
    {"training.gc_debug", "there is nothing to collect"},
    {"training.compile", "kernels are our own"},
    {"parallelism.disable_loss_parallel", "the head is always cut over the tensor group"},
    {"parallelism.enable_async_tensor_parallel", "overlap inside a kernel is not planned"},
    {"parallelism.enable_compiled_autograd", "backward is explicit"},
    {"parallelism.context_parallel_rotate_method", "keys and values go round in a ring"},
    {"parallelism.pipeline_parallel_schedule_csv", "schedules are passes; near: layout.schedule"},
    {"parallelism.pipeline_parallel_split_points", "near: layout.stages, the layers of each stage"},
    {"parallelism.module_fqns_per_model_part", "near: layout.stages, the layers of each stage"},
    {"parallelism.expert_parallel_degree", "no mixture of experts"},
    {"parallelism.expert_tensor_parallel_degree", "no mixture of experts"},
    {"parallelism.fsdp_disable_prefetch", "near: zero.prefetch_bytes 0"},
    {"checkpoint.", "checkpoints have one format, and load in any layout"},
    {"activation_checkpoint.", "what is kept is the table of saved tensors"},
    {"compile.", "kernels are our own"},
    {"quantize.", "no fp8"},
    {"float8.", "no fp8"},
    {"mx.", "no fp8"},
    {"comm.", "time limits are the agent's"},
    {"memory_estimation.", "memory is known from the plan"},
    {"fault_tolerance.", "a run that has failed is resumed from its checkpoint"},
    {"validation.", "near: run.eval_every and run.eval_batches"},
    {"experimental.", "not part of the engine's own settings"},
    {"debug.", "runs are the same to the bit in any case"},
};

constexpr std::pair<const char *, const char *> schedules[] = {
    {"1F1B", "1f1b"}, {"GPipe", "gpipe"}, {"Interleaved1F1B", "interleaved"}, {"ZBVZeroBubble", "zbv"}};

struct Flavor {
    const char *name;
    const char *flavor;
    const char *preset;
};
/// Of torchtitan's model registry, those that are presets here.
constexpr Flavor flavors[] = {
    {"llama3", "8B", "llama-3-8b"}, {"llama3", "70B", "llama-3-70b"}, {"llama3", "405B", "llama-3.1-405b"}};

void aliases(Reading &in)
{
    in.rename("training.batch_size", "training.local_batch_size");
    in.rename("training.warmup_steps", "lr_scheduler.warmup_steps");
    in.rename("training.tensor_parallel_degree", "parallelism.tensor_parallel_degree");
    in.rename("training.data_parallel_degree", "parallelism.data_parallel_shard_degree");
    in.rename("training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree");
    in.rename("training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree");
    in.rename("experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree");
    in.rename("experimental.pipeline_parallel_schedule", "parallelism.pipeline_parallel_schedule");
    in.rename("experimental.context_parallel_degree", "parallelism.context_parallel_degree");
    in.rename("checkpoint.enable_checkpoint", "checkpoint.enable");
    in.rename("checkpoint.interval_steps", "checkpoint.interval");
    in.rename("lr_scheduler.lr_min", "lr_scheduler.min_lr_factor");
}

/// Of what the file does not say: first where they are ours, then where they differ.
void defaults(Reading &in)
{
    for (const char *key :
         {"layout.tp", "layout.pp", "layout.cp", "layout.virtual", "layout.stages", "layout.schedule",
          "layout.order", "optimizer.clip", "optimizer.betas", "optimizer.eps", "optimizer.weight_decay",
          "recompute.every", "recompute.ratio", "zero.shard", "comm.overlap_grads", "comm.overlap_params"})
        in.setDefault(key);
    const std::pair<const char *, Json> others[] = {
        {"model.seq", 2048},         {"run.steps", 10000},   {"run.log_every", 10},
        {"run.checkpoint_every", 0}, {"optimizer.lr", 8e-4}, {"lr_schedule.warmup", 200},
    };
    for (const auto &[key, value] : others)
        in.set(key, value);
}

void readModel(Reading &in)
{
    const std::string name = in.word("model.name").value_or("llama3");
    const std::string flavor = in.word("model.flavor").value_or("debugmodel");
    const Json seq = in.get("model.seq");
    const auto row = std::find_if(std::begin(flavors), std::end(flavors), [&](const Flavor &one) {
        return name == one.name && flavor == one.flavor;
    });
    if (row == std::end(flavors))
        return in.guessed("model.flavor", name + " " + flavor,
                          "a name for code; no preset here has it: the base job's model is taken");
    spec::JobSpec job;
    job.model = spec::findModelPreset(row->preset)->model;
    in.set("model", Json(spec::writeJob(job))["model"]);
    in.set("model.seq", seq);
}

/// Replicas, and over how many of them parameters are sharded.
void readShards(Reading &in)
{
    const std::int64_t replicas = in.whole("parallelism.data_parallel_replicate_degree").value_or(1);
    std::int64_t shards = in.whole("parallelism.data_parallel_shard_degree").value_or(-1);
    const std::int64_t others = std::max<std::int64_t>(
        1, in.getWhole("layout.tp") * in.getWhole("layout.pp") * in.getWhole("layout.cp"));
    if (replicas < 1 || (shards < 1 && shards != -1))
        return in.fail(Error::make(Code::BadData, "out of range", "parallelism.data_parallel_shard_degree")
                           .withFound(std::to_string(shards))
                           .withExpected("at least 1, or -1 for the rest"));
    if (shards == -1) {
        const std::int64_t world = in.options().world.value_or(0);
        shards = world > 0 ? std::max<std::int64_t>(1, world / (others * replicas))
                           : std::max<std::int64_t>(1, in.getWhole("layout.dp") / replicas);
        in.guessed("parallelism.data_parallel_shard_degree", shards,
                   world > 0 ? "-1: what is left of the ranks"
                             : "-1: what is left of the ranks, and nobody says how many: the base job's");
    }
    in.set("layout.dp", replicas * shards);
    const std::string again = in.word("parallelism.fsdp_reshard_after_forward").value_or("default");
    const bool stays = again == "never" || (again == "default" && in.getWhole("layout.pp") > 1);
    const bool sharded = shards * in.getWhole("layout.cp") > 1;
    std::int64_t stage = !sharded ? 0 : stays ? 2 : 3;
    if (stage >= 2 && in.getWhole("layout.pp") > 1) {
        in.guessed("parallelism.fsdp_reshard_after_forward", again,
                   "with pipeline stages ZeRO 1 is the nearest that runs here");
        stage = 1;
    } else if (stage == 2) {
        in.guessed("parallelism.fsdp_reshard_after_forward", again,
                   "gathered parameters stay until the backward: ZeRO 2 is the nearest");
    }
    in.set("zero.stage", stage);
    if (replicas > 1 && stage > 0)
        in.set("zero.shard", shards * in.getWhole("layout.cp"));
    if (in.flag("training.enable_cpu_offload").value_or(false)) {
        in.set("offload.optimizer", "cpu");
        in.set("offload.params", "cpu");
    }
}

void readBatch(Reading &in)
{
    const std::int64_t local = in.atLeast("training.local_batch_size", 1).value_or(8);
    const std::int64_t part = in.atLeast("parallelism.pipeline_parallel_microbatch_size", 1).value_or(1);
    const std::int64_t global = in.whole("training.global_batch_size").value_or(-1);
    const std::int64_t replicas = std::max<std::int64_t>(1, in.getWhole("layout.dp"));
    in.set("batch.micro", in.getWhole("layout.pp") > 1 ? part : local);
    in.set("batch.global", global > 0 ? global : local * replicas);
    if (global > 0 && global % (local * replicas) != 0)
        in.fail(Error::make(Code::BadData, "is no multiple of local batch · replicas",
                            "training.global_batch_size")
                    .withFound(std::to_string(global))
                    .withExpected("a multiple of " + std::to_string(local * replicas)));
}

void readPipeline(Reading &in)
{
    const std::string schedule = in.word("parallelism.pipeline_parallel_schedule").value_or("1F1B");
    const std::int64_t pp = in.getWhole("layout.pp");
    const auto row = std::find_if(std::begin(schedules), std::end(schedules),
                                  [&](const auto &one) { return schedule == one.first; });
    if (pp < 2)
        return;
    const std::string ours = row != std::end(schedules) ? row->second : "zb-h1";
    if (row == std::end(schedules))
        in.guessed("parallelism.pipeline_parallel_schedule", schedule, "zb-h1 is the nearest here");
    in.set("layout.schedule", ours);
    std::int64_t chunks = ours == "interleaved" || ours == "zbv" ? 2 : 1;
    if (const auto layers = in.atLeast("parallelism.pipeline_parallel_layers_per_stage", 1);
        layers && ours == "interleaved")
        chunks = std::max<std::int64_t>(2, in.getWhole("model.layers") / (pp * *layers));
    in.set("layout.virtual", chunks);
    for (const char *end : {"parallelism.pipeline_parallel_first_stage_less_layers",
                            "parallelism.pipeline_parallel_last_stage_less_layers"})
        in.lost(end, "stages are balanced by operations; near: layout.stages");
}

void readPrecision(Reading &in)
{
    const std::pair<const char *, const char *> types[] = {
        {"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}, {"float64", "fp64"}};
    const auto named = [&](const std::string &path, const char *standard) -> std::string {
        const std::string word = in.word(path).value_or(standard);
        for (const auto &[theirs, ours] : types) {
            if (word == theirs)
                return ours;
        }
        in.guessed(path, word, "no such type here: fp32 is taken");
        return "fp32";
    };
    const std::string stored = named("training.dtype", "float32");
    const std::string mixed = named("training.mixed_precision_param", "bfloat16");
    if (stored != "fp32")
        in.guessed("training.dtype", stored, "the optimizer's weights are fp32 here");
    // Without shards nothing casts: parameters are computed with as they are stored.
    const bool casts =
        in.getWhole("zero.stage") > 0 || in.getWhole("layout.dp") * in.getWhole("layout.cp") > 1;
    in.set("precision.compute", casts ? mixed : stored == "fp32" ? mixed : stored);
    DType reduce = DType::F32;
    dtypeFromName(named("training.mixed_precision_reduce", "float32"), reduce);
    in.setReduce("training.mixed_precision_reduce", reduce);
}

void readCheckpointing(Reading &in)
{
    const std::string mode = in.word("activation_checkpoint.mode").value_or("selective");
    const Json *option = in.take("activation_checkpoint.selective_ac_option");
    const std::string which = !option ? "2"
        : option->is_string()         ? option->get<std::string>()
                                      : dumpJson(*option);
    if (mode == "none" || mode == "full")
        return in.set("recompute.mode", mode);
    const Json every = Json::parse(which, nullptr, false);
    if (mode == "selective" && every.is_number_integer() && every.get<std::int64_t>() > 0) {
        in.set("recompute.mode", "full");
        in.set("recompute.every", every);
        return;
    }
    in.set("recompute.mode", "selective");
    in.guessed(
        "activation_checkpoint.mode", mode + " " + which,
        "which operations are kept is another list here: norm and activation outputs are computed again");
}

void readSchedule(Reading &in)
{
    const auto beta1 = in.number("optimizer.beta1").value_or(0.9);
    const auto beta2 = in.number("optimizer.beta2").value_or(0.95);
    in.set("optimizer.betas", {beta1, beta2});
    if (const auto kind = in.word("optimizer.name"); kind && *kind != "AdamW")
        in.guessed("optimizer.name", *kind, "AdamW takes its place: there is no other update rule here");
    const std::string shape = in.word("lr_scheduler.decay_type").value_or("linear");
    const double least = in.number("lr_scheduler.min_lr_factor").value_or(0);
    const auto share = in.number("lr_scheduler.decay_ratio");
    in.set("lr_schedule.kind", shape == "cosine" ? "cosine" : "linear");
    in.set("lr_schedule.total", std::max<std::int64_t>(1, in.getWhole("run.steps")));
    in.set("lr_schedule.min_lr", least * in.get("optimizer.lr").get<double>());
    if (const std::int64_t most = in.getWhole("lr_schedule.total");
        in.getWhole("lr_schedule.warmup") > most) {
        in.guessed("lr_scheduler.warmup_steps", in.get("lr_schedule.warmup"),
                   "longer than the training: cut there, as torchtitan does");
        in.set("lr_schedule.warmup", most);
    }
    if (shape != "cosine" && shape != "linear")
        in.guessed("lr_scheduler.decay_type", shape, "no such shape here: linear is taken");
    if (share && *share < 1)
        in.guessed("lr_scheduler.decay_ratio", *share,
                   "the rate falls from the end of the warm-up, without a plateau");
    if (in.flag("checkpoint.enable").value_or(false))
        in.set("run.checkpoint_every", in.atLeast("checkpoint.interval", 1).value_or(500));
    else
        in.whole("checkpoint.interval");
    if (const auto keep = in.atLeast("checkpoint.keep_latest_k", 0); keep.value_or(0) > 0)
        in.set("run.keep", *keep);
    if (const auto seed = in.atLeast(in.has("debug.seed") ? "debug.seed" : "training.seed", 0)) {
        in.set("init.seed", *seed);
        in.set("data.seed", *seed);
    }
    if (const auto corpus = in.word("training.dataset"))
        in.guessed("training.dataset", *corpus, "a name of torchtitan's: the base job's data.train is taken");
}

} // namespace

Result<Imported> importTorchtitan(const Json &document, const ImportOptions &options)
{
    if (!document.is_object())
        return Error::make(Code::BadData, "not a table", "configuration").withFound(shown(document));
    Reading in(flattened(document), options);
    aliases(in);
    defaults(in);
    in.same(rows);
    readModel(in);
    readShards(in);
    readBatch(in);
    readPipeline(in);
    readPrecision(in);
    readCheckpointing(in);
    in.set("layout.sequence_parallel", in.getWhole("layout.tp") > 1); // always with tensor groups
    readSchedule(in);
    return in.finish(Engine::Torchtitan, known, "not a key of torchtitan's that is known here");
}

namespace {

void writeParallelism(Writing &out, const spec::JobSpec &job)
{
    const std::string section = "parallelism.";
    const std::int64_t shards = job.zero.stage == 0 ? 1
        : job.zero.shard > 0 ? std::max<std::int64_t>(1, job.zero.shard / job.layout.cp)
                             : job.layout.dp;
    for (const char *key : {"layout.dp", "layout.schedule", "layout.virtual", "layout.sequence_parallel",
                            "zero.stage", "zero.shard", "layout.order"})
        out.use(key);
    out.put(section + "data_parallel_replicate_degree", std::max<std::int64_t>(1, job.layout.dp / shards));
    out.put(section + "data_parallel_shard_degree", shards);
    if (job.zero.stage > 0)
        out.put(section + "fsdp_reshard_after_forward", job.zero.stage == 3 ? "always" : "never");
    const char *sharded = "parameters are sharded there with the optimizer: never resharded is the nearest";
    if (job.zero.stage == 1 && job.layout.pp < 2)
        out.lost("zero.stage", sharded);
    else if (job.zero.stage == 1) // read again it is ZeRO 1, the nearest that runs here with stages
        out.guessed(section + "fsdp_reshard_after_forward", "never", sharded);
    if (job.zero.stage == 0 && job.layout.cp > 1)
        out.lost("zero.stage", "the ranks of a context group always share parameters there");
    if (job.zero.stage > 0 && job.zero.shard % job.layout.cp != 0)
        out.lost("zero.shard", "the ranks of a context group always share parameters there");
    if (job.layout.sequenceParallel != (job.layout.tp > 1))
        out.lost("layout.sequence_parallel", "tensor groups always run with sequence parallelism there");
    if (job.layout.order != "tp-cp-dp-pp")
        out.lost("layout.order", "ranks are ordered tp, cp, dp, pp");
    if (job.layout.pp < 2)
        return;
    const bool plain = job.layout.schedule == "interleaved" && job.layout.virtualStages == 1;
    const auto row = std::find_if(std::begin(schedules), std::end(schedules), [&](const auto &one) {
        return !plain && job.layout.schedule == one.second;
    });
    if (plain)
        out.lost("layout.schedule", "with one stage a rank it is 1F1B");
    else if (row == std::end(schedules))
        out.lost("layout.schedule",
                 "InterleavedZeroBubble and ZBVZeroBubble take two stages a rank: 1F1B is written");
    out.put(section + "pipeline_parallel_schedule", row == std::end(schedules) ? "1F1B" : row->first);
    out.put(section + "pipeline_parallel_microbatch_size", job.batch.micro);
    if (job.layout.schedule != "interleaved" || plain)
        return;
    const std::int64_t each =
        std::max<std::int64_t>(1, job.model.layers / (job.layout.pp * job.layout.virtualStages));
    out.put(section + "pipeline_parallel_layers_per_stage", each);
    if (std::max<std::int64_t>(2, job.model.layers / (job.layout.pp * each)) != job.layout.virtualStages)
        out.lost("layout.virtual", "stages have equally many layers there: " + std::to_string(each));
}

void writeTraining(Writing &out, const spec::JobSpec &job)
{
    out.use("batch.micro");
    // With stages a rank's batch is cut into micro-batches; without, they follow each other.
    const std::int64_t local = job.layout.pp > 1 ? job.batch.global / job.layout.dp : job.batch.micro;
    out.put("training.local_batch_size", local);
    out.put("training.global_batch_size", out.use("batch.global"));
    const std::pair<DType, const char *> types[] = {
        {DType::BF16, "bfloat16"}, {DType::F16, "float16"}, {DType::F32, "float32"}, {DType::F64, "float32"}};
    out.use("precision.compute");
    for (const auto &[ours, theirs] : types) {
        if (job.precision.compute == ours)
            out.put("training.mixed_precision_param", theirs);
    }
    out.put("training.mixed_precision_reduce", "float32");
    if (job.precision.reduce != DType::F32 && job.precision.compute != DType::F64)
        out.lost("precision.reduce", "gradients are summed in float32 there");
    for (const char *fixed : {"precision.grad", "precision.reduce", "precision.master"})
        out.use(fixed);
    if (job.precision.compute == DType::F16)
        out.lost("precision.loss_scale", "there is no loss scaling");
    else
        out.use("precision.loss_scale");
    if (job.precision.compute == DType::F64)
        out.lost("precision.compute", "there is no fp64: fp32 is written");
    out.put("activation_checkpoint.mode",
            job.recompute.mode == "none" ? "none"
                : job.recompute.mode == "full" && job.recompute.every == 1 && !job.recompute.ratio
                ? "full"
                : "selective");
    if (job.recompute.mode == "full" && job.recompute.every > 1)
        out.put("activation_checkpoint.selective_ac_option", std::to_string(job.recompute.every));
    else if (job.recompute.mode == "selective" || job.recompute.mode == "attention")
        out.put("activation_checkpoint.selective_ac_option", "op");
    out.use("recompute.mode");
    out.use("recompute.every");
    if (job.recompute.mode == "attention")
        out.lost("recompute.mode", "which operations are kept is another list there: op is written");
    if (job.offload.optimizer == "cpu" && job.offload.params == "cpu") {
        out.put("training.enable_cpu_offload", true);
        out.use("offload.optimizer");
        out.use("offload.params");
    }
}

void writeModel(Writing &out, const spec::JobSpec &job)
{
    out.use("model");
    const auto row = std::find_if(std::begin(flavors), std::end(flavors), [&](const Flavor &one) {
        spec::JobSpec preset;
        preset.model = spec::findModelPreset(one.preset)->model;
        preset.model.seq = job.model.seq;
        spec::JobSpec other;
        other.model = job.model;
        return spec::writeJob(preset) == spec::writeJob(other);
    });
    if (row != std::end(flavors)) {
        out.put("model.name", row->name);
        out.put("model.flavor", row->flavor);
        return;
    }
    out.lost("model", "a model is a name for code there, and none of its names is this one");
}

std::string toml(const Writing &out)
{
    std::string text;
    std::string section;
    // A table must not be opened twice.
    auto values = out.values();
    std::stable_sort(values.begin(), values.end(), [](const auto &a, const auto &b) {
        return a.first.substr(0, a.first.find('.')) < b.first.substr(0, b.first.find('.'));
    });
    for (const auto &[path, value] : values) {
        const std::size_t dot = path.rfind('.');
        if (path.substr(0, dot) != section) {
            section = path.substr(0, dot);
            text += (text.empty() ? "[" : "\n[") + section + "]\n";
        }
        text += path.substr(dot + 1) + " = " + dumpJson(value) + "\n";
    }
    return text;
}

} // namespace

Exported exportTorchtitan(const spec::JobSpec &job)
{
    Writing out(job);
    writeModel(out, job);
    out.same(rows);
    writeTraining(out, job);
    writeParallelism(out, job);
    out.put("optimizer.name", "AdamW");
    out.put("optimizer.beta1", job.optimizer.beta1);
    out.put("optimizer.beta2", job.optimizer.beta2);
    for (const char *key : {"optimizer.betas", "optimizer.kind", "lr_schedule.kind", "lr_schedule.min_lr",
                            "lr_schedule.total", "run.checkpoint_every", "run.keep", "init.seed"})
        out.use(key);
    out.put("lr_scheduler.decay_type", job.lrSchedule.kind == "cosine" ? "cosine" : "linear");
    if (job.lrSchedule.kind == "constant")
        out.lost("lr_schedule.kind", "rates fall: linear is written");
    if (job.lrSchedule.total != job.run.steps)
        out.lost("lr_schedule.total", "the rate falls to the end of training");
    if (job.optimizer.lr > 0)
        out.put("lr_scheduler.min_lr_factor", job.lrSchedule.minLr / job.optimizer.lr);
    out.put("checkpoint.enable", job.run.checkpointEvery > 0);
    if (job.run.checkpointEvery > 0)
        out.put("checkpoint.interval", job.run.checkpointEvery);
    out.put("checkpoint.keep_latest_k", job.run.keep);
    out.put("debug.seed", static_cast<std::int64_t>(job.init.seed));
    if (!job.data.train.empty())
        out.lost("data.train", "corpora are names for code there");
    if (job.data.seed != job.init.seed)
        out.lost("data.seed", "one seed for weights and data");
    else
        out.use("data.seed");
    out.lostRest("data.", "corpora are names for code there");
    if (job.lrSchedule.warmup > std::max<std::int64_t>(1, job.run.steps))
        out.lost("lr_schedule.warmup", "longer than the training: torchtitan cuts it there");
    const std::string text = toml(out);
    return {text, out.finish()};
}

} // namespace rankyard::interop
