// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"
#include "tests/engine/long.h"
#include "tests/engine/plan/jobs.h"
#include "tests/engine/plan/mutate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rankyard::plan {

using testing::HasSubstr;

namespace {

/// tp ranks of a small llama with `keyHeads` KV heads.
spec::JobSpec tensorJob(std::int64_t tp, bool rows, const char *family = "gpt2", std::int64_t keyHeads = 0)
{
    spec::JobSpec job = smallJob(2, 1, 2);
    job.model.family = family;
    job.model.heads = 2 * tp;
    job.model.kvHeads = keyHeads > 0 ? keyHeads : 2 * tp;
    job.model.headDim = 3;
    job.model.ffn = 5 * tp;
    job.model.seq = 2 * tp;
    job.model.vocab = 17;
    job.layout.tp = tp;
    job.layout.sequenceParallel = rows;
    return job;
}

std::int64_t countOver(const StepProgram &program, OpKind kind, const std::string &group,
                       Segment segment = Segment::None)
{
    std::int64_t count = 0;
    for (const Op &op : program.ops)
        count += op.kind == kind && op.group != none
            && program.groups[static_cast<std::size_t>(op.group)].name == group
            && (segment == Segment::None || op.segment == segment);
    return count;
}

} // namespace

/// Two sums forward and two backward a layer, one for the embedding, one for the head (Shoeybi et al. 2019, figure 4).
TEST(Tensor, TransfersOfALayer)
{
    for (const char *family : {"gpt2", "llama"}) {
        const auto plan = makePlan(tensorJob(3, false, family));
        ASSERT_TRUE(plan) << plan.error().text();
        const StepProgram &train = plan->program(ProgramKind::Train, 0);
        const std::int64_t m = 2;
        const std::int64_t layers = 2;
        EXPECT_EQ(countOver(train, OpKind::AllReduce, "tp"), m * (4 * layers + 2));
        EXPECT_EQ(countOver(train, OpKind::AllGather, "tp"), m) << "statistics of the loss";
        EXPECT_EQ(countOver(train, OpKind::ReduceScatter, "tp"), 0);
        const StepProgram &eval = plan->program(ProgramKind::Eval, 0);
        EXPECT_EQ(countOver(eval, OpKind::AllReduce, "tp"), m * (2 * layers + 1));
        EXPECT_EQ(countOver(eval, OpKind::AllGather, "tp"), m);
        const std::int64_t residual = 2 * 6 * 8 * 4; // [micro·seq, hidden] fp32
        EXPECT_EQ(trafficOf(*plan, 0).at("tp").payload, m * ((4 * layers + 2) * residual + 3 * 12 * 3 * 4));
    }
}

/// Each sum becomes a scatter and a gather; backward gathers once more for the weights of qkv and up (Korthikanti et al. 2022).
TEST(Tensor, TransfersWithSequenceParallelism)
{
    for (const char *family : {"gpt2", "llama"}) {
        const auto plan = makePlan(tensorJob(3, true, family));
        ASSERT_TRUE(plan) << plan.error().text();
        const StepProgram &train = plan->program(ProgramKind::Train, 0);
        const std::int64_t m = 2;
        const std::int64_t layers = 2;
        EXPECT_EQ(countOver(train, OpKind::AllReduce, "tp"), 0);
        // Forward: lookup, out, down; backward: qkv, up, loss.
        EXPECT_EQ(countOver(train, OpKind::ReduceScatter, "tp"), m * (4 * layers + 2));
        // Forward: n of qkv, up, head; backward: dx of out, down, lookup, and n again. And the loss.
        EXPECT_EQ(countOver(train, OpKind::AllGather, "tp"), m * (6 * layers + 2 + 1));
        for (const Bucket &bucket : train.buckets) {
            const Tensor &tensor = train.tensors[static_cast<std::size_t>(bucket.tensors[0])];
            EXPECT_EQ(bucket.slices, tensor.axis == none ? 6 : 2)
                << "rows of the group have partial gradients";
        }
    }
}

/// What the residual stream keeps is 1/tp; what lies between gather and scatter is divided by heads and widths already.
TEST(Tensor, SequenceParallelismDividesActivations)
{
    for (const std::int64_t tp : {2, 3, 4}) {
        spec::JobSpec job = tensorJob(tp, true);
        job.model.hidden = 60;
        job.model.headDim = 60 / (2 * tp);
        job.model.ffn = 240;
        job.model.seq = 48;
        job.model.layers = 6;
        spec::JobSpec one = job;
        one.layout.tp = 1;
        one.layout.sequenceParallel = false;
        const auto live = [](const spec::JobSpec &j) {
            return static_cast<double>(
                memoryOf(*makePlan(j), 0).live[static_cast<std::size_t>(MemoryKind::Activations)]);
        };
        // Whole rows are alive at the head and at one gather at a time: two residuals more.
        const double residual = 2 * 48 * 60 * 4;
        EXPECT_LT(live(job), live(one) / static_cast<double>(tp) + 3 * residual);
        EXPECT_GT(live(job), live(one) / static_cast<double>(tp));
    }
}

TEST(Tensor, ShapesOfARank)
{
    const auto plan = makePlan(tensorJob(4, true, "llama", 2)); // two ranks share each KV head
    ASSERT_TRUE(plan) << plan.error().text();
    const StepProgram &train = plan->program(ProgramKind::Train, 5);
    const auto shapeOf = [&](const std::string &name) {
        for (const Buffer &buffer : train.buffers) {
            if (buffer.name == name)
                return buffer.shape;
        }
        return std::vector<std::int64_t>();
    };
    using Shape = std::vector<std::int64_t>;
    EXPECT_EQ(shapeOf("layers.0.attn.qkv.weight"), (Shape{(2 + 1 + 1) * 3, 8}));
    EXPECT_EQ(shapeOf("layers.0.attn.out.weight"), (Shape{8, 6}));
    EXPECT_EQ(shapeOf("layers.1.mlp.up.weight"), (Shape{10, 8}));
    EXPECT_EQ(shapeOf("wte.weight"), (Shape{5, 8})) << "17 rows over 4 ranks: three of padding";
    EXPECT_EQ(shapeOf("layers.0.attn.n@0"), (Shape{4, 8}));
    EXPECT_EQ(shapeOf("layers.0.attn.n.all@0"), (Shape{16, 8}));
    EXPECT_EQ(shapeOf("layers.0.attn.qkv@0"), (Shape{16, 12}));
    EXPECT_EQ(shapeOf("layers.0.attn.lse@0"), (Shape{2, 16}));
    EXPECT_EQ(shapeOf("layers.0.attn.stats@0"), (Shape{4, 1}));
    // k and v of each layer are summed over the two ranks that have them, before the replicas.
    EXPECT_EQ(countOver(train, OpKind::AllReduce, "kv"), 2);
    EXPECT_EQ(shapeOf("grad:layers.0.attn.qkv.weight.kv"), (Shape{6, 8}));
    StepProgram program = train;
    for (const Op &op : train.ops) {
        if (op.group != none && train.groups[static_cast<std::size_t>(op.group)].name == "kv") {
            removeOp(program, op.id);
            break;
        }
    }
    ASSERT_FALSE(verify(program));
    EXPECT_THAT(verify(program).error().what, HasSubstr("before its copies in the tensor group are summed"));
}

/// Every transfer is needed: without it, or with it twice, the verifier finds an op that reads the wrong thing.
TEST(Tensor, EveryTransferIsChecked)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const bool rows : {false, true}) {
        for (const char *family : {"gpt2", "llama"}) {
            spec::JobSpec job = tensorJob(2, rows, family, 1);
            job.model.dropout = 0.1;
            const auto plan = makePlan(job);
            ASSERT_TRUE(plan) << plan.error().text();
            for (const StepProgram &whole : plan->programs) {
                int checked = 0;
                for (const Op &op : whole.ops) {
                    if (!isCollective(op.kind))
                        continue;
                    for (const bool twice : {false, true}) {
                        StepProgram program = whole;
                        for (Op &other : program.ops)
                            other.waits.clear(), other.releases.clear();
                        if (twice)
                            insertCopy(program, op.id + 1, op);
                        else
                            removeOp(program, op.id);
                        dependPass({job, program});
                        std::vector<StepProgram> placed = {program};
                        placePass(placed);
                        // An all-gather out of place may stand twice: it only costs time.
                        const bool harmless =
                            twice && op.kind == OpKind::AllGather && op.unit.kind != UnitKind::None;
                        EXPECT_TRUE(harmless || !verify(placed[0]))
                            << opName(op) << (twice ? " twice" : " dropped");
                        ++checked;
                    }
                }
                EXPECT_GT(checked, 20);
            }
        }
    }
}

TEST(Tensor, RandomLayouts)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    std::mt19937_64 random(5);
    int planned = 0;
    for (int i = 0; i < 50 / sanitizerShare; ++i) {
        const spec::JobSpec job = randomLayout(random);
        const auto plan = makePlan(job);
        ASSERT_TRUE(plan) << "job " << i << ": " << plan.error().text() << " tp " << job.layout.tp << " pp "
                          << job.layout.pp << " " << job.layout.schedule << " " << job.model.family;
        ++planned;
    }
    EXPECT_EQ(planned, 50 / sanitizerShare);
}

} // namespace rankyard::plan
