// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "engine/plan/combine.h"
#include "engine/plan/units.h"
#include "tests/engine/plan/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace rankyard::plan {

using testing::HasSubstr;

namespace {

const StepProgram &trainOf(const Result<Plan> &plan) { return plan->program(ProgramKind::Train, 0); }

/// Compares with a fixture; RANKYARD_UPDATE_FIXTURES=1 writes it instead, to be read by a person.
void expectFixture(const std::string &name, const std::string &text)
{
    const char *source = std::getenv("RANKYARD_SOURCE_DIR");
    ASSERT_NE(source, nullptr) << "set RANKYARD_SOURCE_DIR to the source tree";
    const std::string path = std::string(source) + "/tests/fixtures/plan/" + name;
    if (std::getenv("RANKYARD_UPDATE_FIXTURES") != nullptr) {
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        ASSERT_TRUE(writeFileAtomically(path, text));
    }
    const auto expected = readFile(path);
    ASSERT_TRUE(expected) << expected.error().text();
    EXPECT_EQ(text, *expected);
}

} // namespace

TEST(Passes, GoldenTrainProgram)
{
    spec::JobSpec job = smallJob();
    job.zero.bucketBytes = 3000;
    expectFixture("tiny_train.txt", describe(trainOf(makePlan(job))));
}

TEST(Passes, GoldenEvalProgram)
{
    spec::JobSpec job = smallJob(2, 0);
    expectFixture("tiny_eval.txt", describe(makePlan(job)->program(ProgramKind::Eval, 0)));
}

TEST(Passes, OpsOfAMicroBatch)
{
    for (const std::int64_t m : {1, 3}) {
        spec::JobSpec job = smallJob(1, 0, m);
        job.model.layers = 3;
        const auto plan = makePlan(job);
        const StepProgram &train = trainOf(plan);
        EXPECT_EQ(countOps(train, OpKind::LoadBatch), m);
        EXPECT_EQ(countOps(train, OpKind::Forward), m * (2 + 9 * 3 + 2));
        EXPECT_EQ(countOps(train, OpKind::BackwardInput), m * (1 + 9 * 3 + 1));
        EXPECT_EQ(countOps(train, OpKind::BackwardWeight), m * (4 * 3 + 1));
        EXPECT_EQ(train.ops.size(), static_cast<std::size_t>(m * (1 + 4 + 2 + 22 * 3 + 1) + 3));
        EXPECT_TRUE(train.groups.empty()) << "one rank needs no collectives";
        const StepProgram &eval = plan->program(ProgramKind::Eval, 0);
        EXPECT_EQ(countOps(eval, OpKind::Forward), m * (2 + 9 * 3 + 2));
        EXPECT_EQ(countOps(eval, OpKind::BackwardInput) + countOps(eval, OpKind::Optimizer), 0);
        EXPECT_EQ(countOps(eval, OpKind::StepScalars), 1);
    }
}

TEST(Passes, Collectives)
{
    struct Case {
        std::int64_t dp, zero;
        OpKind reduce;
        bool gathers;
    };
    for (const Case &c : {Case{2, 0, OpKind::AllReduce, false}, Case{2, 1, OpKind::ReduceScatter, true},
                          Case{5, 1, OpKind::ReduceScatter, true}}) {
        spec::JobSpec job = smallJob(c.dp, c.zero, 3);
        job.zero.bucketBytes = 1000;
        const auto plan = makePlan(job);
        const StepProgram &train = trainOf(plan);
        const auto buckets = static_cast<std::int64_t>(train.buckets.size());
        EXPECT_GT(buckets, 3);
        EXPECT_EQ(countOps(train, OpKind::AllReduce), 1 + (c.gathers ? 0 : buckets))
            << "one a bucket and step, not one a micro-batch";
        EXPECT_EQ(countOps(train, OpKind::ReduceScatter), c.gathers ? buckets : 0);
        EXPECT_EQ(countOps(train, OpKind::AllGather), c.gathers ? buckets : 0);
        EXPECT_EQ(countOps(plan->program(ProgramKind::Eval, 0), OpKind::AllGather), c.gathers ? buckets : 0);

        std::int64_t padded = 0;
        for (const Bucket &bucket : train.buckets)
            padded += bucket.padded * 4;
        std::int64_t reduced = 0;
        std::int64_t gathered = 0;
        for (const Op &op : train.ops) {
            reduced += op.chunk != none && op.kind == c.reduce ? op.payload : 0;
            gathered += op.kind == OpKind::AllGather ? op.payload : 0;
        }
        EXPECT_EQ(reduced, padded);
        EXPECT_EQ(gathered, c.gathers ? padded : 0);
        const auto traffic = trafficOf(*plan, 0);
        const std::int64_t n = c.dp;
        EXPECT_EQ(traffic.at("dp").payload, reduced + gathered);
        EXPECT_EQ(traffic.at("dp").wire, 2 * padded * (n - 1) / n) << "ZeRO 1 sends what an all-reduce does";
        EXPECT_EQ(traffic.at("world").payload, static_cast<std::int64_t>(train.tensors.size() + 3) * 8);
    }
}

TEST(Passes, BucketsInReverseForwardOrder)
{
    spec::JobSpec job = smallJob();
    job.zero.bucketBytes = 1000;
    const StepProgram program = trainOf(makePlan(job));
    TensorId next = static_cast<TensorId>(program.tensors.size()) - 1;
    for (const Bucket &bucket : program.buckets) {
        EXPECT_TRUE(bucket.tensors.size() == 1 || bucket.numel * 4 <= 1000);
        EXPECT_TRUE(std::is_sorted(bucket.tensors.begin(), bucket.tensors.end()));
        for (auto id = bucket.tensors.rbegin(); id != bucket.tensors.rend(); ++id)
            EXPECT_EQ(*id, next--);
    }
    EXPECT_EQ(next, none);
    job.zero.bucketBytes = 1;
    const auto each = makePlan(job);
    EXPECT_EQ(trainOf(each).buckets.size(), trainOf(each).tensors.size());
    job.zero.bucketBytes = 26214400;
    const auto one = makePlan(job);
    EXPECT_EQ(trainOf(one).buckets.size(), 1U);
}

TEST(Passes, FirstOfManyBucketsIsSmall)
{
    const auto plan = makePlan(largeJob());
    const StepProgram &program = trainOf(plan);
    ASSERT_GT(program.buckets.size(), 10U);
    const std::int64_t first = program.buckets[0].numel * 4;
    EXPECT_GE(first, 1 << 20);
    EXPECT_LT(first, 12 << 20);
    for (const Bucket &bucket : program.buckets)
        EXPECT_TRUE(bucket.tensors.size() == 1 || bucket.numel * 4 <= 26214400);
}

/// Reductions start while the backward goes on, as soon as the last micro-batch has the bucket's last gradient.
TEST(Passes, ReductionsOverlapTheBackward)
{
    spec::JobSpec job = smallJob(2, 1, 2);
    job.zero.bucketBytes = 1000;
    for (const bool overlap : {true, false}) {
        job.comm.overlapGrads = overlap;
        const StepProgram program = trainOf(makePlan(job));
        const OpId lastBackward = findOp(program, OpKind::BackwardWeight, Segment::Lookup, 1)->id;
        std::size_t early = 0;
        for (const Op &op : program.ops) {
            if (op.kind != OpKind::ReduceScatter)
                continue;
            early += op.id < lastBackward ? 1 : 0;
            ASSERT_LE(op.waits.size(), 1U);
            if (overlap) {
                ASSERT_EQ(op.waits.size(), 1U);
                const Op &before = program.op(op.waits.at(0));
                EXPECT_EQ(before.microbatch, 1);
                const bool contributes =
                    std::any_of(before.writes.begin(), before.writes.end(),
                                [&](BufferId id) { return program.buffer(id).parent == op.writes[0]; });
                EXPECT_TRUE(contributes) << "waits for the op that completes its bucket and nothing later";
            } else if (!op.waits.empty()) {
                EXPECT_EQ(op.waits[0], lastBackward);
            }
        }
        EXPECT_EQ(early, overlap ? program.buckets.size() - 1 : 0)
            << "all but the one that the last op completes";
    }
}

/// A forward op waits for the gather of the buckets that it reads, not for all.
TEST(Passes, GathersOverlapTheForward)
{
    spec::JobSpec job = smallJob(2, 1, 2);
    job.zero.bucketBytes = 1000;
    for (const ProgramKind kind : {ProgramKind::Train, ProgramKind::Eval}) {
        job.comm.overlapParams = true;
        const auto plan = makePlan(job);
        const StepProgram &program = plan->program(kind, 0);
        const auto buckets = static_cast<OpId>(program.buckets.size());
        for (OpId id = 0; id < buckets; ++id) {
            EXPECT_EQ(program.op(id).kind, OpKind::AllGather) << "at the head";
            EXPECT_EQ(program.op(id).chunk, buckets - 1 - id) << "in forward order";
            EXPECT_TRUE(program.op(id).waits.empty());
        }
        std::set<OpId> waitedFor;
        for (const Op &op : program.ops) {
            for (const OpId wait : op.waits) {
                if (wait >= buckets)
                    continue;
                EXPECT_TRUE(waitedFor.insert(wait).second) << "one wait a gather is enough";
                const BufferId root = program.op(wait).writes[0];
                const bool reads = std::any_of(op.reads.begin(), op.reads.end(), [&](BufferId read) {
                    return program.buffer(read).parent == root;
                });
                EXPECT_TRUE(reads) << opName(op);
                EXPECT_EQ(op.microbatch, 0);
            }
        }
        EXPECT_GT(waitedFor.size(), 4U);
        job.comm.overlapParams = false;
        const auto serial = makePlan(job);
        const Op &first = serial->program(kind, 0).op(buckets);
        EXPECT_EQ(first.kind, OpKind::LoadBatch);
        EXPECT_EQ(first.waits, std::vector<OpId>{buckets - 1});
    }
}

TEST(Passes, AccumulateOnlyAfterTheFirstContribution)
{
    for (const bool tied : {true, false}) {
        spec::JobSpec job = smallJob(2, 1, 3);
        job.model.tied = tied;
        const StepProgram program = trainOf(makePlan(job));
        std::vector<bool> written(program.buffers.size(), false);
        for (const Op &op : program.ops) {
            for (const BufferId id : op.writes) {
                const bool tensor =
                    program.buffer(id).kind == MemoryKind::Grads && program.buffer(id).parent != none;
                if (!tensor || op.unit.kind == UnitKind::None)
                    continue;
                EXPECT_EQ(op.accumulate, written[static_cast<std::size_t>(id)]) << opName(op);
            }
            for (const BufferId id : op.writes)
                written[static_cast<std::size_t>(id)] = true;
        }
        EXPECT_EQ(findOp(program, OpKind::BackwardWeight, Segment::Lookup, 0)->accumulate, tied);
    }
}

TEST(Passes, LossInChunks)
{
    spec::JobSpec job = smallJob(1, 0, 1);
    job.model.seq = 400;
    job.model.vocab = 60000;
    const StepProgram program = trainOf(makePlan(job));
    const std::int64_t chunk = lossChunkTokens(job);
    std::int64_t next = 0;
    BufferId logits = none;
    for (const Op &op : program.ops) {
        if (op.segment != Segment::Loss)
            continue;
        EXPECT_EQ(op.rowBegin, next);
        EXPECT_EQ(op.accumulate, next > 0);
        EXPECT_EQ(op.flops, 6 * (op.rowEnd - op.rowBegin) * 8 * 60000);
        EXPECT_TRUE(logits == none || logits == op.writes[3]) << "all chunks use one buffer";
        logits = op.writes[3];
        EXPECT_EQ(op.releases.empty(), op.rowEnd < 800);
        next = op.rowEnd;
    }
    EXPECT_EQ(next, 800);
    EXPECT_EQ(program.buffer(logits).bytes, chunk * 60000 * 4);
}

TEST(Passes, ZeroZeroKeepsBucketsWhole)
{
    const StepProgram program = trainOf(makePlan(smallJob(3, 0)));
    for (const Bucket &bucket : program.buckets) {
        EXPECT_EQ(bucket.slices, 1);
        EXPECT_EQ(bucket.group, 0);
        EXPECT_EQ(bucket.paramSlice, bucket.param);
        EXPECT_EQ(bucket.gradSlice, bucket.grad);
        EXPECT_EQ(numelOf(program.buffer(bucket.exp1).shape), bucket.padded);
    }
}

TEST(Passes, PlanRefusesWhatItCannotDo)
{
    const auto refusal = [](auto change) {
        spec::JobSpec job = smallJob();
        change(job);
        const auto plan = makePlan(job);
        return plan ? Error{} : plan.error();
    };
    EXPECT_EQ(refusal([](auto &j) { j.layout.tp = 3; }).where, "model.heads");
    EXPECT_EQ(refusal([](auto &j) { j.layout.pp = 4; }).where, "layout.pp");
    EXPECT_EQ(refusal([](auto &j) { j.layout.virtualStages = 2; }).where, "layout.virtual");
    EXPECT_EQ(refusal([](auto &j) {
                  j.layout.pp = 2;
                  j.layout.schedule = "zbv";
              }).where,
              "layout.virtual");
    EXPECT_EQ(refusal([](auto &j) {
                  j.layout.pp = 2;
                  j.layout.stages = {{0, 2}};
              }).where,
              "layout.stages");
    for (const std::int64_t stage : {2, 3}) {
        const Error error = refusal([&](auto &j) {
            j.zero.stage = stage;
            j.layout.pp = 2;
        });
        EXPECT_EQ(error.where, "zero.stage");
        EXPECT_EQ(error.expected, "1");
        EXPECT_THAT(error.what, HasSubstr("layout.pp 1 with layout.dp 4"));
    }
    EXPECT_EQ(refusal([](auto &j) { j.zero.stage = 4; }).where, "zero.stage");
    EXPECT_EQ(refusal([](auto &j) { j.layout.cp = 3; }).where, "model.seq");
    EXPECT_EQ(refusal([](auto &j) { j.model.heads = 3; }).where, "model.heads");
    EXPECT_EQ(refusal([](auto &j) { j.model.hidden = 0; }).where, "model.hidden");
    EXPECT_EQ(refusal([](auto &j) { j.model.vocab = 1ll << 62; }).where, "model.vocab");
    EXPECT_EQ(refusal([](auto &j) { j.batch.micro = -1; }).where, "batch.micro");
    const Error batch = refusal([](auto &j) { j.batch.global = 9; });
    EXPECT_EQ(batch.where, "batch.global");
    EXPECT_EQ(batch.expected, "12");
    EXPECT_EQ(batch.code, Code::BadJob);
    EXPECT_EQ(refusal([](auto &j) { j.batch.global = 1 << 24; }).code, Code::DoesNotFit);
}

} // namespace rankyard::plan
