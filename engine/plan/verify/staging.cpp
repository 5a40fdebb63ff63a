// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/checks.h"

#include <algorithm>
#include <array>

namespace rankyard::plan {

namespace {

/// What an update works on.
enum Operand : int { Gradient, Param, Exp1, Exp2, Master, operandCount };

/// Part of a bucket's state that is for a while somewhere else.
struct Staged {
    std::int32_t bucket = none;
    int operand = none;
    std::int64_t begin = 0, end = 0;
    bool updated = false;
};

/// How far updates and copies home have come, in elements.
struct Covered {
    std::int64_t updated = 0;
    std::array<std::int64_t, operandCount> home{};
    std::array<bool, operandCount> staged{};
};

class StagingCheck
{
public:
    explicit StagingCheck(const StepProgram &program)
        : m_program(program),
          m_staged(program.buffers.size()),
          m_covered(program.buckets.size()),
          m_bucketOf(program.buffers.size(), none)
    {
        for (const Buffer &buffer : program.buffers) {
            if (buffer.parent != none && buffer.tensor != none)
                m_bucketOf[at(buffer.parent)] = program.tensors[at(buffer.tensor)].bucket;
        }
    }
    Status run();

private:
    std::array<BufferId, operandCount> homesOf(std::int32_t bucket) const
    {
        const Bucket &b = m_program.buckets[at(bucket)];
        return {b.gradSlice, b.paramSlice, b.exp1, b.exp2, b.master};
    }
    bool isStage(BufferId id) const
    {
        const Buffer &buffer = m_program.buffer(id);
        return buffer.kind == MemoryKind::Host && !buffer.persistent && buffer.parent == none && !buffer.disk;
    }
    Status checkCopy(const Op &op);
    Status checkFetch(const Op &op);
    Status checkUpdate(const Op &op);
    Status checkEnd() const;

    const StepProgram &m_program;
    std::vector<Staged> m_staged;         ///< by buffer
    std::vector<Covered> m_covered;       ///< by bucket
    std::vector<std::int32_t> m_bucketOf; ///< of roots with tensors inside
};

/// Parameters of one use from the host: whole, or this rank's slice.
Status StagingCheck::checkFetch(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    const Buffer &from = m_program.buffer(op.reads[0]), &to = m_program.buffer(op.writes[0]);
    const bool right = from.id == bucket.paramSlice && from.kind == MemoryKind::Host && bucket.param == none
        && to.kind == MemoryKind::Gathered && !to.persistent && to.parent == none && to.bytes == from.bytes
        && to.dtype == from.dtype;
    const bool whole = bucket.slices == 1;
    if (!right || (whole && m_bucketOf[at(to.id)] != op.chunk) || m_staged[at(to.id)].bucket != none)
        return broken(op, "copies what is neither staged for an update nor fetched for a use");
    m_staged[at(to.id)] = {op.chunk, Param, 0, numelOf(to.shape), false};
    return {};
}

Status StagingCheck::checkCopy(const Op &op)
{
    if (op.chunk < 0 || at(op.chunk) >= m_program.buckets.size() || op.reads.size() != 1
        || op.writes.size() != 1)
        return broken(op, "must copy one buffer of a bucket to another");
    if (op.rowEnd == 0 && op.rowBegin == 0)
        return checkFetch(op);
    const auto homes = homesOf(op.chunk);
    const bool in = isStage(op.writes[0]);
    const BufferId home = in ? op.reads[0] : op.writes[0], stage = in ? op.writes[0] : op.reads[0];
    const auto found = std::find(homes.begin(), homes.end(), home);
    const Buffer &whole = m_program.buffer(home), &part = m_program.buffer(stage);
    if (found == homes.end() || !isStage(stage) || whole.dtype != part.dtype || op.rowBegin < 0
        || op.rowEnd > numelOf(whole.shape) || op.rowEnd - op.rowBegin != numelOf(part.shape))
        return broken(op, "does not copy a part of its bucket's state");
    const int operand = static_cast<int>(found - homes.begin());
    Staged &staged = m_staged[at(stage)];
    Covered &covered = m_covered[at(op.chunk)];
    if (in) {
        if (staged.bucket != none)
            return broken(op, "stages into " + part.name + " a second time");
        if (covered.home[at(operand)] > op.rowBegin)
            return broken(op, "stages what has been updated");
        staged = {op.chunk, operand, op.rowBegin, op.rowEnd, false};
        covered.staged[at(operand)] = true;
        return {};
    }
    if (staged.bucket != op.chunk || staged.operand != operand || staged.begin != op.rowBegin
        || staged.end != op.rowEnd || !staged.updated || operand == Gradient)
        return broken(op, "takes home " + part.name + ", which is not what an update has left there");
    if (covered.home[at(operand)] != op.rowBegin)
        return broken(op, "takes home other elements than those that follow");
    covered.home[at(operand)] = op.rowEnd;
    return {};
}

/// Each operand at home, or a stage of the same elements. The sub-groups follow each other.
Status StagingCheck::checkUpdate(const Op &op)
{
    const auto homes = homesOf(op.chunk);
    const std::int64_t own = numelOf(m_program.buffer(homes[Gradient]).shape);
    const std::int64_t end = op.rowEnd == 0 ? own : op.rowEnd;
    Covered &covered = m_covered[at(op.chunk)];
    if (op.rowBegin != covered.updated || end <= op.rowBegin || end > own)
        return broken(op, "updates other elements than those that follow");
    covered.updated = end;
    std::vector<BufferId> operands = op.reads;
    operands.insert(operands.end(), op.writes.begin(), op.writes.end());
    const std::size_t wanted = homes[Master] == none ? Master : operandCount;
    if (op.reads.size() != 1 || operands.size() != wanted)
        return broken(op, "does not have the operands of its bucket");
    for (std::size_t i = 0; i < operands.size(); ++i) {
        Staged &staged = m_staged[at(operands[i])];
        const bool right = operands[i] == homes[i]
            || (staged.bucket == op.chunk && at(staged.operand) == i && staged.begin == op.rowBegin
                && staged.end == end && !staged.updated);
        if (!right)
            return broken(op, "does not work on its bucket's slices");
        // Its home is nothing to work on any more: it is older than the stages before.
        if (operands[i] == homes[i] && covered.staged[i])
            return broken(op, "works on what is staged elsewhere");
        staged.updated = true;
    }
    return {};
}

Status StagingCheck::checkEnd() const
{
    for (std::size_t i = 0; i < m_covered.size() && m_program.kind == ProgramKind::Train; ++i) {
        const std::int64_t own =
            numelOf(m_program.buffer(homesOf(static_cast<std::int32_t>(i))[Gradient]).shape);
        bool home = m_covered[i].updated == own;
        for (std::size_t operand = Param; operand < operandCount; ++operand)
            home = home && (!m_covered[i].staged[operand] || m_covered[i].home[operand] == own);
        if (!home)
            return Error::make(Code::Internal, "not all of it is updated and taken home",
                               "bucket " + std::to_string(i));
    }
    return {};
}

Status StagingCheck::run()
{
    for (const Op &op : m_program.ops) {
        if (op.kind == OpKind::Copy && op.unit.kind == UnitKind::None)
            RY_TRY(checkCopy(op));
        if (op.kind == OpKind::Optimizer)
            RY_TRY(checkUpdate(op));
        const bool gather = op.kind == OpKind::AllGather && op.unit.kind == UnitKind::None;
        if (gather && m_program.buffer(op.reads[0]).kind == MemoryKind::Gathered
            && m_staged[at(op.reads[0])].bucket != op.chunk)
            return broken(op, "gathers slices that have not been fetched from the host");
    }
    return checkEnd();
}

} // namespace

Status checkStaging(const StepProgram &program) { return StagingCheck(program).run(); }

} // namespace rankyard::plan
