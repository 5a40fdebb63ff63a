// SPDX-License-Identifier: GPL-3.0-or-later
// Activations: what is computed again, where inputs are kept meanwhile, and what that leaves in the arenas.
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"
#include "tests/engine/long.h"

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

std::int64_t bytesIn(const plan::Plan &plan, plan::MemoryKind kind)
{
    const auto arenas = Arenas::make(plan, 0);
    EXPECT_TRUE(arenas) << arenas.error().text();
    return arenas ? arenas->bytes()[static_cast<std::size_t>(kind)] : 0;
}

spec::JobSpec deepJob()
{
    spec::JobSpec job = layoutJob();
    job.model.layers = 6;
    job.recompute.mode = "full";
    return job;
}

} // namespace

TEST(Saved, InputsElsewhereGiveWhatOneRankGives)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const char *family : {"gpt2", "llama"}) {
        for (const bool partition : {false, true}) {
            for (const bool host : {false, true}) {
                if (!partition && !host)
                    continue;
                spec::JobSpec job = layoutJob(family);
                job.recompute.mode = "full";
                job.recompute.partition = partition;
                job.recompute.toHost = host;
                job.model.dropout = 0.1;
                job.layout.tp = 3;
                job.layout.dp = 2;
                job.zero.stage = 3;
                const std::string what =
                    std::string(family) + (partition ? " partition" : "") + (host ? " host" : "");
                expectParity(job, what, 4);
                job.layout.tp = 2;
                job.model.kvHeads = job.model.kvHeads ? std::optional<std::int64_t>(2) : std::nullopt;
                job.layout.pp = 2;
                job.layout.dp = 1;
                job.zero.stage = 0;
                job.layout.schedule = "zb-h1";
                expectParity(job, what + " pipeline", 4);
                job.layout.pp = 1;
                job.layout.cp = 2;
                job.recompute.every = 2;
                expectParity(job, what + " context, every second", 4);
            }
        }
    }
}

/// Kept inputs are layers · tokens · hidden: whole on the device, where they make it grow with the depth; on the host; in slices;
/// or slices on the host.
TEST(Saved, EffectOnArenas)
{
    spec::JobSpec job = deepJob();
    job.layout.tp = 2;
    job.batch.global = job.batch.micro = 2; // one micro-batch of 2 · 12 tokens
    const std::int64_t x = 2 * 12 * 24 * 8;
    struct Bytes {
        std::int64_t device = 0, host = 0;
    };
    const auto bytesOf = [&](int layers, bool partition, bool toHost) {
        job.model.layers = layers;
        job.recompute.partition = partition;
        job.recompute.toHost = toHost;
        const auto plan = plan::makePlan(job);
        EXPECT_TRUE(plan) << plan.error().text();
        return Bytes{bytesIn(*plan, plan::MemoryKind::Activations), bytesIn(*plan, plan::MemoryKind::Host)};
    };
    for (const bool partition : {false, true}) {
        const std::int64_t kept = partition ? x / 2 : x;
        for (const bool toHost : {false, true}) {
            const Bytes few = bytesOf(6, partition, toHost), many = bytesOf(16, partition, toHost);
            EXPECT_EQ(few.host, toHost ? 6 * kept : 0);
            EXPECT_EQ(many.host, toHost ? 16 * kept : 0);
            EXPECT_EQ(many.device - few.device, toHost ? 0 : 10 * kept) << partition << toHost;
        }
    }
}

/// Inputs come back before the layer that is computed again while another is at work.
TEST(Saved, EffectOfComingBackAhead)
{
    spec::JobSpec job = deepJob();
    job.recompute.toHost = true;
    job.batch.global = job.batch.micro;
    const auto plan = plan::makePlan(job);
    ASSERT_TRUE(plan) << plan.error().text();
    const plan::StepProgram &program = plan->program(plan::ProgramKind::Train, 0);
    int back = 0;
    for (const plan::Op &op : program.ops) {
        if (op.kind != plan::OpKind::Copy || program.buffer(op.reads[0]).kind != plan::MemoryKind::Host)
            continue;
        const auto use =
            std::find_if(program.ops.begin() + op.id + 1, program.ops.end(), [&](const plan::Op &o) {
                return std::find(o.reads.begin(), o.reads.end(), op.writes[0]) != o.reads.end();
            });
        ASSERT_NE(use, program.ops.end());
        const auto between = std::count_if(program.ops.begin() + op.id, use, [&](const plan::Op &o) {
            return o.kind == plan::OpKind::BackwardInput && o.unit.layer == op.unit.layer + 1;
        });
        ++back;
        EXPECT_TRUE(between > 0 || op.unit.layer == job.model.layers - 1) << plan::opName(op);
    }
    EXPECT_EQ(back, job.model.layers);
}

/// full keeps one input a layer; every second layer half of it. What is computed again is counted.
TEST(Recompute, EffectOnActivationsAndOps)
{
    std::map<std::string, std::int64_t> bytes, ops;
    spec::JobSpec job = deepJob();
    job.batch.global = job.batch.micro = 2;
    const std::int64_t tokens = 2 * 12;
    for (const char *mode : {"none", "selective", "attention", "full"}) {
        job.recompute.mode = mode;
        const auto plan = plan::makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        bytes[mode] = bytesIn(*plan, plan::MemoryKind::Activations);
        runSteps(*plan, 1, [&](ThreadRank &rank) {
            const Execution &execution = *rank.executor->recent(0);
            for (const plan::OpId id : execution.order[static_cast<std::size_t>(plan::Stream::Compute)])
                ops[mode] += execution.program->op(id).kind == plan::OpKind::Recompute;
        });
    }
    // Of a layer in fp64: x and y, two norms and their statistics, qkv, o, lse, u and a; full keeps x.
    const std::int64_t norms = 2 * (tokens * 24 * 8 + tokens * 2 * 8), act = tokens * 60 * 8;
    const std::int64_t core = tokens * 24 * 8 + 6 * tokens * 8;
    const std::int64_t rest = tokens * (72 + 24 + 60) * 8; // qkv, the middle of the residual stream, u
    const std::int64_t layers = job.model.layers;
    EXPECT_EQ(ops["none"], 0);
    EXPECT_EQ(ops["selective"], 3 * layers);  // two norms, the activation
    EXPECT_EQ(ops["attention"], 4 * layers);  // the core
    EXPECT_EQ(ops["full"], (5 + 2) * layers); // norm, qkv, core, out, join; norm, up
    // Layers but the one at work have given up what the mode drops.
    const auto near = [&](const char *mode, std::int64_t dropped) {
        EXPECT_LE(bytes[mode], bytes["none"] - (layers - 2) * dropped) << mode;
    };
    near("selective", norms + act);
    near("attention", norms + act + core);
    near("full", norms + act + core + rest);
}

/// With sequence parallelism a rank has its rows of what tensor parallelism alone repeats: the residual stream and the norms.
TEST(SequenceParallel, EffectOnActivations)
{
    for (const int tp : {2, 3, 6}) {
        spec::JobSpec job = layoutJob();
        job.model.layers = 8;
        job.batch.global = job.batch.micro = 2;
        job.layout.tp = tp;
        const auto repeated = plan::makePlan(job);
        job.layout.sequenceParallel = true;
        const auto divided = plan::makePlan(job);
        ASSERT_TRUE(repeated && divided);
        const std::int64_t tokens = 2 * 12, x = tokens * 24 * 8, stats = tokens * 2 * 8;
        // A layer keeps two inputs and two norms with statistics; gathered copies are of the layer at work only.
        const std::int64_t layer = 4 * x + 2 * stats;
        EXPECT_LE(bytesIn(*divided, plan::MemoryKind::Activations),
                  bytesIn(*repeated, plan::MemoryKind::Activations) - (8 - 2) * (layer - layer / tp))
            << tp;
    }
}

/// ZeRO n on measured arenas: states, gradients and parameters over the ranks.
TEST(Zero, EffectOnArenas)
{
    for (const int dp : {2, 3, 5}) {
        std::array<std::array<std::int64_t, plan::memoryKindCount>, 4> bytes{};
        std::int64_t whole = 0;
        std::array<std::int64_t, 4> own{}, buckets{};
        for (const int stage : {0, 1, 2, 3}) {
            spec::JobSpec job = layoutJob();
            job.layout.dp = dp;
            job.batch.global = 4 * dp;
            job.zero.stage = stage;
            job.zero.persistenceThreshold = 0;
            job.zero.maxLive = 6000;
            job.zero.maxReuseDistance = 0;
            const auto plan = plan::makePlan(job);
            ASSERT_TRUE(plan) << plan.error().text();
            const auto arenas = Arenas::make(*plan, 1);
            ASSERT_TRUE(arenas) << arenas.error().text();
            bytes[static_cast<std::size_t>(stage)] = arenas->bytes();
            whole = 0;
            for (const plan::Bucket &bucket : plan->program(plan::ProgramKind::Train, 1).buckets) {
                whole += bucket.numel;
                own[static_cast<std::size_t>(stage)] += (bucket.numel + dp - 1) / dp;
                ++buckets[static_cast<std::size_t>(stage)];
            }
            const std::int64_t live =
                plan::memoryOf(*plan, 1).live[static_cast<std::size_t>(plan::MemoryKind::Gathered)];
            EXPECT_LE(live, 8 * 6000 + 64 * 3);
        }
        const auto check = [&](int stage, plan::MemoryKind kind, std::int64_t elements) {
            const auto s = static_cast<std::size_t>(stage);
            const std::int64_t got = bytes[s][static_cast<std::size_t>(kind)];
            EXPECT_GE(got, 8 * elements) << dp << " " << stage << " " << plan::nameOf(kind);
            EXPECT_LE(got, 8 * elements + 2 * 64 * buckets[s])
                << dp << " " << stage << " " << plan::nameOf(kind);
        };
        for (const int stage : {0, 1, 2, 3}) {
            const std::int64_t slices = own[static_cast<std::size_t>(stage)];
            check(stage, plan::MemoryKind::Optimizer, 2 * (stage >= 1 ? slices : whole));
            check(stage, plan::MemoryKind::Grads, stage >= 2 ? slices : whole);
            check(stage, plan::MemoryKind::Params, stage >= 3 ? slices : whole);
        }
    }
}

/// Activations of 1f1b are those of at most pp − stage micro-batches, of gpipe those of all.
TEST(Schedules, EffectOnMicroBatchesInFlight)
{
    constexpr int stages = 3, microbatches = 8;
    for (const char *schedule : {"gpipe", "1f1b"}) {
        spec::JobSpec job = layoutJob();
        job.model.layers = 9;
        job.layout.pp = stages;
        job.layout.stages = {{3, 3, 3}};
        job.layout.schedule = schedule;
        job.batch.micro = 2;
        job.batch.global = 2 * microbatches;
        const auto plan = plan::makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        runSteps(*plan, 1, [&](ThreadRank &rank) {
            const Execution &execution = *rank.executor->recent(0);
            const int stage = plan->grid.coordinate(rank.rank, "pp");
            std::set<std::int32_t> flying;
            std::size_t most = 0;
            for (const plan::OpId id : execution.order[static_cast<std::size_t>(plan::Stream::Compute)]) {
                const plan::Op &op = execution.program->op(id);
                if (op.segment != plan::Segment::Qkv)
                    continue;
                if (op.kind == plan::OpKind::Forward)
                    flying.insert(op.microbatch);
                most = std::max(most, flying.size());
                if (op.kind == plan::OpKind::BackwardWeight && op.unit.layer == 3 * stage)
                    flying.erase(op.microbatch);
            }
            EXPECT_EQ(most, schedule[0] == 'g' ? microbatches : static_cast<std::size_t>(stages - stage));
        });
    }
}

/// Of schedules with chunks or parted backwards, in micro-batches of chunks from their forward to the last gradient of their
/// weights: interleaved p·v + p − 1 − 2s (Narayanan et al. 2021), zb-h1 p, zbv 2p of half a stage (Qi et al. 2023).
TEST(Schedules, EffectOnChunksInFlight)
{
    constexpr int stages = 3, microbatches = 9;
    for (const std::string schedule : {"interleaved", "zb-h1", "zbv"}) {
        for (const int chunks : {1, 2, 3}) {
            if (schedule == "zb-h1" ? chunks != 1 : schedule == "zbv" ? chunks != 2 : chunks == 1)
                continue;
            spec::JobSpec job = layoutJob();
            job.model.layers = stages * chunks; // a layer is a chunk
            job.layout.pp = stages;
            job.layout.virtualStages = chunks;
            job.layout.stages = std::vector<std::int64_t>(static_cast<std::size_t>(job.model.layers), 1);
            job.layout.schedule = schedule;
            job.batch.micro = 2;
            job.batch.global = 2 * microbatches;
            const auto plan = plan::makePlan(job);
            ASSERT_TRUE(plan) << plan.error().text();
            runSteps(*plan, 1, [&](ThreadRank &rank) {
                const Execution &execution = *rank.executor->recent(0);
                const int stage = plan->grid.coordinate(rank.rank, "pp");
                std::set<std::pair<std::int32_t, std::int32_t>> flying;
                std::size_t most = 0;
                for (const plan::OpId id : execution.order[static_cast<std::size_t>(plan::Stream::Compute)]) {
                    const plan::Op &op = execution.program->op(id);
                    if (op.segment != plan::Segment::Qkv)
                        continue;
                    if (op.kind == plan::OpKind::Forward)
                        flying.insert({op.microbatch, op.unit.layer});
                    most = std::max(most, flying.size());
                    if (op.kind == plan::OpKind::BackwardWeight)
                        flying.erase({op.microbatch, op.unit.layer});
                }
                const int wanted = schedule == "zb-h1" ? stages
                    : schedule == "zbv"                ? 2 * stages
                                                       : stages * chunks + stages - 1 - 2 * stage;
                EXPECT_EQ(most, static_cast<std::size_t>(wanted)) << schedule << " stage " << stage;
            });
        }
    }
}
