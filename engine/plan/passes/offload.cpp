// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

/// The optimizer on the host (Ren et al. 2021; with files Rajbhandari et al. 2021): states have their home there, gradients and
/// parameters come and go by sub-groups. While one is updated the next is on its way in and the one before on its way out.
class Offload
{
public:
    explicit Offload(PassContext context) : m_context(context), m_program(context.program) {}
    void run();

private:
    /// A sub-group of one bucket's update.
    struct Group {
        std::vector<Op> in, out;
        Op update;
    };
    Group split(const Op &update, std::int64_t begin, std::int64_t end);
    BufferId stage(BufferId home, std::int64_t begin, std::int64_t end);
    Op copy(const Op &update, BufferId from, BufferId to, std::int64_t begin, std::int64_t end) const;
    /// Where the update can work on it.
    bool isAtHand(BufferId id) const
    {
        return m_program.buffer(id).kind == MemoryKind::Host && !m_program.buffer(id).disk;
    }

    PassContext m_context;
    StepProgram &m_program;
};

BufferId Offload::stage(BufferId home, std::int64_t begin, std::int64_t end)
{
    const Buffer buffer = m_program.buffer(home);
    return addBuffer(m_program, buffer.name + ".stage@" + std::to_string(begin), MemoryKind::Host,
                     buffer.dtype, {end - begin});
}

Op Offload::copy(const Op &update, BufferId from, BufferId to, std::int64_t begin, std::int64_t end) const
{
    Op op;
    op.kind = OpKind::Copy;
    op.stream = Stream::Copy;
    op.chunk = update.chunk;
    op.reads = {from};
    op.writes = {to};
    op.rowBegin = begin;
    op.rowEnd = end;
    return op;
}

Offload::Group Offload::split(const Op &update, std::int64_t begin, std::int64_t end)
{
    Group group;
    group.update = update;
    group.update.rowBegin = begin;
    group.update.rowEnd = end;
    BufferId &gradient = group.update.reads[0];
    const BufferId staged = stage(gradient, begin, end);
    group.in.push_back(copy(update, gradient, staged, begin, end));
    gradient = staged;
    for (BufferId &id : group.update.writes) {
        if (isAtHand(id))
            continue;
        // In as well, though the update may only write it: one that is skipped leaves it as it was.
        const BufferId home = id;
        id = stage(home, begin, end);
        group.in.push_back(copy(update, home, id, begin, end));
        group.out.push_back(copy(update, id, home, begin, end));
    }
    return group;
}

void Offload::run()
{
    const auto first = std::find_if(m_program.ops.begin(), m_program.ops.end(),
                                    [](const Op &op) { return op.kind == OpKind::Optimizer; });
    const std::vector<Op> updates(first, m_program.ops.end());
    m_program.ops.erase(first, m_program.ops.end());
    std::vector<Group> groups;
    for (const Op &update : updates) {
        const std::int64_t own = numelOf(m_program.buffer(update.reads[0]).shape);
        for (std::int64_t begin = 0; begin < own; begin += m_context.job.zero.subGroup)
            groups.push_back(split(update, begin, std::min(own, begin + m_context.job.zero.subGroup)));
    }
    const auto ahead = static_cast<std::size_t>(m_context.job.offload.buffers) - 1;
    const auto emit = [&](std::vector<Op> &ops) {
        for (Op &op : ops)
            appendOp(m_program, std::move(op));
    };
    for (std::size_t i = 0; i < std::min(ahead, groups.size()); ++i)
        emit(groups[i].in);
    for (std::size_t i = 0; i < groups.size(); ++i) {
        if (i + ahead < groups.size())
            emit(groups[i + ahead].in);
        appendOp(m_program, std::move(groups[i].update));
        emit(groups[i].out);
    }
}

} // namespace

void offloadPass(PassContext context)
{
    if (context.training() && context.job.offload.optimizer != "none")
        Offload(context).run();
}

} // namespace rankyard::plan
