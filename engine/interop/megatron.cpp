// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of Megatron-LM, as NVIDIA/Megatron-LM has them in August 2026 (megatron/training/arguments.py,
// megatron/core/optimizer/grad_scaler.py). Arguments that are missing have that version's defaults.
#include "engine/interop/reading.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace rankyard::interop {

namespace {

constexpr Known known[] = {
    {"attention-softmax-in-fp32", "softmax is always in fp32 or wider", "true"},
    {"max-position-embeddings", "positions are as many as model.seq"},
    {"init-method-std", "initial weights have the family's spread"},
    {"initial-loss-scale", "scales are powers of two"},
    {"tokenizer-type", "the corpus is prepared with its tokenizer: data prepare"},
    {"tokenizer-model", "the corpus is prepared with its tokenizer: data prepare"},
    {"vocab-file", "the corpus is prepared with its tokenizer: data prepare"},
    {"merge-file", "the corpus is prepared with its tokenizer: data prepare"},
    {"num-workers", "micro-batches are read by the rank itself"},
    {"load", "resume a run instead: train --resume"},
    {"distributed-backend", "the backend follows from the devices"},
    {"use-flash-attn", "attention never keeps its scores", "true"},
    {"attention-backend", "attention never keeps its scores"},
    {"transformer-impl", "kernels are our own"},
    {"use-mcore-models", "kernels are our own"},
    {"no-masked-softmax-fusion", "kernels are our own"},
    {"no-bias-gelu-fusion", "kernels are our own"},
    {"no-bias-swiglu-fusion", "kernels are our own"},
    {"no-bias-dropout-fusion", "kernels are our own"},
    {"no-gradient-accumulation-fusion", "weight gradients accumulate in place"},
    {"no-rope-fusion", "kernels are our own"},
    {"no-async-tensor-model-parallel-allreduce", "overlap follows from the program's streams"},
    {"tp-comm-overlap", "overlap inside a kernel is not planned"},
    {"no-overlap-p2p-communication", "overlap follows from the program's streams"},
    {"overlap-p2p-communication", "overlap follows from the program's streams"},
    {"defer-embedding-wgrad-compute", "near: layout.schedule zb-h1"},
    {"delay-wgrad-compute", "near: layout.schedule zb-h1"},
    {"num-experts", "no mixture of experts: the dense model of the same width is read"},
    {"moe-router-topk", "no mixture of experts"},
    {"expert-model-parallel-size", "no mixture of experts"},
    {"expert-tensor-parallel-size", "no mixture of experts"},
    {"multi-latent-attention", "attention has heads of keys and values; near: model.kv_heads"},
    {"fp8-format", "no fp8"},
    {"fp8-hybrid", "no fp8"},
    {"rampup-batch-size", "the batch is constant"},
    {"step-batch-size-schedule", "the batch is constant"},
    {"decrease-batch-size-if-needed", "the batch must be divided exactly"},
    {"lr-warmup-init", "the warm-up begins at 0"},
    {"start-weight-decay", "weight decay is constant"},
    {"end-weight-decay", "weight decay is constant"},
    {"weight-decay-incr-style", "weight decay is constant"},
    {"ckpt-format", "checkpoints have one format, and load in any layout"},
    {"async-save", "checkpoints are written between steps"},
    {"use-dist-ckpt", "checkpoints have one format, and load in any layout"},
    {"no-load-optim", "resume a run instead: train --resume"},
    {"no-load-rng", "random numbers are counted, not stored"},
    {"exit-interval", "run.steps ends a run"},
    {"exit-duration-in-mins", "run.steps ends a run"},
    {"timing-log-level", "step times are always split"},
    {"tensorboard-dir", "metrics are in the run store"},
    {"tensorboard-queue-size", "metrics are in the run store"},
    {"log-timers-to-tensorboard", "metrics are in the run store"},
    {"log-throughput", "throughput is always reported"},
    {"wandb-project", "metrics are in the run store"},
    {"wandb-exp-name", "metrics are in the run store"},
    {"wandb-save-dir", "metrics are in the run store"},
    {"cpu-offloading", "near: recompute.to_host"},
    {"pipeline-model-parallel-layout", "near: layout.stages, the layers of each stage"},
    {"account-for-embedding-in-pipeline-split", "stages are balanced by operations"},
    {"account-for-loss-in-pipeline-split", "stages are balanced by operations"},
    {"node-rank", "of the launcher"},
    {"master-addr", "of the launcher"},
    {"master-port", "of the launcher"},
    {"rdzv-backend", "of the launcher"},
    {"rdzv-endpoint", "of the launcher"},
    {"rdzv-id", "of the launcher"},
    {"rdzv-conf", "of the launcher"},
    {"standalone", "of the launcher"},
    {"max-restarts", "of the launcher"},
    {"monitor-interval", "of the launcher"},
    {"log-dir", "of the launcher"},
    {"redirects", "of the launcher"},
    {"tee", "of the launcher"},
    {"role", "of the launcher"},
    {"local-addr", "of the launcher"},
    {"start-method", "of the launcher"},
    {"data-cache-path", "samples are found by a permutation, without an index"},
    {"mock-data", "near: data.train with a prepared corpus"},
    {"no-create-attention-mask-in-dataloader", "attention is causal", "true"},
    {"add-qkv-bias", "biases are the family's"},
};

/// Of what the file does not say: first where they are ours, then where they differ.
void defaults(Reading &in)
{
    for (const char *key : {"layout.tp",
                            "layout.pp",
                            "layout.cp",
                            "layout.virtual",
                            "layout.stages",
                            "layout.schedule",
                            "layout.sequence_parallel",
                            "layout.order",
                            "recompute.mode",
                            "recompute.every",
                            "recompute.ratio",
                            "recompute.partition",
                            "zero.stage",
                            "zero.shard",
                            "precision.compute",
                            "precision.loss_scale.mode",
                            "precision.loss_scale.value",
                            "precision.loss_scale.min",
                            "precision.loss_scale.window",
                            "precision.loss_scale.hysteresis",
                            "optimizer.eps",
                            "optimizer.clip",
                            "model.norm_eps",
                            "offload.optimizer"})
        in.setDefault(key);
    const std::pair<const char *, Json> others[] = {
        {"comm.overlap_grads", false},
        {"comm.overlap_params", false},
        {"precision.loss_scale.rule", "megatron"},
        {"precision.loss_scale.init_power", 32},
        {"optimizer.betas", {0.9, 0.999}},
        {"optimizer.weight_decay", 0.01},
        {"lr_schedule.min_lr", 0.0},
        {"lr_schedule.kind", "linear"},
        {"lr_schedule.warmup", 0},
        {"run.eval_every", 1000},
        {"run.eval_batches", 100},
        {"run.log_every", 100},
        {"run.checkpoint_every", 0},
    };
    for (const auto &[key, value] : others)
        in.set(key, value);
}

void readVocabulary(Reading &in)
{
    const auto unit = in.atLeast("make-vocab-size-divisible-by", 1).value_or(128);
    const auto padded = in.atLeast("padded-vocab-size", 1);
    const auto given = in.atLeast("vocab-size", 1);
    const auto type = in.has("tokenizer-type") ? in.word("tokenizer-type") : std::nullopt;
    const bool gpt2 = type == "GPT2BPETokenizer";
    if (in.has("tokenizer-type"))
        in.lost("tokenizer-type", "the corpus is prepared with its tokenizer: data prepare");
    if (padded)
        return in.set("model.vocab", *padded);
    if (!given && !gpt2)
        return in.guessed("model.vocab", in.get("model.vocab"),
                          "the tokenizer decides there: the base job's is taken");
    const std::int64_t vocab = given.value_or(50257);
    const std::int64_t multiple = unit * std::max<std::int64_t>(1, in.getWhole("layout.tp"));
    const std::int64_t rounded = (vocab + multiple - 1) / multiple * multiple;
    in.set("model.vocab", rounded);
    if (rounded != vocab)
        in.guessed("vocab-size", rounded,
                   std::to_string(vocab) + " padded to a multiple of " + std::to_string(unit)
                       + " · tp, as Megatron-LM does: the padding is in its softmax");
}

void readModel(Reading &in)
{
    const bool gated = in.flag("swiglu").value_or(false);
    const bool rms = in.word("normalization").value_or("LayerNorm") == "RMSNorm";
    const bool rotary = in.word("position-embedding-type").value_or("learned_absolute") == "rope"
        || in.flag("use-rotary-position-embeddings").value_or(false);
    const int llama = (gated ? 1 : 0) + (rms ? 1 : 0) + (rotary ? 1 : 0);
    in.set("model.family", llama >= 2 ? "llama" : "gpt2");
    if (llama == 1 || llama == 2)
        in.guessed("model.family", in.get("model.family"),
                   "gated MLP, RMSNorm and rotary positions go together here: the nearer family is taken");
    // Llama's have no biases there or here.
    if (in.flag("disable-bias-linear").value_or(false) && llama < 2)
        in.lost("disable-bias-linear", "biases are the family's");
    const std::int64_t hidden = in.getWhole("model.hidden");
    if (const auto ffn = in.atLeast("ffn-hidden-size", 1))
        in.set("model.ffn", *ffn);
    else // without a size of its own a gated MLP has two thirds of four times the width
        in.set("model.ffn", gated ? Json(4 * hidden * 2 / 3 / 64 * 64) : Json());
    const auto groups = in.atLeast("num-query-groups", 1);
    const bool grouped = in.flag("group-query-attention").value_or(false);
    in.set("model.kv_heads", grouped && groups ? Json(*groups) : Json());
    if (groups && !grouped)
        in.guessed("num-query-groups", *groups, "without --group-query-attention it has no effect");
    const auto channels = in.atLeast("kv-channels", 1);
    in.set("model.head_dim", channels ? Json(*channels) : Json());
    in.set("model.tied", !in.flag("untie-embeddings-and-output-weights").value_or(false));
    const double attention = in.number("attention-dropout").value_or(0.1);
    const double hiddenDrop = in.number("hidden-dropout").value_or(0.1);
    in.set("model.dropout", hiddenDrop);
    if (attention != hiddenDrop)
        in.guessed("attention-dropout", attention, "one probability here: hidden-dropout's");
    in.set("model.rope", nullptr);
    if (const auto base = in.number("rotary-base"); base && llama >= 2)
        in.set("model.rope", {{"rope_theta", *base}});
    if (const auto most = in.whole("max-position-embeddings"); most && *most != in.getWhole("model.seq"))
        in.lost("max-position-embeddings", "positions are as many as model.seq");
    readVocabulary(in);
}

/// A count of torchrun's: a number, or "least:most" nodes; none where only the start knows it ("gpu", "auto").
std::optional<std::int64_t> launcherCount(Reading &in, const std::string &path)
{
    const Json *value = in.take(path);
    if (!value)
        return std::nullopt;
    const std::string text = value->is_string() ? value->get<std::string>() : dumpJson(*value);
    std::int64_t least = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), least);
    const bool range = end != text.data() + text.size() && *end == ':';
    if (error != std::errc() || least < 1 || least > 1 << 20
        || (!range && end != text.data() + text.size())) {
        in.guessed(path, *value, "how many that is, is known at the start");
        return std::nullopt;
    }
    if (range)
        in.guessed(path, *value, "a job has one size: the least of them is taken");
    return least;
}

/// Ranks of the launcher's options, or what was asked for; 0: nobody says.
std::int64_t worldOf(Reading &in)
{
    const auto each = launcherCount(in, "nproc-per-node");
    const std::int64_t nodes = in.has("nnodes") ? launcherCount(in, "nnodes").value_or(0) : 1;
    const std::int64_t launched = each.value_or(0) * nodes;
    if (in.options().world)
        return *in.options().world;
    if (const auto world = in.atLeast("world-size", 1))
        return *world;
    return launched;
}

void readPipeline(Reading &in)
{
    const std::int64_t pp = std::max<std::int64_t>(1, in.getWhole("layout.pp"));
    const std::int64_t layers = in.getWhole("model.layers");
    std::int64_t chunks = in.atLeast("num-virtual-stages-per-pipeline-rank", 1).value_or(1);
    if (const auto each = in.atLeast("num-layers-per-virtual-pipeline-stage", 1)) {
        chunks = std::max<std::int64_t>(1, layers / pp / *each);
        if (layers % (pp * *each) != 0)
            in.guessed("num-layers-per-virtual-pipeline-stage", *each,
                       "does not divide the layers of a stage");
    }
    if (chunks > 1 && pp > 1) {
        in.set("layout.virtual", chunks);
        in.set("layout.schedule", "interleaved");
    }
    const auto first = in.atLeast("decoder-first-pipeline-num-layers", 0);
    const auto last = in.atLeast("decoder-last-pipeline-num-layers", 0);
    const std::int64_t ends = (first ? 1 : 0) + (last ? 1 : 0);
    const bool even = in.flag("account-for-loss-in-pipeline-split").value_or(false)
        || in.flag("account-for-embedding-in-pipeline-split").value_or(false);
    if (ends == 0 || pp <= ends || chunks > 1 || pp > 4096) {
        // Equal stages there; balanced by operations here.
        if (pp > 1 && chunks == 1 && pp <= 4096 && layers % pp == 0 && !even)
            in.set("layout.stages", std::vector<std::int64_t>(static_cast<std::size_t>(pp), layers / pp));
        return;
    }
    const std::int64_t between = (layers - first.value_or(0) - last.value_or(0)) / (pp - ends);
    std::vector<std::int64_t> stages(static_cast<std::size_t>(pp), between);
    if (first)
        stages.front() = *first;
    if (last)
        stages.back() = *last;
    in.set("layout.stages", stages);
}

void readLayout(Reading &in)
{
    readPipeline(in);
    const std::int64_t others = std::max<std::int64_t>(
        1, in.getWhole("layout.tp") * in.getWhole("layout.pp") * in.getWhole("layout.cp"));
    const std::int64_t world = worldOf(in);
    if (world > 0) {
        in.set("layout.dp", std::max<std::int64_t>(1, world / others));
        if (world % others != 0)
            in.guessed("layout.dp", world / others,
                       "tp · pp · cp does not divide " + std::to_string(world) + " ranks");
    } else {
        in.guessed("layout.dp", in.get("layout.dp"),
                   "the launcher decides how many ranks there are: the base job's replicas are taken");
    }
    if (!in.has("global-batch-size"))
        in.set("batch.global",
               in.getWhole("batch.micro") * std::max<std::int64_t>(1, in.getWhole("layout.dp")));
    if (in.getWhole("layout.tp") <= 1) // as Megatron-LM does
        in.set("layout.sequence_parallel", false);
    if (in.flag("use-tp-pp-dp-mapping").value_or(false))
        in.set("layout.order", "tp-cp-pp-dp");
}

void readRecompute(Reading &in)
{
    std::string mode = in.word("recompute-granularity").value_or("none");
    if (in.flag("recompute-activations").value_or(false))
        mode = "selective";
    const auto method = in.word("recompute-method");
    const auto layers = in.atLeast("recompute-num-layers", 1);
    const Json *modules = in.take("recompute-modules");
    if (mode == "selective") {
        const bool core = !modules || *modules == "core_attn" || *modules == Json{"core_attn"};
        in.set("recompute.mode", core ? "attention" : "selective");
        if (!core)
            in.guessed("recompute-modules", *modules, "norm and activation outputs are computed again");
        return;
    }
    if (mode != "full")
        return;
    in.set("recompute.mode", "full");
    const std::int64_t stages =
        std::max<std::int64_t>(1, in.getWhole("layout.pp") * in.getWhole("layout.virtual"));
    if (method == "block" && layers)
        in.set("recompute.ratio",
               std::min(1.0,
                        static_cast<double>(*layers * stages)
                            / static_cast<double>(std::max<std::int64_t>(1, in.getWhole("model.layers")))));
    else if (layers.value_or(1) > 1)
        in.guessed("recompute-num-layers", *layers,
                   "every layer keeps its own input here, not one of several");
}

void readShards(Reading &in)
{
    const bool distributed = in.flag("use-distributed-optimizer").value_or(false);
    const bool sharded = in.flag("use-megatron-fsdp").value_or(false)
        || in.flag("use-custom-fsdp").value_or(false) || in.flag("use-torch-fsdp2").value_or(false);
    const std::string strategy = in.word("data-parallel-sharding-strategy").value_or("optim_grads_params");
    std::int64_t stage = distributed ? 1 : 0;
    if (sharded)
        stage = strategy == "no_shard" ? 0 : strategy == "optim" ? 1 : strategy == "optim_grads" ? 2 : 3;
    in.set("zero.stage", stage);
    const auto instances = in.atLeast("num-distributed-optimizer-instances", 1).value_or(1);
    const std::int64_t replicas = in.getWhole("layout.dp") * in.getWhole("layout.cp");
    if (instances > 1 && replicas % instances == 0 && replicas > instances)
        in.set("zero.shard", replicas / instances);
    const std::int64_t overlapped = std::max<std::int64_t>(40'000'000, 1'000'000 * in.getWhole("layout.dp"));
    in.set("zero.bucket_bytes", 4 * in.atLeast("ddp-bucket-size", 1).value_or(overlapped));
    if (in.flag("optimizer-cpu-offload").value_or(false)) {
        in.set("offload.optimizer", "cpu");
        if (in.number("optimizer-offload-fraction").value_or(1) < 1)
            in.lost("optimizer-offload-fraction", "all states are on the host, or none");
    }
}

void readPrecision(Reading &in)
{
    const bool half = in.flag("fp16").value_or(false);
    const bool brain = in.flag("bf16").value_or(false);
    if (half && brain)
        in.fail(
            Error::make(Code::BadData, "fp16 and bf16 are both given", "--fp16").withExpected("one of them"));
    in.set("precision.compute", half ? "fp16" : brain ? "bf16" : "fp32");
    in.setDefault("precision.grad");
    in.setDefault("precision.master");
    // bf16 implies the first of them unless the second is given.
    const bool wide = in.flag("accumulate-allreduce-grads-in-fp32").value_or(false);
    const bool narrow = in.flag("grad-reduce-in-bf16").value_or(false);
    in.setReduce("accumulate-allreduce-grads-in-fp32",
                 brain && narrow     ? DType::BF16
                     : half && !wide ? DType::F16
                                     : DType::F32);
    if (const auto fixed = in.number("loss-scale")) {
        in.set("precision.loss_scale.mode", "static");
        in.set("precision.loss_scale.value", *fixed);
    }
    if (const auto first = in.number("initial-loss-scale"); first && *first > 0) {
        const double power = std::log2(*first);
        in.set("precision.loss_scale.init_power",
               static_cast<std::int64_t>(std::llround(std::max(0.0, power))));
        if (power != std::round(power))
            in.guessed("initial-loss-scale", *first, "scales are powers of two: the nearest is taken");
    }
}

/// A length in steps, from one of the ways in which it may be told.
std::optional<std::int64_t> stepsOf(Reading &in, const std::string &what)
{
    if (const auto steps = in.atLeast(what + "-iters", 0))
        return steps;
    const auto samples = in.atLeast(what + "-samples", 0);
    if (!samples)
        return std::nullopt;
    return *samples / std::max<std::int64_t>(1, in.getWhole("batch.global"));
}

void readSchedule(Reading &in)
{
    if (const auto samples = in.atLeast("train-samples", 1))
        in.set("run.steps", *samples / std::max<std::int64_t>(1, in.getWhole("batch.global")));
    const auto decay = stepsOf(in, "lr-decay");
    in.set("lr_schedule.total", std::max<std::int64_t>(1, decay.value_or(in.getWhole("run.steps"))));
    if (const auto share = in.number("lr-warmup-fraction"))
        in.set("lr_schedule.warmup",
               static_cast<std::int64_t>(
                   std::llround(*share * static_cast<double>(in.getWhole("lr_schedule.total")))));
    if (const auto warmup = stepsOf(in, "lr-warmup"))
        in.set("lr_schedule.warmup", *warmup);
    const std::string style = in.word("lr-decay-style").value_or("linear");
    const bool same = style == "constant" || style == "linear" || style == "cosine";
    in.set("lr_schedule.kind", same ? style : "cosine");
    if (!same)
        in.guessed("lr-decay-style", style, "no such shape here: cosine is taken");
}

void readRest(Reading &in)
{
    const auto beta1 = in.number("adam-beta1").value_or(0.9);
    const auto beta2 = in.number("adam-beta2").value_or(0.999);
    in.set("optimizer.betas", {beta1, beta2});
    if (const auto kind = in.word("optimizer"); kind && *kind != "adam")
        in.guessed("optimizer", *kind, "AdamW takes its place: there is no other update rule here");
    const std::int64_t seed = in.atLeast("seed", 0).value_or(1234);
    in.set("init.seed", seed);
    in.set("data.seed", seed);
    if (const Json *data = in.take("data-path")) {
        const Json *last = data->is_array() && !data->empty() ? &data->back() : data;
        if (last->is_string())
            in.set("data.train", *last);
        if (data->is_array() && data->size() > 1)
            in.lost("data-path", "one corpus, no blend: the last of them is taken");
    } else if (!in.has("data-path")) {
        in.guessed("data.train", in.get("data.train"), "no --data-path: the base job's is taken");
    }
    if (const auto split = in.word("split")) {
        double parts[3] = {0, 0, 0};
        const int count =
            std::sscanf(split->c_str(), "%lf%*[, ]%lf%*[, ]%lf", &parts[0], &parts[1], &parts[2]);
        const double sum = parts[0] + parts[1] + parts[2];
        if (count >= 2 && sum > 0 && parts[1] >= 0)
            in.set("data.valid_fraction", std::min(0.9, parts[1] / sum));
        if (count == 3 && parts[2] > 0)
            in.lost("split", "training and validation only: there is no third part");
    }
    if (const auto folder = in.word("save"))
        in.set("run.checkpoint_dir", *folder);
}

} // namespace

Result<Imported> importMegatron(Values arguments, const ImportOptions &options)
{
    Reading in(std::move(arguments), options);
    in.rename("encoder-seq-length", "seq-length");
    in.rename("encoder-num-layers", "num-layers");
    in.rename("model-parallel-size", "tensor-model-parallel-size");
    in.rename("layernorm-epsilon", "norm-epsilon");
    in.rename("warmup", "lr-warmup-fraction");
    in.rename("checkpoint-activations", "recompute-activations");
    defaults(in);
    in.same(megatronRows());
    for (const char *needed : {"num-layers", "hidden-size", "num-attention-heads", "micro-batch-size"}) {
        if (!in.has(needed))
            in.guessed(needed, "not given", "the base job's is taken");
    }
    readModel(in);
    readLayout(in);
    readRecompute(in);
    readShards(in);
    readPrecision(in);
    readSchedule(in);
    readRest(in);
    return in.finish(Engine::Megatron, known, "not an argument of Megatron-LM's that is known here");
}

} // namespace rankyard::interop
