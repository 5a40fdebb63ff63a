// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

constexpr std::int64_t firstBucketBytes = 1 << 20;

/// Tensors of each bucket, in forward order within one. Buckets in reverse forward order: bucket 0 is complete first in the
/// backward. Whatever follows a first full one must fit `bucketBytes`, or be one tensor. When there are several, the first
/// closes at 1 MiB already, so that communication starts early (as PyTorch's reducer does).
std::vector<std::vector<TensorId>> assignBuckets(const spec::JobSpec &job, const std::vector<Tensor> &tensors)
{
    const auto size = static_cast<std::int64_t>(bytesOf(job.precision.grad));
    std::int64_t total = 0;
    for (const Tensor &tensor : tensors)
        total += tensor.numel * size;
    const std::int64_t limit = std::max<std::int64_t>(1, job.zero.bucketBytes);
    const bool smallFirst = total > limit;

    std::vector<std::vector<TensorId>> buckets;
    std::int64_t bytes = 0;
    bool closed = true;
    for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
        const std::int64_t own = tensor->numel * size;
        if (closed || bytes + own > limit) {
            buckets.emplace_back();
            bytes = 0;
        }
        buckets.back().push_back(tensor->id);
        bytes += own;
        closed = smallFirst && buckets.size() == 1 && bytes >= firstBucketBytes;
    }
    for (std::vector<TensorId> &bucket : buckets)
        std::reverse(bucket.begin(), bucket.end());
    return buckets;
}

/// Storage of one bucket: roots for parameters and gradients with the tensors as views, this rank's slices, the optimizer's.
void addStorage(PassContext context, Bucket &bucket, const std::string &suffix)
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
    bucket.param = root("params", MemoryKind::Params, precision.compute, &Tensor::param, bucket.paramSlice);
    if (!context.training())
        return;
    bucket.grad = root("grads", MemoryKind::Grads, precision.grad, &Tensor::grad, bucket.gradSlice);
    bucket.exp1 = addState(program, "exp1" + suffix, MemoryKind::Optimizer, precision.master, {own});
    bucket.exp2 = addState(program, "exp2" + suffix, MemoryKind::Optimizer, precision.master, {own});
    if (precision.compute != precision.master)
        bucket.master = addState(program, "master" + suffix, MemoryKind::Optimizer, precision.master, {own});
}

/// After which op of the program each bucket has its last gradient; `none` for one without.
std::vector<OpId> lastContributions(const StepProgram &program)
{
    std::vector<std::int32_t> bucketOf(program.buffers.size(), none);
    for (const Tensor &tensor : program.tensors)
        bucketOf[static_cast<std::size_t>(tensor.grad)] = tensor.bucket;
    std::vector<OpId> last(program.buckets.size(), none);
    for (const Op &op : program.ops) {
        for (const BufferId id : op.writes) {
            if (const std::int32_t bucket = bucketOf[static_cast<std::size_t>(id)]; bucket != none)
                last[static_cast<std::size_t>(bucket)] = op.id;
        }
    }
    return last;
}

void addReductions(PassContext context)
{
    StepProgram &program = context.program;
    const std::vector<OpId> last = lastContributions(program);
    const auto backwardEnd = static_cast<OpId>(program.ops.size());
    Insertions insertions;
    for (std::size_t index = 0; index < program.buckets.size(); ++index) {
        const Bucket &bucket = program.buckets[index];
        if (bucket.group == none)
            continue;
        Op op;
        op.kind = bucket.slices > 1 ? OpKind::ReduceScatter : OpKind::AllReduce;
        op.chunk = static_cast<std::int32_t>(index);
        op.stream = Stream::Data;
        op.group = bucket.group;
        op.reads = {bucket.grad};
        op.writes = {bucket.grad};
        op.payload = program.buffer(bucket.grad).bytes;
        if (context.job.comm.overlapGrads) {
            insertions.emplace_back(last[index] + 1, std::move(op));
        } else {
            op.waits = {backwardEnd - 1};
            insertions.emplace_back(backwardEnd, std::move(op));
        }
    }
    insertOps(program, std::move(insertions));
}

} // namespace

void bucketPass(PassContext context)
{
    StepProgram &program = context.program;
    for (std::vector<TensorId> &members : assignBuckets(context.job, program.tensors)) {
        Bucket bucket;
        bucket.group = context.group("dp");
        bucket.slices = context.job.zero.stage >= 1 ? static_cast<std::int32_t>(context.job.layout.dp) : 1;
        bucket.tensors = std::move(members);
        const auto index = static_cast<std::int32_t>(program.buckets.size());
        for (const TensorId id : bucket.tensors) {
            Tensor &tensor = program.tensors[static_cast<std::size_t>(id)];
            tensor.bucket = index;
            tensor.offset = bucket.numel;
            bucket.numel += tensor.numel;
        }
        bucket.padded = (bucket.numel + bucket.slices - 1) / bucket.slices * bucket.slices;
        addStorage(context, bucket, "[" + std::to_string(index) + "]");
        program.buckets.push_back(std::move(bucket));
    }
    if (context.training())
        addReductions(context);
}

} // namespace rankyard::plan
