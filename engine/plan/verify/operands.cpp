// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/checks.h"
#include "engine/plan/verify/signatures.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace rankyard::plan {

namespace {

class OperandCheck
{
public:
    explicit OperandCheck(const StepProgram &program);
    Status run();

private:
    /// Whose value a buffer has: the op that computed it, or the Recv that brought it.
    struct Writer {
        OpId op = none;
        std::size_t place = 0;
        bool partial = false;    ///< a sum over the tensor group that has not been made
        std::int32_t shifts = 0; ///< how many ranks it has gone round the ring
    };
    /// What one op of a segment looks like; the others must look the same.
    using Shape = std::tuple<UnitKind, Segment, OpKind, std::size_t>;
    /// A use of a tensor: by whom and for which micro-batch.
    using Use = std::tuple<TensorId, UnitKind, std::int32_t, std::int32_t>;

    Status checkUnitOp(const Op &op);
    Status checkRead(const Op &op, BufferId id, const Source &source) const;
    Status checkWrite(const Op &op, BufferId id, char code) const;
    Status checkAlike(const Op &op);
    Status checkWeights(const Op &op);
    Status checkShapes(const Op &op, const Signature &signature) const;
    Status checkTransfer(const Op &op);
    Status checkRing(const Op &op) const;
    Status checkSaved(const Op &op);
    Status checkStepOp(const Op &op) const;
    Status checkCollective(const Op &op) const;
    Status checkCodec(const Op &op, const Bucket &bucket) const;
    Status checkStep(const Op &op, const Bucket &bucket) const;
    bool isCode(BufferId id) const;
    Status checkRows(const Op &op);
    Status checkOnce() const;
    Status checkGradientsComplete();
    int placeOf(Unit unit) const;

    const StepProgram &m_program;
    Variant m_variant;
    Signatures m_signatures;
    std::vector<Writer> m_writers;    ///< of transient buffers
    std::vector<TensorId> m_tensorOf; ///< of parameter and gradient views
    std::array<std::vector<std::int64_t>, 5 * segmentCount * 20 * 8>
        m_shapes{};                               ///< of written operands, by segment, kind and place
    std::vector<std::vector<TensorId>> m_weights; ///< what a unit's segment reads in its forward
    std::vector<std::size_t> m_owner; ///< the segment that uses a tensor; its index in m_weights + 1
    std::vector<std::int64_t> m_rows; ///< tokens of the loss so far, by micro-batch
    std::vector<Use> m_uses;
    std::vector<Use> m_gradients;
    int m_layers = 0;
    std::int32_t m_microbatches = 0;
};

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
    if (from.unit.kind != UnitKind::None && std::abs(placeOf(from.unit) - placeOf(op.unit)) > 1)
        return broken(op,
                      "reads " + buffer.name + " of " + placeName(from.unit, from.segment)
                          + ", which is not its neighbour");
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

/// A transfer of an activation or its gradient moves the value that it is named after, and nothing is summed twice or not at all.
Status OperandCheck::checkTransfer(const Op &op)
{
    const bool recv = op.kind == OpKind::Recv;
    const bool send = op.kind == OpKind::Send;
    if (op.reads.size() != (recv ? 0 : 1) || op.writes.size() != (send ? 0 : 1))
        return broken(op, "must have one buffer to read and one to write, a send and a recv one of them");
    const Buffer &target =
        m_program.buffer(recv || op.kind == OpKind::AllGather ? op.writes[0] : op.reads[0]);
    if (op.payload != target.bytes)
        return broken(op, "has a payload of " + std::to_string(op.payload) + " bytes for " + target.name);
    const Group &group = m_program.groups[at(op.group)];
    const bool pipeline = recv || send;
    const bool ring = op.kind == OpKind::Shift;
    if (group.axes
            != std::vector<std::string>{pipeline   ? "pp"
                                            : ring ? "cp"
                                                   : "tp"}
        || group.pick != Pick::All)
        return broken(op, "goes over the group " + group.name);
    if (recv) {
        RY_TRY(checkWrite(op, op.writes[0], 'A'));
        m_writers[at(op.writes[0])] = {op.id, 0, false};
        return {};
    }
    const Writer value = m_writers[at(op.reads[0])];
    if (value.op == none)
        return broken(op, "moves " + m_program.buffer(op.reads[0]).name + ", which no op has written");
    const Op &from = m_program.op(value.op);
    if (!(from.unit == op.unit) || from.segment != op.segment || from.microbatch != op.microbatch
        || (send && directionOf(from) != directionOf(op)))
        return broken(op, "moves what " + opName(from) + " has made");
    const bool sums = op.kind == OpKind::AllReduce || op.kind == OpKind::ReduceScatter;
    if (value.partial != sums)
        return broken(op,
                      sums ? "sums what is not a partial sum" : "moves what the tensor group has not summed");
    if (send)
        return {};
    if (ring) {
        if (op.peer != 1 || op.reads[0] == op.writes[0]
            || m_program.buffer(op.reads[0]).bytes != m_program.buffer(op.writes[0]).bytes)
            return broken(op, "does not go one rank round the ring");
        m_writers[at(op.writes[0])] = {value.op, value.place, false, value.shifts + 1};
        return {};
    }
    const std::int64_t read = m_program.buffer(op.reads[0]).bytes;
    const std::int64_t written = m_program.buffer(op.writes[0]).bytes;
    const bool fits = op.kind == OpKind::AllReduce ? op.reads[0] == op.writes[0]
        : op.kind == OpKind::ReduceScatter         ? read == written * group.size
        : op.kind == OpKind::AllGather             ? written == read * group.size
                                                   : false;
    if (!fits)
        return broken(op, "has operands whose sizes do not belong together");
    if (op.kind == OpKind::ReduceScatter)
        m_writers[at(op.reads[0])] = {}; // undefined after
    m_writers[at(op.writes[0])] = {value.op, value.place, false};
    return {};
}

/// A layer's input, or this rank's slice of it, goes to where it is kept, or comes back: another place for the same value.
Status OperandCheck::checkSaved(const Op &op)
{
    if (op.reads.size() != 1 || op.writes.size() != 1 || op.microbatch == none)
        return broken(op, "must copy one activation of a micro-batch to another place");
    const Buffer &from = m_program.buffer(op.reads[0]), &to = m_program.buffer(op.writes[0]);
    const Writer value = m_writers[at(rootOf(m_program, from.id))];
    const auto isPlace = [](const Buffer &buffer) {
        return (buffer.kind == MemoryKind::Activations || buffer.kind == MemoryKind::Host)
            && !buffer.persistent && !buffer.disk;
    };
    const bool slice = from.sliceGroup != none
        && m_program.groups[at(from.sliceGroup)].axes == std::vector<std::string>{"tp"};
    if (!isPlace(from) || !isPlace(to) || to.parent != none || (from.parent != none && !slice)
        || from.bytes != to.bytes || from.dtype != to.dtype)
        return broken(op, "does not copy an activation to another place");
    if (value.op == none || value.partial)
        return broken(op, "copies " + from.name + ", which no op has written or the tensor group not summed");
    const Op &by = m_program.op(value.op);
    if (by.microbatch != op.microbatch || std::abs(placeOf(by.unit) - placeOf(op.unit)) > 1
        || m_writers[at(to.id)].op != none)
        return broken(op, "copies what " + opName(by) + " has made, or to where something is");
    m_writers[at(to.id)] = value;
    return {};
}

namespace {

/// Whether `view` is the k and v part of the gradient of a qkv tensor that neighbours share.
bool isCopied(const Tensor &tensor, const Buffer &view)
{
    if (tensor.sections.size() != 3 || tensor.sections[1].copies < 2 || tensor.axis != 0)
        return false;
    const std::int64_t rows = tensor.sections[1].local + tensor.sections[2].local;
    const std::int64_t row = tensor.numel / tensor.shape[0];
    const auto size = static_cast<std::int64_t>(bytesOf(view.dtype));
    return numelOf(view.shape) == rows * row
        && view.viewOffset == (tensor.offset + tensor.sections[0].local * row) * size;
}

} // namespace

Status OperandCheck::checkCollective(const Op &op) const
{
    if (op.reads.size() != 1 || op.writes.size() != 1)
        return broken(op, "must have one buffer to read and one to write");
    const Buffer &target = m_program.buffer(op.writes[0]);
    const std::int64_t bytes = std::max(target.bytes, m_program.buffer(op.reads[0]).bytes); // of the whole
    if (op.payload != bytes)
        return broken(op,
                      "has a payload of " + std::to_string(op.payload) + " bytes for " + target.name + " of "
                          + std::to_string(target.bytes));
    const Group &group = m_program.groups[at(op.group)];
    if (target.id == m_program.stats) {
        if (op.kind != OpKind::AllReduce || op.reads[0] != target.id)
            return broken(op, "must be an all-reduce in place: it is for stats");
        if (group.axes.size() != 4)
            return broken(op, "reduces stats over " + group.name + ", which is not all ranks");
        return {};
    }
    if (op.chunk < 0 || at(op.chunk) >= m_program.buckets.size())
        return broken(op, "has no bucket");
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    if (group.pick == Pick::Inner && op.group != bucket.group) { // copies of KV heads: the rows behind q's
        const bool right = op.kind == OpKind::AllReduce && op.reads[0] == target.id && target.tensor != none
            && m_program.tensors[at(target.tensor)].bucket == op.chunk
            && isCopied(m_program.tensors[at(target.tensor)], target);
        return right ? Status() : broken(op, "sums " + target.name + ", of which the group has no copies");
    }
    if (op.group == bucket.tie || op.group == bucket.replicas) {
        const bool right =
            op.kind == OpKind::AllReduce && op.reads[0] == target.id && target.id == bucket.gradSlice;
        return right ? Status() : broken(op, "must sum the slices that other ranks have too");
    }
    if (op.group != bucket.group)
        return broken(op, "goes over the group " + group.name + ", not over the bucket's");
    if (op.kind == OpKind::Shift)
        return checkStep(op, bucket);
    const bool gather = op.kind == OpKind::AllGather;
    const Buffer &source = m_program.buffer(op.reads[0]);
    if (gather && isCode(source.id))
        return isCode(target.id) && target.bytes == source.bytes * group.size
            ? Status()
            : broken(op, "gathers codes into " + target.name + ", which does not have room for those of all");
    // Storage for one use or one micro-batch: as large as the bucket, with its tensors inside.
    const auto passing = [&](const Buffer &root, MemoryKind kind) {
        return root.kind == kind && !root.persistent && root.parent == none
            && numelOf(root.shape) == bucket.padded;
    };
    const bool fetched = source.kind == MemoryKind::Gathered && !source.persistent && source.parent == none
        && numelOf(source.shape) * bucket.slices == bucket.padded
        && m_program.buffer(bucket.paramSlice).kind == MemoryKind::Host;
    const bool right = gather ? (op.reads[0] == bucket.paramSlice || fetched)
            && (bucket.param != none ? target.id == bucket.param : passing(target, MemoryKind::Gathered))
        : bucket.grad != none ? target.id == bucket.grad && source.id == bucket.grad
                              : target.id == bucket.gradSlice && passing(source, MemoryKind::Buckets);
    if (!right)
        return broken(op, "is for " + target.name + ", which is not its bucket's");
    if (op.kind != OpKind::AllReduce && bucket.slices == 1)
        return broken(op, "needs slices, but its bucket is whole on every rank");
    if (op.kind == OpKind::AllReduce && bucket.slices > 1)
        return broken(op, "reduces a bucket whole whose slices have owners");
    return {};
}

/// Of a reduction or gather in steps: slices of the bucket, and parts on their way. What they hold, steps.cpp follows.
Status OperandCheck::checkStep(const Op &op, const Bucket &bucket) const
{
    if (bucket.group == none || op.reads.size() != 1 || op.writes.size() != 1)
        return broken(op, "is a step of no reduction");
    const std::int64_t size = m_program.groups[at(bucket.group)].size;
    const Buffer &from = m_program.buffer(op.reads[0]), &to = m_program.buffer(op.writes[0]);
    const auto isSlice = [&](const Buffer &buffer) {
        return buffer.sliceGroup == bucket.group && buffer.viewOffset == 0
            && (buffer.parent == bucket.grad || buffer.parent == bucket.param)
            && numelOf(buffer.shape) * size == bucket.padded;
    };
    const auto isPart = [&](const Buffer &buffer) {
        return buffer.kind == MemoryKind::Buckets && !buffer.persistent && buffer.parent == none
            && numelOf(buffer.shape) * size == bucket.padded;
    };
    const bool right = from.dtype == to.dtype && from.bytes == to.bytes
        && (op.kind == OpKind::Add ? isPart(from) && isSlice(to) && op.accumulate
                                   : isSlice(from) && (isPart(to) || isSlice(to)) && op.peer != 0);
    return right ? Status() : broken(op, "does not work on slices of its bucket");
}

/// A code, or those of all ranks of a group.
bool OperandCheck::isCode(BufferId id) const
{
    const Buffer &buffer = m_program.buffer(id);
    return buffer.kind == MemoryKind::Buckets && buffer.dtype == DType::U8 && !buffer.persistent
        && buffer.parent == none;
}

/// Encodes the whole gradient with what earlier codes left out; decodes what the group has gathered into the slice.
Status OperandCheck::checkCodec(const Op &op, const Bucket &bucket) const
{
    if (op.reads.empty() || op.writes.empty() || bucket.group == none || bucket.grad == none)
        return broken(op, "has nothing to encode or to decode");
    const std::int64_t ranks = m_program.groups[at(bucket.group)].size;
    std::vector<BufferId> reads, writes;
    const BufferId code = op.kind == OpKind::Encode ? op.writes[0] : op.reads[0];
    if (op.kind == OpKind::Encode) {
        reads = {bucket.grad};
        writes = {code};
        if (bucket.error != none) {
            reads.push_back(bucket.error);
            writes.push_back(bucket.error);
        }
    } else {
        reads = {code};
        writes = {bucket.gradSlice};
    }
    const std::vector<std::int64_t> &shape = m_program.buffer(code).shape;
    const bool room = op.kind == OpKind::Encode ? shape.size() == 1 : shape.size() == 2 && shape[0] == ranks;
    return op.reads == reads && op.writes == writes && isCode(code) && room && !op.accumulate
        ? Status()
        : broken(op, "does not work on its bucket's gradients and codes");
}

Status OperandCheck::checkStepOp(const Op &op) const
{
    if (isCollective(op.kind))
        return checkCollective(op);
    if (op.kind == OpKind::StepScalars)
        return op.reads == std::vector{m_program.stats} && op.writes.empty()
            ? Status()
            : broken(op, "must read stats and write nothing");
    const bool codec = op.kind == OpKind::Encode || op.kind == OpKind::Decode;
    const bool copies = op.kind == OpKind::Copy; // of what: staging.cpp
    const bool adds = op.kind == OpKind::Add;
    if (op.kind != OpKind::GradNorm && op.kind != OpKind::Optimizer && !codec && !copies && !adds)
        return broken(op, "is an op that no step has");
    if (op.chunk < 0 || at(op.chunk) >= m_program.buckets.size()
        || (m_program.kind != ProgramKind::Train && !copies))
        return broken(op, "has no bucket");
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    if (codec)
        return checkCodec(op, bucket);
    if (adds)
        return checkStep(op, bucket);
    if (op.kind == OpKind::GradNorm
        && (op.reads != std::vector{bucket.gradSlice} || op.writes != std::vector{m_program.stats}))
        return broken(op, "does not work on its bucket's slices");
    return {};
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

} // namespace

Status checkOperands(const StepProgram &program) { return OperandCheck(program).run(); }

} // namespace rankyard::plan
