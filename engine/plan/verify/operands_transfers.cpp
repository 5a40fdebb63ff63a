// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/operands.h"

#include <algorithm>
#include <cstdlib>

namespace rankyard::plan {

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
    if (isConverted(op.reads[0], bucket))
        return checkConverted(op, bucket);
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

/// A gradient of the bucket, or a slice of it, in another type.
bool OperandCheck::isConverted(BufferId id, const Bucket &bucket) const
{
    if (id == none || bucket.gradSlice == none)
        return false;
    const Buffer &buffer = m_program.buffer(id);
    const DType type = buffer.dtype;
    const bool floating =
        type == DType::F64 || type == DType::F32 || type == DType::BF16 || type == DType::F16;
    return buffer.kind == MemoryKind::Buckets && !buffer.persistent && buffer.parent == none
        && buffer.tensor == none && floating && type != m_program.buffer(bucket.gradSlice).dtype;
}

/// Sums converted gradients: all of the bucket over its group, slices over the others.
Status OperandCheck::checkConverted(const Op &op, const Bucket &bucket) const
{
    const Buffer &from = m_program.buffer(op.reads[0]), &to = m_program.buffer(op.writes[0]);
    const bool own = op.group == bucket.group;
    const bool scatters = own && bucket.slices > 1;
    const std::int64_t whole = own ? bucket.padded : bucket.padded / bucket.slices;
    const bool right = (own || op.group == bucket.replicas || op.group == bucket.tie)
        && op.kind == (scatters ? OpKind::ReduceScatter : OpKind::AllReduce) && numelOf(from.shape) == whole
        && from.dtype == to.dtype && isConverted(to.id, bucket) && (from.id == to.id) != scatters
        && numelOf(to.shape) == bucket.padded / bucket.slices && !op.accumulate;
    return right ? Status() : broken(op, "does not sum its bucket's gradients in their other type");
}

/// There from a gradient of the bucket, or its slice; back into the slice.
Status OperandCheck::checkConversion(const Op &op, const Bucket &bucket) const
{
    if (op.reads.size() != 1 || op.writes.size() != 1)
        return broken(op, "must have one buffer to read and one to write");
    const Buffer &from = m_program.buffer(op.reads[0]), &to = m_program.buffer(op.writes[0]);
    const bool root = from.kind == MemoryKind::Buckets && !from.persistent && from.parent == none
        && numelOf(from.shape) == bucket.padded && from.dtype == m_program.buffer(bucket.gradSlice).dtype;
    const bool there = isConverted(to.id, bucket) && !op.accumulate
        && (bucket.grad != none ? from.id == bucket.grad : root || from.id == bucket.gradSlice);
    const bool back = isConverted(from.id, bucket) && to.id == bucket.gradSlice;
    return (there || back) && numelOf(from.shape) == numelOf(to.shape)
        ? Status()
        : broken(op, "does not convert its bucket's gradients");
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
        return isConverted(op.reads.empty() ? none : op.reads[0], bucket)
                || isConverted(op.writes.empty() ? none : op.writes[0], bucket)
            ? checkConversion(op, bucket)
            : checkStep(op, bucket);
    if (op.kind == OpKind::GradNorm
        && (op.reads != std::vector{bucket.gradSlice} || op.writes != std::vector{m_program.stats}))
        return broken(op, "does not work on its bucket's slices");
    return {};
}

} // namespace rankyard::plan
