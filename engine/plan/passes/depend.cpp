// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>
#include <array>
#include <utility>

namespace rankyard::plan {

namespace {

/// For each lane the last op that is known to be done.
using Clock = std::array<OpId, laneCount>;
constexpr Clock unset = [] {
    Clock clock{};
    clock.fill(none);
    return clock;
}();

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }
std::size_t lane(const Op &op) { return static_cast<std::size_t>(laneOf(op)); }

/// Root buffers cut at the borders of their views: two buffers touch the same bytes where they share an atom.
class Atoms
{
public:
    explicit Atoms(const StepProgram &program);

    struct Range {
        std::int32_t begin = 0;
        std::int32_t end = 0;
    };
    Range of(BufferId id) const { return m_ranges[at(id)]; }
    std::int32_t count() const { return m_count; }

private:
    std::vector<Range> m_ranges; ///< by buffer
    std::int32_t m_count = 0;
};

Atoms::Atoms(const StepProgram &program) : m_ranges(program.buffers.size())
{
    std::vector<std::vector<BufferId>> views(program.buffers.size());
    for (const Buffer &buffer : program.buffers) {
        if (buffer.parent != none)
            views[at(buffer.parent)].push_back(buffer.id);
    }
    // A slice lies anywhere in the parent's slices: ranks differ, the program does not.
    const auto span = [&](const Buffer &view) {
        const std::int64_t slices = view.sliceGroup == none ? 1 : program.groups[at(view.sliceGroup)].size;
        return std::pair(view.viewOffset, view.viewOffset + slices * view.bytes);
    };
    for (const Buffer &root : program.buffers) {
        if (root.parent != none)
            continue;
        std::vector<std::int64_t> cuts = {0, root.bytes};
        for (const BufferId id : views[at(root.id)]) {
            const auto [begin, end] = span(program.buffer(id));
            cuts.insert(cuts.end(), {begin, end});
        }
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        const auto index = [&](std::int64_t cut) {
            return m_count
                + static_cast<std::int32_t>(std::lower_bound(cuts.begin(), cuts.end(), cut) - cuts.begin());
        };
        for (const BufferId id : views[at(root.id)]) {
            const auto [begin, end] = span(program.buffer(id));
            m_ranges[at(id)] = {index(begin), index(end)};
        }
        const auto atoms = std::max<std::int32_t>(1, static_cast<std::int32_t>(cuts.size()) - 1);
        m_ranges[at(root.id)] = {m_count, m_count + atoms};
        m_count += atoms;
    }
}

class Dependencies
{
public:
    explicit Dependencies(StepProgram &program)
        : m_program(program),
          m_atoms(program),
          m_state(at(m_atoms.count())),
          m_clocks(program.ops.size(), unset)
    {}

    void addWaits();
    void addReleases();

private:
    /// Who touched an atom since its last write; within a lane the latest stands for all.
    struct AtomState {
        OpId writer = none;
        Clock readers = unset;
    };
    void collect(const Op &op, std::vector<OpId> &before) const;
    void record(const Op &op);
    bool orderedAfter(const Op &op, const Clock &uses) const;
    void require(Op &op, OpId before);

    StepProgram &m_program;
    Atoms m_atoms;
    std::vector<AtomState> m_state;
    std::vector<Clock> m_clocks; ///< by op: what is done when it starts
    Clock m_last = unset;        ///< last op issued on each lane
};

/// Ops that must be done before: the writer of what `op` reads; writer and readers of what it writes.
void Dependencies::collect(const Op &op, std::vector<OpId> &before) const
{
    for (const BufferId id : op.reads) {
        const auto range = m_atoms.of(id);
        for (std::int32_t atom = range.begin; atom < range.end; ++atom)
            before.push_back(m_state[at(atom)].writer);
    }
    for (const BufferId id : op.writes) {
        const auto range = m_atoms.of(id);
        for (std::int32_t atom = range.begin; atom < range.end; ++atom) {
            const AtomState &state = m_state[at(atom)];
            before.push_back(state.writer);
            before.insert(before.end(), state.readers.begin(), state.readers.end());
        }
    }
}

void Dependencies::record(const Op &op)
{
    for (const BufferId id : op.reads) {
        const auto range = m_atoms.of(id);
        for (std::int32_t atom = range.begin; atom < range.end; ++atom)
            m_state[at(atom)].readers[lane(op)] = op.id;
    }
    for (const BufferId id : op.writes) {
        const auto range = m_atoms.of(id);
        for (std::int32_t atom = range.begin; atom < range.end; ++atom)
            m_state[at(atom)] = {op.id, unset};
    }
}

/// Adds a wait for `before` unless the clock of `op` implies it.
void Dependencies::require(Op &op, OpId before)
{
    Clock &clock = m_clocks[at(op.id)];
    const Op &other = m_program.op(before);
    if (clock[lane(other)] >= before)
        return;
    op.waits.push_back(before);
    const Clock &theirs = m_clocks[at(before)];
    for (std::size_t s = 0; s < clock.size(); ++s)
        clock[s] = std::max(clock[s], theirs[s]);
    clock[lane(other)] = std::max(clock[lane(other)], before);
}

void Dependencies::addWaits()
{
    std::vector<OpId> before;
    OpId scalars = none;
    OpId computes = none, computed = none; // the latest op that computes, and the one before it
    for (Op &op : m_program.ops) {
        before = std::move(op.waits); // what passes ask for beyond the data
        op.waits.clear();
        collect(op, before);
        if (op.kind == OpKind::StepScalars)
            scalars = op.id;
        // A gather of what has long been there could start any time, and would have to hold bytes for its output from then on: it starts
        // beside the computation that stands before it.
        if (op.stream == Stream::Tensor)
            before.push_back(computed);
        if (op.stream == Stream::Compute)
            computed = std::exchange(computes, op.id);
        if (op.kind == OpKind::Optimizer)
            before.push_back(scalars); // its factor goes through the step's state, not through a buffer
        if (const OpId previous = m_last[lane(op)]; previous != none) {
            m_clocks[at(op.id)] = m_clocks[at(previous)];
            m_clocks[at(op.id)][lane(op)] = previous;
        }
        // The latest first: it may imply earlier ones, never the other way round.
        std::sort(before.begin(), before.end(), std::greater<>());
        before.erase(std::unique(before.begin(), before.end()), before.end());
        for (const OpId id : before) {
            if (id != none)
                require(op, id);
        }
        std::sort(op.waits.begin(), op.waits.end());
        record(op);
        m_last[lane(op)] = op.id;
    }
}

bool Dependencies::orderedAfter(const Op &op, const Clock &uses) const
{
    const Clock &clock = m_clocks[at(op.id)];
    for (std::size_t s = 0; s < clock.size(); ++s) {
        if (uses[s] > clock[s] && uses[s] != op.id)
            return false;
    }
    return true;
}

/// A buffer dies at the first op, from its last use on, that comes after all of its uses; when there is none, the last op
/// of the program is made to wait for them.
void Dependencies::addReleases()
{
    std::vector<Clock> uses(m_program.buffers.size(), unset);
    for (const Op &op : m_program.ops) {
        for (const auto *list : {&op.reads, &op.writes}) {
            for (const BufferId id : *list) {
                const BufferId parent = m_program.buffer(id).parent;
                uses[at(parent == none ? id : parent)][lane(op)] = op.id;
            }
        }
    }
    for (const Buffer &buffer : m_program.buffers) {
        if (buffer.persistent || buffer.parent != none || uses[at(buffer.id)] == unset)
            continue;
        const Clock &used = uses[at(buffer.id)];
        auto place = at(*std::max_element(used.begin(), used.end()));
        while (place + 1 < m_program.ops.size() && !orderedAfter(m_program.ops[place], used))
            ++place;
        Op &op = m_program.ops[place];
        for (const OpId use : used) {
            if (use != none && use != op.id)
                require(op, use);
        }
        op.releases.push_back(buffer.id);
    }
}

} // namespace

void dependPass(PassContext context)
{
    Dependencies dependencies(context.program);
    dependencies.addWaits();
    dependencies.addReleases();
}

} // namespace rankyard::plan
