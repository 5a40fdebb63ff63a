// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/long.h"
#include "tests/engine/plan/jobs.h"
#include "tests/engine/plan/mutate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace rankyard::plan {

using testing::HasSubstr;

namespace {

/// dp 3 by ZeRO 1 in several buckets, two micro-batches, 16-bit: has one of everything.
spec::JobSpec richJob()
{
    spec::JobSpec job = smallJob(3, 1, 2);
    job.zero.bucketBytes = 1500;
    job.precision.compute = DType::BF16;
    job.model.vocab = 257;
    return job;
}

StepProgram trainProgram(const spec::JobSpec &job) { return makePlan(job)->program(ProgramKind::Train, 0); }

Error errorOf(const StepProgram &program)
{
    const Status status = verify(program);
    return status ? Error{} : status.error();
}

Op &opOf(StepProgram &program, const Op *op) { return program.ops[static_cast<std::size_t>(op->id)]; }

} // namespace

TEST(Verify, AcceptsWhatThePlannerMakes)
{
    std::mt19937_64 random(1);
    for (int i = 0; i < 100; ++i) {
        const auto plan = makePlan(randomJob(random));
        ASSERT_TRUE(plan) << plan.error().text();
        for (const StepProgram &program : plan->programs)
            ASSERT_TRUE(verify(program)) << verify(program).error().text();
    }
}

// ---- Each kind of fault, with what the error says ----

TEST(Verify, NamesTheOpThatReadsStaleParameters)
{
    StepProgram program = trainProgram(smallJob());
    removeOp(program, findOp(program, OpKind::AllGather)->id);
    const Error error = errorOf(program);
    EXPECT_EQ(error.where, "op 1 (forward embedding.lookup, micro-batch 0)");
    EXPECT_THAT(error.what, HasSubstr("only this rank's slice is current"));
    EXPECT_EQ(error.code, Code::Internal);
}

TEST(Verify, EveryWaitIsNeeded)
{
    for (const std::int64_t zero : {0, 1}) {
        spec::JobSpec job = richJob();
        job.zero.stage = zero;
        const StepProgram whole = trainProgram(job);
        int waits = 0;
        for (const Op &op : whole.ops) {
            for (std::size_t i = 0; i < op.waits.size(); ++i) {
                StepProgram program = whole;
                auto &list = program.ops[static_cast<std::size_t>(op.id)].waits;
                list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
                EXPECT_FALSE(verify(program)) << opName(op) << " without its wait for " << op.waits[i];
                ++waits;
            }
        }
        EXPECT_GT(waits, 10);
    }
}

TEST(Verify, DroppedWaitIsAnErrorOfTheOp)
{
    StepProgram program = trainProgram(smallJob());
    Op &norm = opOf(program, findOp(program, OpKind::GradNorm));
    norm.waits.clear();
    const Error error = errorOf(program);
    EXPECT_EQ(error.where, opName(norm));
    EXPECT_THAT(error.what, HasSubstr("without waiting for op"));
}

TEST(Verify, EveryReleaseIsAtTheEarliestPlace)
{
    const StepProgram whole = trainProgram(richJob());
    int releases = 0;
    for (const Op &op : whole.ops) {
        for (const BufferId id : op.releases) {
            StepProgram program = whole;
            auto &list = program.ops[static_cast<std::size_t>(op.id)].releases;
            list.erase(std::find(list.begin(), list.end(), id));
            program.ops[static_cast<std::size_t>(op.id) - 1].releases.push_back(id);
            EXPECT_FALSE(verify(program)) << program.buffer(id).name;
            ++releases;
        }
    }
    EXPECT_GT(releases, 50);
}

TEST(Verify, ReleaseFaults)
{
    const StepProgram whole = trainProgram(smallJob());
    const Op &loss = *findOp(whole, OpKind::Forward, Segment::Loss, 0);
    StepProgram program = whole;
    program.ops[static_cast<std::size_t>(loss.id) + 1].releases.push_back(loss.releases[0]);
    EXPECT_THAT(errorOf(program).what, HasSubstr("has released"));
    program = whole;
    opOf(program, &loss).releases.clear();
    EXPECT_EQ(errorOf(program).where, opName(loss));
    EXPECT_THAT(errorOf(program).what, HasSubstr("nobody releases"));
    program = whole;
    opOf(program, &loss).releases.push_back(program.stats);
    EXPECT_THAT(errorOf(program).what, HasSubstr("lives over all steps"));
}

TEST(Verify, WaitsMustPointBackwards)
{
    StepProgram program = trainProgram(smallJob());
    // A cycle: the reduction waits for the norm that waits for it.
    const Op *norm = findOp(program, OpKind::GradNorm);
    Op &reduce = opOf(program, findOp(program, OpKind::ReduceScatter));
    reduce.waits.push_back(norm->id);
    EXPECT_EQ(errorOf(program).where, opName(reduce));
    EXPECT_THAT(errorOf(program).what, HasSubstr("it would wait for ever"));
    program = trainProgram(smallJob());
    program.ops[5].waits.push_back(4);
    EXPECT_THAT(errorOf(program).what, HasSubstr("of its own stream"));
}

TEST(Verify, CollectiveFaults)
{
    const StepProgram whole = trainProgram(richJob());
    const Op &reduce = *findOp(whole, OpKind::ReduceScatter, Segment::None, none, 1);
    StepProgram program = whole;
    opOf(program, &reduce).group = 1;
    EXPECT_EQ(errorOf(program).where, opName(reduce));
    EXPECT_THAT(errorOf(program).what, HasSubstr("goes over the group world"));
    program = whole;
    opOf(program, &reduce).payload -= 4;
    EXPECT_THAT(errorOf(program).what, HasSubstr("payload"));
    program = whole;
    insertCopy(program, reduce.id + 1, reduce);
    EXPECT_THAT(errorOf(program).what, HasSubstr("reduced already"));
    program = whole;
    insertCopy(program, 1, *findOp(whole, OpKind::AllGather));
    EXPECT_THAT(errorOf(program).what, HasSubstr("which is whole already"));
    program = whole;
    removeOp(program, findOp(program, OpKind::AllReduce)->id);
    EXPECT_THAT(errorOf(program).what, HasSubstr("that the ranks have not reduced"));
    program = whole;
    removeOp(program, reduce.id);
    EXPECT_THAT(errorOf(program).what, HasSubstr("which its group has not reduced"));
    EXPECT_THAT(errorOf(program).where, HasSubstr("grad-norm, bucket 1"));
}

TEST(Verify, GradientFaults)
{
    const StepProgram whole = trainProgram(smallJob());
    StepProgram program = whole;
    Op &second = opOf(program, findOp(program, OpKind::BackwardWeight, Segment::Qkv, 1));
    second.accumulate = false;
    EXPECT_EQ(errorOf(program).where, opName(second));
    EXPECT_THAT(errorOf(program).what, HasSubstr("overwrites the gradient"));
    program = whole;
    opOf(program, findOp(program, OpKind::BackwardWeight, Segment::Qkv, 0)).accumulate = true;
    EXPECT_THAT(errorOf(program).what, HasSubstr("which nobody has written"));
}

TEST(Verify, PlacementFaults)
{
    const StepProgram whole = trainProgram(smallJob());
    StepProgram program = whole;
    const Op &up = *findOp(program, OpKind::Forward, Segment::Up, 0);
    program.buffers[static_cast<std::size_t>(up.writes[0])].offset = program.buffer(up.reads[0]).offset;
    EXPECT_EQ(errorOf(program).where, opName(up));
    EXPECT_THAT(errorOf(program).what, HasSubstr("while that is alive"));
    program = whole;
    program.arenas[0].bytes -= 64;
    EXPECT_THAT(errorOf(program).what, HasSubstr("does not fit its arena"));
    program = whole;
    const Bucket &bucket = program.buckets[0];
    program.buffers[static_cast<std::size_t>(bucket.exp2)].offset = program.buffer(bucket.exp1).offset;
    EXPECT_THAT(errorOf(program).what, HasSubstr("both live over all steps"));
}

/// Releasing earlier in the program is not enough: another stream may still be at it.
TEST(Verify, SeesReuseAcrossStreams)
{
    spec::JobSpec job = smallJob();
    StepProgram program = trainProgram(job);
    // Pretend that the loss of micro-batch 0 runs on the copy stream, ordered properly, and that micro-batch 1 does not wait.
    const Op *loss = findOp(program, OpKind::Forward, Segment::Loss, 0);
    for (Op &op : program.ops) {
        op.waits.clear();
        op.releases.clear();
    }
    opOf(program, loss).stream = Stream::Copy;
    dependPass({job, program});
    std::vector<StepProgram> programs = {program};
    placePass(programs);
    const Status status = verify(programs[0]);
    EXPECT_TRUE(status) << status.error().text();
    EXPECT_FALSE(programs[0].op(loss->id).waits.empty());
    EXPECT_EQ(programs[0].op(loss->id + 1).waits, std::vector<OpId>{loss->id});
}

// ---- Ranks against each other ----

namespace {

struct World {
    std::vector<StepProgram> programs;
    RankGrid grid;
    Status check() const
    {
        std::vector<const StepProgram *> pointers;
        for (const StepProgram &program : programs)
            pointers.push_back(&program);
        return verifyTogether(pointers, grid);
    }
};

World worldOf(const spec::JobSpec &job)
{
    const auto plan = makePlan(job);
    return {std::vector<StepProgram>(static_cast<std::size_t>(plan->grid.world()),
                                     plan->program(ProgramKind::Train, 0)),
            plan->grid};
}

} // namespace

TEST(VerifyTogether, AcceptsEqualRanks) { EXPECT_TRUE(worldOf(richJob()).check()); }

TEST(VerifyTogether, FindsAnotherOrder)
{
    World world = worldOf(richJob());
    StepProgram &program = world.programs[1];
    const OpId first = findOp(program, OpKind::AllGather)->id;
    moveOp(program, first, first + 1);
    const Status status = world.check();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().where, HasSubstr("rank 1, op 0 (all-gather"));
    EXPECT_THAT(status.error().what, HasSubstr("does not match rank 0, op 0 (all-gather"));
}

TEST(VerifyTogether, FindsAMissingCollective)
{
    World world = worldOf(richJob());
    removeOp(world.programs[2], findOp(world.programs[2], OpKind::AllReduce)->id);
    ASSERT_FALSE(world.check());
    EXPECT_THAT(world.check().error().what, HasSubstr("rank 2 has no op to match it"));
}

TEST(VerifyTogether, FindsAnotherSizeTypeOrGroup)
{
    World world = worldOf(richJob());
    opOf(world.programs[1], findOp(world.programs[1], OpKind::ReduceScatter)).payload *= 2;
    EXPECT_FALSE(world.check());
    world = worldOf(richJob());
    const Op *reduce = findOp(world.programs[1], OpKind::ReduceScatter);
    world.programs[1].buffers[static_cast<std::size_t>(reduce->writes[0])].dtype = DType::F64;
    EXPECT_FALSE(world.check());
    world = worldOf(richJob());
    for (Group &group : world.programs[0].groups)
        group.size = 2;
    EXPECT_THAT(world.check().error().what, HasSubstr("2 ranks in the program and 3 in the layout"));
}

/// Two streams, each with a collective, that wait for each other's ranks: every sequence matches, yet nothing moves.
TEST(VerifyTogether, FindsADeadlock)
{
    World world = worldOf(smallJob());
    for (std::size_t rank = 0; rank < 2; ++rank) {
        StepProgram &program = world.programs[rank];
        program.ops.clear();
        for (int i = 0; i < 2; ++i) {
            Op op;
            op.id = i;
            op.kind = OpKind::AllReduce;
            op.group = static_cast<std::size_t>(i) == rank ? 0 : 1;
            op.stream = Stream::Data;
            op.reads = op.writes = {program.stats};
            op.payload = program.buffer(program.stats).bytes;
            program.ops.push_back(op);
        }
    }
    // Each group has one all-reduce on each rank, in the other order on the one stream. The groups have the same ranks but are
    // two communicators.
    const Status status = world.check();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().what, HasSubstr("wait for each other"));
}

TEST(VerifyTogether, SendsMeetReceives)
{
    spec::JobSpec job = smallJob();
    World world = worldOf(job);
    const auto transfer = [&](OpKind kind, std::int32_t peer, OpId id) {
        Op op;
        op.id = id;
        op.kind = kind;
        op.peer = peer;
        op.group = 0;
        op.stream = Stream::Pipeline;
        op.channel = static_cast<std::int32_t>((kind == OpKind::Send) == (peer > 0) ? Channel::ForwardUp
                                                                                    : Channel::BackwardDown);
        op.payload = 8;
        (kind == OpKind::Send ? op.reads : op.writes) = {world.programs[0].stats};
        return op;
    };
    world.programs[0].ops = {transfer(OpKind::Send, 1, 0), transfer(OpKind::Recv, 1, 1)};
    world.programs[1].ops = {transfer(OpKind::Recv, -1, 0), transfer(OpKind::Send, -1, 1)};
    EXPECT_TRUE(world.check()) << world.check().error().text();
    // Both send first: each channel is for itself, so that both get on; but not where the recv waits for the send.
    world.programs[1].ops = {transfer(OpKind::Send, -1, 0), transfer(OpKind::Recv, -1, 1)};
    EXPECT_TRUE(world.check()) << world.check().error().text();
    world.programs[0].ops[1].waits = {0};
    world.programs[1].ops[1].waits = {0};
    EXPECT_FALSE(world.check()) << "without buffering nobody gets on";
    world.programs[0].ops[1].waits = world.programs[1].ops[1].waits = {};
    world.programs[1].ops[0].microbatch = 1;
    EXPECT_FALSE(world.check()) << "another micro-batch than the peer expects";
}

TEST(VerifyTogether, CountsMicroBatches)
{
    auto plan = makePlan(smallJob(2, 1, 2));
    auto one = makePlan(smallJob(2, 1, 1));
    ASSERT_TRUE(plan && one);
    one->job = plan->job;
    const Status status = verifyTogether(*one, ProgramKind::Train);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().found, "1");
    EXPECT_EQ(status.error().expected, "2");
}

TEST(VerifyTogether, StateStaysInPlace)
{
    auto plan = makePlan(smallJob());
    Buffer &params = plan->programs[1].buffers[static_cast<std::size_t>(plan->programs[1].buckets[0].param)];
    params.offset += 64;
    EXPECT_FALSE(verifyTogether(*plan, ProgramKind::Train));
}

// ---- Seeded faults ----

TEST(Mutations, EveryKindIsCaught)
{
    ASSERT_GE(mutations().size(), 25U);
    spec::JobSpec coded = richJob();
    coded.compression.mode = "int8";
    coded.offload.optimizer = "cpu";
    coded.zero.subGroup = 100;
    spec::JobSpec stepped = richJob();
    stepped.comm.algorithm = "ring";
    std::mt19937_64 random(7);
    for (const Mutation &mutation : mutations()) {
        bool applied = false;
        for (int attempt = 0; attempt < 60 && !applied; ++attempt) {
            const spec::JobSpec job = attempt % 3 == 0 ? richJob() : attempt % 3 == 1 ? coded : stepped;
            StepProgram program = trainProgram(job);
            applied = mutate(mutation, job, program, random);
            if (!applied)
                continue;
            const Status status = verify(program);
            EXPECT_TRUE(!status && !status.error().where.empty()) << mutation.name;
        }
        EXPECT_TRUE(applied) << mutation.name;
    }
}

/// The first op that is not as it was, by its operands.
static std::string firstOther(const StepProgram &whole, const StepProgram &program)
{
    const auto textOf = [](const StepProgram &of, const Op &op) {
        std::string text = opName(op) + " reads";
        for (const BufferId id : op.reads)
            text += " " + of.buffer(id).name;
        text += " writes";
        for (const BufferId id : op.writes)
            text += " " + of.buffer(id).name;
        return text;
    };
    for (std::size_t i = 0; i < std::min(whole.ops.size(), program.ops.size()); ++i) {
        const std::string was = textOf(whole, whole.ops[i]), is = textOf(program, program.ops[i]);
        if (was != is)
            return is + " for " + was;
    }
    return "all operands are the same";
}

TEST(Mutations, ShareCaught)
{
    std::mt19937_64 random(20240607);
    int made = 0;
    int caught = 0;
    std::map<std::string, int> survivors;
    while (made < (isLong() ? 10000 : 2000 / sanitizerShare)) {
        const spec::JobSpec job = random() % 4 > 0 ? randomJob(random) : randomLayout(random);
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        for (int i = 0; i < 40; ++i) {
            const Mutation &mutation = mutations()[random() % mutations().size()];
            const StepProgram &whole = plan->programs[random() % plan->programs.size()];
            StepProgram program = whole;
            if (!mutate(mutation, job, program, random) || program == whole)
                continue;
            ++made;
            if (!verify(program))
                ++caught;
            else
                ++survivors[std::string(mutation.name) + ", " + firstOther(whole, program)];
        }
    }
    std::string list;
    for (const auto &[name, count] : survivors)
        list += "\n  " + name + ": " + std::to_string(count);
    const double share = static_cast<double>(caught) / made;
    RecordProperty("mutations", made);
    RecordProperty("caught", caught);
    std::printf("%d of %d seeded faults caught by the verifier (%.2f %%); survivors:%s\n", caught, made,
                100 * share, list.empty() ? " none" : list.c_str());
    EXPECT_GE(share, 0.99);
}

} // namespace rankyard::plan
