// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/base/units.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What the user asks for (DESIGN 3.1). The members have the names and defaults of the JSON keys; `std::optional` is a key
/// that may be null. Plain data: reading, validating and writing are free functions.
namespace rankyard::spec {

struct Model {
    std::string family = "gpt2"; ///< gpt2, llama
    std::int64_t layers = 6;
    std::int64_t hidden = 384;
    std::int64_t heads = 6;
    std::optional<std::int64_t> kvHeads; ///< null: heads
    std::optional<std::int64_t> headDim; ///< null: hidden / heads
    std::optional<std::int64_t> ffn;     ///< null: 4 · hidden
    std::int64_t seq = 256;
    std::int64_t vocab = 512;
    bool tied = true;
    double dropout = 0;
    double normEps = 1e-5;
    Json rope; ///< null

    std::int64_t headSize() const { return headDim.value_or(heads > 0 ? hidden / heads : 0); }
    std::int64_t ffnSize() const { return ffn.value_or(4 * hidden); }
    std::int64_t keyHeads() const { return kvHeads.value_or(heads); }
};

struct Init {
    std::uint64_t seed = 1234;
    std::optional<std::string> from; ///< a safetensors file or folder with starting weights
};

struct Data {
    std::string train; ///< path prefix relative to the job file, or a name in the registry
    std::optional<std::string> valid;
    double validFraction = 0.05; ///< tail of `train` kept for validation when `valid` is null
    std::string documents = "pack";
    std::optional<std::uint64_t> seed = 1234; ///< null: samples in file order, without a permutation
};

struct Batch {
    std::int64_t global = 16;
    std::int64_t micro = 4;
};

struct Layout {
    std::int64_t dp = 1;
    std::int64_t tp = 1;
    std::int64_t pp = 1;
    std::int64_t cp = 1;
    std::int64_t virtualStages = 1; ///< "virtual"
    std::optional<std::vector<std::int64_t>> stages;
    std::string schedule = "1f1b";
    bool sequenceParallel = false;
    std::string order = "tp-cp-dp-pp";

    std::int64_t world() const { return dp * tp * pp * cp; }
};

struct Zero {
    std::int64_t stage = 0;
    std::int64_t shard = 0;
    std::int64_t bucketBytes = 26214400;
    std::int64_t prefetchBytes = 50000000;
    std::int64_t persistenceThreshold = 100000;
    std::int64_t maxLive = 1000000000;
    std::int64_t maxReuseDistance = 1000000000;
    std::int64_t subGroup = 1000000000;
};

struct Comm {
    std::string algorithm = "library"; ///< ring, direct, library
    bool overlapGrads = true;
    bool overlapParams = true;
    std::vector<std::pair<std::string, std::string>> env;
};

struct LossScale {
    std::string mode = "dynamic"; ///< dynamic, static
    std::optional<double> value;
    std::string rule = "deepspeed"; ///< deepspeed, megatron, simple
    std::int64_t initPower = 16;
    double min = 1;
    std::optional<std::int64_t> maxPower;
    std::int64_t window = 1000;
    std::int64_t hysteresis = 2;
};

struct Precision {
    DType compute = DType::F32; ///< fp64 forces the three below to fp64
    DType grad = DType::F32;
    DType master = DType::F32;
    DType reduce = DType::F32;
    bool lossIn16bit = false;
    LossScale lossScale; ///< in force for fp16 only; bf16 and wider run at scale 1
};

struct Recompute {
    std::string mode = "none"; ///< none, selective, attention, full
    std::int64_t every = 1;
    std::optional<double> ratio;
    bool partition = false;
    bool toHost = false;
};

struct Offload {
    std::string optimizer = "none";
    std::string params = "none";
    bool pin = true;
    std::optional<std::string> nvmePath;
    std::int64_t buffers = 4;
};

struct Compression {
    std::string mode = "none";
    double density = 0.1;
    double threshold = 0.01;
    std::int64_t block = 256;
    bool errorFeedback = true;
};

struct Optimizer {
    std::string kind = "adamw";
    double lr = 3e-4;
    double beta1 = 0.9; ///< betas[0]
    double beta2 = 0.95;
    double eps = 1e-8;
    double weightDecay = 0.1;
    std::vector<std::string> noDecay = {"*.bias", "*norm*"}; ///< glob patterns over canonical parameter names
    double clip = 1.0;                                       ///< 0: no clipping
};

struct LrSchedule {
    std::string kind = "cosine"; ///< constant, linear, cosine
    std::int64_t warmup = 20;
    std::int64_t total = 200;
    double minLr = 3e-5;
};

struct Run {
    std::int64_t steps = 200;
    std::optional<double> epochs;
    std::int64_t evalEvery = 50;        ///< 0: never
    std::int64_t evalBatches = 8;       ///< global batches of the fixed validation set
    std::int64_t checkpointEvery = 100; ///< 0: only at stop and end
    std::optional<std::string> checkpointDir;
    std::int64_t keep = 2;
    std::int64_t logEvery = 1;
    std::optional<std::int64_t> threads; ///< per rank; null: cores / ranks on the node
    std::int64_t compactEvery = 100;
};

struct JobSpec {
    std::string name = "job";
    Model model;
    Init init;
    Data data;
    Batch batch;
    Layout layout;
    Zero zero;
    Comm comm;
    Precision precision;
    Recompute recompute;
    Offload offload;
    Compression compression;
    Optimizer optimizer;
    LrSchedule lrSchedule; ///< "lr_schedule"
    Run run;
    std::string cluster = "local";

    /// Micro-batches per replica and step (m): global = dp · micro · m.
    std::int64_t microBatches() const { return batch.global / (layout.dp * batch.micro); }
};

/// Reads a `rankyard/job/1` document: unknown keys, wrong types, values out of range and features that this version does not
/// have are one BadJob error that names the JSON path, the rule, the value found and the nearest value that works.
/// `name` is the file, for messages. Each override is "path=value" (`--set`): the value is JSON, or else a string.
Result<JobSpec> readJob(Json document, const std::string &name,
                        const std::vector<std::string> &overrides = {});
/// readFile + parseJson + readJob.
Result<JobSpec> loadJob(const std::string &path, const std::vector<std::string> &overrides = {});
/// The whole job with every key, in the order of DESIGN 3.1; readJob of it gives the same job.
OrderedJson writeJob(const JobSpec &job);
/// Rules that need more than one key: layout divides batch, heads, layers; readJob has called it already.
Status validateJob(const JobSpec &job);
/// The JSON Schema (draft 2020-12) made from the same table that readJob uses.
OrderedJson jobSchema();

/// The learning rate of optimizer step `step` (first step: 1) by `lrSchedule`: linear warm-up from 0 over `warmup` steps, then
/// constant, linear or cosine down to minLr at `total`, minLr afterwards.
double learningRate(const JobSpec &job, std::int64_t step);

} // namespace rankyard::spec
