// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

namespace rankyard::plan {

// No parameter changes before every rank knows the norm of the whole gradient and whether anything overflowed: the reduction
// of `stats` is the step's barrier.
void tailPass(PassContext context)
{
    StepProgram &program = context.program;
    const auto add = [&](OpKind kind, Stream stream, std::vector<BufferId> reads,
                         std::vector<BufferId> writes) -> Op & {
        Op op;
        op.id = static_cast<OpId>(program.ops.size());
        op.kind = kind;
        op.stream = stream;
        op.reads = std::move(reads);
        op.writes = std::move(writes);
        program.ops.push_back(std::move(op));
        return program.ops.back();
    };
    if (context.training()) {
        for (std::size_t index = 0; index < program.buckets.size(); ++index) {
            Op &norm =
                add(OpKind::GradNorm, Stream::Compute, {program.buckets[index].gradSlice}, {program.stats});
            norm.chunk = static_cast<std::int32_t>(index);
        }
    }
    if (const GroupId world = context.group("world"); world != none) {
        Op &reduce = add(OpKind::AllReduce, Stream::Data, {program.stats}, {program.stats});
        reduce.group = world;
        reduce.payload = program.buffer(program.stats).bytes;
    }
    add(OpKind::StepScalars, Stream::Compute, {program.stats}, {});
    if (context.training()) {
        for (std::size_t index = 0; index < program.buckets.size(); ++index) {
            const Bucket &bucket = program.buckets[index];
            std::vector<BufferId> writes = {bucket.paramSlice, bucket.exp1, bucket.exp2};
            if (bucket.master != none)
                writes.push_back(bucket.master);
            Op &update = add(OpKind::Optimizer, Stream::Compute, {bucket.gradSlice}, std::move(writes));
            update.chunk = static_cast<std::int32_t>(index);
        }
    }
}

} // namespace rankyard::plan
