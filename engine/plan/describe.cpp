// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/step_program.h"

#include <algorithm>
#include <string_view>

namespace rankyard::plan {

namespace {

/// Columns of a terminal: bytes of UTF-8 that do not continue a character.
std::size_t widthOf(std::string_view text)
{
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(std::string text, std::size_t width, bool right = false)
{
    const std::size_t have = widthOf(text);
    const std::string space(have < width ? width - have : 0, ' ');
    return right ? space + text : text + space;
}

std::string bytesText(std::int64_t bytes) { return formatBytes(static_cast<double>(bytes)); }

std::string namesOf(const StepProgram &program, const std::vector<BufferId> &ids)
{
    std::string text;
    for (const BufferId id : ids)
        text += (text.empty() ? "" : ", ") + program.buffer(id).name;
    return text;
}

std::string whereOf(const StepProgram &program, const Op &op)
{
    std::string text = placeName(op.unit, op.segment);
    if (op.unit.kind == UnitKind::None && op.chunk != none)
        text = "bucket " + std::to_string(op.chunk);
    else if (op.rowEnd > op.rowBegin)
        text += "[" + std::to_string(op.rowBegin) + "…" + std::to_string(op.rowEnd) + ")";
    if (text.empty() && op.group != none)
        text = namesOf(program, op.writes);
    return text;
}

std::string lineOf(const StepProgram &program, const Op &op, std::size_t idWidth)
{
    std::string line = padded(std::to_string(op.id), idWidth + 2, true) + "  " + padded(nameOf(op.stream), 8)
        + " " + padded(nameOf(op.kind), 16) + padded(whereOf(program, op), 18) + " "
        + padded(op.microbatch == none ? "" : "mb " + std::to_string(op.microbatch), 6);
    if (op.group != none)
        line += program.groups[static_cast<std::size_t>(op.group)].name + " " + bytesText(op.payload) + "  ";
    line += namesOf(program, op.reads);
    if (!op.writes.empty())
        line += std::string(op.reads.empty() ? "" : " ") + (op.accumulate ? "+→ " : "→ ")
            + namesOf(program, op.writes);
    if (!op.waits.empty()) {
        line += "  waits";
        for (const OpId wait : op.waits)
            line += " " + std::to_string(wait);
    }
    if (!op.releases.empty())
        line += "  frees " + namesOf(program, op.releases);
    return line + "\n";
}

} // namespace

std::string describe(const StepProgram &program)
{
    const auto collectives = std::count_if(program.ops.begin(), program.ops.end(),
                                           [](const Op &op) { return isCollective(op.kind); });
    std::string text = std::string(nameOf(program.kind)) + " program, stage "
        + std::to_string(program.role.stage) + ": " + std::to_string(program.ops.size()) + " ops, "
        + std::to_string(collectives) + " collectives, digest " + program.digest + "\n";
    for (const Group &group : program.groups) {
        text += "group  " + padded(group.name, 12) + std::to_string(group.size) + " ranks over";
        for (const std::string &axis : group.axes)
            text += " " + axis;
        text += "\n";
    }
    for (const Arena &arena : program.arenas)
        text += "arena  " + padded(nameOf(arena.kind), 12) + bytesText(arena.bytes)
            + (arena.shared ? ", shared with the host's ranks" : "") + (arena.disk ? ", in a file" : "")
            + "\n";
    for (std::size_t i = 0; i < program.buckets.size(); ++i) {
        const Bucket &bucket = program.buckets[i];
        const auto nameAt = [&](TensorId id) { return program.tensors[static_cast<std::size_t>(id)].name; };
        text += "bucket " + padded(std::to_string(i), 12) + std::to_string(bucket.numel) + " elements in "
            + std::to_string(bucket.tensors.size()) + " tensors";
        if (!bucket.tensors.empty())
            text += ", " + nameAt(bucket.tensors.front())
                + (bucket.tensors.size() > 1 ? " … " + nameAt(bucket.tensors.back()) : "");
        if (bucket.slices > 1)
            text += "; " + std::to_string(bucket.slices) + " slices of "
                + std::to_string(bucket.padded / bucket.slices);
        text += "\n";
    }
    const std::size_t idWidth = std::to_string(program.ops.size()).size();
    for (const Op &op : program.ops)
        text += lineOf(program, op, idWidth);
    return text;
}

} // namespace rankyard::plan
