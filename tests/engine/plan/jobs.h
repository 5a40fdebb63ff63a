// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"

#include <random>

namespace rankyard::plan {

/// Long loops are divided by it: under the address sanitizer the same inputs take a dozen times as long.
#ifdef __SANITIZE_ADDRESS__
constexpr int sanitizerShare = 5;
#else
constexpr int sanitizerShare = 1;
#endif

/// A job small enough to read its program.
inline spec::JobSpec smallJob(std::int64_t dp = 2, std::int64_t zero = 1, std::int64_t microbatches = 2)
{
    spec::JobSpec job;
    job.model.layers = 2;
    job.model.hidden = 8;
    job.model.heads = 2;
    job.model.seq = 4;
    job.model.vocab = 16;
    job.layout.dp = dp;
    job.zero.stage = zero;
    job.batch.micro = 2;
    job.batch.global = dp * job.batch.micro * microbatches;
    return job;
}

/// GPT-2 small over 32 micro-batches.
inline spec::JobSpec largeJob()
{
    spec::JobSpec job;
    job.model.layers = 12;
    job.model.hidden = 768;
    job.model.heads = 12;
    job.model.seq = 1024;
    job.model.vocab = 50257;
    job.layout.dp = 2;
    job.zero.stage = 1;
    job.batch.micro = 1;
    job.batch.global = 64;
    return job;
}

/// A legal job with odd sizes.
inline spec::JobSpec randomJob(std::mt19937_64 &random)
{
    const auto pick = [&](std::int64_t least, std::int64_t most) {
        return least + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1));
    };
    constexpr std::int64_t bucketBytes[] = {1, 100, 1000, 10000, 26214400};
    constexpr DType computes[] = {DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64};
    spec::JobSpec job;
    job.model.layers = pick(1, 4);
    job.model.heads = pick(1, 4);
    job.model.hidden = job.model.heads * pick(1, 9);
    if (pick(0, 1) == 1)
        job.model.ffn = pick(1, 70);
    job.model.seq = pick(1, 40);
    job.model.vocab = pick(2, 300);
    job.model.tied = pick(0, 2) > 0;
    job.layout.dp = pick(1, 5);
    job.zero.stage = pick(0, 1);
    job.zero.bucketBytes = bucketBytes[pick(0, 4)];
    job.comm.overlapGrads = pick(0, 3) > 0;
    job.comm.overlapParams = pick(0, 3) > 0;
    job.precision.compute = computes[pick(0, 4)];
    job.precision.lossIn16bit = pick(0, 3) == 0;
    job.batch.micro = pick(1, 8);
    job.batch.global = job.layout.dp * job.batch.micro * pick(1, 4);
    return job;
}

/// A legal job over every axis that the passes know, with odd sizes: heads and widths are multiples of what divides them.
inline spec::JobSpec randomLayout(std::mt19937_64 &random)
{
    const auto pick = [&](std::int64_t least, std::int64_t most) {
        return least + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1));
    };
    spec::JobSpec job = randomJob(random);
    spec::Layout &layout = job.layout;
    layout.tp = pick(0, 1) == 0 ? 1 : pick(2, 4);
    layout.pp = pick(0, 1) == 0 ? 1 : pick(2, 4);
    layout.dp = pick(1, 3);
    const bool llama = pick(0, 1) == 1;
    job.model.family = llama ? "llama" : "gpt2";
    const std::int64_t keyHeads = pick(0, 1) == 0 ? layout.tp * pick(1, 2) : 1;
    job.model.kvHeads = keyHeads;
    job.model.heads = keyHeads * layout.tp * pick(1, 2);
    job.model.headDim = pick(1, 5);
    job.model.hidden = pick(3, 20);
    job.model.ffn = layout.tp * pick(1, 9);
    job.model.dropout = pick(0, 2) == 0 ? 0.1 : 0.0;
    layout.sequenceParallel = layout.tp > 1 && pick(0, 1) == 1;
    job.model.seq = pick(1, 5) * (layout.sequenceParallel ? layout.tp : 1);
    std::int64_t microbatches = pick(1, 5);
    if (layout.pp > 1) {
        constexpr const char *schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"};
        layout.schedule = schedules[pick(0, 4)];
        layout.virtualStages = layout.schedule == "interleaved" ? pick(2, 3)
            : layout.schedule == "zbv"                          ? 2
                                                                : 1;
        if (layout.schedule == "interleaved")
            microbatches = layout.pp * pick(1, 2);
    }
    job.model.layers = std::max<std::int64_t>(1, layout.pp * layout.virtualStages - 1) + pick(0, 3);
    job.batch.global = layout.dp * job.batch.micro * microbatches;
    constexpr const char *modes[] = {"none", "none", "selective", "attention", "full"};
    job.recompute.mode = modes[pick(0, 4)];
    job.recompute.every = pick(1, 3);
    if (pick(0, 3) == 0)
        job.recompute.ratio = 0.1 * static_cast<double>(pick(1, 10));
    layout.cp = pick(0, 2) == 0 ? pick(2, 3) : 1;
    job.model.seq *= 2 * layout.cp;
    job.zero.stage = pick(0, layout.pp > 1 ? 1 : 3);
    job.zero.persistenceThreshold = pick(0, 1) == 0 ? 0 : pick(1, 200);
    job.zero.prefetchBytes = pick(0, 3000);
    job.zero.maxLive = pick(0, 3000);
    job.zero.maxReuseDistance = pick(0, 3000);
    constexpr const char *codecs[] = {"fp16", "int8", "adaptive", "topk"};
    if (layout.dp * layout.cp > 1 && job.zero.stage <= 1 && pick(0, 3) == 0) {
        job.compression.mode = codecs[pick(0, 3)];
        job.compression.errorFeedback = pick(0, 2) > 0;
    }
    job.recompute.toHost = job.recompute.mode == "full" && pick(0, 1) == 1;
    job.recompute.partition = job.recompute.mode == "full" && layout.tp > 1 && !layout.sequenceParallel
        && job.batch.micro * job.model.seq / layout.cp * job.model.hidden % layout.tp == 0 && pick(0, 1) == 1;
    const std::int64_t replicas = layout.dp * layout.cp;
    if (job.zero.stage > 0 && replicas % 2 == 0 && pick(0, 2) == 0)
        job.zero.shard = 2;
    constexpr const char *algorithms[] = {"library", "ring", "direct"};
    if (job.compression.mode == "none" && job.zero.stage <= 1)
        job.comm.algorithm = algorithms[pick(0, 2)];
    constexpr DType reduces[] = {DType::BF16, DType::F16, DType::F64};
    if (job.compression.mode == "none" && job.comm.algorithm == "library" && pick(0, 2) == 0)
        job.precision.reduce = reduces[pick(0, 2)];
    if (job.precision.reduce == DType::F16)
        job.precision.compute = DType::F16;
    constexpr const char *tiers[] = {"none", "none", "cpu", "nvme"};
    job.offload.optimizer = tiers[pick(0, 3)];
    if (job.offload.optimizer == "nvme")
        job.offload.nvmePath = "/tmp";
    if (job.offload.optimizer != "none" && (job.zero.stage % 3 == 0 || layout.dp * layout.cp == 1))
        job.offload.params = tiers[pick(1, 2)];
    job.offload.buffers = pick(1, 4);
    job.zero.subGroup = pick(0, 1) == 0 ? pick(20, 1000) : 1000000000;
    return job;
}

inline const Op *findOp(const StepProgram &program, OpKind kind, Segment segment = Segment::None,
                        std::int32_t microbatch = none, std::int32_t chunk = none)
{
    for (const Op &op : program.ops) {
        if (op.kind == kind && (segment == Segment::None || op.segment == segment)
            && (microbatch == none || op.microbatch == microbatch) && (chunk == none || op.chunk == chunk))
            return &op;
    }
    return nullptr;
}

inline std::int64_t countOps(const StepProgram &program, OpKind kind)
{
    std::int64_t count = 0;
    for (const Op &op : program.ops)
        count += op.kind == kind ? 1 : 0;
    return count;
}

} // namespace rankyard::plan
