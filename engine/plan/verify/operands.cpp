// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/operands.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace rankyard::plan {

OperandCheck::OperandCheck(const StepProgram &program)
    : m_program(program),
      m_variant(program),
      m_signatures(m_variant),
      m_writers(program.buffers.size()),
      m_tensorOf(program.buffers.size(), none),
      m_owner(program.tensors.size(), 0)
{
    for (const Buffer &buffer : program.buffers) {
        if (buffer.tensor != none && numelOf(buffer.shape) == program.tensors[at(buffer.tensor)].numel)
            m_tensorOf[at(buffer.id)] = buffer.tensor;
    }
    for (const Op &op : program.ops) {
        m_layers = std::max(m_layers, op.unit.layer + 1);
        m_microbatches = std::max(m_microbatches, op.microbatch + 1);
    }
}

/// Units in forward order: neighbours differ by one.
int OperandCheck::placeOf(Unit unit) const
{
    switch (unit.kind) {
    case UnitKind::Attention:
        return 1 + 2 * unit.layer;
    case UnitKind::Mlp:
        return 2 + 2 * unit.layer;
    case UnitKind::Head:
        return 1 + 2 * m_layers;
    default:
        return 0;
    }
}

Status OperandCheck::checkRead(const Op &op, BufferId id, const Source &source) const
{
    const Buffer &buffer = m_program.buffer(id);
    const bool isParam = m_tensorOf[at(id)] != none
        && (buffer.kind == MemoryKind::Params || buffer.kind == MemoryKind::Gathered);
    if (source.param != isParam)
        return broken(op,
                      "reads " + buffer.name
                          + (source.param ? ", which is not a parameter" : " where an activation belongs"));
    if (source.param)
        return {};
    const Writer writer = m_writers[at(id)];
    if (writer.op == none)
        return broken(op, "reads " + buffer.name + ", which no op has written");
    const Op &from = m_program.op(writer.op);
    // Without positions and dropout the lookup is what stands first on the residual stream.
    const bool bare = from.segment == Segment::Lookup && source.segment == Segment::Join
        && op.segment != Segment::Lookup && !m_variant.biases && !m_variant.dropout;
    const bool activation =
        from.segment == Segment::Act && source.segment == Segment::Up && source.place == 1;
    const std::size_t place = activation ? 1 : writer.place; // computed again alone
    if ((from.segment != source.segment && !bare && !activation) || directionOf(from) != source.direction
        || place != source.place)
        return broken(op,
                      "reads " + buffer.name + " as " + opName(from)
                          + " left it, which is not the operand that it needs");
    if (writer.partial)
        return broken(op, "reads " + buffer.name + ", which the tensor group has not summed");
    if (from.segment == Segment::Logits && from.chunk != op.chunk)
        return broken(op, "reads " + buffer.name + " of another chunk");
    if (from.microbatch != op.microbatch)
        return broken(op, "reads " + buffer.name + " of micro-batch " + std::to_string(from.microbatch));
    // The residual stream comes from the unit before, its gradient from the one after, all else from the unit itself.
    const bool forward = source.direction == 'f';
    const int apart = source.segment == Segment::Join && forward ? -1
        : source.segment == Segment::Norm && !forward            ? 1
                                                                 : 0;
    if (from.unit.kind != UnitKind::None && placeOf(from.unit) != placeOf(op.unit) + apart)
        return broken(op,
                      "reads " + buffer.name + " of " + placeName(from.unit, from.segment)
                          + ", which is another unit's");
    return {};
}

Status OperandCheck::checkWrite(const Op &op, BufferId id, char code) const
{
    const Buffer &buffer = m_program.buffer(id);
    const bool transient = !buffer.persistent && buffer.parent == none;
    bool right = false;
    switch (code) {
    case 'A':
    case 'Y':
        right = transient && buffer.kind == MemoryKind::Activations;
        break;
    case 'G':
        right = m_tensorOf[at(id)] != none
            && (buffer.kind == MemoryKind::Grads || buffer.kind == MemoryKind::Buckets);
        break;
    case 'S':
        right = id == m_program.stats;
        break;
    default:
        right = transient && buffer.kind == MemoryKind::Workspace;
    }
    return right
        ? Status()
        : broken(op, "writes " + buffer.name + ", which is not the kind of buffer that belongs there");
}

/// The same output of two layers has the same shape.
Status OperandCheck::checkAlike(const Op &op)
{
    for (std::size_t place = 0; place < std::min<std::size_t>(op.writes.size(), 8); ++place) {
        const Buffer &buffer = m_program.buffer(op.writes[place]);
        const std::size_t index =
            ((static_cast<std::size_t>(op.unit.kind) * segmentCount + static_cast<std::size_t>(op.segment))
                 * 20
             + static_cast<std::size_t>(op.kind))
                * 8
            + place;
        std::vector<std::int64_t> shape = buffer.shape;
        shape.push_back(static_cast<std::int64_t>(buffer.dtype));
        if (m_shapes[index].empty())
            m_shapes[index] = std::move(shape);
        else if (m_shapes[index] != shape)
            return broken(
                op, "writes " + buffer.name + ", whose shape or type differs from the same output elsewhere");
    }
    return {};
}

/// All ops of a segment use the parameters of its forward, in that order.
Status OperandCheck::checkWeights(const Op &op)
{
    std::vector<TensorId> params;
    std::vector<TensorId> grads;
    for (const BufferId id : op.reads) {
        if (const TensorId tensor = m_tensorOf[at(id)]; tensor != none)
            params.push_back(tensor);
    }
    for (const BufferId id : op.writes) {
        if (const TensorId tensor = m_tensorOf[at(id)]; tensor != none)
            grads.push_back(tensor);
    }
    const Segment segment = op.segment == Segment::Logits ? Segment::Loss : op.segment; // one weight, two ops
    const std::size_t index = at(placeOf(op.unit)) * segmentCount + static_cast<std::size_t>(segment);
    if (index >= m_weights.size())
        m_weights.resize(index + 1);
    std::vector<TensorId> &own = m_weights[index];
    const bool forward = op.kind == OpKind::Forward || op.kind == OpKind::Recompute;
    if (forward && own.empty())
        own = params;
    if (forward && own != params && !params.empty())
        return broken(op, "reads other parameters than the same segment before");
    if (!std::is_sorted(params.begin(), params.end()))
        return broken(op, "reads its parameters in another order than the model's");
    for (const TensorId tensor : forward ? params : std::vector<TensorId>()) {
        std::size_t &owner = m_owner[at(tensor)];
        const bool tied = segment == Segment::Loss && owner == static_cast<std::size_t>(Segment::Lookup) + 1;
        if (owner != 0 && owner != index + 1 && !tied)
            return broken(op, "reads " + m_program.tensors[at(tensor)].name + ", which is another segment's");
        owner = owner == 0 ? index + 1 : owner;
    }
    const auto isPart = [&](const std::vector<TensorId> &part) {
        auto next = own.begin();
        for (const TensorId tensor : part) {
            next = std::find(next, own.end(), tensor);
            if (next == own.end())
                return false;
            ++next;
        }
        return true;
    };
    // Backward ops need a weight, never a bias: the first of their segment's.
    const bool isWeight =
        forward || params.empty() || (params.size() == 1 && !own.empty() && params[0] == own[0]);
    if (!isPart(params) || !isPart(grads) || !isWeight)
        return broken(op, "uses parameters that its segment's forward did not");
    for (const TensorId tensor : forward ? params : std::vector<TensorId>())
        m_uses.emplace_back(tensor, op.unit.kind, op.unit.layer, op.microbatch);
    for (const TensorId tensor : grads)
        m_gradients.emplace_back(tensor, op.unit.kind, op.unit.layer, op.microbatch);
    return {};
}

/// The chunks of the loss follow each other and cover every token.
Status OperandCheck::checkRows(const Op &op)
{
    if (m_rows.size() <= at(op.microbatch))
        m_rows.resize(at(op.microbatch) + 1, 0);
    std::int64_t &done = m_rows[at(op.microbatch)];
    const bool labelsFirst = m_variant.tensor && !m_variant.train;
    const std::int64_t tokens = numelOf(m_program.buffer(op.reads[labelsFirst ? 0 : 2]).shape);
    std::int64_t capacity = tokens;
    if (!labelsFirst) {
        const Buffer &logits = m_program.buffer(op.writes.back());
        capacity = logits.shape.empty() ? 0 : logits.shape[0];
    }
    if (op.rowBegin != done || op.rowEnd <= op.rowBegin || op.rowEnd > tokens
        || op.rowEnd - op.rowBegin > capacity)
        return broken(op, "covers other tokens than those that follow the chunk before");
    done = op.rowEnd;
    if (!m_variant.tensor)
        return {};
    // What the loss merges is what the logits op of its chunk has made.
    const Op &parts = m_program.op(m_writers[at(op.reads.back())].op);
    const BufferId logits = op.writes.back();
    const bool same = parts.rowBegin == op.rowBegin && parts.rowEnd == op.rowEnd
        && (labelsFirst || m_writers[at(logits)].op == parts.id);
    return same ? Status() : broken(op, "works on other logits than those of its chunk");
}

/// Operands of an op have the same rows: what the tensor group has divided is gathered where whole rows are needed.
Status OperandCheck::checkShapes(const Op &op, const Signature &signature) const
{
    const bool other = op.segment == Segment::Core || op.segment == Segment::Logits
        || (op.segment == Segment::Loss && m_variant.tensor);
    if (other)
        return {};
    std::int64_t rows = none;
    const auto check = [&](BufferId id) {
        const Buffer &buffer = m_program.buffer(id);
        const std::int64_t own = buffer.shape.empty() ? 0 : buffer.shape[0];
        rows = rows == none ? own : rows;
        return rows == own;
    };
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
        if (!signature.reads[i].param && !check(op.reads[i]))
            return broken(op, "reads " + m_program.buffer(op.reads[i]).name + ", which has other rows");
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
        if ((signature.writes[i] == 'A' || signature.writes[i] == 'Y') && !check(op.writes[i]))
            return broken(op, "writes " + m_program.buffer(op.writes[i]).name + ", which has other rows");
    }
    return {};
}

Status OperandCheck::checkUnitOp(const Op &op)
{
    const Signature *signature = m_signatures.find(op);
    if (signature == nullptr)
        return broken(op, "is an op that no unit has");
    if (op.microbatch == none)
        return broken(op, "belongs to no micro-batch");
    if (op.reads.size() != signature->reads.size() || op.writes.size() != signature->writes.size())
        return broken(op,
                      "has " + std::to_string(op.reads.size()) + " reads and "
                          + std::to_string(op.writes.size()) + " writes, which is not its table's row");
    for (std::size_t i = 0; i < op.reads.size(); ++i)
        RY_TRY(checkRead(op, op.reads[i], signature->reads[i]));
    for (std::size_t i = 0; i < op.writes.size(); ++i)
        RY_TRY(checkWrite(op, op.writes[i], signature->writes[i]));
    RY_TRY(checkShapes(op, *signature));
    RY_TRY(checkRing(op));
    RY_TRY(checkAlike(op));
    RY_TRY(checkWeights(op));
    if (op.segment == Segment::Loss)
        RY_TRY(checkRows(op));
    for (std::size_t i = 0; i < op.writes.size(); ++i)
        m_writers[at(op.writes[i])] = {op.id, i, signature->writes[i] == 'Y' && m_variant.tensor,
                                       op.segment == Segment::Core ? op.chunk : 0};
    return {};
}

/// Block k has what has gone k ranks round the ring and adds to block k − 1; the gradients come home after the whole round; what
/// reads the result has all blocks.
Status OperandCheck::checkRing(const Op &op) const
{
    if (m_variant.ring == 1)
        return op.segment == Segment::Core && op.chunk != none ? broken(op, "is a block without a ring")
                                                               : Status();
    const auto blocksOf = [&](BufferId id) {
        const Writer &writer = m_writers[at(id)];
        return writer.op != none && m_program.op(writer.op).segment == Segment::Core
            ? m_program.op(writer.op).chunk
            : none;
    };
    const bool core = op.segment == Segment::Core;
    const bool backward = op.kind == OpKind::BackwardInput;
    for (const BufferId id : op.reads) {
        const std::int32_t blocks = blocksOf(id);
        const bool gradient = op.segment == Segment::Kv && backward;
        if (blocks != none && !gradient && blocks != m_variant.ring - 1)
            return broken(op, "reads " + m_program.buffer(id).name + ", which lacks blocks");
    }
    if (op.segment == Segment::Kv && backward)
        return m_writers[at(op.reads[0])].shifts == m_variant.ring
                && blocksOf(op.writes[0]) == m_variant.ring - 1
            ? Status()
            : broken(op, "takes gradients of keys and values that have not come round");
    if (!core)
        return {};
    const bool first = op.chunk == 0;
    bool right = op.chunk >= 0 && op.chunk < m_variant.ring && op.accumulate != first
        && m_writers[at(op.reads[backward ? 2 : 1])].shifts == op.chunk;
    for (std::size_t i = 0; i < op.writes.size() && right && !first; ++i)
        right = blocksOf(op.writes[i]) == op.chunk - 1;
    if (backward && !first)
        right = right && m_writers[at(op.writes[1])].shifts == op.chunk;
    return right ? Status() : broken(op, "has keys and values of another block, or adds to another");
}

/// No op of a unit stands twice, no micro-batch is left out.
Status OperandCheck::checkOnce() const
{
    using Key = std::tuple<OpKind, UnitKind, std::int32_t, Segment, std::int32_t, std::int32_t>;
    std::vector<std::pair<Key, OpId>> keys;
    keys.reserve(m_program.ops.size());
    for (const Op &op : m_program.ops) {
        // Keys and values are packed for the backward, and for a forward that is computed again: twice is right.
        if ((op.kind == OpKind::Recompute && op.segment == Segment::Kv) || op.kind == OpKind::Copy)
            continue;
        if ((op.unit.kind != UnitKind::None && !isTransfer(op.kind)) || op.kind == OpKind::LoadBatch)
            keys.push_back(
                {{op.kind, op.unit.kind, op.unit.layer, op.segment, op.microbatch, op.chunk}, op.id});
    }
    std::sort(keys.begin(), keys.end());
    for (std::size_t i = 1; i < keys.size(); ++i) {
        if (keys[i].first == keys[i - 1].first)
            return broken(m_program.op(keys[i].second), "stands in the program a second time");
    }
    return {};
}

/// In each micro-batch the gradient of a tensor comes from exactly the units that used the tensor.
Status OperandCheck::checkGradientsComplete()
{
    for (const Tensor &tensor : m_program.tensors) {
        if (m_owner[at(tensor.id)] == 0 && m_program.kind != ProgramKind::Gather)
            return Error::make(Code::Internal, "no op uses it", "tensor " + tensor.name);
    }
    if (m_program.kind != ProgramKind::Train)
        return {};
    for (auto *list : {&m_uses, &m_gradients}) {
        std::sort(list->begin(), list->end());
        list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    std::vector<Use> missing;
    std::set_symmetric_difference(m_uses.begin(), m_uses.end(), m_gradients.begin(), m_gradients.end(),
                                  std::back_inserter(missing));
    if (!missing.empty()) {
        const auto &[tensor, unit, layer, microbatch] = missing.front();
        return Error::make(Code::Internal,
                           "uses and gradients of " + m_program.tensors[at(tensor)].name
                               + " do not match in micro-batch " + std::to_string(microbatch),
                           placeName({unit, layer}, Segment::None));
    }
    return {};
}

Status OperandCheck::run()
{
    for (const Op &op : m_program.ops) {
        const bool ofUnit = op.kind == OpKind::LoadBatch || op.kind == OpKind::Forward
            || op.kind == OpKind::BackwardInput || op.kind == OpKind::BackwardWeight
            || op.kind == OpKind::Recompute;
        RY_TRY(ofUnit                                                          ? checkUnitOp(op)
                   : isTransfer(op.kind) && op.unit.kind != UnitKind::None     ? checkTransfer(op)
                   : op.kind == OpKind::Copy && op.unit.kind != UnitKind::None ? checkSaved(op)
                                                                               : checkStepOp(op));
    }
    RY_TRY(checkOnce());
    const bool labelsFirst = m_variant.tensor && !m_variant.train;
    bool head = false;
    for (const Op &op : m_program.ops) {
        if (op.segment != Segment::Loss || isTransfer(op.kind))
            continue;
        head = true;
        if (m_rows[at(op.microbatch)] != numelOf(m_program.buffer(op.reads[labelsFirst ? 0 : 2]).shape))
            return broken(op, "the chunks of the loss leave tokens out");
    }
    // Only the last stage has a head; whether it has one, the tensors say.
    head = head || std::any_of(m_program.tensors.begin(), m_program.tensors.end(), [](const Tensor &tensor) {
               return tensor.name == "norm.weight";
           });
    for (std::int32_t i = 0; head && i < m_microbatches; ++i) {
        if (at(i) >= m_rows.size() || m_rows[at(i)] == 0)
            return Error::make(Code::Internal, "has no loss", "micro-batch " + std::to_string(i));
    }
    return checkGradientsComplete();
}

Status checkOperands(const StepProgram &program) { return OperandCheck(program).run(); }

} // namespace rankyard::plan
