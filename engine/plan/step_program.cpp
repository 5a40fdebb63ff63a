// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/step_program.h"

#include "engine/plan/digest.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <cstdio>

namespace rankyard::plan {

const char *nameOf(ProgramKind kind)
{
    constexpr const char *names[] = {"train", "eval", "gather"};
    return names[static_cast<std::size_t>(kind)];
}

const char *nameOf(OpKind kind)
{
    constexpr const char *names[] = {"load-batch",   "forward",    "backward-input", "backward-weight",
                                     "recompute",    "all-reduce", "reduce-scatter", "all-gather",
                                     "send",         "recv",       "shift",          "copy",
                                     "add",          "encode",     "decode",         "grad-norm",
                                     "step-scalars", "optimizer"};
    return names[static_cast<std::size_t>(kind)];
}

const char *nameOf(UnitKind kind)
{
    constexpr const char *names[] = {"none", "embedding", "attention", "mlp", "head"};
    return names[static_cast<std::size_t>(kind)];
}

const char *nameOf(Segment segment)
{
    constexpr const char *names[] = {"none", "lookup", "join", "norm", "qkv",    "kv",  "core",
                                     "out",  "up",     "act",  "down", "logits", "loss"};
    return names[static_cast<std::size_t>(segment)];
}

const char *nameOf(Stream stream)
{
    constexpr const char *names[] = {"compute", "tensor", "data", "pipeline", "copy"};
    return names[static_cast<std::size_t>(stream)];
}

const char *nameOf(MemoryKind kind)
{
    constexpr const char *names[] = {"params",   "grads",   "optimizer", "activations",
                                     "gathered", "buckets", "workspace", "host"};
    return names[static_cast<std::size_t>(kind)];
}

const char *nameOf(Pick pick)
{
    constexpr const char *names[] = {"all", "inner", "outer", "ends"};
    return names[static_cast<std::size_t>(pick)];
}

bool isCollective(OpKind kind)
{
    return kind == OpKind::AllReduce || kind == OpKind::ReduceScatter || kind == OpKind::AllGather
        || kind == OpKind::Shift;
}

bool isTransfer(OpKind kind) { return isCollective(kind) || kind == OpKind::Send || kind == OpKind::Recv; }

int laneOf(const Op &op)
{
    if (op.kind != OpKind::Send && op.kind != OpKind::Recv)
        return static_cast<int>(op.stream);
    return streamCount + 2 * op.channel + (op.kind == OpKind::Recv ? 1 : 0);
}

std::string placeName(Unit unit, Segment segment)
{
    if (unit.kind == UnitKind::None)
        return {};
    std::string name = nameOf(unit.kind);
    if (unit.layer != none)
        name += "(" + std::to_string(unit.layer) + ")";
    if (segment != Segment::None)
        name += std::string(".") + nameOf(segment);
    return name;
}

std::string opName(const Op &op)
{
    std::string name = "op " + std::to_string(op.id) + " (" + nameOf(op.kind);
    if (const std::string place = placeName(op.unit, op.segment); !place.empty())
        name += " " + place;
    if (op.microbatch != none)
        name += ", micro-batch " + std::to_string(op.microbatch);
    if (op.chunk != none)
        name +=
            std::string(op.unit.kind == UnitKind::None ? ", bucket " : ", chunk ") + std::to_string(op.chunk);
    return name + ")";
}

std::int64_t offsetOf(const StepProgram &program, BufferId id, int sliceRank)
{
    const Buffer &buffer = program.buffer(id);
    if (buffer.parent == none)
        return buffer.offset;
    std::int64_t slice = 0;
    if (buffer.sliceGroup != none) {
        const std::int32_t size = program.groups[static_cast<std::size_t>(buffer.sliceGroup)].size;
        slice = ((sliceRank + buffer.sliceShift) % size + size) % size;
    }
    return program.buffer(buffer.parent).offset + buffer.viewOffset + slice * buffer.bytes;
}

std::int64_t numelOf(const std::vector<std::int64_t> &shape)
{
    std::int64_t numel = 1;
    for (const std::int64_t size : shape)
        numel *= size;
    return numel;
}

std::string digestOfText(std::string_view text)
{
    const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
    char hex[33];
    std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return hex;
}

} // namespace rankyard::plan
