// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/digest.h"
#include "engine/plan/step_program.h"

namespace rankyard::plan {

namespace {

// ---- Writing: keys in the order of DESIGN 1.4, defaults left out ----

OrderedJson write(const Group &group)
{
    OrderedJson json = {{"id", group.id}, {"name", group.name}, {"axes", group.axes}, {"size", group.size}};
    if (group.pick != Pick::All)
        json["pick"] = nameOf(group.pick);
    return json;
}

OrderedJson write(const Arena &arena)
{
    OrderedJson json = {{"id", arena.id}, {"kind", nameOf(arena.kind)}, {"bytes", arena.bytes}};
    if (arena.shared)
        json["shared"] = true;
    if (arena.disk)
        json["disk"] = true;
    return json;
}

OrderedJson write(const Buffer &buffer)
{
    OrderedJson json = {{"id", buffer.id},
                        {"name", buffer.name},
                        {"kind", nameOf(buffer.kind)},
                        {"dtype", nameOf(buffer.dtype)},
                        {"shape", buffer.shape},
                        {"arena", buffer.arena},
                        {"offset", buffer.offset},
                        {"bytes", buffer.bytes}};
    if (buffer.shared)
        json["shared"] = true;
    if (buffer.disk)
        json["disk"] = true;
    if (buffer.persistent)
        json["persistent"] = true;
    if (buffer.parent != none) {
        json["parent"] = buffer.parent;
        json["view_offset"] = buffer.viewOffset;
    }
    if (buffer.sliceGroup != none)
        json["slice_group"] = buffer.sliceGroup;
    if (buffer.sliceShift != 0)
        json["slice_shift"] = buffer.sliceShift;
    if (buffer.tensor != none)
        json["tensor"] = buffer.tensor;
    return json;
}

OrderedJson write(const Tensor &tensor)
{
    OrderedJson json = {{"id", tensor.id},       {"name", tensor.name},     {"shape", tensor.shape},
                        {"index", tensor.index}, {"bucket", tensor.bucket}, {"offset", tensor.offset},
                        {"decay", tensor.decay}};
    if (tensor.global != tensor.shape)
        json["global"] = tensor.global;
    if (tensor.axis != none)
        json["axis"] = tensor.axis;
    for (const Section &section : tensor.sections)
        json["sections"].push_back({section.global, section.local, section.copies});
    if (!tensor.counted)
        json["counted"] = false;
    if (tensor.param != none)
        json["param"] = tensor.param;
    if (tensor.grad != none)
        json["grad"] = tensor.grad;
    return json;
}

OrderedJson write(const Bucket &bucket)
{
    OrderedJson json = {{"numel", bucket.numel}, {"padded", bucket.padded}, {"slices", bucket.slices}};
    const auto put = [&](const char *key, std::int32_t id) {
        if (id != none)
            json[key] = id;
    };
    put("group", bucket.group);
    put("replicas", bucket.replicas);
    put("tie", bucket.tie);
    json["tensors"] = bucket.tensors;
    put("param", bucket.param);
    put("grad", bucket.grad);
    put("param_slice", bucket.paramSlice);
    put("grad_slice", bucket.gradSlice);
    put("exp1", bucket.exp1);
    put("exp2", bucket.exp2);
    put("master", bucket.master);
    put("error", bucket.error);
    return json;
}

OrderedJson write(const Op &op)
{
    OrderedJson json = {{"id", op.id}, {"kind", nameOf(op.kind)}};
    const auto put = [&](const char *key, std::int64_t value, std::int64_t standard) {
        if (value != standard)
            json[key] = value;
    };
    if (op.unit.kind != UnitKind::None)
        json["unit"] = nameOf(op.unit.kind);
    put("layer", op.unit.layer, none);
    if (op.segment != Segment::None)
        json["segment"] = nameOf(op.segment);
    put("microbatch", op.microbatch, none);
    put("chunk", op.chunk, none);
    put("row_begin", op.rowBegin, 0);
    put("row_end", op.rowEnd, 0);
    json["stream"] = nameOf(op.stream);
    put("group", op.group, none);
    put("peer", op.peer, 0);
    put("channel", op.channel, none);
    if (op.accumulate)
        json["accumulate"] = true;
    json["reads"] = op.reads;
    json["writes"] = op.writes;
    if (!op.releases.empty())
        json["releases"] = op.releases;
    if (!op.waits.empty())
        json["waits"] = op.waits;
    put("payload", op.payload, 0);
    put("flops", op.flops, 0);
    return json;
}

template<typename T>
OrderedJson writeAll(const std::vector<T> &list)
{
    OrderedJson json = OrderedJson::array();
    for (const T &item : list)
        json.push_back(write(item));
    return json;
}

/// The canonical document; every key but the digest.
OrderedJson writeBody(const StepProgram &program)
{
    return {{"schema", "rankyard/program/1"},
            {"kind", nameOf(program.kind)},
            {"role", {{"stage", program.role.stage}}},
            {"groups", writeAll(program.groups)},
            {"arenas", writeAll(program.arenas)},
            {"buffers", writeAll(program.buffers)},
            {"tensors", writeAll(program.tensors)},
            {"buckets", writeAll(program.buckets)},
            {"ops", writeAll(program.ops)},
            {"stats", program.stats}};
}

} // namespace

OrderedJson writeProgram(const StepProgram &program)
{
    OrderedJson json = writeBody(program);
    json["digest"] = program.digest;
    return json;
}

/// The text of writeBody() without its tree, which for long programs costs more than all passes.
std::string digestOf(const StepProgram &program)
{
    const auto scalar = [](const std::string &key, const OrderedJson &value) {
        return "\"" + key + "\":" + dumpJson(value) + ",";
    };
    const auto list = [](const std::string &key, const auto &items) {
        std::string text = "\"" + key + "\":[";
        for (const auto &item : items)
            text += dumpJson(write(item)) + ",";
        if (!items.empty())
            text.pop_back();
        return text + "],";
    };
    std::string text = "{" + scalar("schema", "rankyard/program/1") + scalar("kind", nameOf(program.kind))
        + scalar("role", {{"stage", program.role.stage}});
    text += list("groups", program.groups) + list("arenas", program.arenas);
    text += list("buffers", program.buffers);
    text += list("tensors", program.tensors) + list("buckets", program.buckets);
    text += list("ops", program.ops) + scalar("stats", program.stats);
    text.back() = '}';
    return digestOfText(text);
}

} // namespace rankyard::plan
