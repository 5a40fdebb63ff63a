// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

namespace rankyard::plan {

// ZeRO 1 and 2, and what ZeRO 3 keeps whole. The optimizer leaves each rank with its own slice of the new parameters. They are gathered at the head of the next program,
// train or eval, and not at the end of the step: there the forward hides all buckets but the first.
void gatherPass(PassContext context)
{
    StepProgram &program = context.program;
    Insertions insertions;
    for (std::size_t index = program.buckets.size(); index-- > 0;) { // buckets stand in reverse forward order
        const Bucket &bucket = program.buckets[index];
        if (bucket.slices == 1 || bucket.param == none) // none: gathered for each use, unit_gathers.cpp
            continue;
        Op op;
        op.kind = OpKind::AllGather;
        op.chunk = static_cast<std::int32_t>(index);
        op.stream = Stream::Data;
        op.group = bucket.group;
        op.reads = {bucket.paramSlice};
        op.writes = {bucket.param};
        op.payload = program.buffer(bucket.param).bytes;
        insertions.emplace_back(0, std::move(op));
    }
    const auto gathers = static_cast<OpId>(insertions.size());
    insertOps(program, std::move(insertions));
    if (gathers > 0 && !context.job.comm.overlapParams
        && static_cast<std::size_t>(gathers) < program.ops.size())
        program.ops[static_cast<std::size_t>(gathers)].waits.push_back(gathers - 1);
}

} // namespace rankyard::plan
