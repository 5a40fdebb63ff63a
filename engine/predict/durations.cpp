// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/durations.h"

#include "engine/predict/step_time.h"

#include <algorithm>
#include <cmath>

namespace rankyard::predict {

namespace {

using plan::Op;
using plan::OpKind;
using plan::StepProgram;

/// Ranks of the group that share an island: as the layout's order places them, first axis fastest.
Placement placementOf(const StepProgram &program, const Op &op, const spec::Layout &layout, int island)
{
    Placement placement;
    if (op.group == plan::none)
        return placement;
    const plan::Group &group = program.groups[static_cast<std::size_t>(op.group)];
    placement.ranks = group.size;
    // Stride of the group's fastest axis: how many ranks lie between two members.
    int stride = 1;
    std::string order = layout.order + "-";
    for (std::size_t begin = 0; begin < order.size();) {
        const std::size_t end = order.find('-', begin);
        const std::string axis = order.substr(begin, end - begin);
        if (std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end())
            break;
        stride *= static_cast<int>(axis == "tp"       ? layout.tp
                                       : axis == "cp" ? layout.cp
                                       : axis == "dp" ? layout.dp
                                                      : layout.pp);
        begin = end + 1;
    }
    placement.perIsland = std::clamp(island / stride, 1, group.size);
    return placement;
}

double bytesTouched(const StepProgram &program, const Op &op)
{
    double bytes = 0;
    for (const auto *list : {&op.reads, &op.writes}) {
        for (const plan::BufferId id : *list)
            bytes += static_cast<double>(program.buffer(id).bytes);
    }
    return bytes;
}

double secondsOf(const CostModel &cost, const Local &local, const spec::JobSpec &job,
                 const StepProgram &program, const Op &op)
{
    switch (op.kind) {
    case OpKind::AllReduce:
    case OpKind::ReduceScatter:
    case OpKind::AllGather:
    case OpKind::Shift:
        return cost.collective(op.kind, static_cast<double>(op.payload),
                               placementOf(program, op, job.layout, cost.machine().island));
    case OpKind::Send:
    case OpKind::Recv:
        return cost.send(static_cast<double>(op.payload), job.layout.world() <= cost.machine().island);
    case OpKind::Forward:
    case OpKind::BackwardInput:
    case OpKind::BackwardWeight:
    case OpKind::Recompute: {
        const bool chunked = op.rowEnd > op.rowBegin;
        double tokens = chunked ? static_cast<double>(op.rowEnd - op.rowBegin) : local.tokens;
        double share = 1;
        if (op.segment == plan::Segment::Core && op.chunk != plan::none)
            share = 1 / static_cast<double>(job.layout.cp); // one block of the ring
        return share
            * segmentSeconds(cost, local, op.kind, op.unit.kind, op.segment, tokens,
                             program.kind == plan::ProgramKind::Train);
    }
    case OpKind::Optimizer:
        return cost.optimizer(bytesTouched(program, op));
    case OpKind::Copy:
        return cost.copy(bytesTouched(program, op) / 2);
    case OpKind::LoadBatch:
    case OpKind::StepScalars:
        return 0;
    default:
        return cost.elementwise(bytesTouched(program, op));
    }
}

} // namespace

plan::Duration durationsOf(const CostModel &cost, const spec::JobSpec &job)
{
    const Local local(shapeOf(job.model), microOf(job));
    return [cost, job, local](const StepProgram &program, const Op &op) {
        return static_cast<std::int64_t>(std::llround(1e9 * secondsOf(cost, local, job, program, op)));
    };
}

namespace {

/// Busy time of the ranks of one core: one of each stage, or several of one.
double busyNs(const plan::Timeline &timeline, double ranksPerCore)
{
    double busy = 0;
    for (const plan::StageTimes &stage : timeline.stages) {
        busy += static_cast<double>(stage.computeNs);
        for (const auto &[group, ns] : stage.exposedNs)
            busy += static_cast<double>(ns);
    }
    return ranksPerCore * busy / static_cast<double>(timeline.stages.size());
}

} // namespace

Result<plan::Timeline> timelineOf(const CostModel &cost, const plan::Plan &plan)
{
    return timelineOf(cost, plan, durationsOf(cost, plan.job));
}

Result<plan::Timeline> timelineOf(const CostModel &cost, const plan::Plan &plan,
                                  const plan::Duration &duration)
{
    const Machine &machine = cost.machine();
    RY_ASSIGN(plan::Timeline timeline,
              plan::simulate(plan, plan::ProgramKind::Train, duration,
                             machine.cooperative ? plan::Progress::OnThread : plan::Progress::Beside));
    const double stretch = machine.ranksPerCore > 1 ? busyNs(timeline, machine.ranksPerCore)
            / static_cast<double>(std::max<std::int64_t>(1, timeline.stepNs))
                                                    : 1;
    if (stretch > 1)
        timeline.stretch(stretch);
    return timeline;
}

} // namespace rankyard::predict
