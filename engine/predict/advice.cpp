// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/combine.h"
#include "engine/predict/closed_memory.h"
#include "engine/predict/footprint.h"
#include "engine/predict/verdict_parts.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace rankyard::predict {

namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

/// `changes`, if readJob takes the job with them.
std::vector<Fix> ifLegal(const Ground &ground, std::vector<std::string> changes, std::string words)
{
    const auto again = readDesign(changed(ground.document, changes));
    return again ? std::vector<Fix>{{std::move(changes), std::move(words)}} : std::vector<Fix>();
}

void append(std::vector<Fix> &list, std::vector<Fix> more)
{
    for (Fix &fix : more)
        list.push_back(std::move(fix));
}

std::string set(const char *path, std::int64_t value) { return std::string(path) + "=" + text(value); }

/// dp so that all ranks have a place, and the batch is still divided.
void addPlaces(const Ground &ground, Verdict &verdict)
{
    const spec::Layout &layout = ground.job.layout;
    const std::int64_t world = layout.world();
    const std::int64_t places = ground.slots.count();
    if (world == places || places == 0)
        return;
    Problem problem;
    problem.path = "layout.dp";
    const std::string unit = ground.slots.kind() == cluster::DeviceKind::Gpu ? " GPUs" : " cores";
    const bool tooMany = world > places;
    if (tooMany) {
        problem.severity = Severity::Error;
        problem.text = text(world) + " ranks, and the cluster has " + text(places) + unit;
    } else if (unit == " cores") {
        return; // ranks on processors take several cores each
    } else {
        problem.severity = Severity::Advice;
        problem.text = text(places - world) + " of " + text(places) + unit + " stay idle";
    }
    const std::int64_t rest = world / layout.dp;
    for (std::int64_t dp = places / rest; dp >= 1; --dp) {
        if (!tooMany && dp <= layout.dp)
            break;
        if (auto fix = ifLegal(ground, {set("layout.dp", dp)}, "dp " + text(dp)); !fix.empty()) {
            append(problem.fixes, std::move(fix));
            break;
        }
    }
    verdict.problems.push_back(std::move(problem));
}

/// Slots that one island holds: GPUs of an NVLink domain, of a node without one.
std::int64_t islandOf(const Ground &ground)
{
    const std::int64_t perNode = ground.slots.firstOf(1);
    return perNode * std::max(1, ground.cluster.fabric.domainNodes);
}

void addIslands(const Ground &ground, Verdict &verdict)
{
    const spec::Layout &layout = ground.job.layout;
    if (layout.tp < 2 || !ground.placed())
        return;
    const plan::Group group{0, "tp", {"tp"}, static_cast<std::int32_t>(layout.tp), plan::Pick::All};
    const auto worst = worstOfKind(ground, plan::RankGrid(layout), group);
    if (worst.island)
        return;
    Problem problem{Severity::Warning, "layout.tp", {}, {}};
    problem.text = "tensor groups leave their fast island and go over " + cluster::textOf(worst.link);
    std::int64_t tp = std::min(layout.tp, islandOf(ground));
    while (tp > 1 && layout.tp % tp != 0)
        --tp;
    if (tp < layout.tp) {
        const std::int64_t dp = layout.dp * (layout.tp / tp);
        append(problem.fixes,
               ifLegal(ground, {set("layout.tp", tp), set("layout.dp", dp)},
                       "tp " + text(tp) + ", dp " + text(dp)));
        const std::int64_t pp = layout.pp * (layout.tp / tp);
        append(problem.fixes,
               ifLegal(ground, {set("layout.tp", tp), set("layout.pp", pp)},
                       "tp " + text(tp) + ", pp " + text(pp)));
    }
    verdict.problems.push_back(std::move(problem));
}

/// Bytes of the fullest stage with `changes`: by its arenas, or in closed form. None where it cannot run.
std::optional<double> peakWith(const Ground &ground, const std::vector<std::string> &changes, bool exact)
{
    const auto job = readDesign(changed(ground.document, changes));
    if (!job || !plan::checkJob(*job) || ground.stopped())
        return std::nullopt;
    const bool gpus = ground.slots.kind() == cluster::DeviceKind::Gpu;
    double worst = 0;
    if (exact) {
        const auto stages = footprintOf(*job);
        if (!stages)
            return std::nullopt;
        for (const plan::MemoryReport &stage : *stages) {
            const auto host = stage.bytes[static_cast<std::size_t>(plan::MemoryKind::Host)];
            worst = std::max(worst, static_cast<double>(stage.peak - (gpus ? host : 0)));
        }
        return worst;
    }
    const auto stages = closedStages(*job);
    if (!stages)
        return std::nullopt;
    for (const ClosedMemory &stage : *stages)
        worst = std::max(worst, stage.peak() + (gpus ? 0 : stage.host));
    return worst;
}

/// From the cheapest in time to the dearest: shards cost traffic that hides, recomputation costs up to a third.
void addMemoryFixes(const Ground &ground, Verdict &verdict, Problem &problem)
{
    const spec::JobSpec &job = ground.job;
    std::vector<Fix> candidates;
    for (std::int64_t stage = job.zero.stage + 1; stage <= 3 && job.layout.dp > 1; ++stage)
        candidates.push_back({{set("zero.stage", stage)}, "ZeRO " + text(stage)});
    if (job.layout.tp > 1 && !job.layout.sequenceParallel)
        candidates.push_back({{"layout.sequence_parallel=true"}, "sequence parallel"});
    if (job.recompute.mode == "none")
        candidates.push_back({{"recompute.mode=\"selective\""}, "recompute selective"});
    if (job.recompute.mode != "full")
        candidates.push_back({{"recompute.mode=\"full\""}, "recompute full"});
    if (job.batch.micro > 1)
        candidates.push_back({{set("batch.micro", 1)}, "micro-batch 1"});
    if (job.layout.dp > 1 && job.recompute.mode != "full")
        candidates.push_back({{set("zero.stage", 3), "recompute.mode=\"full\""}, "ZeRO 3, recompute full"});
    // Each exact trial is a plan of its own: for large programs that would take longer than the answer is worth.
    constexpr std::size_t manyOps = 10'000;
    std::size_t ops = 0;
    for (std::size_t i = 0; verdict.depth == Depth::Whole && i < verdict.plan->programs.size(); ++i)
        ops += verdict.plan->programs[i].ops.size();
    const bool exact = verdict.depth == Depth::Whole && ops <= manyOps;
    const Room room = roomOf(ground, 0);
    for (Fix &candidate : candidates) {
        if (problem.fixes.size() == 3)
            break;
        const auto peak = peakWith(ground, candidate.changes, exact);
        const double left = static_cast<double>(room.capacity - room.context) - peak.value_or(HUGE_VAL);
        if (room.capacity <= 0 || left < 0)
            continue;
        candidate.words += (exact ? ": " : ": about ") + formatBytes(left) + " left";
        problem.fixes.push_back(std::move(candidate));
    }
}

void addMemory(const Ground &ground, Verdict &verdict)
{
    if (verdict.answer != Verdict::Answer::DoesNotFit || !ground.placed())
        return;
    const StageMemory *worst = nullptr;
    for (const StageMemory &stage : verdict.stages) {
        if (stage.capacity > 0 && (!worst || stage.headroom() < worst->headroom()))
            worst = &stage;
    }
    if (!worst || worst->headroom() >= 0)
        return;
    Problem problem{Severity::Error, "layout", {}, {}};
    problem.text = "stage " + text(worst->stage) + " needs " + formatBytes(static_cast<double>(worst->peak()))
        + (worst->context > 0 ? ", and of " + formatBytes(static_cast<double>(worst->capacity))
                   + " it can use " + formatBytes(static_cast<double>(worst->capacity - worst->context))
                              : ", and there are " + formatBytes(static_cast<double>(worst->capacity)));
    addMemoryFixes(ground, verdict, problem);
    verdict.problems.push_back(std::move(problem));
}

void addHostMemory(const Ground &ground, Verdict &verdict)
{
    if (verdict.hostCapacity <= 0 || verdict.hostUsed <= verdict.hostCapacity)
        return;
    Problem problem{Severity::Error, "offload.optimizer", {}, {}};
    problem.text = "the ranks of a node keep " + formatBytes(static_cast<double>(verdict.hostUsed))
        + " in its memory, and there are " + formatBytes(static_cast<double>(verdict.hostCapacity));
    if (ground.job.zero.stage == 0)
        append(problem.fixes, ifLegal(ground, {set("zero.stage", 1)}, "ZeRO 1"));
    append(problem.fixes,
           ifLegal(ground, {"offload.optimizer=\"none\"", "offload.params=\"none\""}, "no offload"));
    verdict.problems.push_back(std::move(problem));
}

void addBetter(const Ground &ground, Verdict &verdict)
{
    const spec::JobSpec &job = ground.job;
    if (job.layout.tp > 1 && !job.layout.sequenceParallel) {
        auto fixes = ifLegal(ground, {"layout.sequence_parallel=true"}, "sequence parallel");
        if (!fixes.empty())
            verdict.problems.push_back(
                {Severity::Advice, "layout.sequence_parallel",
                 "sequence parallelism keeps a part of the activations at no more traffic", fixes});
    }
    if (job.layout.pp > 1 && verdict.bubble > 0.1) {
        std::vector<Fix> fixes;
        if (job.batch.micro > 1)
            append(fixes, ifLegal(ground, {set("batch.micro", 1)}, "micro-batch 1"));
        if (job.layout.schedule == "1f1b" || job.layout.schedule == "gpipe") {
            append(fixes, ifLegal(ground, {"layout.schedule=\"zb-h1\""}, "zb-h1"));
            if (job.microBatches() % job.layout.pp == 0 && job.model.layers >= 2 * job.layout.pp)
                append(fixes,
                       ifLegal(ground, {"layout.schedule=\"interleaved\"", "layout.virtual=2"},
                               "interleaved, 2 chunks"));
        }
        verdict.problems.push_back(
            {Severity::Advice, "layout.schedule",
             "stages are idle for " + formatNumber(100 * verdict.bubble, 2) + " % of the step",
             std::move(fixes)});
    }
    const int nodes = ground.cluster.nodes();
    if (job.cluster != "local" && nodes > 0)
        verdict.problems.push_back({Severity::Note,
                                    "cluster",
                                    "planned only: this version starts runs on this machine",
                                    {{{"cluster=\"local\""}, "this machine"}}});
}

/// Settings that do nothing.
void addIdle(const Ground &ground, Verdict &verdict)
{
    for (const plan::Rule &rule : plan::idleSettings()) {
        if (rule.broken(ground.job))
            verdict.problems.push_back(
                {Severity::Note,
                 rule.path,
                 rule.found(ground.job) + " is of no use: " + rule.rule + "; think of " + rule.nearest,
                 {}});
    }
}

} // namespace

void addAdvice(const Ground &ground, Verdict &verdict)
{
    addPlaces(ground, verdict);
    addMemory(ground, verdict);
    addHostMemory(ground, verdict);
    addIslands(ground, verdict);
    addBetter(ground, verdict);
    addIdle(ground, verdict);
    std::stable_sort(verdict.problems.begin(), verdict.problems.end(),
                     [](const Problem &a, const Problem &b) { return a.severity > b.severity; });
}

} // namespace rankyard::predict
