// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/simulate.h"

#include <algorithm>
#include <array>

namespace rankyard::plan {

namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

bool acrossStages(const Group &group)
{
    return std::find(group.axes.begin(), group.axes.end(), "pp") != group.axes.end();
}

/// A program on its way; an op is timed once all that it needs is timed.
struct Runner {
    const StepProgram *program = nullptr;
    std::int32_t stage = 0;
    std::vector<OpTime> times;
    std::vector<bool> done;
    std::array<std::vector<OpId>, laneCount> lanes;
    std::array<std::size_t, laneCount> next{};
    std::array<std::int64_t, laneCount> free{}; ///< when the lane's last op ended
};

class Simulation
{
public:
    Simulation(const Plan &plan, ProgramKind kind, const Duration &duration, Progress progress);
    Result<Timeline> run();

private:
    int laneOf(const Runner &runner, const Op &op) const;
    OpId head(const Runner &runner, int lane) const;
    std::int64_t readyAt(const Runner &runner, const Op &op) const;
    void finish(Runner &runner, const Op &op, std::int64_t begin, std::int64_t end);
    bool step(Runner &runner, int lane);
    bool transfer(Runner &runner, const Op &op);
    Runner *peerOf(const Runner &runner, const Op &op);
    static void blame(const Runner &runner, StageTimes &stage, const Op &op, std::int64_t begin,
                      std::int64_t end);
    StageTimes account(const Runner &runner, std::int64_t stepNs) const;

    const Plan &m_plan;
    const Duration &m_duration;
    Progress m_progress;
    std::vector<Runner> m_runners; ///< by stage
};

Simulation::Simulation(const Plan &plan, ProgramKind kind, const Duration &duration, Progress progress)
    : m_plan(plan),
      m_duration(duration),
      m_progress(progress)
{
    for (const StepProgram &program : plan.programs) {
        if (program.kind != kind)
            continue;
        Runner runner;
        runner.program = &program;
        runner.stage = program.role.stage;
        runner.times.resize(program.ops.size());
        runner.done.assign(program.ops.size(), false);
        for (const Op &op : program.ops)
            runner.lanes[at(laneOf(runner, op))].push_back(op.id);
        m_runners.push_back(std::move(runner));
    }
    std::sort(m_runners.begin(), m_runners.end(),
              [](const Runner &a, const Runner &b) { return a.stage < b.stage; });
}

/// What crosses stages waits for others beside the thread in any case: these do not do the same at the same time.
int Simulation::laneOf(const Runner &runner, const Op &op) const
{
    const bool onThread = m_progress == Progress::OnThread && op.stream != Stream::Pipeline
        && (op.group == none || !acrossStages(runner.program->groups[at(op.group)]));
    return onThread ? static_cast<int>(Stream::Compute) : plan::laneOf(op);
}

/// The next op of a lane, when all that it waits for is timed; none else.
OpId Simulation::head(const Runner &runner, int lane) const
{
    const auto &ops = runner.lanes[at(lane)];
    if (runner.next[at(lane)] >= ops.size())
        return none;
    const OpId id = ops[runner.next[at(lane)]];
    const auto &waits = runner.program->op(id).waits;
    return std::all_of(waits.begin(), waits.end(), [&](OpId wait) { return runner.done[at(wait)]; }) ? id
                                                                                                     : none;
}

std::int64_t Simulation::readyAt(const Runner &runner, const Op &op) const
{
    std::int64_t ready = runner.free[at(laneOf(runner, op))];
    for (const OpId wait : op.waits)
        ready = std::max(ready, runner.times[at(wait)].end);
    return ready;
}

void Simulation::finish(Runner &runner, const Op &op, std::int64_t begin, std::int64_t end)
{
    const auto lane = at(laneOf(runner, op));
    runner.times[at(op.id)] = {begin, end};
    runner.done[at(op.id)] = true;
    runner.free[lane] = end;
    ++runner.next[lane];
}

Runner *Simulation::peerOf(const Runner &runner, const Op &op)
{
    const auto stages = static_cast<std::int32_t>(m_runners.size());
    return &m_runners[at(((runner.stage + op.peer) % stages + stages) % stages)];
}

/// Groups across stages meet; in the others all members are alike, so that one stands for them.
bool Simulation::transfer(Runner &runner, const Op &op)
{
    std::vector<std::pair<Runner *, OpId>> meeting = {{&runner, op.id}};
    if (op.kind == OpKind::Send || op.kind == OpKind::Recv) {
        Runner *peer = peerOf(runner, op);
        const int lane = plan::laneOf(op) + (op.kind == OpKind::Send ? 1 : -1);
        meeting.emplace_back(peer, head(*peer, lane));
    } else {
        const Group &group = runner.program->groups[at(op.group)];
        const bool across = acrossStages(group);
        for (Runner &other : m_runners) {
            const auto has = [&](const Group &g) { return g.name == group.name; };
            const auto &groups = other.program->groups;
            if (!across || &other == &runner || std::none_of(groups.begin(), groups.end(), has))
                continue;
            const OpId id = head(other, laneOf(runner, op));
            const bool same = id != none && other.program->op(id).group != none
                && other.program->groups[at(other.program->op(id).group)].name == group.name;
            meeting.emplace_back(&other, same ? id : none);
        }
    }
    std::int64_t begin = 0;
    std::int64_t lasts = 0;
    for (const auto &[member, id] : meeting) {
        if (id == none)
            return false;
        const Op &own = member->program->op(id);
        begin = std::max(begin, readyAt(*member, own));
        lasts = std::max(lasts, m_duration(*member->program, own));
    }
    for (const auto &[member, id] : meeting)
        finish(*member, member->program->op(id), begin, begin + lasts);
    return true;
}

bool Simulation::step(Runner &runner, int lane)
{
    const OpId id = head(runner, lane);
    if (id == none)
        return false;
    const Op &op = runner.program->op(id);
    if (isTransfer(op.kind))
        return transfer(runner, op);
    const std::int64_t begin = readyAt(runner, op);
    finish(runner, op, begin, begin + m_duration(*runner.program, op));
    return true;
}

/// Why `op` could not run from `begin` to `end`: a transfer, for as long as that ran; before that, what the transfer waited for. Where
/// nobody here is late, another stage is, whose message or norm is missing.
void Simulation::blame(const Runner &runner, StageTimes &stage, const Op &op, std::int64_t begin,
                       std::int64_t end)
{
    const auto charge = [&](const Op &guilty, std::int64_t from) {
        from = std::clamp(from, begin, end);
        if (from == end)
            return;
        if (guilty.stream == Stream::Pipeline || guilty.group == none)
            stage.bubbleNs += end - from;
        else if (acrossStages(runner.program->groups[at(guilty.group)]))
            stage.barrierNs += end - from;
        else
            stage.exposedNs[runner.program->groups[at(guilty.group)].name] += end - from;
        end = from;
    };
    const Op *waiting = &op;
    while (end > begin) {
        const Op *cause = nullptr;
        for (const OpId wait : waiting->waits) {
            if (!cause || runner.times[at(wait)].end > runner.times[at(cause->id)].end)
                cause = &runner.program->op(wait);
        }
        charge(*waiting, cause ? runner.times[at(cause->id)].end : begin);
        if (!cause)
            return;
        charge(*cause, runner.times[at(cause->id)].begin);
        waiting = cause;
    }
}

/// Each gap before an op of the compute stream belongs to what that op waited for last.
StageTimes Simulation::account(const Runner &runner, std::int64_t stepNs) const
{
    StageTimes stage;
    stage.ops = runner.times;
    std::int64_t free = 0;
    for (const OpId id : runner.lanes[at(static_cast<int>(Stream::Compute))]) {
        const Op &op = runner.program->op(id);
        const OpTime &time = runner.times[at(id)];
        const std::int64_t gap = time.begin - free;
        free = time.end;
        if (isTransfer(op.kind))
            stage.exposedNs[runner.program->groups[at(op.group)].name] += time.end - time.begin;
        else
            stage.computeNs += time.end - time.begin;
        if (gap > 0)
            blame(runner, stage, op, time.begin - gap, time.begin);
    }
    stage.bubbleNs += stepNs - free;
    return stage;
}

Result<Timeline> Simulation::run()
{
    for (bool moved = true; moved;) {
        moved = false;
        for (Runner &runner : m_runners) {
            for (int lane = 0; lane < laneCount; ++lane) {
                while (step(runner, lane))
                    moved = true;
            }
        }
    }
    Timeline timeline;
    for (const Runner &runner : m_runners) {
        const auto stuck = std::find(runner.done.begin(), runner.done.end(), false);
        if (stuck != runner.done.end())
            return Error::make(
                Code::Internal, "never starts",
                "stage " + std::to_string(runner.stage) + ", "
                    + opName(runner.program->ops[static_cast<std::size_t>(stuck - runner.done.begin())]));
        for (const OpTime &time : runner.times)
            timeline.stepNs = std::max(timeline.stepNs, time.end);
    }
    for (const Runner &runner : m_runners)
        timeline.stages.push_back(account(runner, timeline.stepNs));
    return timeline;
}

} // namespace

double Timeline::bubble() const
{
    std::int64_t idle = 0;
    for (const StageTimes &stage : stages)
        idle += stage.bubbleNs + stage.barrierNs;
    const double whole = static_cast<double>(stepNs) * static_cast<double>(stages.size());
    return whole > 0 ? static_cast<double>(idle) / whole : 0;
}

void Timeline::stretch(double factor)
{
    const auto longer = [factor](std::int64_t &ns) {
        ns = static_cast<std::int64_t>(static_cast<double>(ns) * factor);
    };
    longer(stepNs);
    for (StageTimes &stage : stages) {
        for (OpTime &op : stage.ops) {
            longer(op.begin);
            longer(op.end);
        }
        longer(stage.computeNs);
        longer(stage.bubbleNs);
        longer(stage.barrierNs);
        for (auto &[group, ns] : stage.exposedNs)
            longer(ns);
    }
}

std::int64_t transferNs(const StepProgram &program, const Op &op, const Link &link)
{
    const int size = op.group == none ? 1 : program.groups[at(op.group)].size;
    const OpKind kind = op.kind == OpKind::Recv ? OpKind::Send : op.kind; // one message, seen from both sides
    const auto bytes = static_cast<double>(wireBytes(kind, op.payload, size));
    return static_cast<std::int64_t>(link.latencyNs + (link.bytesPerNs > 0 ? bytes / link.bytesPerNs : 0));
}

Result<Timeline> simulate(const Plan &plan, ProgramKind kind, const Duration &duration, Progress progress)
{
    return Simulation(plan, kind, duration, progress).run();
}

} // namespace rankyard::plan
