// SPDX-License-Identifier: GPL-3.0-or-later
// Optimizer and parameters outside the device: parity, arenas, files.
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"
#include "tests/engine/long.h"

#include <filesystem>
#include <unistd.h>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

spec::JobSpec offloadJob(const std::string &tier, const std::string &family = "gpt2")
{
    spec::JobSpec job = layoutJob(family);
    job.offload.optimizer = tier;
    if (tier == "nvme")
        job.offload.nvmePath = std::filesystem::temp_directory_path().string();
    return job;
}

/// Bytes of the plan's buffers of one sort, over all ranks alike.
std::int64_t bytesOfStates(const plan::StepProgram &program)
{
    std::int64_t bytes = 0;
    for (const plan::Bucket &bucket : program.buckets) {
        for (const plan::BufferId id : {bucket.exp1, bucket.exp2, bucket.master})
            bytes += id == plan::none ? 0 : program.buffer(id).bytes;
    }
    return bytes;
}

} // namespace

TEST(Offload, OptimizerOnHostAndNvmeGivesWhatOneRankGives)
{
    for (const char *tier : {"cpu", "nvme"}) {
        for (const int dp : {1, 2, 3}) {
            for (const int zero : {0, 1, 2, 3}) {
                if (dp == 1 && zero > 0)
                    continue;
                spec::JobSpec job = offloadJob(tier, zero % 2 == 0 ? "gpt2" : "llama");
                job.layout.dp = dp;
                job.batch.global = 4 * dp;
                job.zero.stage = zero;
                job.zero.persistenceThreshold = 50;
                job.zero.subGroup = dp == 2 ? 1000000000 : 137; // smaller than a slice, and no divisor of one
                job.offload.buffers = zero == 1 ? 1 : 3;
                expectParity(
                    job, std::string(tier) + " dp " + std::to_string(dp) + " zero " + std::to_string(zero),
                    isLong() ? 20 : 5);
            }
        }
    }
}

TEST(Offload, ParametersOnHostGiveWhatOneRankGives)
{
    for (const char *tier : {"cpu", "nvme"}) {
        for (const char *family : {"gpt2", "llama"}) {
            for (const int dp : {1, 3}) {
                spec::JobSpec job = offloadJob(tier, family);
                job.offload.params = "cpu";
                job.layout.dp = dp;
                job.layout.tp = dp == 1 ? 3 : 1;
                job.batch.global = 4 * dp;
                job.zero.stage = dp == 1 ? 0 : 3;
                job.zero.persistenceThreshold = dp == 1 ? 0 : 50;
                job.zero.subGroup = 400;
                job.offload.buffers = dp;
                job.recompute.mode = dp == 1 ? "full" : "none";
                expectParity(job, std::string(tier) + " " + family + " dp " + std::to_string(dp), 6);
                job.layout.tp = 1;
                job.layout.dp = 2;
                job.zero.stage = 0;
                job.layout.pp = 2;
                job.batch.global = 8;
                expectParity(job, std::string(tier) + " " + family + " pipeline", 4);
            }
        }
    }
}

/// An update that is skipped leaves parameters and states as they were, wherever they are staged.
TEST(Offload, OverflowChangesNothing)
{
    for (const char *tier : {"cpu", "nvme"}) {
        spec::JobSpec job = offloadJob(tier);
        job.layout.dp = 2;
        job.precision = {};
        job.precision.compute = DType::F16;
        job.zero.stage = 1;
        job.zero.subGroup = 500;
        const auto plan = plan::makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const plan::StepProgram &program = plan->program(plan::ProgramKind::Train, 0);
        runSteps(*plan, 2, [&](ThreadRank &rank) {
            const auto content = [&] {
                std::string bytes;
                for (const plan::Bucket &bucket : program.buckets) {
                    for (const plan::BufferId id :
                         {bucket.paramSlice, bucket.exp1, bucket.exp2, bucket.master})
                        bytes.append(reinterpret_cast<const char *>(rank.arenas->address(program, id)),
                                     static_cast<std::size_t>(program.buffer(id).bytes));
                }
                return bytes;
            };
            const std::string before = content();
            setStep(rank.executor->state(), job, 3);
            rank.executor->state().lossScale = std::numeric_limits<double>::infinity();
            ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, 2).ok());
            EXPECT_TRUE(rank.executor->state().overflow);
            EXPECT_TRUE(content() == before);
            setStep(rank.executor->state(), job, 4);
            rank.executor->state().lossScale = 1;
            ASSERT_TRUE(rank.executor->run(plan::ProgramKind::Train, 3).ok());
            EXPECT_FALSE(content() == before);
        });
    }
}

/// What the arenas of a rank have: no optimizer on the device, all of its bytes on the host, or in a file that is no memory.
TEST(Offload, EffectOnArenas)
{
    std::array<std::int64_t, plan::memoryKindCount> device{};
    std::int64_t states = 0;
    for (const char *tier : {"none", "cpu", "nvme"}) {
        spec::JobSpec job = offloadJob(tier);
        job.precision = {};
        job.precision.compute = DType::BF16;
        job.layout.dp = 2;
        job.zero.stage = 1;
        job.zero.subGroup = 256;
        job.offload.buffers = 2;
        const auto plan = plan::makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        const auto arenas = Arenas::make(*plan, 1);
        ASSERT_TRUE(arenas) << arenas.error().text();
        const auto of = [&](plan::MemoryKind kind) {
            return arenas->bytes()[static_cast<std::size_t>(kind)];
        };
        if (tier[0] == 'n' && tier[1] == 'o') {
            device = arenas->bytes();
            states = bytesOfStates(plan->program(plan::ProgramKind::Train, 1));
            EXPECT_GE(of(plan::MemoryKind::Optimizer), states);
            EXPECT_EQ(of(plan::MemoryKind::Host), 0);
            continue;
        }
        EXPECT_EQ(of(plan::MemoryKind::Optimizer), 0);
        for (const plan::MemoryKind kind : {plan::MemoryKind::Params, plan::MemoryKind::Grads,
                                            plan::MemoryKind::Activations, plan::MemoryKind::Buckets})
            EXPECT_EQ(of(kind), device[static_cast<std::size_t>(kind)]) << plan::nameOf(kind);
        // A stage is a gradient, a parameter and with files three states of a sub-group; each buffer on lines of 64 bytes.
        const std::int64_t stage = 256 * (4 + 2) + (tier[0] == 'c' ? 0 : 256 * 12);
        if (tier[0] == 'c') {
            EXPECT_GE(of(plan::MemoryKind::Host), states + stage);
            EXPECT_LE(of(plan::MemoryKind::Host),
                      states + 3 * stage
                          + 64 * 3
                              * static_cast<std::int64_t>(
                                  plan->program(plan::ProgramKind::Train, 1).buckets.size()));
        } else {
            EXPECT_GE(of(plan::MemoryKind::Host), 2 * stage);
            EXPECT_LE(of(plan::MemoryKind::Host), 3 * stage);
        }
    }
}

/// With parameters on the host the device holds what is fetched for the units at work, and what is small.
TEST(Offload, EffectOnParameters)
{
    spec::JobSpec job = offloadJob("cpu");
    job.offload.params = "cpu";
    job.zero.persistenceThreshold = 100;
    job.zero.maxLive = 6000;
    job.zero.maxReuseDistance = 0;
    job.offload.buffers = 2;
    const auto plan = plan::makePlan(job);
    ASSERT_TRUE(plan) << plan.error().text();
    const auto arenas = Arenas::make(*plan, 0);
    ASSERT_TRUE(arenas) << arenas.error().text();
    const auto of = [&](plan::MemoryKind kind) { return arenas->bytes()[static_cast<std::size_t>(kind)]; };
    std::int64_t small = 0, all = 0;
    const plan::StepProgram &program = plan->program(plan::ProgramKind::Train, 0);
    for (const plan::Tensor &tensor : program.tensors) {
        small += tensor.numel < 100 ? 8 * tensor.numel : 0;
        all += 8 * tensor.numel;
    }
    EXPECT_LE(of(plan::MemoryKind::Params), small + 64 * static_cast<std::int64_t>(program.buckets.size()));
    const std::int64_t live =
        plan::memoryOf(*plan, 0).live[static_cast<std::size_t>(plan::MemoryKind::Gathered)];
    EXPECT_LE(live, 8 * 6000 + 64 * 3);
    EXPECT_LE(of(plan::MemoryKind::Gathered), live + 8 * 60 * 24) << "packing loses less than a matrix";
    EXPECT_LT(of(plan::MemoryKind::Gathered) + of(plan::MemoryKind::Params), all / 2);
    // Prefetched: copies stand before the op that is at work when they are under way.
    std::int64_t fetches = 0, ahead = 0;
    for (const plan::Op &op : program.ops) {
        if (op.kind != plan::OpKind::Copy || op.rowEnd > 0)
            continue;
        ++fetches;
        const plan::Op &next = program.op(op.id + 1);
        ahead += std::none_of(next.reads.begin(), next.reads.end(),
                              [&](plan::BufferId id) { return program.buffer(id).parent == op.writes[0]; });
    }
    EXPECT_GT(fetches, 2 * job.model.layers);
    EXPECT_GT(ahead, fetches / 2);
}

/// The files of the NVMe tier have no name; reading the next sub-group goes on while one is updated.
TEST(Offload, EffectOfFiles)
{
    const auto folder = std::filesystem::temp_directory_path() / ("nvme-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    spec::JobSpec job = offloadJob("nvme");
    job.offload.nvmePath = folder.string();
    job.layout.dp = 2;
    job.zero.subGroup = 300;
    const auto plan = plan::makePlan(job);
    ASSERT_TRUE(plan) << plan.error().text();
    const plan::StepProgram &program = plan->program(plan::ProgramKind::Train, 0);
    runSteps(*plan, 3, [&](ThreadRank &rank) {
        EXPECT_TRUE(std::filesystem::is_empty(folder));
        const Execution &execution = *rank.executor->recent(0);
        for (const plan::Op &op : program.ops) { // each is done before who waits for it begins
            for (const plan::OpId wait : op.waits)
                EXPECT_LE(execution.opEnd[static_cast<std::size_t>(wait)],
                          execution.opBegin[static_cast<std::size_t>(op.id)] + 1'000'000)
                    << plan::opName(op);
        }
        // In the program: what the next update needs is asked for before the one before.
        std::vector<plan::OpId> updates;
        for (const plan::Op &op : program.ops) {
            if (op.kind == plan::OpKind::Optimizer)
                updates.push_back(op.id);
        }
        ASSERT_GT(updates.size(), 4u);
        for (std::size_t i = 1; i < updates.size(); ++i) {
            for (const plan::OpId wait : program.op(updates[i]).waits) {
                if (program.op(wait).kind == plan::OpKind::Copy) {
                    EXPECT_LT(wait, updates[i - 1]);
                }
            }
        }
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    std::filesystem::remove(folder);
    spec::JobSpec missing = job;
    missing.offload.nvmePath = (folder / "missing").string();
    const auto refused = Arenas::make(*plan::makePlan(missing), 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, missing.offload.nvmePath);
}

TEST(Offload, AStepAllocatesNothing)
{
    for (const char *tier : {"cpu", "nvme"}) {
        spec::JobSpec job = offloadJob(tier);
        job.layout.dp = 2;
        job.zero.stage = 3;
        job.zero.persistenceThreshold = 50;
        job.offload.params = "cpu";
        job.zero.subGroup = 200;
        expectNoAllocations(job);
    }
}
