// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"
#include "engine/plan/units.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <map>
#include <utility>

namespace rankyard::plan {

namespace {

constexpr std::int64_t firstBucketBytes = 1 << 20;

/// Who sums a tensor's gradient, and with ZeRO 3 the unit for which it is gathered: tensors of one bucket have this in common.
struct Reducers {
    GroupId group = none;
    GroupId replicas = none;
    GroupId tie = none;
    std::pair<UnitKind, std::int32_t> unit = {UnitKind::None, none};
    bool exact = false; ///< reduced as it is in a job that compresses
    auto operator<=>(const Reducers &) const = default;
};

/// Ranks that have contributions to the same gradient: the replicas; with sequence parallelism those of the tensor group too,
/// each of which has seen some rows only; and the other copy of a tied embedding.
Reducers reducersOf(const PassContext &context, const Tensor &tensor)
{
    const bool byRows =
        tensor.axis == none && context.job.layout.tp > 1 && context.job.layout.sequenceParallel;
    const bool ring = context.job.layout.cp > 1;
    Reducers reducers;
    reducers.group =
        byRows ? context.group(ring ? "tp-dp-cp" : "tp-dp") : context.group(ring ? "dp-cp" : "dp");
    if (context.hasGroup("shard")) {
        reducers.group = context.group(byRows ? "tp-shard" : "shard");
        reducers.replicas = context.group(byRows ? "tp-replicas" : "replicas");
    }
    if (tensor.name == "wte.weight")
        reducers.tie = context.group("embedding");
    reducers.exact = context.job.compression.mode != "none" && !compresses(context.job, tensor);
    return reducers;
}

/// Tensors of each bucket, in forward order within one, from a list in forward order. Buckets in reverse forward order: bucket
/// 0 is complete first in the backward. Whatever follows a first full one must fit `bucketBytes`, or be one tensor. When there
/// are several, the first closes at 1 MiB already, so that communication starts early (as PyTorch's reducer does).
std::vector<std::vector<TensorId>> assignBuckets(const spec::JobSpec &job, const std::vector<Tensor> &tensors,
                                                 const std::vector<TensorId> &members, bool whole)
{
    if (whole)
        return {members};
    const auto size = static_cast<std::int64_t>(bytesOf(job.precision.grad));
    const auto bytesOfTensor = [&](TensorId id) {
        return tensors[static_cast<std::size_t>(id)].numel * size;
    };
    std::int64_t total = 0;
    for (const TensorId id : members)
        total += bytesOfTensor(id);
    const std::int64_t limit = std::max<std::int64_t>(1, job.zero.bucketBytes);
    const bool smallFirst = total > limit;

    std::vector<std::vector<TensorId>> buckets;
    std::int64_t bytes = 0;
    bool closed = true;
    for (auto id = members.rbegin(); id != members.rend(); ++id) {
        const std::int64_t own = bytesOfTensor(*id);
        if (closed || bytes + own > limit) {
            buckets.emplace_back();
            bytes = 0;
        }
        buckets.back().push_back(*id);
        bytes += own;
        closed = smallFirst && buckets.size() == 1 && bytes >= firstBucketBytes;
    }
    for (std::vector<TensorId> &bucket : buckets)
        std::reverse(bucket.begin(), bucket.end());
    return buckets;
}

/// Storage of one bucket: roots for parameters and gradients with the tensors as views, this rank's slices, the optimizer's.
/// With ZeRO 2 gradients, with ZeRO 3 and parameters on the host these too (`gathered`), have no root that lives over all steps.
void addStorage(PassContext context, Bucket &bucket, bool gathered, const std::string &suffix)
{
    StepProgram &program = context.program;
    const spec::Precision &precision = context.job.precision;
    const bool shared = bucket.group != none;
    const bool sliced = bucket.slices > 1;
    const std::int64_t own = bucket.padded / bucket.slices;

    const auto root = [&](const char *name, MemoryKind kind, DType type, BufferId Tensor::*view,
                          BufferId &slice) {
        const BufferId id = addState(program, name + suffix, kind, type, {bucket.padded});
        program.buffers.back().shared = shared;
        for (const TensorId tensor : bucket.tensors) {
            const Tensor &t = program.tensors[static_cast<std::size_t>(tensor)];
            makeView(program, t.*view, id, t.offset * static_cast<std::int64_t>(bytesOf(type)));
        }
        slice = id;
        if (sliced) {
            slice = addState(program, name + suffix + ".slice", kind, type, {own});
            makeView(program, slice, id, 0);
            program.buffers.back().sliceGroup = bucket.group;
        }
        return id;
    };
    const bool hostParams = context.job.offload.params != "none";
    const auto shard = [&](const char *name, MemoryKind kind, DType type) {
        const BufferId id = addState(program, name + suffix + ".slice", kind, type, {own});
        program.buffers.back().shared = kind == MemoryKind::Params;
        return id;
    };
    if (gathered)
        bucket.paramSlice =
            shard("params", hostParams ? MemoryKind::Host : MemoryKind::Params, precision.compute);
    else
        bucket.param =
            root("params", MemoryKind::Params, precision.compute, &Tensor::param, bucket.paramSlice);
    if (!context.training())
        return;
    if (context.job.zero.stage >= 2 && sliced)
        bucket.gradSlice = shard("grads", MemoryKind::Grads, precision.grad);
    else
        bucket.grad = root("grads", MemoryKind::Grads, precision.grad, &Tensor::grad, bucket.gradSlice);
    const std::string &tier = context.job.offload.optimizer;
    const auto state = [&](const char *name) {
        const MemoryKind kind = tier == "none" ? MemoryKind::Optimizer : MemoryKind::Host;
        const BufferId id = addState(program, name + suffix, kind, precision.master, {own});
        program.buffers.back().disk = tier == "nvme";
        return id;
    };
    bucket.exp1 = state("exp1");
    bucket.exp2 = state("exp2");
    if (precision.compute != precision.master)
        bucket.master = state("master");
}

/// After which op of the program each gradient has its last contribution, by buffer; `none` for one without.
std::vector<OpId> lastContributions(const StepProgram &program)
{
    std::vector<OpId> last(program.buffers.size(), none);
    for (const Op &op : program.ops) {
        for (const BufferId id : op.writes)
            last[static_cast<std::size_t>(id)] = op.id;
    }
    return last;
}

Op reduction(PassContext context, OpKind kind, GroupId group, BufferId target)
{
    Op op;
    op.kind = kind;
    op.stream = Stream::Data;
    op.group = group;
    op.reads = {target};
    op.writes = {target};
    op.payload = context.program.buffer(target).bytes;
    return op;
}

/// Copies of KV heads, then the replicas, in blocks and across, then the copies of a tied embedding.
std::vector<Op> reductionsOf(PassContext context, std::int32_t index)
{
    std::vector<Op> ops = copyReductions(context, index, [&](TensorId id) {
        return context.program.tensors[static_cast<std::size_t>(id)].grad;
    });
    const Bucket &bucket = context.program.buckets[static_cast<std::size_t>(index)];
    if (bucket.group != none)
        ops.push_back(reduction(context, bucket.slices > 1 ? OpKind::ReduceScatter : OpKind::AllReduce,
                                bucket.group, bucket.grad));
    if (bucket.replicas != none)
        ops.push_back(reduction(context, OpKind::AllReduce, bucket.replicas, bucket.gradSlice));
    if (bucket.tie != none)
        ops.push_back(reduction(context, OpKind::AllReduce, bucket.tie, bucket.gradSlice));
    for (Op &op : ops)
        op.chunk = index;
    return ops;
}

void addReductions(PassContext context)
{
    StepProgram &program = context.program;
    const std::vector<OpId> last = lastContributions(program);
    const auto backwardEnd = static_cast<OpId>(program.ops.size());
    Insertions insertions, tied;
    for (std::size_t index = 0; index < program.buckets.size(); ++index) {
        OpId complete = none;
        if (program.buckets[index].grad == none)
            continue; // reduced each micro-batch: zero.cpp
        for (const TensorId id : program.buckets[index].tensors) {
            const BufferId grad = program.tensors[static_cast<std::size_t>(id)].grad;
            complete = std::max(complete, last[static_cast<std::size_t>(grad)]);
        }
        for (Op &op : reductionsOf(context, static_cast<std::int32_t>(index))) {
            if (!context.job.comm.overlapGrads)
                op.waits = {backwardEnd - 1};
            const bool ties = op.group == program.buckets[index].tie;
            const OpId place = context.job.comm.overlapGrads && !ties ? complete + 1 : backwardEnd;
            (ties ? tied : insertions).emplace_back(place, std::move(op));
        }
    }
    // The first stage has its copy of a tied embedding at the end of its backward only: before it the last stage's sum would keep the
    // reductions behind it waiting, and with them the computation that they feed.
    std::move(tied.begin(), tied.end(), std::back_inserter(insertions));
    insertOps(program, std::move(insertions));
}

} // namespace

std::vector<Op> copyReductions(PassContext context, std::int32_t index,
                               const std::function<BufferId(TensorId)> &gradientOf)
{
    StepProgram &program = context.program;
    std::vector<Op> ops;
    for (const TensorId id : program.buckets[static_cast<std::size_t>(index)].tensors) {
        const std::vector<Section> &sections = program.tensors[static_cast<std::size_t>(id)].sections;
        const bool shared = std::any_of(sections.begin(), sections.end(),
                                        [](const Section &section) { return section.copies > 1; });
        if (!shared)
            continue;
        // k and v stand behind q: the rows from there on.
        const std::int64_t own = sections.front().local;
        const Buffer gradient = program.buffer(gradientOf(id));
        std::vector<std::int64_t> shape = gradient.shape;
        const std::int64_t begin = gradient.bytes / shape[0] * own;
        shape[0] -= own;
        const BufferId rows =
            addBuffer(program, gradient.name + ".kv", gradient.kind, gradient.dtype, std::move(shape));
        makeView(program, rows, gradient.parent, gradient.viewOffset + begin);
        program.buffers.back().tensor = id;
        ops.push_back(reduction(context, OpKind::AllReduce, context.group("kv"), rows));
        ops.back().chunk = index;
    }
    return ops;
}

void bucketPass(PassContext context)
{
    StepProgram &program = context.program;
    const std::vector<TensorSpec> specs = modelTensors(context.job);
    std::map<Reducers, std::vector<TensorId>> classes;
    for (const Tensor &tensor : program.tensors) {
        Reducers reducers = reducersOf(context, tensor);
        // Small tensors stay whole on every rank.
        const bool apart =
            context.job.offload.params != "none" || (context.job.zero.stage >= 3 && reducers.group != none);
        const bool gathered = apart && numelOf(tensor.global) >= context.job.zero.persistenceThreshold;
        if (const Unit unit = specs[static_cast<std::size_t>(tensor.index)].unit; gathered)
            reducers.unit = {unit.kind, unit.layer};
        classes[reducers].push_back(tensor.id);
    }
    std::vector<std::pair<Reducers, std::vector<TensorId>>> lists;
    for (const auto &[reducers, members] : classes) {
        for (std::vector<TensorId> &list :
             assignBuckets(context.job, program.tensors, members, reducers.unit.first != UnitKind::None))
            lists.emplace_back(reducers, std::move(list));
    }
    // Complete first, reduced first: by the tensor whose gradient comes last.
    std::stable_sort(lists.begin(), lists.end(),
                     [](const auto &a, const auto &b) { return a.second.front() > b.second.front(); });
    for (auto &[reducers, members] : lists) {
        Bucket bucket;
        bucket.group = reducers.group;
        bucket.replicas = reducers.replicas;
        bucket.tie = reducers.tie;
        const bool sliced = context.job.zero.stage >= 1 && bucket.group != none;
        bucket.slices = sliced ? program.groups[static_cast<std::size_t>(bucket.group)].size : 1;
        bucket.tensors = std::move(members);
        const auto index = static_cast<std::int32_t>(program.buckets.size());
        for (const TensorId id : bucket.tensors) {
            Tensor &tensor = program.tensors[static_cast<std::size_t>(id)];
            tensor.bucket = index;
            tensor.offset = bucket.numel;
            bucket.numel += tensor.numel;
        }
        // Reductions in steps need slices even where each rank keeps all of them.
        const std::int64_t parts = context.job.comm.algorithm == "library" || bucket.group == none
            ? bucket.slices
            : program.groups[static_cast<std::size_t>(bucket.group)].size;
        bucket.padded = (bucket.numel + parts - 1) / parts * parts;
        const bool gathered = reducers.unit.first != UnitKind::None;
        addStorage(context, bucket, gathered, "[" + std::to_string(index) + "]");
        program.buckets.push_back(std::move(bucket));
    }
    if (context.training())
        addReductions(context);
}

} // namespace rankyard::plan
