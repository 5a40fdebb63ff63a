// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/plan.h"

#include "engine/plan/combine.h"
#include "engine/plan/simulate.h"
#include "engine/plan/units.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

/// Adds what is alive in one program to `report`: per kind its own peak, over all kinds the peak at one moment.
void addLive(const StepProgram &program, MemoryReport &report)
{
    struct Change {
        std::array<std::int64_t, memoryKindCount> by{};
    };
    std::vector<Change> changes(program.ops.size() + 2);
    std::vector<bool> seen(program.buffers.size(), false);
    const auto add = [&](std::size_t when, const Buffer &buffer, std::int64_t sign) {
        if (!buffer.disk)
            changes[when].by[static_cast<std::size_t>(buffer.kind)] += sign * ((buffer.bytes + 63) / 64 * 64);
    };
    for (const Buffer &buffer : program.buffers) {
        if (buffer.persistent && buffer.parent == none)
            add(0, buffer, 1);
    }
    for (const Op &op : program.ops) {
        for (const auto *list : {&op.reads, &op.writes}) {
            for (const BufferId id : *list) {
                const BufferId parent = program.buffer(id).parent;
                const Buffer &root = program.buffer(parent == none ? id : parent);
                if (!root.persistent && !seen[at(root.id)])
                    add(at(op.id), root, 1);
                seen[at(root.id)] = true;
            }
        }
        for (const BufferId id : op.releases)
            add(at(op.id) + 1, program.buffer(id), -1);
    }
    std::array<std::int64_t, memoryKindCount> live{};
    for (const Change &change : changes) {
        std::int64_t all = 0;
        for (std::size_t k = 0; k < live.size(); ++k) {
            live[k] += change.by[k];
            report.live[k] = std::max(report.live[k], live[k]);
            all += live[k];
        }
        report.liveAtOnce = std::max(report.liveAtOnce, all);
    }
}

OrderedJson memoryJson(const MemoryReport &memory)
{
    OrderedJson json;
    for (int kind = 0; kind < memoryKindCount; ++kind)
        json[nameOf(static_cast<MemoryKind>(kind))] = memory.bytes[at(kind)];
    json["peak"] = memory.peak;
    return json;
}

} // namespace

MemoryReport memoryOf(const Plan &plan, int rank) { return memoryOf(plan, plan.grid.role(rank)); }

MemoryReport memoryOf(const Plan &plan, Role role)
{
    MemoryReport report;
    for (const StepProgram &program : plan.programs) {
        if (!(program.role == role))
            continue;
        std::array<std::int64_t, memoryKindCount> bytes{};
        for (const Arena &arena : program.arenas)
            bytes[static_cast<std::size_t>(arena.kind)] += arena.disk ? 0 : arena.bytes;
        for (std::size_t k = 0; k < bytes.size(); ++k)
            report.bytes[k] = std::max(report.bytes[k], bytes[k]);
        addLive(program, report);
    }
    for (const std::int64_t bytes : report.bytes)
        report.peak += bytes;
    return report;
}

std::int64_t wireBytes(OpKind kind, std::int64_t payload, int groupSize)
{
    if (kind == OpKind::Send || kind == OpKind::Shift)
        return payload;
    if (groupSize < 2 || !isCollective(kind))
        return 0;
    const std::int64_t once =
        payload / groupSize * (groupSize - 1) + payload % groupSize * (groupSize - 1) / groupSize;
    return kind == OpKind::AllReduce ? 2 * once : once;
}

std::map<std::string, Traffic> trafficOf(const Plan &plan, int rank)
{
    std::map<std::string, Traffic> traffic;
    const StepProgram &program = plan.program(ProgramKind::Train, rank);
    for (const Op &op : program.ops) {
        if (op.group == none)
            continue;
        const Group &group = program.groups[at(op.group)];
        Traffic &sum = traffic[group.name];
        sum.payload += op.payload;
        sum.wire += wireBytes(op.kind, op.payload, group.size);
    }
    return traffic;
}

namespace {

/// With operations as time: every stage as fast as the others, transfers for nothing.
double bubbleOf(const Plan &plan)
{
    if (plan.job.layout.pp == 1)
        return 0;
    const auto timeline =
        simulate(plan, ProgramKind::Train, [](const StepProgram &, const Op &op) { return op.flops; });
    return timeline ? timeline->bubble() : 0;
}

} // namespace

namespace {

struct RoleReport {
    OrderedJson comm = OrderedJson::object();
    OrderedJson payload = OrderedJson::object();
    std::int64_t flops = 0;
    std::int64_t collectives = 0;
    const StepProgram *program = nullptr;
};

/// Of the ranks of one role, which are alike.
RoleReport roleReport(const Plan &plan, int rank)
{
    RoleReport report;
    report.program = &plan.program(ProgramKind::Train, rank);
    for (const auto &[group, sum] : trafficOf(plan, rank)) {
        report.comm[group] = sum.wire;
        report.payload[group] = sum.payload;
    }
    for (const Op &op : report.program->ops) {
        report.flops += op.flops;
        report.collectives += isCollective(op.kind) ? 1 : 0;
    }
    return report;
}

OrderedJson countsJson(const RoleReport &role)
{
    return {{"ops", role.program->ops.size()},
            {"collectives", role.collectives},
            {"buffers", role.program->buffers.size()},
            {"buckets", role.program->buckets.size()}};
}

/// The larger of both, key by key.
void raise(OrderedJson &most, const OrderedJson &other)
{
    for (const auto &[key, value] : other.items()) {
        if (!most.contains(key) || most[key].get<std::int64_t>() < value.get<std::int64_t>())
            most[key] = value;
    }
}

} // namespace

OrderedJson planReport(const Plan &plan)
{
    OrderedJson ranks = OrderedJson::array();
    std::map<std::int32_t, MemoryReport> memoryOfStage; // ranks of a role are alike
    OrderedJson stages = OrderedJson::array();
    OrderedJson comm = OrderedJson::object();
    OrderedJson payload = OrderedJson::object();
    OrderedJson counts = OrderedJson::object();
    std::int64_t flops = 0;
    for (int rank = 0; rank < plan.grid.world(); ++rank) {
        const std::int32_t stage = plan.grid.role(rank).stage;
        if (!memoryOfStage.contains(stage)) {
            memoryOfStage[stage] = memoryOf(plan, rank);
            const RoleReport role = roleReport(plan, rank);
            raise(comm, role.comm);
            raise(payload, role.payload);
            raise(counts, countsJson(role));
            flops = std::max(flops, role.flops);
            stages.push_back({{"stage", stage},
                              {"comm", role.comm},
                              {"payload", role.payload},
                              {"flops", role.flops},
                              {"program", countsJson(role)}});
        }
        const MemoryReport &memory = memoryOfStage[stage];
        ranks.push_back(
            {{"rank", rank}, {"stage", stage}, {"memory", memoryJson(memory)}, {"alive", memory.liveAtOnce}});
    }
    counts["digest"] = plan.digest();
    OrderedJson notes = {
        "no calibration of this device: step_ms, tflops_per_device and mfu are not predicted",
        "comm: wire bytes that a rank sends per step by the ring formula; payload: logical bytes. Over shared memory less moves",
        "comm, payload, flops, program: the most that any stage has; each stage's own are in stages",
        "bubble: with operations as time, transfers and memory for nothing",
        "memory: arenas as allocated; the libraries' own workspace comes on top",
    };
    for (std::string &note : idleNotes(plan.job))
        notes.push_back(std::move(note));
    return {{"ranks", std::move(ranks)},     {"step_ms", nullptr}, {"bubble", bubbleOf(plan)},
            {"tflops_per_device", nullptr},  {"mfu", nullptr},     {"comm", std::move(comm)},
            {"payload", std::move(payload)}, {"flops", flops},     {"program", std::move(counts)},
            {"stages", std::move(stages)},   {"notes", notes}};
}

namespace {

/// What of the tensor each rank's slice of its bucket has, in elements of the flat tensor on that rank; [0, 0] on other stages.
OrderedJson rangesOf(const Plan &plan, const StepProgram &program, const Tensor &tensor)
{
    const Bucket &bucket = program.buckets[at(tensor.bucket)];
    const std::int64_t slice = bucket.padded / bucket.slices;
    OrderedJson ranges = OrderedJson::array();
    for (int rank = 0; rank < plan.grid.world(); ++rank) {
        if (!(plan.grid.role(rank) == program.role)) {
            ranges.push_back({0, 0});
            continue;
        }
        const std::int64_t index =
            bucket.slices > 1 ? plan.grid.indexIn(rank, program.groups[at(bucket.group)]) : 0;
        const std::int64_t begin = std::clamp<std::int64_t>(index * slice - tensor.offset, 0, tensor.numel);
        const std::int64_t end =
            std::clamp<std::int64_t>((index + 1) * slice - tensor.offset, 0, tensor.numel);
        ranges.push_back({begin, end});
    }
    return ranges;
}

} // namespace

OrderedJson tensorReport(const Plan &plan)
{
    OrderedJson tensors = OrderedJson::array();
    std::int32_t slices = 1;
    for (const StepProgram &program : plan.programs) {
        if (program.kind != ProgramKind::Train)
            continue;
        for (const Bucket &bucket : program.buckets)
            slices = std::max(slices, bucket.slices);
        for (const Tensor &tensor : program.tensors) {
            tensors.push_back({{"name", tensor.name},
                               {"stage", program.role.stage},
                               {"shape", tensor.shape},
                               {"global", tensor.global},
                               {"numel", tensor.numel},
                               {"bucket", tensor.bucket},
                               {"offset", tensor.offset},
                               {"decay", tensor.decay},
                               {"ranges", rangesOf(plan, program, tensor)}});
        }
    }
    return {{"tensors", std::move(tensors)}, {"slices", slices}};
}

} // namespace rankyard::plan
