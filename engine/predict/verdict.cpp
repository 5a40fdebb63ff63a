// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/verdict.h"

#include "engine/predict/capacity.h"
#include "engine/predict/closed_memory.h"
#include "engine/predict/durations.h"
#include "engine/predict/footprint.h"
#include "engine/predict/verdict_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace rankyard::predict {

namespace {

using plan::Plan;
using plan::StepProgram;

std::size_t at(std::int64_t id) { return static_cast<std::size_t>(id); }

const cluster::Device &deviceOf(const Ground &ground, int slot)
{
    const auto place = ground.slots.place(slot);
    return ground.cluster.types[at(place.type)].devices[at(place.device)];
}

/// First rank of each stage: its ranks are alike.
std::vector<int> stageRanks(const plan::RankGrid &grid, std::int64_t stages)
{
    std::vector<int> first(at(stages), -1);
    for (int rank = 0; rank < grid.world(); ++rank) {
        int &known = first[at(grid.role(rank).stage)];
        if (known < 0)
            known = rank;
    }
    return first;
}

/// Which capacity each stage has, and what of it is kept back.
void addRoom(const Ground &ground, const plan::RankGrid &grid, Verdict &verdict)
{
    const bool gpus = ground.slots.kind() == cluster::DeviceKind::Gpu;
    for (StageMemory &memory : verdict.stages) {
        memory.used = memory.report.peak;
        if (gpus)
            memory.used -= memory.report.bytes[at(static_cast<int>(plan::MemoryKind::Host))];
    }
    // Every rank counts: nodes of two kinds give two capacities. Equal nodes are looked at once.
    std::map<std::pair<int, int>, Room> rooms;
    for (int rank = 0; ground.placed() && rank < grid.world(); ++rank) {
        const auto place = ground.slots.place(rank);
        const auto [known, fresh] = rooms.try_emplace({place.type, gpus ? place.device : place.node});
        if (fresh)
            known->second = roomOf(ground, rank);
        StageMemory &memory = verdict.stages[at(grid.role(rank).stage)];
        if (memory.capacity == 0 || known->second.capacity < memory.capacity) {
            memory.capacity = known->second.capacity;
            memory.context = known->second.context;
        }
    }
    for (StageMemory &memory : verdict.stages)
        memory.used += memory.context;
}

/// Host memory of nodes with GPUs: what their ranks keep there adds up.
void addHost(const Ground &ground, const plan::RankGrid &grid, Verdict &verdict)
{
    verdict.hostUsed = verdict.hostCapacity = 0;
    if (ground.slots.kind() != cluster::DeviceKind::Gpu || !ground.placed())
        return;
    std::map<int, std::int64_t> used; // by node
    for (int rank = 0; rank < grid.world(); ++rank) {
        const StageMemory &stage = verdict.stages[at(grid.role(rank).stage)];
        used[ground.slots.place(rank).node] +=
            stage.report.bytes[at(static_cast<int>(plan::MemoryKind::Host))];
    }
    for (const auto &[node, bytes] : used) {
        const int type = ground.slots.place(ground.slots.firstOf(node)).type;
        const auto capacity = static_cast<std::int64_t>(ground.cluster.types[at(type)].hostBytes());
        if (verdict.hostCapacity == 0 || bytes - capacity > verdict.hostUsed - verdict.hostCapacity) {
            verdict.hostUsed = bytes;
            verdict.hostCapacity = capacity;
        }
    }
}

/// `reports` by stage.
void addStages(const Ground &ground, std::vector<plan::MemoryReport> reports, Verdict &verdict)
{
    const plan::RankGrid grid(ground.job.layout);
    const std::vector<int> ranks = stageRanks(grid, ground.job.layout.pp);
    const std::vector<StageMemory> before = std::exchange(verdict.stages, {});
    for (std::size_t stage = 0; stage < reports.size(); ++stage) {
        StageMemory memory;
        memory.stage = static_cast<int>(stage);
        memory.rank = ranks[stage];
        memory.report = std::move(reports[stage]);
        if (stage < before.size())
            memory.figures = before[stage].figures;
        verdict.stages.push_back(std::move(memory));
    }
    addRoom(ground, grid, verdict);
    for (StageMemory &stage : verdict.stages)
        renewFigures(stage);
    addHost(ground, grid, verdict);
}

} // namespace

cluster::Slots::Worst worstOfKind(const Ground &ground, const plan::RankGrid &grid, const plan::Group &group)
{
    cluster::Slots::Worst worst;
    bool first = true;
    std::vector<bool> seen(at(grid.world()), false);
    for (int rank = 0; rank < grid.world(); ++rank) {
        if (seen[at(rank)])
            continue;
        const std::vector<int> members = grid.members(rank, group);
        for (const int member : members)
            seen[at(member)] = true;
        if (members.size() < 2)
            continue;
        const auto one = ground.slots.worstOf(members);
        const bool worse = first || one.link.path > worst.link.path
            || (one.link.path == worst.link.path && one.link.bandwidth < worst.link.bandwidth);
        const bool island = (first || worst.island) && one.island;
        if (worse)
            worst = one;
        worst.island = island;
        first = false;
    }
    return worst;
}

namespace {

void addFlows(const Ground &ground, const Plan &plan, Verdict &verdict)
{
    std::map<std::string, Flow> flows;
    for (const StageMemory &stage : verdict.stages) {
        const StepProgram &program = plan.program(plan::ProgramKind::Train, stage.rank);
        for (const auto &[name, traffic] : plan::trafficOf(plan, stage.rank)) {
            Flow &flow = flows[name];
            flow.group = name;
            flow.payload = std::max(flow.payload, traffic.payload);
            flow.wire = std::max(flow.wire, traffic.wire);
        }
        for (const plan::Group &group : program.groups) {
            const auto found = flows.find(group.name);
            if (found == flows.end() || found->second.size > 0)
                continue;
            found->second.size = group.size;
            found->second.placed = ground.placed();
            if (ground.placed())
                found->second.worst = worstOfKind(ground, plan.grid, group);
        }
        if (ground.stopped())
            return;
    }
    for (auto &[name, flow] : flows)
        verdict.flows.push_back(std::move(flow));
    std::sort(verdict.flows.begin(), verdict.flows.end(), [](const Flow &a, const Flow &b) {
        return a.wire != b.wire ? a.wire > b.wire : a.group < b.group;
    });
}

/// The program's time line by the cost model; without one, with operations as nanoseconds.
void addTimes(const Ground &ground, const Plan &plan, Verdict &verdict)
{
    const plan::Duration modelled = ground.cost ? durationsOf(*ground.cost, ground.job) : plan::Duration();
    const auto duration = [&](const StepProgram &program, const plan::Op &op) -> std::int64_t {
        if (ground.stopped())
            return 0;
        return modelled ? modelled(program, op) : op.flops;
    };
    auto timeline = ground.cost ? timelineOf(*ground.cost, plan, duration)
                                : plan::simulate(plan, plan::ProgramKind::Train, duration);
    if (!timeline) {
        verdict.notes.push_back("The step could not be timed: " + timeline.error().text());
        return;
    }
    verdict.timeline = std::move(timeline).value();
    verdict.bubble = verdict.timeline->bubble();
    if (verdict.basis == Basis::Shares)
        return;
    settle(*verdict.time, programTimeOf(*verdict.timeline));
    for (Flow &flow : verdict.flows) {
        for (const StageMemory &stage : verdict.stages) {
            const StepProgram &program = plan.program(plan::ProgramKind::Train, stage.rank);
            double seconds = 0;
            for (const plan::Op &op : program.ops) {
                if (op.group != plan::none && program.groups[at(op.group)].name == flow.group)
                    seconds += static_cast<double>(duration(program, op)) / 1e9;
            }
            flow.seconds = std::max(flow.seconds, seconds);
            const auto &exposed = verdict.timeline->stages[at(stage.stage)].exposedNs;
            const auto found = exposed.find(flow.group);
            if (found != exposed.end())
                flow.exposed = std::max(flow.exposed, static_cast<double>(found->second) / 1e9);
        }
    }
}

void addNotes(const Ground &ground, Verdict &verdict)
{
    if (verdict.basis == Basis::Model)
        verdict.notes.push_back("Times by the cost model with constants from "
                                + ground.cost->constants().source + " on " + ground.cost->constants().family
                                + "; 80 % of steps are expected within the interval.");
    else
        verdict.notes.push_back(
            "Times are shares: operations count as time, transfers and memory cost nothing. The cluster does "
            "not say how fast its devices are.");
    if (ground.slots.kind() == cluster::DeviceKind::Gpu && !verdict.stages.empty()
        && verdict.stages[0].context > 0)
        verdict.notes.push_back(
            "Memory counts 1.5 GiB a GPU for the driver's context, as was measured on A100, 1 GiB for communication and 4 % of headroom.");
    for (const std::string &note : ground.cluster.notes)
        verdict.notes.push_back(note);
}

} // namespace

const Figure *Verdict::figure(std::string_view key) const
{
    const auto found =
        std::find_if(figures.begin(), figures.end(), [&](const Figure &f) { return f.key == key; });
    return found == figures.end() ? nullptr : &*found;
}

plan::MemoryReport reportOf(const ClosedMemory &closed)
{
    using plan::MemoryKind;
    plan::MemoryReport report;
    for (const auto &[kind, bytes] : {std::pair{MemoryKind::Params, closed.params},
                                      {MemoryKind::Grads, closed.grads},
                                      {MemoryKind::Optimizer, closed.optimizer},
                                      {MemoryKind::Activations, closed.activations},
                                      {MemoryKind::Gathered, closed.gathered},
                                      {MemoryKind::Buckets, closed.buckets},
                                      {MemoryKind::Workspace, closed.workspace},
                                      {MemoryKind::Host, closed.host}}) {
        const std::int64_t whole = std::llround(bytes);
        report.bytes[static_cast<std::size_t>(kind)] = whole;
        report.peak += whole;
    }
    return report;
}

Room roomOf(const Ground &ground, int slot)
{
    const auto place = ground.slots.place(slot);
    const cluster::Node &node = ground.cluster.types[at(place.type)];
    if (ground.slots.kind() == cluster::DeviceKind::Gpu) {
        const double bytes = deviceOf(ground, slot).bytes;
        const Capacity capacity = capacityOf(bytes);
        return {static_cast<std::int64_t>(bytes),
                static_cast<std::int64_t>(capacity.bytes - capacity.usable())};
    }
    const int first = ground.slots.firstOf(place.node);
    const auto world =
        static_cast<int>(std::min<std::int64_t>(ground.job.layout.world(), ground.slots.count()));
    const int ranks = std::max(1, std::min(world, ground.slots.firstOf(place.node + 1)) - first);
    return {static_cast<std::int64_t>(capacityOfShare(node.hostBytes() / ranks).usable()), 0};
}

namespace {

/// What follows from the parts that are there: answer, figures, problems, notes.
void conclude(const Ground &ground, Depth depth, Verdict &verdict)
{
    verdict.depth = depth;
    verdict.figures.clear();
    verdict.problems.clear();
    verdict.answer = ground.placed() ? Verdict::Answer::Fits : Verdict::Answer::DoesNotFit;
    for (const StageMemory &stage : verdict.stages) {
        if (!ground.placed())
            break;
        if (stage.capacity <= 0)
            verdict.answer = Verdict::Answer::NotKnown;
        else if (stage.headroom() < 0)
            verdict.answer = Verdict::Answer::DoesNotFit;
        if (verdict.answer != Verdict::Answer::Fits)
            break;
    }
    if (verdict.hostCapacity > 0 && verdict.hostUsed > verdict.hostCapacity)
        verdict.answer = Verdict::Answer::DoesNotFit;
    addFigures(ground, verdict);
    addAdvice(ground, verdict);
}

/// Stages, time and bubble without a program.
Status addClosed(const Ground &ground, Verdict &verdict)
{
    RY_TRY(plan::checkJob(ground.job));
    RY_ASSIGN(const auto stages, closedStages(ground.job));
    std::vector<plan::MemoryReport> reports;
    for (const ClosedStage &stage : stages) {
        reports.push_back(reportOf(stage));
        verdict.stages.emplace_back().figures = memoryFigures(ground.job, stage);
    }
    addStages(ground, std::move(reports), verdict);
    if (ground.cost) {
        verdict.basis = Basis::Model;
        verdict.time = jobTime(*ground.cost, ground.job);
        verdict.bubble = verdict.time->step.bubbleShare();
    }
    return {};
}

/// The program's transfers and time line. Its memory waits for the arenas, which take several times as long.
Status addProgram(const Ground &ground, Verdict &verdict)
{
    RY_ASSIGN(auto made, plan::makePlan(ground.job, plan::PlanDepth::Ordered, ground.options.stop));
    const auto plan = std::make_shared<const Plan>(std::move(made));
    verdict.plan = plan;
    addFlows(ground, *plan, verdict);
    if (!ground.stopped())
        addTimes(ground, *plan, verdict);
    return {};
}

Status addArenas(const Ground &ground, Verdict &verdict)
{
    RY_ASSIGN(const auto plan, plan::makePlan(ground.job, plan::PlanDepth::Placed, ground.options.stop));
    std::vector<plan::MemoryReport> reports;
    for (std::int32_t stage = 0; stage < ground.job.layout.pp; ++stage)
        reports.push_back(plan::memoryOf(plan, plan::Role{stage}));
    addStages(ground, std::move(reports), verdict);
    return {};
}

} // namespace

Verdict judge(const spec::JobSpec &job, const cluster::Cluster &cluster, const Json &document,
              const Options &options)
{
    Verdict verdict;
    Ground ground{job, cluster, cluster::Slots(cluster), document, options};
    if (auto cost = costModelFor(job, cluster))
        ground.cost = std::move(cost).value();
    const std::pair<Depth, Status (*)(const Ground &, Verdict &)> parts[] = {
        {Depth::Closed, addClosed}, {Depth::Timed, addProgram}, {Depth::Whole, addArenas}};
    for (const auto &[depth, add] : parts) {
        const Status added = add(ground, verdict);
        if (ground.stopped()) {
            verdict.stopped = true;
            return verdict;
        }
        if (!added) {
            verdict.answer = Verdict::Answer::Illegal;
            verdict.depth = Depth::Whole;
            verdict.problems = {problemOf(added.error(), document)};
            return verdict;
        }
        conclude(ground, depth, verdict);
        if (depth == Depth::Closed)
            addNotes(ground, verdict);
        if (depth != Depth::Whole && options.early)
            options.early(verdict);
    }
    return verdict;
}

} // namespace rankyard::predict
