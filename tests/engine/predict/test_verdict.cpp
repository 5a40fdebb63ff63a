// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/sources.h"
#include "engine/predict/closed_memory.h"
#include "engine/predict/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace rankyard;
using namespace rankyard::predict;

namespace {

struct Design {
    Json document;
    spec::JobSpec job;
    cluster::Cluster cluster;
    Verdict verdict;
};

Design design(const std::vector<std::string> &changes, const char *cluster)
{
    spec::JobSpec standard;
    standard.data.train = "corpus";
    Design made;
    made.document = changed(Json(spec::writeJob(standard)), changes);
    auto job = readDesign(made.document);
    EXPECT_TRUE(job) << (job ? "" : job.error().text());
    made.job = std::move(job).value();
    made.cluster = cluster::openCluster(cluster).value();
    made.verdict = judge(made.job, made.cluster, made.document);
    return made;
}

const Problem *problemAt(const Verdict &verdict, const char *path)
{
    const auto found = std::find_if(verdict.problems.begin(), verdict.problems.end(),
                                    [&](const Problem &problem) { return problem.path == path; });
    return found == verdict.problems.end() ? nullptr : &*found;
}

const Flow *flowOf(const Verdict &verdict, const char *group)
{
    const auto found = std::find_if(verdict.flows.begin(), verdict.flows.end(),
                                    [&](const Flow &flow) { return flow.group == group; });
    return found == verdict.flows.end() ? nullptr : &*found;
}

} // namespace

TEST(Verdict, MemoryIsTheProgramsAndWhatIsKeptBack)
{
    const Design d =
        design({"layout.dp=2", "layout.tp=2", "layout.pp=2", "batch.global=16", "precision.compute=\"bf16\""},
               "dgx-a100-80");
    ASSERT_EQ(d.verdict.answer, Verdict::Answer::Fits);
    ASSERT_EQ(d.verdict.stages.size(), 2u);
    const auto plan = plan::makePlan(d.job);
    ASSERT_TRUE(plan);
    for (const StageMemory &stage : d.verdict.stages) {
        const auto memory = plan::memoryOf(*plan, stage.rank);
        EXPECT_EQ(stage.used, memory.peak + (1573LL << 20) + (1024LL << 20) + 3'200'000'000); // 4 % of 80 GB
        EXPECT_EQ(stage.capacity, 80'000'000'000);
    }
    const Figure *headroom = d.verdict.figure("headroom");
    ASSERT_TRUE(headroom);
    EXPECT_EQ(
        headroom->value,
        static_cast<double>(80'000'000'000 - std::max(d.verdict.stages[0].used, d.verdict.stages[1].used)));
}

// Nothing is faster than the data sheet, 312 TFLOP/s of bf16, and what follows from the step time follows by arithmetic.
TEST(Verdict, TimesOfTheCostModel)
{
    const Design d = design({"layout.dp=2", "layout.pp=3", "batch.global=24", "precision.compute=\"bf16\""},
                            "dgx-a100-80");
    ASSERT_EQ(d.verdict.basis, Basis::Model);
    ASSERT_TRUE(d.verdict.time);
    const StepTime &step = d.verdict.time->step;
    const double work = d.verdict.figure("work")->value;
    EXPECT_GE(step.seconds, work / (6 * 312e12));
    EXPECT_LT(step.low, step.seconds);
    EXPECT_GT(step.high, step.seconds);
    EXPECT_EQ(d.verdict.figure("step")->value, step.seconds);
    EXPECT_GT(d.verdict.figure("mfu")->value, 0);
    EXPECT_LE(d.verdict.figure("mfu")->value, 1);
    const double tokens = 24 * 256;
    EXPECT_NEAR(d.verdict.figure("day")->value, tokens / step.seconds * 86400, 1);
    EXPECT_NEAR(d.verdict.figure("target")->value, 300e9 / d.verdict.figure("day")->value, 1e-6);
    // The dense part is 6 · parameters · tokens, attention comes on top; the embedding's lookup does not multiply.
    const double parameters = d.verdict.figure("parameters")->value;
    EXPECT_NEAR(work / (6 * parameters * tokens), 1, 0.15);
    ASSERT_TRUE(d.verdict.timeline);
    EXPECT_GT(d.verdict.timeline->stepNs, 0);
}

// The step is the program's, and what no op does; its parts are those of one stage and add up.
TEST(Verdict, TheStepIsTheProgramsOnceItIsThere)
{
    const Design d = design({"layout.dp=2", "layout.pp=3", "batch.global=24", "precision.compute=\"bf16\""},
                            "dgx-a100-80");
    const JobTime closed = jobTime(*costModelFor(d.job, d.cluster), d.job);
    const StepTime &step = d.verdict.time->step;
    const double software = closed.step.overhead + closed.step.launches;
    EXPECT_GT(closed.step.launches, 0) << "a model so small waits for its host";
    EXPECT_NEAR(step.seconds, 1e-9 * static_cast<double>(d.verdict.timeline->stepNs) + software,
                1e-9 * step.seconds);
    EXPECT_NEAR(step.compute + step.bubble + step.tensor + step.pipeline + step.data + step.optimizer
                    + step.overhead,
                step.seconds, 1e-9 * step.seconds);
    EXPECT_NEAR(d.verdict.time->mfu * step.seconds, closed.mfu * closed.step.seconds, 1e-9);
    EXPECT_NEAR(step.high / step.seconds, closed.step.high / closed.step.seconds, 1e-9);
}

TEST(Verdict, ClosedFormsComeFirst)
{
    spec::JobSpec job;
    job.data.train = "corpus";
    std::vector<Depth> told;
    Options options;
    options.early = [&](const Verdict &early) {
        told.push_back(early.depth);
        EXPECT_TRUE(early.isEarly());
        EXPECT_EQ(early.plan != nullptr, early.depth == Depth::Timed);
        EXPECT_EQ(early.timeline.has_value(), early.depth == Depth::Timed);
        EXPECT_EQ(early.answer, Verdict::Answer::Fits);
        EXPECT_TRUE(early.figure("step"));
        EXPECT_TRUE(early.figure("peak"));
    };
    const Verdict whole =
        judge(job, cluster::openCluster("dgx-a100-80").value(), Json(spec::writeJob(job)), options);
    EXPECT_EQ(told, (std::vector<Depth>{Depth::Closed, Depth::Timed}));
    EXPECT_FALSE(whole.isEarly());
}

// What closed forms say of each stage is what its arenas take: parameters, gradients and optimizer to the padding of shards and
// arenas, all together to a few per cent.
TEST(Verdict, ClosedMemoryIsNearTheArenas)
{
    struct Case {
        std::vector<std::string> changes;
        double tolerance;
    };
    const std::vector<std::string> large = {"model.layers=24",   "model.hidden=1024",
                                            "model.heads=16",    "model.kv_heads=16",
                                            "model.ffn=4096",    "model.seq=1024",
                                            "model.vocab=32000", "batch.micro=2",
                                            "batch.global=64",   "precision.compute=\"bf16\""};
    const Case cases[] = {
        {{"layout.dp=4"}, 0.02},
        {{"layout.dp=2", "layout.tp=4"}, 0.02},
        {{"layout.dp=2", "layout.tp=2", "layout.pp=2"}, 0.03},
        {{"layout.dp=2", "layout.pp=3", "batch.global=60"}, 0.03},
        {{"layout.dp=2", "layout.pp=4", "recompute.mode=\"full\""}, 0.03},
        {{"layout.dp=4", "recompute.mode=\"full\"", "recompute.every=3"}, 0.03},
        {{"layout.dp=4", "zero.stage=0"}, 0.02},
        {{"layout.dp=8", "zero.stage=2"}, 0.03},
        {{"layout.dp=8", "zero.stage=3"}, 0.05},
        {{"layout.dp=8", "zero.stage=3", "recompute.mode=\"full\""}, 0.05},
        {{"layout.dp=4", "layout.tp=2", "zero.stage=3", "zero.max_reuse_distance=50000000"}, 0.05},
    };
    for (const Case &one : cases) {
        std::vector<std::string> changes = large;
        changes.insert(changes.end(), one.changes.begin(), one.changes.end());
        spec::JobSpec standard;
        standard.data.train = "corpus";
        const Json document = changed(Json(spec::writeJob(standard)), changes);
        const auto job = readDesign(document);
        ASSERT_TRUE(job) << job.error().text();
        std::vector<StageMemory> closed;
        Options options;
        options.early = [&](const Verdict &early) {
            if (early.depth == Depth::Closed)
                closed = early.stages;
        };
        const Verdict whole = judge(*job, cluster::openCluster("dgx-a100-80 x 2").value(), document, options);
        ASSERT_EQ(closed.size(), whole.stages.size());
        for (std::size_t i = 0; i < closed.size(); ++i) {
            const auto exact = static_cast<double>(whole.stages[i].report.peak);
            EXPECT_NEAR(static_cast<double>(closed[i].report.peak) / exact, 1, one.tolerance)
                << "stage " << i << dumpJson(Json(one.changes));
            EXPECT_EQ(closed[i].capacity, whole.stages[i].capacity);
            EXPECT_EQ(closed[i].context, whole.stages[i].context);
            for (const auto kind :
                 {plan::MemoryKind::Params, plan::MemoryKind::Grads, plan::MemoryKind::Optimizer}) {
                const auto k = static_cast<std::size_t>(kind);
                EXPECT_NEAR(static_cast<double>(closed[i].report.bytes[k]),
                            static_cast<double>(whole.stages[i].report.bytes[k]), 0.01 * exact)
                    << plan::nameOf(kind) << " of stage " << i << dumpJson(Json(one.changes));
            }
        }
    }
}

// Stopped between the parts: nothing of an older answer is worked out any further.
TEST(Verdict, StopsAfterTheClosedForms)
{
    spec::JobSpec job;
    job.data.train = "corpus";
    std::stop_source stop;
    Options options;
    options.stop = stop.get_token();
    int told = 0;
    options.early = [&](const Verdict &) {
        ++told;
        stop.request_stop();
    };
    const Verdict verdict =
        judge(job, cluster::openCluster("dgx-a100-80").value(), Json(spec::writeJob(job)), options);
    EXPECT_TRUE(verdict.stopped);
    EXPECT_EQ(told, 1);
    EXPECT_FALSE(verdict.plan);
    const auto plan = plan::makePlan(job, plan::PlanDepth::Placed, stop.get_token());
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Code::Stopped);
}

TEST(Verdict, GroupsAndTheirWorstLinks)
{
    const Design d = design({"layout.tp=6", "layout.dp=8", "batch.global=32"}, "dgx-a100-80 x 6");
    const Flow *tensor = flowOf(d.verdict, "tp");
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->size, 6);
    EXPECT_FALSE(tensor->worst.island); // ranks 6 … 11 are on two nodes of 8
    const Problem *warned = problemAt(d.verdict, "layout.tp");
    ASSERT_TRUE(warned);
    EXPECT_EQ(warned->severity, Severity::Warning);

    const Design inside = design({"layout.tp=2", "layout.dp=4", "batch.global=16"}, "dgx-a100-80");
    ASSERT_TRUE(flowOf(inside.verdict, "tp"));
    EXPECT_TRUE(flowOf(inside.verdict, "tp")->worst.island);
    EXPECT_EQ(flowOf(inside.verdict, "tp")->worst.link.path, cluster::Path::NvSwitch);
    EXPECT_FALSE(problemAt(inside.verdict, "layout.tp"));
    const auto traffic = plan::trafficOf(*inside.verdict.plan, 0);
    EXPECT_EQ(flowOf(inside.verdict, "dp")->wire, traffic.at("dp").wire);
}

TEST(Verdict, TooFewPlacesAndIdleOnes)
{
    const Design many = design({"layout.dp=16", "batch.micro=1"}, "dgx-a100-80");
    EXPECT_EQ(many.verdict.answer, Verdict::Answer::DoesNotFit);
    const Problem *problem = problemAt(many.verdict, "layout.dp");
    ASSERT_TRUE(problem);
    EXPECT_EQ(problem->severity, Severity::Error);
    ASSERT_FALSE(problem->fixes.empty());
    EXPECT_EQ(problem->fixes[0].changes, std::vector<std::string>{"layout.dp=8"});
    const Design few = design({"layout.dp=2", "batch.micro=1"}, "dgx-a100-80");
    ASSERT_TRUE(problemAt(few.verdict, "layout.dp"));
    EXPECT_EQ(problemAt(few.verdict, "layout.dp")->severity, Severity::Advice);
}

// What is offered where memory is short does fit when it is taken.
// 16-bit weights of 7 B with their states on the host: 12 bytes a parameter, whole on each of 8 ranks, are more than a node has.
TEST(Verdict, HostMemoryIsCountedByNode)
{
    const std::vector<std::string> base = {"model.layers=32",
                                           "model.hidden=4096",
                                           "model.heads=32",
                                           "model.ffn=16384",
                                           "model.vocab=50304",
                                           "model.seq=512",
                                           "layout.dp=8",
                                           "batch.global=8",
                                           "batch.micro=1",
                                           "zero.stage=0",
                                           "recompute.mode=\"full\"",
                                           "precision.compute=\"bf16\"",
                                           "offload.optimizer=\"cpu\""};
    Design d = design(base, "dgx-h200");
    const double states = 12.0 * d.verdict.figure("parameters")->value;
    EXPECT_GE(static_cast<double>(d.verdict.hostUsed), 8 * states);
    EXPECT_LE(static_cast<double>(d.verdict.hostUsed), 1.03 * 8 * states) << "and what is on its way";
    EXPECT_EQ(d.verdict.hostCapacity, static_cast<std::int64_t>(d.cluster.types[0].hostBytes()));
    EXPECT_EQ(d.verdict.answer, Verdict::Answer::Fits) << "2 TiB";
    // A node with half a terabyte.
    for (cluster::Device &device : d.cluster.types[0].devices)
        device.bytes *= device.kind == cluster::DeviceKind::Numa ? 0.25 : 1;
    const Verdict small = judge(d.job, d.cluster, d.document);
    EXPECT_EQ(small.answer, Verdict::Answer::DoesNotFit);
    const Problem *problem = problemAt(small, "offload.optimizer");
    ASSERT_TRUE(problem);
    ASSERT_FALSE(problem->fixes.empty());
    const auto fixed = readDesign(changed(d.document, problem->fixes[0].changes));
    ASSERT_TRUE(fixed);
    EXPECT_LE(judge(*fixed, d.cluster, d.document).hostUsed, small.hostCapacity)
        << "ZeRO 1 divides them by 8";
}

TEST(Verdict, OfferedWaysOutFit)
{
    const Design d = design({"model.layers=8", "model.hidden=4096", "model.heads=32", "model.seq=1024",
                             "layout.dp=4", "batch.global=32", "batch.micro=8", "precision.compute=\"bf16\""},
                            "pcie-4090");
    ASSERT_EQ(d.verdict.answer, Verdict::Answer::DoesNotFit);
    const Problem *problem = problemAt(d.verdict, "layout");
    ASSERT_TRUE(problem);
    ASSERT_FALSE(problem->fixes.empty());
    for (const Fix &fix : problem->fixes) {
        const Json document = changed(d.document, fix.changes);
        const auto job = readDesign(document);
        ASSERT_TRUE(job);
        EXPECT_EQ(judge(*job, d.cluster, document).answer, Verdict::Answer::Fits) << fix.words;
    }
}

TEST(Verdict, APlanThatIsRefusedIsAProblemAtItsKey)
{
    const Design d = design({"layout.tp=4", "layout.dp=1"}, "dgx-a100-80"); // 6 heads
    EXPECT_EQ(d.verdict.answer, Verdict::Answer::Illegal);
    ASSERT_EQ(d.verdict.problems.size(), 1u);
    EXPECT_EQ(d.verdict.problems[0].severity, Severity::Error);
    EXPECT_FALSE(d.verdict.problems[0].path.empty());
}

TEST(Verdict, ProcessorsShareTheirNode)
{
    const Design d = design({"layout.dp=3", "batch.global=12"}, "cpu-host");
    EXPECT_EQ(d.verdict.basis, Basis::Shares);
    EXPECT_FALSE(d.verdict.time);
    ASSERT_EQ(d.verdict.stages.size(), 1u);
    EXPECT_EQ(d.verdict.stages[0].capacity, static_cast<std::int64_t>(0.96 * ((256LL << 30) / 3.0)));
    EXPECT_FALSE(d.verdict.figure("step"));
}

/// Host memory in closed form, of a model with billions of parameters: states, and what their update is fed from.
TEST(Verdict, ClosedHostMemoryIsNearTheArenas)
{
    const std::vector<std::string> llama = {"model.family=\"llama\"",
                                            "model.layers=32",
                                            "model.hidden=4096",
                                            "model.heads=32",
                                            "model.ffn=11008",
                                            "model.seq=2048",
                                            "model.vocab=32000",
                                            "model.tied=false",
                                            "layout.dp=8",
                                            "batch.global=64",
                                            "batch.micro=1",
                                            "precision.compute=\"bf16\"",
                                            "recompute.mode=\"selective\"",
                                            "offload.optimizer=\"cpu\""};
    const std::vector<std::vector<std::string>> cases = {
        {},
        {"zero.stage=2"},
        {"zero.stage=3"},
        {"offload.optimizer=\"nvme\"", "offload.nvme_path=\"/tmp\""},
        {"zero.sub_group=1000000"}};
    for (const auto &more : cases) {
        std::vector<std::string> changes = llama;
        changes.insert(changes.end(), more.begin(), more.end());
        spec::JobSpec standard;
        standard.data.train = "corpus";
        const Json document = changed(Json(spec::writeJob(standard)), changes);
        const auto job = readDesign(document);
        ASSERT_TRUE(job) << job.error().text();
        const auto closed = closedStages(*job);
        ASSERT_TRUE(closed);
        const auto plan = plan::makePlan(*job);
        ASSERT_TRUE(plan) << plan.error().text();
        const auto host =
            plan::memoryOf(*plan, plan::Role{0}).bytes[static_cast<std::size_t>(plan::MemoryKind::Host)];
        // On a disk only what an update is fed from is there: which buckets are neighbours decides.
        const double tolerance = job->offload.optimizer == "nvme" ? 0.08 : 0.03;
        EXPECT_NEAR(closed->at(0).host / static_cast<double>(host), 1, tolerance) << dumpJson(Json(more));
    }
}

/// "5,523,456" or "4 (fp32)" as a number.
double leading(const std::string &text)
{
    std::string digits;
    for (const char c : text) {
        if (c >= '0' && c <= '9')
            digits += c;
        else if (c != ',')
            break;
    }
    return std::stod(digits);
}

/// Every byte of a stage opens into a formula, and who calculates with what stands there gets what the program allocates.
TEST(Verdict, MemoryOpensIntoArithmetic)
{
    const std::vector<std::vector<std::string>> jobs = {
        {"layout.dp=3", "batch.global=12"},
        {"layout.dp=2", "layout.tp=2", "layout.pp=2", "zero.stage=1", "batch.global=16",
         "precision.compute=\"bf16\""},
        {"layout.dp=4", "zero.stage=2", "batch.global=16", "precision.compute=\"bf16\"",
         "precision.reduce=\"bf16\""},
        {"layout.dp=4", "zero.stage=3", "batch.global=16", "precision.compute=\"bf16\"",
         "recompute.mode=\"full\""},
        {"layout.dp=2", "zero.stage=1", "batch.global=16", "offload.optimizer=\"cpu\""},
        {"layout.dp=2", "zero.stage=3", "batch.global=16", "offload.optimizer=\"cpu\"",
         "offload.params=\"cpu\""},
        {"layout.pp=3", "layout.schedule=\"zbv\"", "layout.virtual=2", "batch.global=12", "batch.micro=2"}};
    for (const auto &changes : jobs) {
        const Design d = design(changes, "dgx-a100-80");
        ASSERT_TRUE(d.verdict.depth == Depth::Whole && !d.verdict.stages.empty()) << changes[0];
        for (const StageMemory &stage : d.verdict.stages) {
            double sum = 0;
            for (const Figure &figure : stage.figures) {
                EXPECT_FALSE(figure.formula.empty() || figure.source.empty() || figure.name.empty())
                    << figure.key;
                sum += figure.key == "host" ? 0 : figure.value;
                double product = 1;
                double shards = 1;
                double parameters = 0;
                double small = 0;
                bool states = false;
                for (const auto &[name, value] : figure.inputs) {
                    if (name.starts_with("bytes of a ") && figure.key != "gathered") {
                        product *= leading(value);
                        states = true;
                    }
                    if (name == "parameters of the rank")
                        parameters = leading(value);
                    if (name.starts_with("of small tensors"))
                        small = leading(value);
                    if (name == "ranks that share them")
                        shards = leading(value);
                }
                product *= std::max(0.0, parameters - small) / shards + small;
                if (states) { // arenas align tensors and shards
                    EXPECT_NEAR(figure.value / product, 1, 0.005) << figure.key << ' ' << changes[0];
                }
            }
            EXPECT_NEAR(sum, static_cast<double>(stage.used), 3) << changes[0];
        }
    }
}

TEST(Verdict, StopsWhenItIsTold)
{
    spec::JobSpec job;
    job.data.train = "corpus";
    std::stop_source stop;
    stop.request_stop();
    Options options;
    options.stop = stop.get_token();
    EXPECT_TRUE(
        judge(job, cluster::openCluster("dgx-a100-80").value(), Json(spec::writeJob(job)), options).stopped);
}
