// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/probe/probe.h"

#include "engine/cluster/sources.h"
#include "engine/predict/capacity.h"
#include "engine/predict/durations.h"
#include "engine/predict/step_time.h"
#include "engine/predict/verdict.h"
#include "engine/probe/crew.h"
#include "engine/probe/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sched.h>

namespace rankyard::probe {
namespace {

/// A machine that nobody has: round numbers.
cluster::Measured madeUp()
{
    cluster::Measured measured;
    measured.values = {
        {"peak_fp32", 80e9}, {"peak_bf16", 150e9},   {"memory_bandwidth", 12e9}, {"operands", 0.2},
        {"kernel", 2e-6},    {"attention", 0.7},     {"attention_fp32", 1.2},    {"attention_backward", 0.8},
        {"head_half", 16},   {"attention_tile", 64}, {"traffic", 0.6},           {"exponential", 3e-10}};
    return measured;
}

/// Trials that took exactly what a cost model says, without having run.
std::vector<Trial> trialsOf(const cluster::Measured &measured)
{
    std::vector<Trial> trials;
    for (const DType type : {DType::F32, DType::BF16}) {
        for (const spec::JobSpec &job : trialJobs(3, type)) {
            Trial trial;
            trial.job = job;
            trial.plan = std::make_unique<plan::Plan>(plan::makePlan(job, plan::PlanDepth::Placed).value());
            const plan::StepProgram &program = trial.plan->program(plan::ProgramKind::Train, 0);
            const plan::Duration duration = predict::durationsOf(modelOf(measured), job);
            for (const plan::Op &op : program.ops) {
                if (const std::int64_t ns = duration(program, op); ns > 0 && !plan::isTransfer(op.kind))
                    trial.samples.push_back({&program, op.id, 2, 1e-9 * static_cast<double>(ns)});
            }
            trials.push_back(std::move(trial));
        }
    }
    return trials;
}

double worstOf(const cluster::Measured &measured, const std::vector<Trial> &trials)
{
    double worst = 0;
    for (const Trial &trial : trials) {
        const plan::Duration duration = predict::durationsOf(modelOf(measured), trial.job);
        for (const Sample &sample : trial.samples) {
            const double predicted =
                1e-9 * static_cast<double>(duration(*sample.program, sample.program->op(sample.op)));
            worst = std::max(worst, std::abs(predicted / sample.seconds - 1));
        }
    }
    return worst;
}

/// Bytes and steps by the formulas of a ring (Thakur et al. 2005).
std::vector<LinkSample> linksOf(double bandwidth, double latency)
{
    std::vector<LinkSample> links;
    for (const int n : {2, 5}) {
        for (const double bytes : {4e3, 1e6, 64e6}) {
            const double way = bytes * (n - 1) / n / bandwidth + latency * (n - 1) / 7;
            links.push_back({plan::OpKind::AllReduce, n, static_cast<std::int64_t>(bytes), 2 * way});
            links.push_back({plan::OpKind::AllGather, n, static_cast<std::int64_t>(bytes), way});
        }
    }
    return links;
}

TEST(Probe, FitFindsTheMachineThatMadeTheSamples)
{
    const auto trials = trialsOf(madeUp());
    const auto found = fit(trials, linksOf(5e9, 3e-6));
    ASSERT_TRUE(found);
    EXPECT_LT(worstOf(*found, trials), 0.02);
    EXPECT_NEAR(found->values.at("peak_fp32"), 80e9, 2e9);
    EXPECT_NEAR(found->values.at("peak_bf16"), 150e9, 4e9);
    EXPECT_FALSE(found->values.contains("peak_fp16")) << "nothing of it was measured";
    EXPECT_NEAR(found->values.at("link_bandwidth"), 5e9, 5e6);
    EXPECT_NEAR(found->values.at("island_latency"), 3e-6, 3e-9);
    for (const cluster::Measured::Fit &kind : found->fits) {
        EXPECT_GT(kind.samples, 0) << kind.what;
        EXPECT_LT(kind.median, 0.01) << kind.what;
    }
}

TEST(Probe, ADisturbedTrialDoesNotPullTheOthers)
{
    auto trials = trialsOf(madeUp());
    for (Sample &sample : trials[1].samples)
        sample.seconds *= 1.9;
    const auto found = fit(trials, {});
    ASSERT_TRUE(found);
    for (const std::size_t undisturbed : {0, 2, 3, 5}) {
        const plan::Duration duration = predict::durationsOf(modelOf(*found), trials[undisturbed].job);
        double predicted = 0, measured = 0;
        for (const Sample &sample : trials[undisturbed].samples) {
            predicted += 1e-9 * static_cast<double>(duration(*sample.program, sample.program->op(sample.op)));
            measured += sample.seconds;
        }
        EXPECT_NEAR(predicted / measured, 1, 0.03) << undisturbed;
    }
}

TEST(Probe, NothingMeasuredIsAnError)
{
    const auto found = fit({}, {});
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Code::NotHere);
}

TEST(Probe, TrialsSampleWhatComputesOnEveryRank)
{
    const spec::JobSpec job = trialJobs(3, DType::F32).front();
    const auto trial = runTrial(
        job, [] { return exec::makeCpuDevice(1); }, 2);
    ASSERT_TRUE(trial) << trial.error().text();
    int qkv = 0;
    for (const Sample &sample : trial->samples) {
        const plan::Op &op = sample.program->op(sample.op);
        EXPECT_FALSE(plan::isTransfer(op.kind)) << plan::opName(op);
        EXPECT_GT(sample.seconds, 0) << plan::opName(op);
        if (op.kind == plan::OpKind::Forward && op.segment == plan::Segment::Qkv)
            qkv += sample.times;
    }
    // 2 steps, 3 ranks, 2 layers, 2 micro-batches
    EXPECT_EQ(qkv, 2 * 3 * 2 * 2);
}

TEST(Probe, LinksAreMeasuredByPlacementKindAndSize)
{
    const auto links = measureLinks({{"neighbours", 2}, {"all", 3}}, [] { return false; });
    ASSERT_TRUE(links);
    // Four kinds of five sizes for two ranks; three ranks do not send in pairs.
    EXPECT_EQ(links->size(), 4u * 5 + 3 * 5);
    for (const LinkSample &link : *links) {
        EXPECT_GT(link.seconds, 0);
        EXPECT_EQ(link.placement, link.ranks == 2 ? "neighbours" : "all");
    }
    EXPECT_TRUE(measureLinks({{"neighbours", 2}}, [] { return true; })->empty());
}

TEST(Probe, GroupsKnowWhereTheirRanksAre)
{
    const auto placed = [](int ranks, const std::vector<std::vector<int>> &cores) {
        std::string text;
        for (const LinkGroup &group : linkGroups(ranks, cores)) {
            text += group.placement + " " + std::to_string(group.ranks);
            for (const int core : group.cores)
                text += " " + std::to_string(core);
            text += "; ";
        }
        return text;
    };
    EXPECT_EQ(placed(1, {{0}}), "neighbours 2; ");
    EXPECT_EQ(placed(2, {{0, 1}}), "neighbours 2 0 1; ");
    EXPECT_EQ(placed(8, {{0, 1, 2, 3}, {4, 5, 6, 7}}),
              "neighbours 2 0 1; across memory nodes 2 0 4; all 8; ");
    EXPECT_EQ(placed(2, {{3}, {9}}), "neighbours 2; across memory nodes 2 3 9; ");
    // Each core of this process is in one place.
    std::size_t cores = 0;
    for (const auto &node : coresByMemory())
        cores += node.size();
    cpu_set_t own;
    ASSERT_EQ(::sched_getaffinity(0, sizeof own, &own), 0);
    EXPECT_EQ(cores, static_cast<std::size_t>(CPU_COUNT(&own)));
    // A rank is where its group says.
    int core = -1;
    const auto look = [&](int) -> Status {
        core = ::sched_getcpu();
        return {};
    };
    ASSERT_TRUE(crew(1, look, {coresByMemory().front().back()}));
    EXPECT_EQ(core, coresByMemory().front().back());
}

TEST(Probe, StopsWhenItIsTold)
{
    Options options;
    options.makeDevice = [] { return exec::makeCpuDevice(1); };
    options.stop = [] { return true; };
    const auto report = run(options);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, Code::Stopped);
}

// ------------------------------------------------------------------------------ a measured machine is a cluster

cluster::Cluster measuredHosts(const char *description)
{
    cluster::Cluster made = cluster::readSynthetic(description, "made").value();
    made.measured = madeUp();
    made.measured->host = "somewhere";
    made.measured->fits = {{"matrix products fp32", 12, 0.03, 0.2}};
    made.measured->values["link_bandwidth"] = 5e9;
    made.measured->values["team"] = 0.5;
    return made;
}

TEST(Probe, ClusterFilesKeepWhatWasMeasured)
{
    const cluster::Cluster made = measuredHosts("package:1 core:8 pu:1");
    const OrderedJson written = cluster::writeCluster(made);
    const auto read = cluster::readCluster(Json(written), "file");
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(*read, made);
    Json broken = written;
    broken["measured"]["values"]["peak_fp32"] = "fast";
    const auto refused = cluster::readCluster(broken, "file");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, "measured.values.peak_fp32");
}

TEST(Probe, RanksShareTheCores)
{
    const cluster::Cluster made = measuredHosts("package:1 core:8 pu:1");
    const auto each = predict::machineOf(made);
    ASSERT_TRUE(each) << each.error().text();
    EXPECT_DOUBLE_EQ(each->peak[0], 80e9);
    EXPECT_TRUE(each->cooperative);
    // Four cores a rank: 1 + 3 · 0.5
    EXPECT_DOUBLE_EQ(predict::machineOf(made, {2, 0})->peak[0], 2.5 * 80e9);
    EXPECT_DOUBLE_EQ(predict::machineOf(made, {2, 3})->peak[0], 2 * 80e9);
    const auto crowded = predict::machineOf(made, {24, 0});
    EXPECT_DOUBLE_EQ(crowded->peak[0], 80e9);
    EXPECT_DOUBLE_EQ(crowded->ranksPerCore, 3);
}

TEST(Probe, UnknownConstantsAreRefused)
{
    cluster::Cluster made = measuredHosts("package:1 core:2 pu:1");
    made.measured->values["warp"] = 9;
    const auto cost = predict::costModelOf(made);
    ASSERT_FALSE(cost);
    EXPECT_EQ(cost.error().where, "measured.values.warp");
    made.measured.reset();
    EXPECT_EQ(predict::costModelOf(made).error().code, Code::NotHere);
}

/// The closed form, by which a search ranks, and the program's time line agree as on GPUs: also where ranks share cores, and one works
/// while another waits.
TEST(Probe, ClosedFormIsTheTimeLineOnSharedCores)
{
    const cluster::Cluster made = measuredHosts("package:1 core:2 pu:1");
    struct Case {
        std::int64_t dp, tp, pp;
        const char *schedule;
        std::int64_t zero;
    };
    const Case cases[] = {{1, 1, 2, "1f1b", 0},  {2, 1, 1, "1f1b", 1},  {1, 1, 3, "1f1b", 0},
                          {1, 1, 4, "gpipe", 0}, {2, 1, 2, "1f1b", 1},  {3, 1, 1, "1f1b", 0},
                          {1, 1, 5, "1f1b", 0},  {2, 1, 4, "zb-h1", 0}, {4, 1, 2, "1f1b", 0},
                          {1, 2, 2, "1f1b", 0},  {2, 2, 2, "1f1b", 1}};
    for (const Case &one : cases) {
        spec::JobSpec job;
        job.model.layers = 12;
        job.model.hidden = 512;
        job.model.heads = 8;
        job.model.seq = 256;
        job.model.vocab = 2048;
        job.layout.dp = one.dp;
        job.layout.tp = one.tp;
        job.layout.pp = one.pp;
        job.layout.schedule = one.schedule;
        job.zero.stage = one.zero;
        job.batch.micro = 1;
        job.batch.global = 8 * one.dp;
        job.optimizer.clip = 0;
        const auto cost = predict::costModelFor(job, made);
        ASSERT_TRUE(cost) << cost.error().text();
        const auto plan = plan::makePlan(job, plan::PlanDepth::Ordered);
        ASSERT_TRUE(plan) << plan.error().text();
        const auto line = predict::timelineOf(*cost, *plan);
        ASSERT_TRUE(line) << line.error().text();
        const double ratio =
            predict::jobTime(*cost, job).step.seconds / (1e-9 * static_cast<double>(line->stepNs));
        EXPECT_NEAR(ratio, 1, 0.02) << one.dp << one.tp << one.pp << one.schedule;
    }
}

/// The room that the Design page counts with is the room that `plan` and the search count with: 3 ranks of one host.
TEST(Probe, RanksOfAHostHaveOneRoomWhoeverAsks)
{
    const cluster::Cluster made = measuredHosts("package:1 core:4 pu:1");
    spec::JobSpec job = trialJobs(3, DType::F32)[1];
    const auto cost = predict::costModelFor(job, made);
    ASSERT_TRUE(cost) << cost.error().text();
    const auto verdict = predict::judge(job, made, Json::object());
    ASSERT_FALSE(verdict.stages.empty());
    EXPECT_GT(verdict.stages[0].capacity, 0);
    EXPECT_NEAR(static_cast<double>(verdict.stages[0].capacity - verdict.stages[0].context),
                predict::capacityOf(cost->machine()).usable(), 1);
}

TEST(Probe, TransfersTakeTheComputingThreadsTime)
{
    const cluster::Cluster made = measuredHosts("package:1 core:4 pu:1");
    spec::JobSpec job = trialJobs(4, DType::F32)[1];
    job.comm.overlapGrads = true;
    const auto plan = plan::makePlan(job, plan::PlanDepth::Placed);
    ASSERT_TRUE(plan);
    const auto cost = predict::costModelOf(made, predict::ranksOf(job));
    ASSERT_TRUE(cost);
    const auto line = predict::timelineOf(*cost, *plan);
    ASSERT_TRUE(line);
    const plan::Duration duration = predict::durationsOf(*cost, job);
    std::int64_t all = 0;
    for (const plan::StepProgram &program : plan->programs) {
        if (program.kind != plan::ProgramKind::Train)
            continue;
        for (const plan::Op &op : program.ops)
            all += duration(program, op);
    }
    EXPECT_EQ(line->stepNs, all) << "one rank a core: one after the other";
    // The same ranks on half the cores take twice as long.
    const cluster::Cluster half = measuredHosts("package:1 core:2 pu:1");
    const auto crowded = predict::timelineOf(*predict::costModelOf(half, predict::ranksOf(job)), *plan);
    ASSERT_TRUE(crowded);
    EXPECT_NEAR(static_cast<double>(crowded->stepNs), 2.0 * static_cast<double>(all),
                1e-6 * static_cast<double>(all));
}

TEST(Probe, StagesOfACoreFillEachOthersWaits)
{
    spec::JobSpec job = trialJobs(1, DType::F32)[1];
    job.layout.pp = 2;
    job.batch.micro = 1;
    job.batch.global = 4;
    const auto plan = plan::makePlan(job, plan::PlanDepth::Placed);
    ASSERT_TRUE(plan) << plan.error().text();
    const auto stepOn = [&](const char *cores) {
        return predict::timelineOf(*predict::costModelOf(measuredHosts(cores), predict::ranksOf(job)), *plan)
            .value();
    };
    const plan::Timeline apart = stepOn("package:1 core:2 pu:1"), together = stepOn("package:1 core:1 pu:1");
    std::int64_t busy = 0;
    for (const plan::StageTimes &stage : apart.stages) {
        busy += stage.computeNs;
        for (const auto &[group, ns] : stage.exposedNs)
            busy += ns;
    }
    EXPECT_GT(apart.bubble(), 0.1);
    EXPECT_NEAR(static_cast<double>(together.stepNs), static_cast<double>(busy),
                1e-3 * static_cast<double>(busy))
        << "no bubble is left";
    EXPECT_LT(together.stepNs, 2 * apart.stepNs);
}

} // namespace
} // namespace rankyard::probe
