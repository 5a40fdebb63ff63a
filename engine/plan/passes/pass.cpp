// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>

namespace rankyard::plan {

GroupId PassContext::group(const std::string &name) const
{
    for (const Group &g : program.groups) {
        if (g.name == name)
            return g.id;
    }
    return none;
}

BufferId addBuffer(StepProgram &program, std::string name, MemoryKind kind, DType dtype,
                   std::vector<std::int64_t> shape)
{
    Buffer buffer;
    buffer.id = static_cast<BufferId>(program.buffers.size());
    buffer.name = std::move(name);
    buffer.kind = kind;
    buffer.dtype = dtype;
    buffer.bytes = numelOf(shape) * static_cast<std::int64_t>(bytesOf(dtype));
    buffer.shape = std::move(shape);
    program.buffers.push_back(std::move(buffer));
    return program.buffers.back().id;
}

BufferId addState(StepProgram &program, std::string name, MemoryKind kind, DType dtype,
                  std::vector<std::int64_t> shape)
{
    const BufferId id = addBuffer(program, std::move(name), kind, dtype, std::move(shape));
    program.buffers.back().persistent = true;
    return id;
}

void makeView(StepProgram &program, BufferId child, BufferId parent, std::int64_t offset)
{
    Buffer &view = program.buffers[static_cast<std::size_t>(child)];
    const Buffer &root = program.buffer(parent);
    view.parent = parent;
    view.viewOffset = offset;
    view.shared = root.shared;
    view.disk = root.disk;
    view.persistent = root.persistent;
}

Op &appendOp(StepProgram &program, Op op)
{
    op.id = static_cast<OpId>(program.ops.size());
    program.ops.push_back(std::move(op));
    return program.ops.back();
}

void dropUnused(StepProgram &program)
{
    std::vector<BufferId *> references = {&program.stats};
    for (Op &op : program.ops) {
        for (auto *list : {&op.reads, &op.writes, &op.releases}) {
            for (BufferId &id : *list)
                references.push_back(&id);
        }
    }
    for (Tensor &tensor : program.tensors)
        references.insert(references.end(), {&tensor.param, &tensor.grad});
    for (Bucket &bucket : program.buckets)
        references.insert(references.end(),
                          {&bucket.param, &bucket.grad, &bucket.paramSlice, &bucket.gradSlice, &bucket.exp1,
                           &bucket.exp2, &bucket.master, &bucket.error});
    std::vector<BufferId> moved(program.buffers.size(), none);
    const auto keep = [&](BufferId id) {
        if (id != none)
            moved[static_cast<std::size_t>(id)] = id;
    };
    for (const BufferId *id : references) {
        keep(*id);
        keep(*id == none ? none : program.buffer(*id).parent);
    }
    std::vector<Buffer> buffers;
    for (Buffer &buffer : program.buffers) {
        BufferId &id = moved[static_cast<std::size_t>(buffer.id)];
        if (id == none)
            continue;
        buffer.id = id = static_cast<BufferId>(buffers.size());
        buffers.push_back(std::move(buffer));
    }
    program.buffers = std::move(buffers);
    for (Buffer &buffer : program.buffers)
        references.push_back(&buffer.parent);
    for (BufferId *id : references) {
        if (*id != none)
            *id = moved[static_cast<std::size_t>(*id)];
    }
}

void markAccumulation(StepProgram &program)
{
    std::vector<bool> written(program.buffers.size(), false);
    for (Op &op : program.ops) {
        if (op.unit.kind == UnitKind::None || isTransfer(op.kind))
            continue;
        for (const BufferId id : op.writes) {
            if (program.buffer(id).tensor == none)
                continue;
            op.accumulate = written[static_cast<std::size_t>(id)];
            written[static_cast<std::size_t>(id)] = true;
        }
    }
}

void insertOps(StepProgram &program, Insertions insertions)
{
    std::stable_sort(insertions.begin(), insertions.end(),
                     [](const auto &a, const auto &b) { return a.first < b.first; });
    std::vector<Op> ops;
    ops.reserve(program.ops.size() + insertions.size());
    std::vector<OpId> moved(program.ops.size(), none);
    auto next = insertions.begin();
    for (std::size_t at = 0; at <= program.ops.size(); ++at) {
        for (; next != insertions.end() && next->first == static_cast<OpId>(at); ++next)
            ops.push_back(std::move(next->second));
        if (at < program.ops.size()) {
            moved[at] = static_cast<OpId>(ops.size());
            ops.push_back(std::move(program.ops[at]));
        }
    }
    for (std::size_t at = 0; at < ops.size(); ++at) {
        ops[at].id = static_cast<OpId>(at);
        for (OpId &wait : ops[at].waits)
            wait = moved[static_cast<std::size_t>(wait)];
    }
    program.ops = std::move(ops);
}

} // namespace rankyard::plan
