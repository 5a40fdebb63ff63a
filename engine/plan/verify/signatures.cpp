// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/signatures.h"

#include <algorithm>
#include <iterator>

namespace rankyard::plan {

namespace {

/// The table of units.h from the readers' side. A read is P (a parameter) or who must have written it last: segment, direction
/// (l load, f forward, b backward-input), place among the writes. A write is A (activation or its gradient), G (a
/// parameter's gradient), S (stats), W (workspace). A row without a unit is for all that have the
/// segment and no row of their own.
struct Row {
    UnitKind unit;
    Segment segment;
    OpKind kind;
    std::string_view reads;
    std::string_view writes;
};

constexpr UnitKind any = UnitKind::None;
constexpr OpKind bi = OpKind::BackwardInput;
constexpr OpKind bw = OpKind::BackwardWeight;
constexpr Row table[] = {
    {UnitKind::Embedding, Segment::Lookup, OpKind::Forward, "none.l0 P", "A"},
    {UnitKind::Embedding, Segment::Join, OpKind::Forward, "lookup.f0 P", "A"},
    {UnitKind::Embedding, Segment::Join, bi, "norm.b0", "G"},
    {UnitKind::Embedding, Segment::Lookup, bw, "norm.b0 none.l0", "G"},
    {any, Segment::Norm, OpKind::Forward, "join.f0 P P", "AA"},
    {any, Segment::Join, bi, "norm.b0", "G"},
    {any, Segment::Qkv, OpKind::Forward, "norm.f0 P P", "A"},
    {any, Segment::Qkv, bi, "core.b0 P", "AG"},
    {any, Segment::Qkv, bw, "core.b0 norm.f0", "G"},
    {any, Segment::Core, OpKind::Forward, "qkv.f0", "AA"},
    {any, Segment::Core, bi, "out.b0 qkv.f0 core.f0 core.f1", "A"},
    {any, Segment::Out, OpKind::Forward, "core.f0 P", "A"},
    {any, Segment::Out, bi, "norm.b0 P", "A"},
    {any, Segment::Out, bw, "norm.b0 core.f0", "G"},
    {UnitKind::Attention, Segment::Join, OpKind::Forward, "join.f0 out.f0 P", "A"},
    {UnitKind::Attention, Segment::Norm, bi, "qkv.b0 join.f0 norm.f1 P norm.b0", "AGG"},
    {any, Segment::Up, OpKind::Forward, "norm.f0 P P", "AA"},
    {any, Segment::Up, bi, "down.b0 up.f0 P", "AAG"},
    {any, Segment::Up, bw, "up.b0 norm.f0", "G"},
    {any, Segment::Down, OpKind::Forward, "up.f1 P", "A"},
    {any, Segment::Down, bi, "norm.b0 P", "A"},
    {any, Segment::Down, bw, "norm.b0 up.f1", "G"},
    {UnitKind::Mlp, Segment::Join, OpKind::Forward, "join.f0 down.f0 P", "A"},
    {UnitKind::Mlp, Segment::Norm, bi, "up.b1 join.f0 norm.f1 P norm.b0", "AGG"},
    {UnitKind::Head, Segment::Norm, bi, "loss.f1 join.f0 norm.f1 P", "AGG"},
};
constexpr std::string_view lossReads = "norm.f0 P none.l1";
constexpr std::string_view lossWritesTrain = "SAGW";
constexpr std::string_view lossWritesEval = "SW";

Signature parse(std::string_view reads, std::string_view writes)
{
    Signature signature{{}, writes};
    for (std::size_t begin = 0; begin < reads.size();) {
        const std::size_t end = std::min(reads.find(' ', begin), reads.size());
        const std::string_view word = reads.substr(begin, end - begin);
        begin = end + 1;
        Source source;
        source.param = word == "P";
        if (!source.param) {
            const std::size_t dot = word.find('.');
            for (int s = 0; s <= static_cast<int>(Segment::Loss); ++s) {
                if (word.substr(0, dot) == nameOf(static_cast<Segment>(s)))
                    source.segment = static_cast<Segment>(s);
            }
            source.direction = word[dot + 1];
            source.place = static_cast<std::size_t>(word[dot + 2] - '0');
        }
        signature.reads.push_back(source);
    }
    return signature;
}

} // namespace

char directionOf(OpKind kind)
{
    switch (kind) {
    case OpKind::LoadBatch:
        return 'l';
    case OpKind::BackwardInput:
        return 'b';
    case OpKind::BackwardWeight:
        return 'w';
    default:
        return 'f';
    }
}

Signatures::Signatures(bool train)
{
    for (const Row &row : table)
        m_all.push_back(parse(row.reads, row.writes));
    m_loss = parse(lossReads, train ? lossWritesTrain : lossWritesEval);
    m_load = parse("", "AA");
}

const Signature *Signatures::find(const Op &op) const
{
    if (op.kind == OpKind::LoadBatch)
        return &m_load;
    const OpKind kind = op.kind == OpKind::Recompute ? OpKind::Forward : op.kind;
    if (op.segment == Segment::Loss)
        return op.unit.kind == UnitKind::Head && kind == OpKind::Forward ? &m_loss : nullptr;
    const Signature *general = nullptr;
    for (std::size_t i = 0; i < std::size(table); ++i) {
        if (table[i].segment != op.segment || table[i].kind != kind)
            continue;
        if (table[i].unit == op.unit.kind)
            return &m_all[i];
        if (table[i].unit == any)
            general = &m_all[i];
    }
    return general;
}

} // namespace rankyard::plan
