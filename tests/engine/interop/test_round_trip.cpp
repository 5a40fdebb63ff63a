// SPDX-License-Identifier: GPL-3.0-or-later
// Jobs drawn at random, written for each engine and read again onto another job: what comes back is equal, or was named as lost.
#include "engine/plan/plan.h"
#include "tests/engine/interop/interop_test.h"
#include "tests/engine/long.h"

#include <map>
#include <random>

namespace rankyard::interop {
namespace {

using Leaves = std::map<std::string, Json>;

void flatten(const Json &value, const std::string &path, Leaves &out)
{
    if (!value.is_object() || path == "model.rope" || path == "comm.env") {
        out[path] = value;
        return;
    }
    for (const auto &[key, inner] : value.items())
        flatten(inner, path.empty() ? key : path + "." + key, out);
}

Leaves leavesOf(const Json &job)
{
    Leaves out;
    flatten(job, {}, out);
    return out;
}

struct Choice {
    const char *path;
    std::vector<Json> values;
};

const std::vector<Choice> &choices()
{
    static const std::vector<Choice> all = {
        {"batch.global", {60, 120, 210, 840}},
        {"batch.micro", {1, 2, 3}},
        {"model.family", {"gpt2", "llama"}},
        {"model.layers", {6, 7, 12, 15}},
        {"model.kv_heads", {nullptr, 2, 3}},
        {"model.head_dim", {nullptr, 32}},
        {"model.ffn", {nullptr, 1000, 1024}},
        {"model.seq", {120, 256, 510}},
        {"model.vocab", {500, 512, 1001}},
        {"model.tied", {true, false}},
        {"model.dropout", {0.0, 0.1}},
        {"model.norm_eps", {1e-5, 1e-6}},
        {"model.rope", {nullptr, {{"rope_theta", 500000.0}}}},
        {"layout.dp", {1, 2, 3, 5}},
        {"layout.tp", {1, 2, 3}},
        {"layout.pp", {1, 2, 3, 5}},
        {"layout.cp", {1, 2, 3}},
        {"layout.schedule", {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}},
        {"layout.virtual", {1, 2, 3}},
        {"layout.stages", {nullptr, {2, 2, 2}, {1, 3, 2}, {3, 3}, {2, 4}, {2, 3, 3, 3, 1}}},
        {"layout.sequence_parallel", {false, true}},
        {"layout.order", {"tp-cp-dp-pp", "tp-cp-pp-dp", "dp-tp-cp-pp"}},
        {"zero.stage", {0, 1, 2, 3}},
        {"zero.shard", {0, 2, 3}},
        {"zero.bucket_bytes", {26214400, 4 * 1234567, 4 * 1234567 + 1}},
        {"zero.prefetch_bytes", {50000000, 0, 123456}},
        {"zero.persistence_threshold", {100000, 7}},
        {"zero.max_live", {1000000000, 70000}},
        {"zero.max_reuse_distance", {1000000000, 70000}},
        {"zero.sub_group", {1000000000, 70000}},
        {"comm.algorithm", {"library", "ring", "direct"}},
        {"comm.overlap_grads", {true, false}},
        {"comm.overlap_params", {true, false}},
        {"precision.compute", {"fp32", "bf16", "fp16", "fp64"}},
        {"precision.reduce", {"fp32", "bf16", "fp16"}},
        {"precision.loss_scale.mode", {"dynamic", "static"}},
        {"precision.loss_scale.value", {nullptr, 1024.0}},
        {"precision.loss_scale.rule", {"deepspeed", "megatron", "simple"}},
        {"precision.loss_scale.init_power", {16, 12}},
        {"precision.loss_scale.min", {1.0, 2.0}},
        {"precision.loss_scale.max_power", {nullptr, 24}},
        {"precision.loss_scale.window", {1000, 77}},
        {"precision.loss_scale.hysteresis", {2, 1}},
        {"recompute.mode", {"none", "selective", "attention", "full"}},
        {"recompute.every", {1, 2, 3}},
        {"recompute.ratio", {nullptr, 0.0, 0.5, 1.0}},
        {"recompute.partition", {false, true}},
        {"recompute.to_host", {false, true}},
        {"offload.optimizer", {"none", "cpu", "nvme"}},
        {"offload.params", {"none", "cpu"}},
        {"offload.pin", {true, false}},
        {"offload.nvme_path", {nullptr, "/scratch"}},
        {"offload.buffers", {4, 7}},
        {"compression.mode", {"none", "fp16", "int8", "topk"}},
        {"optimizer.lr", {3e-4, 1.25e-3, 0.0}},
        {"optimizer.betas", {{0.9, 0.95}, {0.8, 0.999}}},
        {"optimizer.eps", {1e-8, 1e-6}},
        {"optimizer.weight_decay", {0.1, 0.0}},
        {"optimizer.no_decay", {{"*.bias", "*norm*"}, Json::array()}},
        {"optimizer.clip", {1.0, 0.0, 0.5}},
        {"lr_schedule.kind", {"constant", "linear", "cosine"}},
        {"lr_schedule.warmup", {0, 1, 20}},
        {"lr_schedule.total", {90, 200}},
        {"lr_schedule.min_lr", {0.0, 3e-5}},
        {"run.steps", {0, 90, 100, 200}},
        {"run.eval_every", {0, 50, 30}},
        {"run.eval_batches", {8, 3}},
        {"run.checkpoint_every", {0, 100, 7}},
        {"run.checkpoint_dir", {nullptr, "ckpt here"}},
        {"run.keep", {2, 5}},
        {"run.log_every", {1, 10}},
        {"run.threads", {nullptr, 3}},
        {"init.seed", {1234, 7}},
        {"init.from", {nullptr, "start.safetensors"}},
        {"data.seed", {1234, 7, nullptr}},
        {"data.valid", {nullptr, "held out"}},
        {"data.valid_fraction", {0.05, 0.0, 0.0125, 0.3333}},
        {"data.train", {"corpus", "my corpus"}},
    };
    return all;
}

void setAt(Json &job, const std::string &path, const Json &value)
{
    Json *here = &job;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t dot = std::min(path.find('.', begin), path.size());
        here = &(*here)[path.substr(begin, dot - begin)];
        begin = dot + 1;
    }
    *here = value;
}

/// Changes of the standard job one after the other, in any order; those after which it is a job that runs stay.
spec::JobSpec drawn(std::mt19937 &random)
{
    spec::JobSpec job = standardJob();
    for (int change = 0; change < 80; ++change) {
        const Choice &choice = choices()[random() % choices().size()];
        Json next = spec::writeJob(job);
        setAt(next, choice.path, choice.values[random() % choice.values.size()]);
        const auto legal = spec::readJob(std::move(next), "drawn");
        if (legal && plan::checkJob(*legal))
            job = *legal;
    }
    return job;
}

/// Keys that have no effect beside the rest of the job (spec/job.h): nobody has lost anything with them.
bool idle(const std::string &path, const spec::JobSpec &job)
{
    const auto in = [&](const char *section) { return path.rfind(section, 0) == 0; };
    if (in("precision.loss_scale."))
        return job.precision.compute != DType::F16
            || (path.find(job.precision.lossScale.mode == "static" ? ".value" : ".mode") == std::string::npos
                && job.precision.lossScale.mode == "static");
    if (in("precision.") && path != "precision.compute" && job.precision.compute == DType::F64)
        return true; // fp64 forces the others
    if (path == "recompute.partition" || path == "layout.sequence_parallel")
        return job.layout.tp == 1;
    if (path == "recompute.every" || path == "recompute.ratio") // the one or the other
        return job.recompute.mode != "full" || job.recompute.ratio == 1.0
            || (path == "recompute.every") == job.recompute.ratio.has_value();
    if (path == "recompute.to_host")
        return job.recompute.mode != "full";
    if (path == "layout.schedule" || path == "layout.virtual" || path == "layout.stages")
        return job.layout.pp == 1;
    if (path == "lr_schedule.total" || path == "lr_schedule.min_lr")
        return job.lrSchedule.kind == "constant";
    const std::int64_t replicas = job.layout.dp * job.layout.cp;
    if (path == "zero.shard")
        return job.zero.stage == 0 || job.zero.shard == replicas; // as 0
    if (path == "zero.stage")
        return replicas == 1;
    if (in("offload.") && path != "offload.optimizer" && path != "offload.params")
        return job.offload.optimizer == "none" && job.offload.params == "none";
    return in("compression.") && path != "compression.mode" && job.compression.mode == "none";
}

/// Numbers as a writer in decimals gives them back.
bool equal(const Json &a, const Json &b)
{
    if (a.is_number() && b.is_number())
        return std::abs(a.get<double>() - b.get<double>()) <= 1e-12 * std::abs(a.get<double>());
    return a == b;
}

/// What is wrong, by the key that it is about; the first case of each.
using Complaints = std::map<std::string, std::string>;

void oneEach(const std::vector<Remark> &remarks, Complaints &out)
{
    std::map<std::string, int> count;
    for (const Remark &remark : remarks) {
        if (++count[remark.path] > 1)
            out.emplace(remark.path, "is named twice: " + remark.why);
        if (remark.why.empty())
            out.emplace(remark.path, "is named without a reason");
    }
}

/// As a job with the key's standard spelled out.
Json spelled(const std::string &path, const Json &value, const spec::JobSpec &job)
{
    return path == "model.ffn" && value.is_null() ? Json(job.model.ffnSize()) : value;
}

bool tells(const Remark &remark, const std::string &path)
{
    return path == remark.path || path.rfind(remark.path + ".", 0) == 0;
}

/// Every key came back equal, or was named, once.
void equalOrTold(const spec::JobSpec &job, const Json &again, const std::vector<Remark> &remarks,
                 Complaints &out)
{
    const Leaves after = leavesOf(again);
    for (const auto &[path, value] : leavesOf(Json(spec::writeJob(job)))) {
        const auto now = after.find(path);
        const auto told = std::count_if(remarks.begin(), remarks.end(),
                                        [&, &key = path](const Remark &r) { return tells(r, key); });
        if (told > 1)
            out.emplace(path, "is named by two remarks");
        const Json found = now == after.end() ? Json("nothing") : now->second;
        if (told == 0 && !idle(path, job) && !equal(spelled(path, value, job), spelled(path, found, job)))
            out.emplace(path, dumpJson(value) + " became " + dumpJson(found));
    }
}

/// What was named as lost does not come back, where the base has another value for it.
void lostIsLost(const spec::JobSpec &job, const spec::JobSpec &base, const Json &again,
                const std::vector<Remark> &remarks, Complaints &out)
{
    const Leaves after = leavesOf(again);
    const Leaves others = leavesOf(Json(spec::writeJob(base)));
    const Leaves before = leavesOf(Json(spec::writeJob(job)));
    for (const Remark &remark : remarks) {
        bool other = false;
        bool differs = false;
        for (const auto &[path, value] : before) {
            if (!tells(remark, path)
                || path == "model.seq") // of training in torchtitan, whose models are names
                continue;
            other = other || !equal(value, others.at(path));
            differs = differs || !equal(value, after.at(path));
        }
        if (remark.kind == Remark::Kind::Lost && other && !differs)
            out.emplace(remark.path, remark.value + " is called lost and comes back: " + remark.why);
    }
}

/// Written, and read onto another job: what stands in neither the file nor a remark shows.
void roundTrip(const spec::JobSpec &job, const spec::JobSpec &other, Engine engine, Complaints &out)
{
    Complaints own;
    const Exported exported = exportConfig(job, engine);
    oneEach(exported.remarks, own);
    for (const spec::JobSpec &base : {standardJob(), other}) {
        ImportOptions options;
        options.base = base;
        options.base.model.layers = job.model.layers; // torchtitan cuts a model that it only names
        const auto again = importConfig(exported.text, "exported", options);
        ASSERT_TRUE(again) << again.error().text() << exported.text;
        ASSERT_EQ(again->engine, engine);
        oneEach(again->remarks, own);
        for (const Remark &remark : again->remarks) {
            if (remark.kind == Remark::Kind::Lost)
                own.emplace(remark.path, "was written and cannot be read: " + remark.why);
        }
        if (base.data.train == "corpus")
            equalOrTold(job, again->job, exported.remarks, own);
        else
            lostIsLost(job, options.base, again->job, exported.remarks, own);
    }
    for (const auto &[key, what] : own)
        out.emplace(key, what + "\n" + (isLong() ? exported.text : std::string()));
}

const std::vector<spec::JobSpec> &jobs()
{
    static const std::vector<spec::JobSpec> all = [] {
        std::mt19937 random(20261201);
        std::vector<spec::JobSpec> made(isLong() ? 3'000 : 100);
        for (spec::JobSpec &job : made)
            job = drawn(random);
        return made;
    }();
    return all;
}

class RoundTrip : public testing::TestWithParam<Engine>
{};

TEST_P(RoundTrip, WhatDoesNotComeBackIsNamedAsLostOnce)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    Complaints complaints;
    spec::JobSpec other = jobs().back();
    for (const spec::JobSpec &job : jobs()) {
        other.data.train = "another";
        roundTrip(job, other, GetParam(), complaints);
        other = job;
    }
    for (const auto &[key, what] : complaints)
        ADD_FAILURE() << key << ": " << what;
}

INSTANTIATE_TEST_SUITE_P(Engines, RoundTrip,
                         testing::Values(Engine::DeepSpeed, Engine::Megatron, Engine::Torchtitan),
                         [](const auto &one) { return std::string(nameOf(one.param)); });

} // namespace
} // namespace rankyard::interop
