// SPDX-License-Identifier: GPL-3.0-or-later
// Communication under computation, measured with processors and a link that take given times.
#include "tests/engine/exec/slow_link.h"
#include "tests/engine/exec/small_layout.h"

#include <numeric>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

constexpr std::int64_t latencyNs = 1'000'000;
constexpr double bytesPerNs = 0.1;
constexpr std::int64_t opNs = 500'000;

/// Where a measured step went, on one rank.
struct Measured {
    std::int64_t step = 0;
    std::int64_t compute = 0;   ///< ops of the compute stream
    std::int64_t link = 0;      ///< by the closed form of the link: latency + bytes ÷ bandwidth
    std::int64_t exposed = 0;   ///< computation stood still
    int gathers = 0, ahead = 0; ///< of units' parameters; issued before the unit in front of theirs was done
};

spec::JobSpec overlapJob()
{
    spec::JobSpec job = layoutJob();
    job.model.layers = 6;
    job.layout.dp = 2;
    job.batch.global = 2 * job.batch.micro;
    job.zero.stage = 0;
    job.zero.bucketBytes = 30'000;
    job.zero.persistenceThreshold = 100;
    job.zero.prefetchBytes = 1 << 20;
    job.zero.maxReuseDistance = 0;
    return job;
}

/// Of the unit's parameters that `gather` brings: its first reader, and what computes before that.
bool issuedAhead(const Execution &execution, const plan::Op &gather)
{
    const plan::StepProgram &program = *execution.program;
    plan::OpId before = plan::none;
    for (const plan::OpId id : execution.order[static_cast<std::size_t>(plan::Stream::Compute)]) {
        const plan::Op &op = program.op(id);
        const bool reads = std::any_of(op.reads.begin(), op.reads.end(), [&](plan::BufferId read) {
            return program.buffer(read).parent == gather.writes[0];
        });
        if (reads)
            return before == plan::none
                || execution.opBegin[static_cast<std::size_t>(gather.id)]
                < execution.opEnd[static_cast<std::size_t>(before)];
        before = id;
    }
    return false;
}

Measured measured(const Execution &execution)
{
    Measured m;
    m.step = execution.endNs - execution.beginNs;
    const plan::StepProgram &program = *execution.program;
    for (const plan::Op &op : program.ops) {
        const auto id = static_cast<std::size_t>(op.id);
        if (plan::isCollective(op.kind))
            m.link += SlowLink::delayOf(op.payload, latencyNs, bytesPerNs);
        else
            m.compute += execution.opEnd[id] - execution.opBegin[id];
        if (op.kind == plan::OpKind::AllGather && !program.buffer(op.writes[0]).persistent) {
            ++m.gathers;
            m.ahead += issuedAhead(execution, op);
        }
    }
    for (const GroupTotals &group : execution.groups)
        m.exposed += group.exposedNs;
    return m;
}

/// Of rank 0's steps that in which it stood still least: others may take the processor for a while.
Measured runSlow(const spec::JobSpec &job)
{
    Measured result;
    const auto plan = plan::makePlan(job);
    EXPECT_TRUE(plan) << plan.error().text();
    SyntheticData data(job);
    auto ranks = ThreadRanks::make(
        *plan, [] { return std::make_unique<SlowDevice>(makeCpuDevice(1), opNs); },
        [&](int) { return &data; },
        [](std::unique_ptr<comm::Communicator> inner, const std::string &) {
            return std::make_unique<SlowLink>(std::move(inner), latencyNs, bytesPerNs);
        });
    EXPECT_TRUE(ranks) << ranks.error().text();
    const Status status = (*ranks)->each([&](ThreadRank &rank) -> Status {
        RY_TRY(initialiseParameters(*plan, *rank.arenas, rank.rank));
        for (int step = 1; step <= 4; ++step) {
            setStep(rank.executor->state(), job, step);
            RY_TRY(rank.executor->run(plan::ProgramKind::Train, step - 1));
            const Measured m = measured(*rank.executor->recent(0));
            if (rank.rank == 0 && (step == 1 || m.step - m.compute < result.step - result.compute))
                result = m;
        }
        return {};
    });
    EXPECT_TRUE(status) << status.error().text();
    return result;
}

} // namespace

/// Buckets are reduced while the backward goes on: the step is shorter than computation and link one after the other; without
/// overlap it is not.
TEST(Overlap, EffectOfReductionsUnderTheBackward)
{
    for (const int zero : {0, 1, 2}) {
        spec::JobSpec job = overlapJob();
        job.zero.stage = zero;
        const Measured with = runSlow(job);
        EXPECT_LT(with.step, with.compute + with.link) << "zero " << zero;
        EXPECT_LT(with.exposed, with.link);
        job.comm.overlapGrads = job.comm.overlapParams = false;
        const Measured without = runSlow(job);
        EXPECT_GE(without.step, without.compute + without.link) << "zero " << zero;
        std::printf("zero %d: step %.1f ms of %.1f + %.1f; without overlap %.1f of %.1f + %.1f\n", zero,
                    1e-6 * with.step, 1e-6 * with.compute, 1e-6 * with.link, 1e-6 * without.step,
                    1e-6 * without.compute, 1e-6 * without.link);
    }
}

/// ZeRO 3 asks for a unit's parameters while the one before computes; without prefetch only after it.
TEST(Overlap, EffectOfPrefetch)
{
    spec::JobSpec job = overlapJob();
    job.zero.stage = 3;
    const Measured with = runSlow(job);
    EXPECT_GT(with.gathers, 2 * job.model.layers);
    EXPECT_EQ(with.ahead, with.gathers) << "every gather is issued before its use";
    EXPECT_LT(with.step, with.compute + with.link);
    job.comm.overlapParams = false;
    const Measured without = runSlow(job);
    EXPECT_EQ(without.gathers, with.gathers);
    EXPECT_LE(without.ahead, 1) << "the first has nothing before it";
    std::printf("step %.1f ms of %.1f + %.1f; without prefetch %.1f of %.1f + %.1f\n", 1e-6 * with.step,
                1e-6 * with.compute, 1e-6 * with.link, 1e-6 * without.step, 1e-6 * without.compute,
                1e-6 * without.link);
}
