// SPDX-License-Identifier: GPL-3.0-or-later
// What the executor relies on beside the numbers: threads, errors, polling, no allocation, slices, repeatability.
#include "engine/kernels/cpu_device.h"
#include "tests/engine/kernels/small_job.h"

#include <atomic>
#include <cstdlib>
#include <new>

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

namespace {

std::atomic<std::int64_t> allocations{0};

void *counted(std::size_t size)
{
    ++allocations;
    if (void *p = std::malloc(size ? size : 1))
        return p;
    throw std::bad_alloc();
}

} // namespace

// Of this program: they count.
void *operator new(std::size_t size) { return counted(size); }
void *operator new[](std::size_t size) { return counted(size); }
void *operator new(std::size_t size, const std::nothrow_t &) noexcept { return counted(size); }
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept { return counted(size); }
void operator delete(void *p) noexcept { std::free(p); }
void operator delete[](void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
void operator delete[](void *p, std::size_t) noexcept { std::free(p); }

TEST(Team, SharesEverythingOnce)
{
    for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
        for (const int parts : {1, 2, 3, 16}) {
            for (const std::int64_t grain : {1, 8, 100}) {
                std::int64_t next = 0;
                for (int i = 0; i < parts; ++i) {
                    const Range range = share(count, parts, i, grain);
                    EXPECT_EQ(range.begin, next);
                    EXPECT_TRUE(range.begin % grain == 0 || range.begin == count);
                    next = range.end;
                }
                EXPECT_EQ(next, count);
            }
        }
    }
}

TEST(Team, RunsEveryNumberEachRound)
{
    for (const int size : {1, 2, 5}) {
        Team team(size);
        std::vector<int> rounds(static_cast<std::size_t>(size));
        for (int round = 1; round <= 2000; ++round) {
            team.run([&](int number) { ++rounds[static_cast<std::size_t>(number)]; });
            ASSERT_EQ(rounds, std::vector<int>(static_cast<std::size_t>(size), round));
        }
    }
}

TEST(Device, SaysWhatItIs)
{
    const auto device = exec::makeCpuDevice(1);
    EXPECT_NE(device->name().find(nameOf(detectIsa())), std::string::npos) << device->name();
    EXPECT_NE(device->name().find("1 thread"), std::string::npos) << device->name();
}

TEST(Device, NamesTheOpThatItCannotBind)
{
    const auto made = plan::makePlan(smallJob(DType::F32));
    ASSERT_TRUE(made);
    const plan::StepProgram &program = made->program(plan::ProgramKind::Train, 0);
    std::vector<std::byte *> nowhere(program.buffers.size(), nullptr);
    const auto device = exec::makeCpuDevice(1);
    exec::BindContext context;
    context.plan = &*made;
    context.program = &program;
    context.address = nowhere;
    for (const plan::Op &op : program.ops) {
        const auto bound = device->bind(context, op);
        ASSERT_FALSE(bound);
        EXPECT_EQ(bound.error().code, Code::NotHere);
        EXPECT_NE(bound.error().where.find("op " + std::to_string(op.id)), std::string::npos)
            << bound.error().text();
    }
}

TEST(Device, AllocatesNothingInAStep)
{
    for (const int threads : {1, 2}) {
        const spec::JobSpec job = smallJob(DType::BF16);
        CpuDevice device(threads, detectIsa());
        Harness harness(job, device);
        randomize(harness);
        const auto count = static_cast<std::size_t>(job.batch.global * job.model.seq);
        const auto tokens = randomTokens(count, job.model.vocab, 1),
                   labels = randomTokens(count, job.model.vocab, 2);
        harness.probe = [] { return allocations.load(); };
        const std::int64_t scratch = device.libraryWorkspace()[0].second;
        EXPECT_GT(scratch, 0);
        for (int step = 0; step < 2; ++step) {
            harness.train(tokens, labels, true);
            EXPECT_EQ(harness.probed, 0);
        }
        EXPECT_EQ(device.libraryWorkspace()[0].second, scratch);
    }
}

TEST(Device, PollsInsideLongProducts)
{
    spec::JobSpec job = smallJob(DType::F32);
    job.model.hidden = 256;
    job.model.heads = 2;
    job.model.vocab = 4096;
    job.model.seq = 256;
    job.model.layers = 1;
    job.batch.global = job.batch.micro = 4;
    job.zero.bucketBytes = 1 << 26;
    CpuDevice device(1, detectIsa());
    Harness harness(job, device);
    randomize(harness);
    const auto count = static_cast<std::size_t>(job.batch.global * job.model.seq);
    int polls = 0;
    harness.state().poll = [&] { ++polls; };
    harness.train(randomTokens(count, job.model.vocab, 1), randomTokens(count, job.model.vocab, 2), false);
    EXPECT_GT(polls, 2 * 8 + 10); // once an attention head forward and backward, and in the head's products
}

TEST(Device, RepeatsToTheBit)
{
    for (const DType type : {DType::F32, DType::BF16}) {
        const spec::JobSpec job = smallJob(type);
        CpuDevice device(2, detectIsa());
        Harness one(job, device), two(job, device);
        const auto count = static_cast<std::size_t>(job.batch.global * job.model.seq);
        const auto tokens = randomTokens(count, job.model.vocab, 1),
                   labels = randomTokens(count, job.model.vocab, 2);
        for (Harness *harness : {&one, &two}) {
            randomize(*harness);
            harness->state().lr = 1e-2;
            for (int step = 0; step < 3; ++step)
                harness->train(tokens, labels, true);
        }
        EXPECT_EQ(one.state().loss, two.state().loss);
        for (const auto &[name, value] : one.parameters())
            EXPECT_EQ(value.second, two.parameter(name)) << name;
    }
}

TEST(Device, OverflowIsCountedAndChangesNothing)
{
    const spec::JobSpec job = smallJob(DType::F32);
    CpuDevice device(1, detectIsa());
    Harness harness(job, device);
    randomize(harness);
    harness.state().lr = 1e-2;
    harness.state().lossScale = INFINITY;
    const Parameters before = harness.parameters();
    const auto count = static_cast<std::size_t>(job.batch.global * job.model.seq);
    harness.train(randomTokens(count, job.model.vocab, 1), randomTokens(count, job.model.vocab, 2), true);
    EXPECT_TRUE(harness.state().overflow);
    for (const auto &[name, value] : harness.parameters())
        EXPECT_EQ(value.second, before.at(name).second) << name;
}

/// ZeRO 1: each replica counts and updates its slice; together that is everything, padding excepted. Without ZeRO replica 0
/// counts and both update everything.
TEST(Device, ReplicasCountOnceAndUpdateTheirSlices)
{
    for (const int stage : {0, 1}) {
        spec::JobSpec job = smallJob(DType::F64);
        job.layout.dp = 2;
        job.batch.global = 4;
        job.zero.stage = stage;
        const auto made = plan::makePlan(job);
        ASSERT_TRUE(made) << made.error().text();
        const plan::StepProgram &program = made->program(plan::ProgramKind::Train, 0);
        const auto tensors = program.tensors.size();
        std::map<plan::BufferId, Values> grads, params;
        std::vector<double> total(tensors + plan::statsSlots);
        std::vector<std::map<plan::BufferId, Values>> updated;
        exec::StepState state;
        state.step = 1;
        state.lr = 0.01;
        state.gradFactor = 0.5;
        for (int rank = 0; rank < 2; ++rank) {
            std::vector<Storage> memory;
            memory.reserve(program.buffers.size());
            std::vector<std::byte *> address(program.buffers.size(), nullptr);
            for (const plan::Buffer &buffer : program.buffers)
                memory.emplace_back(DType::F64, static_cast<std::size_t>(buffer.bytes / 8 + 1));
            for (const plan::Bucket &bucket : program.buckets) {
                unsigned seed = 10;
                for (const plan::BufferId id : {bucket.param, bucket.grad}) {
                    const Values values = randomValues(static_cast<std::size_t>(bucket.padded),
                                                       ++seed + 2 * static_cast<unsigned>(id));
                    for (std::size_t i = 0; i < values.size(); ++i)
                        memory[static_cast<std::size_t>(id)].set(i, values[i]);
                    (id == bucket.param ? params : grads)[id] = values;
                }
            }
            for (const plan::Buffer &buffer : program.buffers) {
                const plan::BufferId root = buffer.parent == plan::none ? buffer.id : buffer.parent;
                const std::int64_t slice = buffer.sliceGroup == plan::none ? 0 : rank * buffer.bytes;
                address[static_cast<std::size_t>(buffer.id)] =
                    static_cast<std::byte *>(memory[static_cast<std::size_t>(root)].data())
                    + buffer.viewOffset + slice;
            }
            CpuDevice device(rank + 1, detectIsa());
            exec::BindContext context;
            context.plan = &*made;
            context.program = &program;
            context.address = address;
            context.rank = rank;
            for (const plan::Op &op : program.ops) {
                if (op.kind != plan::OpKind::GradNorm && op.kind != plan::OpKind::Optimizer)
                    continue;
                const auto bound = device.bind(context, op);
                ASSERT_TRUE(bound) << bound.error().text();
                (*bound)->run(state);
            }
            for (std::size_t i = 0; i < total.size(); ++i)
                total[i] += memory[static_cast<std::size_t>(program.stats)].get(i);
            updated.emplace_back();
            for (const plan::Bucket &bucket : program.buckets)
                updated.back()[bucket.param] = memory[static_cast<std::size_t>(bucket.param)].values();
        }
        EXPECT_EQ(total[tensors + plan::StatsNonFinite], 0);
        for (const plan::Tensor &tensor : program.tensors) {
            const plan::Bucket &bucket = program.buckets[static_cast<std::size_t>(tensor.bucket)];
            const auto cut = [&](const Values &all) {
                return Values(all.begin() + tensor.offset, all.begin() + tensor.offset + tensor.numel);
            };
            const Values g = cut(grads.at(bucket.grad));
            double squares = 0;
            for (const double value : g)
                squares += value * value;
            EXPECT_NEAR(total[static_cast<std::size_t>(tensor.index)], squares, 1e-12 * squares)
                << tensor.name;
            const Values before = cut(params.at(bucket.param));
            Values wanted = before, m(g.size()), v(g.size());
            reference::adam(wanted, m, v, g, 0.5, 1,
                            {0.01, job.optimizer.beta1, job.optimizer.beta2, job.optimizer.eps,
                             tensor.decay ? job.optimizer.weightDecay : 0.0});
            for (int rank = 0; rank < 2; ++rank) {
                const Values after = cut(updated[static_cast<std::size_t>(rank)].at(bucket.param));
                for (std::size_t i = 0; i < after.size(); ++i) {
                    const std::int64_t place = tensor.offset + static_cast<std::int64_t>(i);
                    const bool own = bucket.slices == 1 || place / (bucket.padded / bucket.slices) == rank;
                    EXPECT_NEAR(after[i], own ? wanted[i] : before[i], 1e-13)
                        << tensor.name << " " << i << " rank " << rank;
                }
            }
        }
    }
}
