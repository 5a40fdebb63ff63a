// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/signatures.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

/// The table of units.h from the readers' side. A read is P (a parameter), B (a bias or the positions, where the model has them),
/// X (the gradient of a branch: norm.b0, with dropout join.b0), C (of qkv: core.b0, in a ring kv.b0), or who must have written it last: segment, direction (l load, f
/// forward, b backward-input), place among the writes. A write is A (activation or its gradient), Y (one that is a partial sum over
/// the tensor group), G (a parameter's gradient), g (a bias' one), D (an activation with dropout only), S (stats), W (workspace).
/// A row without a unit is for all that have the segment and no row of their own.
struct Row {
    UnitKind unit;
    Segment segment;
    OpKind kind;
    std::string_view reads;
    std::string_view writes;
    std::string_view when =
        {}; ///< "gpt2", "llama", "train", "eval", "tensor", "whole", "ring", "single"; several with spaces
};

constexpr UnitKind any = UnitKind::None;
constexpr OpKind forward = OpKind::Forward;
constexpr OpKind bi = OpKind::BackwardInput;
constexpr OpKind bw = OpKind::BackwardWeight;
constexpr Row table[] = {
    {any, Segment::None, OpKind::LoadBatch, "", "AA"},
    {UnitKind::Embedding, Segment::Lookup, forward, "none.l0 P", "Y"},
    {UnitKind::Embedding, Segment::Join, forward, "lookup.f0 B", "A"},
    {UnitKind::Embedding, Segment::Join, bi, "norm.b0", "Dg"},
    {UnitKind::Embedding, Segment::Lookup, bw, "X none.l0", "G"},
    {any, Segment::Norm, forward, "join.f0 P B", "AA"},
    {any, Segment::Join, bi, "norm.b0", "Dg"},
    {any, Segment::Qkv, forward, "norm.f0 P B", "A"},
    {any, Segment::Qkv, bi, "C P", "YG", "gpt2"},
    {any, Segment::Qkv, bi, "C P", "AY", "llama"},
    {any, Segment::Qkv, bw, "C norm.f0", "G", "gpt2"},
    {any, Segment::Qkv, bw, "qkv.b0 norm.f0", "G", "llama"},
    {any, Segment::Core, forward, "qkv.f0", "AA", "single"},
    {any, Segment::Core, bi, "out.b0 qkv.f0 core.f0 core.f1", "A", "single"},
    {any, Segment::Kv, forward, "qkv.f0", "A", "ring"},
    {any, Segment::Core, forward, "qkv.f0 kv.f0", "AA", "ring"},
    {any, Segment::Core, bi, "out.b0 qkv.f0 kv.f0 core.f0 core.f1", "AA", "ring"},
    {any, Segment::Kv, bi, "core.b1", "A", "ring"},
    {any, Segment::Out, forward, "core.f0 P", "Y"},
    {any, Segment::Out, bi, "X P", "A"},
    {any, Segment::Out, bw, "X core.f0", "G"},
    {UnitKind::Attention, Segment::Join, forward, "join.f0 out.f0 B", "A"},
    {UnitKind::Attention, Segment::Norm, bi, "qkv.b0 join.f0 norm.f1 P norm.b0", "AGg", "gpt2"},
    {UnitKind::Attention, Segment::Norm, bi, "qkv.b1 join.f0 norm.f1 P norm.b0", "AGg", "llama"},
    {any, Segment::Up, forward, "norm.f0 P B", "AA"},
    {any, Segment::Up, bi, "down.b0 up.f0 P", "AYg"},
    {any, Segment::Up, bw, "up.b0 norm.f0", "G"},
    {UnitKind::Mlp, Segment::Act, OpKind::Recompute, "up.f0", "A"},
    {any, Segment::Down, forward, "up.f1 P", "Y"},
    {any, Segment::Down, bi, "X P", "A"},
    {any, Segment::Down, bw, "X up.f1", "G"},
    {UnitKind::Mlp, Segment::Join, forward, "join.f0 down.f0 B", "A"},
    {UnitKind::Mlp, Segment::Norm, bi, "up.b1 join.f0 norm.f1 P norm.b0", "AGg"},
    {UnitKind::Head, Segment::Norm, bi, "loss.f1 join.f0 norm.f1 P", "AGg"},
    {UnitKind::Head, Segment::Logits, forward, "norm.f0 P none.l1", "WW", "tensor"},
    {UnitKind::Head, Segment::Loss, forward, "norm.f0 P none.l1", "SYGW", "train whole"},
    {UnitKind::Head, Segment::Loss, forward, "norm.f0 P none.l1", "SW", "eval whole"},
    {UnitKind::Head, Segment::Loss, forward, "norm.f0 P none.l1 logits.f1", "SYGW", "train tensor"},
    {UnitKind::Head, Segment::Loss, forward, "none.l1 logits.f1", "S", "eval tensor"},
};

bool applies(std::string_view when, const Variant &variant)
{
    const auto has = [&](std::string_view word) { return when.find(word) != std::string_view::npos; };
    return !(has("gpt2") && !variant.biases) && !(has("llama") && variant.biases)
        && !(has("train") && !variant.train) && !(has("eval") && variant.train)
        && !(has("tensor") && !variant.tensor) && !(has("whole") && variant.tensor)
        && !(has("ring") && variant.ring == 1) && !(has("single") && variant.ring > 1);
}

Source sourceOf(std::string_view word)
{
    Source source;
    source.param = word == "P" || word == "B";
    if (source.param)
        return source;
    const std::size_t dot = word.find('.');
    for (int s = 0; s < segmentCount; ++s) {
        if (word.substr(0, dot) == nameOf(static_cast<Segment>(s)))
            source.segment = static_cast<Segment>(s);
    }
    source.direction = word[dot + 1];
    source.place = static_cast<std::size_t>(word[dot + 2] - '0');
    return source;
}

Signature parse(const Row &row, const Variant &variant)
{
    Signature signature;
    for (std::size_t begin = 0; begin < row.reads.size();) {
        const std::size_t end = std::min(row.reads.find(' ', begin), row.reads.size());
        const std::string_view word = row.reads.substr(begin, end - begin);
        begin = end + 1;
        if (word == "B" && !variant.biases)
            continue;
        signature.reads.push_back(sourceOf(word == "X"       ? (variant.dropout ? "join.b0" : "norm.b0")
                                               : word == "C" ? (variant.ring > 1 ? "kv.b0" : "core.b0")
                                                             : word));
    }
    for (const char code : row.writes) {
        if ((code == 'g' && !variant.biases) || (code == 'D' && !variant.dropout))
            continue;
        signature.writes += code == 'g' ? 'G' : code == 'D' ? 'A' : code;
    }
    return signature;
}

} // namespace

Variant::Variant(const StepProgram &program) : train(program.kind == ProgramKind::Train)
{
    biases = std::any_of(program.tensors.begin(), program.tensors.end(),
                         [](const Tensor &t) { return t.name.ends_with(".bias"); });
    tensor = std::any_of(program.groups.begin(), program.groups.end(), [](const Group &group) {
        return group.axes == std::vector<std::string>{"tp"} && group.pick == Pick::All;
    });
    for (const Group &group : program.groups) {
        if (group.axes == std::vector<std::string>{"cp"})
            ring = group.size;
    }
    dropout = std::any_of(program.ops.begin(), program.ops.end(), [&](const Op &op) {
        return op.kind == OpKind::BackwardInput && op.segment == Segment::Join && !op.writes.empty()
            && program.buffer(op.writes[0]).tensor == none;
    });
}

char directionOf(const Op &op)
{
    switch (op.kind) {
    case OpKind::LoadBatch:
        return 'l';
    case OpKind::BackwardInput:
        return 'b';
    case OpKind::BackwardWeight:
        return 'w';
    case OpKind::Recv:
    case OpKind::Send: {
        const auto channel = static_cast<Channel>(op.channel);
        return channel == Channel::BackwardDown || channel == Channel::BackwardUp ? 'b' : 'f';
    }
    default:
        return 'f';
    }
}

Signatures::Signatures(const Variant &variant)
{
    for (const Row &row : table) {
        if (applies(row.when, variant))
            m_all.push_back({row.unit, row.segment, row.kind, parse(row, variant)});
    }
}

const Signature *Signatures::find(const Op &op) const
{
    const bool again = op.kind == OpKind::Recompute && op.segment != Segment::Act;
    const OpKind kind = again ? OpKind::Forward : op.kind;
    const Signature *general = nullptr;
    for (const Entry &entry : m_all) {
        if (entry.segment != op.segment || entry.kind != kind)
            continue;
        if (entry.unit == op.unit.kind)
            return &entry.signature;
        if (entry.unit == any)
            general = &entry.signature;
    }
    return general;
}

} // namespace rankyard::plan
