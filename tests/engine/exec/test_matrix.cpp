// SPDX-License-Identifier: GPL-3.0-or-later
// Legal layouts drawn at random, each against one rank: what strategies do together that no test of one of them would show.
#include "engine/spec/job.h"
#include "tests/engine/exec/expect_parity.h"

#include <cstdlib>
#include <filesystem>
#include <random>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

/// Draws jobs; equal seeds give equal jobs.
class Draw
{
public:
    explicit Draw(unsigned seed) : m_engine(seed) {}

    spec::JobSpec job()
    {
        spec::JobSpec job;
        drawLayout(job);
        drawModel(job.model, job.layout.tp);
        const spec::Layout &l = job.layout;
        job.batch.micro = one({1, 2, 3});
        job.batch.global =
            l.dp * job.batch.micro * one({1, 2, 3, 4}) * (l.schedule == "interleaved" ? l.pp : 1);
        job.zero.stage = l.dp * l.cp == 1 ? 0 : l.pp > 1 ? one({0, 1}) : one({0, 1, 1, 2, 3});
        job.zero.bucketBytes = one({1, 700, 5000, 1 << 20});
        job.zero.persistenceThreshold = one({0, 50, 100000});
        job.comm.overlapGrads = one({0, 1}) == 1;
        job.comm.overlapParams = one({0, 1}) == 1;
        job.recompute.mode = oneOf({"none", "none", "selective", "attention", "full"});
        job.recompute.toHost = job.recompute.mode == "full" && one({0, 1}) == 1;
        job.recompute.partition = job.recompute.mode == "full" && l.tp > 1 && !l.sequenceParallel
            && job.batch.micro * job.model.seq / l.cp * job.model.hidden % l.tp == 0 && one({0, 1}) == 1;
        job.recompute.every = job.recompute.mode == "none" ? 1 : one({1, 1, 2});
        if (job.zero.stage > 0 && l.dp * l.cp % 2 == 0 && one({0, 1}) == 1)
            job.zero.shard = 2;
        job.offload.optimizer = oneOf({"none", "none", "cpu", "nvme"});
        if (job.offload.optimizer == "nvme")
            job.offload.nvmePath = std::filesystem::temp_directory_path().string();
        if (job.offload.optimizer != "none")
            job.offload.params = oneOf({"none", "cpu"});
        job.offload.buffers = one({1, 2, 4});
        job.zero.subGroup = one({90, 700, 1000000000});
        if (l.dp > 1 && l.cp == 1 && job.zero.stage <= 1)
            job.compression.mode = oneOf({"none", "none", "none", "fp16", "int8", "adaptive", "topk"});
        if (job.compression.mode == "none" && job.zero.stage <= 1)
            job.comm.algorithm = oneOf({"library", "ring", "direct"});
        job.compression.errorFeedback = one({0, 1}) == 1;
        job.compression.block = one({1, 30, 256});
        job.compression.density = one({1, 5}) / 10.0;
        job.precision.compute = one({0, 0, 0, 1}) == 1 ? DType::F32 : DType::F64;
        if (job.compression.mode
            != "none") // in fp32 a rounding may take the next code: another value, as right as the first
            job.precision.compute = DType::F64;
        job.precision.grad = job.precision.master = job.precision.reduce = job.precision.compute;
        const bool alike = job.compression.mode == "none" && l.cp == 1 && !l.sequenceParallel
            && job.comm.algorithm == "library" && job.precision.compute == DType::F32;
        if (alike && one({0, 1}) == 1)
            job.precision.reduce = DType::BF16;
        if (job.precision.compute == DType::F32 && one({0, 1, 2}) == 0)
            job.precision.compute = one({0, 1}) == 0 ? DType::BF16 : DType::F16;
        job.zero.prefetchBytes = one({0, 1, 20'000, 50'000'000});
        job.zero.maxLive = one({1, 3'000, 1'000'000'000});
        job.zero.maxReuseDistance = one({0, 5'000, 1'000'000'000});
        job.optimizer.lr = 1e-2;
        job.lrSchedule.warmup = 2;
        job.data.train = "none";
        return job;
    }

private:
    std::int64_t one(std::vector<std::int64_t> values) { return values[m_engine() % values.size()]; }
    std::string oneOf(std::vector<std::string> values) { return values[m_engine() % values.size()]; }

    void drawModel(spec::Model &m, std::int64_t tp)
    {
        m.family = oneOf({"gpt2", "llama"});
        m.layers = one({1, 2, 3, 5, 7});
        m.heads = tp * one({1, 2, 3});
        m.headDim = one({2, 4, 6});
        m.hidden = one({7, 16, 24});
        m.kvHeads =
            one({1, 1, 0}) == 1 && m.family == "llama" ? std::optional(one({1, tp, m.heads})) : std::nullopt;
        m.ffn = one({12, 24, 60});
        m.seq = one({8, 12, 24});
        m.vocab = one({5, 37, 64});
        m.tied = one({0, 1}) == 1;
        m.dropout = one({0, 0, 1}) == 1 ? 0.15 : 0;
    }

    void drawLayout(spec::JobSpec &job)
    {
        spec::Layout &l = job.layout;
        do {
            l.dp = one({1, 1, 2, 3, 4, 5});
            l.tp = one({1, 1, 2, 3, 4});
            l.pp = one({1, 1, 2, 3});
            l.cp = one({1, 1, 1, 2, 3});
        } while (l.world() > 8 || l.world() == 1);
        l.sequenceParallel = l.tp > 1 && one({0, 1}) == 1;
        l.order = oneOf({"tp-cp-dp-pp", "pp-dp-cp-tp", "dp-tp-pp-cp"});
        if (l.pp > 1) {
            l.schedule = oneOf({"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"});
            l.virtualStages = l.schedule == "interleaved" ? one({2, 3}) : l.schedule == "zbv" ? 2 : 1;
        }
    }

    std::mt19937 m_engine;
};

std::string nameOf(const spec::JobSpec &job)
{
    const spec::Layout &l = job.layout;
    return job.model.family + " dp " + std::to_string(l.dp) + " tp " + std::to_string(l.tp)
        + (l.sequenceParallel ? "s" : "") + " pp " + std::to_string(l.pp) + " cp " + std::to_string(l.cp)
        + " " + l.schedule + " zero " + std::to_string(job.zero.stage) + " recompute " + job.recompute.mode
        + " offload " + job.offload.optimizer + " params " + job.offload.params + " compression "
        + job.compression.mode + " " + rankyard::nameOf(job.precision.compute) + "\n"
        + dumpJson(spec::writeJob(job));
}

} // namespace

TEST(Matrix, LayoutsDrawnAtRandomGiveWhatOneRankGives)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const int usual = 8; // each takes ten times as long
#else
    const int usual = 40;
#endif
    const int wanted = std::getenv("RANKYARD_TEST_LONG") ? 500 : usual;
    int run = 0;
    std::map<std::string, int> refused, covered;
    for (unsigned seed = 1; run < wanted && seed < 200u * static_cast<unsigned>(wanted); ++seed) {
        const spec::JobSpec job = Draw(seed).job();
        const auto plan = plan::makePlan(job);
        if (!plan) {
            ++refused[plan.error().where];
            continue;
        }
        ++run;
        ++covered["tp " + std::to_string(job.layout.tp)];
        ++covered["pp " + std::to_string(job.layout.pp) + " " + job.layout.schedule];
        ++covered["cp " + std::to_string(job.layout.cp)];
        ++covered["zero " + std::to_string(job.zero.stage)];
        ++covered["recompute " + job.recompute.mode];
        ++covered["offload " + job.offload.optimizer];
        if (job.recompute.toHost)
            ++covered["to_host"];
        if (job.recompute.partition)
            ++covered["partition"];
        ++covered["shard " + std::to_string(job.zero.shard)];
        ++covered["algorithm " + job.comm.algorithm];
        ++covered["params " + job.offload.params];
        ++covered["compression " + job.compression.mode];
        ++covered[std::string("reduce ") + rankyard::nameOf(job.precision.reduce)];
        ++covered[std::string("compute ") + rankyard::nameOf(job.precision.compute)];
        ++covered["world " + std::to_string(job.layout.world())];
        // In 16 bits terms of a gradient may cancel to what two roundings leave: losses and scales are the measure.
        const bool gradients = bytesOf(job.precision.compute) > 2;
        expectParity(job, "seed " + std::to_string(seed) + ": " + nameOf(job), 3, 0.95, gradients);
        if (::testing::Test::HasFailure())
            break; // one whole description is enough
    }
    EXPECT_EQ(run, wanted);
    std::string text = std::to_string(run) + " layouts:";
    for (const auto &[name, count] : covered)
        text += " " + name + ": " + std::to_string(count) + ",";
    text += " refused by";
    for (const auto &[name, count] : refused)
        text += " " + name + ": " + std::to_string(count) + ",";
    std::printf("%s\n", text.c_str());
}
