// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/checks.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

constexpr std::int64_t alignment = 64;
constexpr std::int32_t mostLayers = 1 << 24; ///< how many the model has, verifyTogether knows

Error wrong(std::string where, std::string what)
{
    return Error::make(Code::Internal, std::move(what), std::move(where));
}

template<typename T>
bool refers(std::int32_t id, const std::vector<T> &list)
{
    return id >= 0 && at(id) < list.size();
}

/// Bytes of a shape, or -1 when they do not fit.
std::int64_t bytesOfShape(const Buffer &buffer)
{
    __int128 bytes = static_cast<__int128>(bytesOf(buffer.dtype));
    for (const std::int64_t size : buffer.shape) {
        bytes *= size;
        if (size < 0 || bytes > (static_cast<__int128>(1) << 60))
            return -1;
    }
    return static_cast<std::int64_t>(bytes);
}

Status checkRoot(const StepProgram &program, const Buffer &buffer, const std::string &where)
{
    const Arena &arena = program.arenas[at(buffer.arena)];
    if (buffer.offset < 0 || buffer.offset % alignment != 0)
        return wrong(where,
                     "stands at offset " + std::to_string(buffer.offset) + ", which is not a multiple of 64");
    if (buffer.offset > arena.bytes - buffer.bytes)
        return wrong(where, "does not fit its arena of " + std::to_string(arena.bytes) + " bytes");
    if (buffer.sliceGroup != none)
        return wrong(where, "has a slice group but no parent");
    return {};
}

Status checkView(const StepProgram &program, const Buffer &buffer, const std::string &where)
{
    if (!refers(buffer.parent, program.buffers) || program.buffer(buffer.parent).parent != none)
        return wrong(where, "is a view of something that is not a root buffer");
    const Buffer &root = program.buffer(buffer.parent);
    if (root.kind != buffer.kind || root.shared != buffer.shared || root.disk != buffer.disk
        || root.persistent != buffer.persistent || root.dtype != buffer.dtype)
        return wrong(where, "differs in kind or type from " + root.name + ", of which it is a view");
    if (buffer.sliceGroup != none && !refers(buffer.sliceGroup, program.groups))
        return wrong(where, "is sliced over a group that is not there");
    const std::int64_t slices = buffer.sliceGroup == none ? 1 : program.groups[at(buffer.sliceGroup)].size;
    if (buffer.viewOffset < 0 || buffer.viewOffset > root.bytes
        || buffer.bytes > (root.bytes - buffer.viewOffset) / slices)
        return wrong(where, "reaches beyond " + root.name);
    if (buffer.offset != root.offset + buffer.viewOffset)
        return wrong(where, "does not lie inside " + root.name);
    return {};
}

Status checkBuffers(const StepProgram &program)
{
    for (std::size_t i = 0; i < program.groups.size(); ++i) {
        if (program.groups[i].id != static_cast<GroupId>(i) || program.groups[i].size < 2)
            return wrong("group " + program.groups[i].name, "has a wrong id or fewer than two ranks");
    }
    for (std::size_t i = 0; i < program.arenas.size(); ++i) {
        if (program.arenas[i].id != static_cast<ArenaId>(i) || program.arenas[i].bytes < 0)
            return wrong("arena " + std::to_string(i), "has a wrong id or size");
    }
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
        const Buffer &buffer = program.buffers[i];
        const std::string where = "buffer " + std::to_string(i) + " (" + buffer.name + ")";
        if (buffer.id != static_cast<BufferId>(i))
            return wrong(where, "ids are not dense");
        if (buffer.tensor != none && !refers(buffer.tensor, program.tensors))
            return wrong(where, "is of a tensor that is not there");
        if (!refers(buffer.arena, program.arenas))
            return wrong(where, "is in no arena");
        const Arena &arena = program.arenas[at(buffer.arena)];
        if (arena.kind != buffer.kind || arena.shared != buffer.shared || arena.disk != buffer.disk)
            return wrong(where, "is in an arena of another kind");
        if (buffer.bytes < 0 || buffer.bytes != bytesOfShape(buffer))
            return wrong(where,
                         "has " + std::to_string(buffer.bytes) + " bytes, which is not what its shape needs");
        RY_TRY(buffer.parent == none ? checkRoot(program, buffer, where) : checkView(program, buffer, where));
    }
    return {};
}

Status checkBucket(const StepProgram &program, std::size_t index, std::vector<bool> &owned)
{
    const Bucket &bucket = program.buckets[index];
    const std::string where = "bucket " + std::to_string(index);
    if (bucket.slices < 1 || bucket.padded < bucket.numel || bucket.padded % bucket.slices != 0)
        return wrong(where, "is not padded to equal slices");
    if ((bucket.group != none && !refers(bucket.group, program.groups))
        || (bucket.tie != none && !refers(bucket.tie, program.groups))
        || (bucket.replicas != none && !refers(bucket.replicas, program.groups)))
        return wrong(where, "is reduced over a group that is not there");
    if (bucket.slices > 1 && (bucket.group == none || program.groups[at(bucket.group)].size != bucket.slices))
        return wrong(where, "has another number of slices than its group has ranks");
    const bool train = program.kind == ProgramKind::Train;
    const std::int64_t own = bucket.padded / bucket.slices;

    const auto holds = [&](BufferId id, std::int64_t numel) {
        return refers(id, program.buffers) && numelOf(program.buffer(id).shape) == numel;
    };
    const auto isSlice = [&](BufferId slice, BufferId root) {
        if (root == none) // whole for one use at a time only
            return holds(slice, own) && program.buffer(slice).parent == none
                && program.buffer(slice).persistent;
        if (bucket.slices == 1)
            return slice == root;
        return holds(slice, own) && program.buffer(slice).parent == root
            && program.buffer(slice).sliceGroup == bucket.group && program.buffer(slice).viewOffset == 0
            && program.buffer(slice).sliceShift == 0;
    };
    const auto whole = [&](BufferId root) { return root == none || holds(root, bucket.padded); };
    const auto onHost = [&](BufferId id) { return program.buffer(id).kind == MemoryKind::Host; };
    if (!whole(bucket.param) || !isSlice(bucket.paramSlice, bucket.param)
        || (bucket.param == none && bucket.slices == 1 && !onHost(bucket.paramSlice)))
        return wrong(where, "has no whole storage of its parameters");
    if (train
        && (!whole(bucket.grad) || (bucket.grad == none && bucket.slices == 1)
            || !isSlice(bucket.gradSlice, bucket.grad)))
        return wrong(where, "has no whole storage of its gradients");
    if (train
        && (!holds(bucket.exp1, own) || !holds(bucket.exp2, own)
            || (bucket.master != none && !holds(bucket.master, own))))
        return wrong(where, "has no optimizer state of its slice's size");
    if (bucket.error != none
        && (!train || bucket.grad == none || !holds(bucket.error, bucket.numel)
            || !program.buffer(bucket.error).persistent || program.buffer(bucket.error).parent != none
            || program.buffer(bucket.error).dtype != program.buffer(bucket.grad).dtype))
        return wrong(where, "has a left-over of its compression that does not look like its gradients");

    std::int64_t end = 0;
    for (const TensorId id : bucket.tensors) {
        if (!refers(id, program.tensors) || owned[at(id)])
            return wrong(where, "lists a tensor that is not there or is in another bucket");
        owned[at(id)] = true;
        const Tensor &tensor = program.tensors[at(id)];
        const auto isView = [&](BufferId view, BufferId root) {
            if (root == none)
                return view == none;
            if (!holds(view, tensor.numel))
                return false;
            const Buffer &buffer = program.buffer(view);
            return buffer.parent == root && buffer.sliceGroup == none
                && buffer.viewOffset == tensor.offset * static_cast<std::int64_t>(bytesOf(buffer.dtype));
        };
        if (tensor.bucket != static_cast<std::int32_t>(index) || tensor.offset != end
            || tensor.numel != numelOf(tensor.shape))
            return wrong(where, "does not hold " + tensor.name + " where the tensor says");
        if (!isView(tensor.param, bucket.param) || (train && !isView(tensor.grad, bucket.grad)))
            return wrong(where, "the storage of " + tensor.name + " is not a view at its offset");
        end += tensor.numel;
    }
    return end == bucket.numel ? Status() : wrong(where, "has another size than its tensors");
}

/// The sections of a divided tensor are its rows, and what this rank has is its part of each.
Status checkSections(const Tensor &tensor)
{
    if (tensor.axis == none)
        return tensor.sections.empty() && tensor.shape == tensor.global
            ? Status()
            : wrong("tensor " + tensor.name, "is whole on every rank, yet divided");
    std::int64_t local = 0;
    std::int64_t global = 0;
    for (const Section &section : tensor.sections) {
        local += section.local;
        global += section.global;
    }
    std::vector<std::int64_t> shape = tensor.global;
    if (at(tensor.axis) >= shape.size() || shape[at(tensor.axis)] != global)
        return wrong("tensor " + tensor.name, "has sections that are not its rows");
    shape[at(tensor.axis)] = local;
    return shape == tensor.shape ? Status()
                                 : wrong("tensor " + tensor.name, "has another shape than its sections");
}

Status checkTensors(const StepProgram &program)
{
    std::vector<bool> owned(program.tensors.size(), false);
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
        if (program.tensors[i].id != static_cast<TensorId>(i))
            return wrong("tensor " + program.tensors[i].name, "ids are not dense");
    }
    for (std::size_t i = 0; i < program.buckets.size(); ++i)
        RY_TRY(checkBucket(program, i, owned));
    for (const Tensor &tensor : program.tensors) {
        if (!owned[at(tensor.id)])
            return wrong("tensor " + tensor.name, "is in no bucket");
    }
    if (!refers(program.stats, program.buffers))
        return wrong("stats", "the program has none");
    const Buffer &stats = program.buffer(program.stats);
    const std::int64_t places = numelOf(stats.shape) - statsSlots;
    if (stats.dtype != DType::F64 || !stats.persistent || stats.parent != none
        || places < static_cast<std::int64_t>(program.tensors.size()))
        return wrong("stats",
                     "must be persistent fp64 with a place for each tensor and " + std::to_string(statsSlots)
                         + " more");
    std::vector<bool> taken(static_cast<std::size_t>(places), false);
    for (const Tensor &tensor : program.tensors) {
        if (tensor.index < 0 || tensor.index >= places || taken[at(tensor.index)])
            return wrong("tensor " + tensor.name, "has no place of its own in stats");
        taken[at(tensor.index)] = true;
        RY_TRY(checkSections(tensor));
    }
    return {};
}

/// A tensor's value or gradient lies in storage as large as its bucket, at its offset; a part of it inside.
Status checkTensorViews(const StepProgram &program)
{
    for (const Buffer &buffer : program.buffers) {
        if (buffer.tensor == none)
            continue;
        const Tensor &tensor = program.tensors[at(buffer.tensor)];
        const Bucket &bucket = program.buckets[at(tensor.bucket)];
        const auto size = static_cast<std::int64_t>(bytesOf(buffer.dtype));
        const std::int64_t begin = tensor.offset * size;
        const bool inside = buffer.parent != none && buffer.sliceGroup == none
            && numelOf(program.buffer(buffer.parent).shape) == bucket.padded && buffer.viewOffset >= begin
            && buffer.viewOffset + buffer.bytes <= begin + tensor.numel * size;
        if (!inside)
            return wrong("buffer " + buffer.name,
                         "does not lie where " + tensor.name + " lies in its bucket");
    }
    return {};
}

Status checkOp(const StepProgram &program, const Op &op)
{
    const bool paired = op.kind == OpKind::Send || op.kind == OpKind::Recv;
    if (paired ? op.channel < 0 || op.channel >= channelCount : op.channel != none)
        return broken(op, "has a channel that cannot be");
    for (const auto *list : {&op.reads, &op.writes, &op.releases}) {
        for (auto id = list->begin(); id != list->end(); ++id) {
            if (!refers(*id, program.buffers))
                return broken(op, "refers to a buffer that is not there");
            if (std::find(list->begin(), id, *id) != id)
                return broken(op, "names " + program.buffer(*id).name + " twice");
        }
    }
    for (const OpId wait : op.waits) {
        if (wait < 0 || at(wait) >= program.ops.size())
            return broken(op, "waits for an op that is not there");
        if (wait >= op.id)
            return broken(op,
                          "waits for " + opName(program.op(wait))
                              + ", which is not before it: it would wait for ever");
        if (laneOf(program.op(wait)) == laneOf(op))
            return broken(op, "waits for " + opName(program.op(wait)) + " of its own stream");
    }
    const bool layered = op.unit.kind == UnitKind::Attention || op.unit.kind == UnitKind::Mlp;
    if (op.unit.layer < none || op.unit.layer >= mostLayers || layered != (op.unit.layer != none))
        return broken(op, "is of a layer that cannot be");
    // Each micro-batch has ops of its own in every program, so there are never more of them than ops.
    if (op.microbatch < none || (op.microbatch != none && at(op.microbatch) >= program.ops.size()))
        return broken(op, "is of a micro-batch that cannot be");
    const bool transfers = isTransfer(op.kind);
    if (transfers && !refers(op.group, program.groups))
        return broken(op, "has no group");
    if (!transfers && op.group != none)
        return broken(op, "has a group but does not communicate");
    if (op.payload < 0 || op.flops < 0 || (!transfers && op.payload != 0))
        return broken(op, "has a payload or a number of operations that cannot be");
    return {};
}

} // namespace

Status checkStructure(const StepProgram &program)
{
    RY_TRY(checkBuffers(program));
    RY_TRY(checkTensors(program));
    RY_TRY(checkTensorViews(program));
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        if (program.ops[i].id != static_cast<OpId>(i))
            return wrong("op " + std::to_string(i), "ids are not dense");
        RY_TRY(checkOp(program, program.ops[i]));
    }
    return {};
}

} // namespace rankyard::plan
