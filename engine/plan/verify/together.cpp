// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/checks.h"

#include <algorithm>
#include <map>

namespace rankyard::plan {

namespace {

/// Programs that run against each other, each on the rank that it is for. With one rank a role, the peers of the same role
/// are left out: they do what their representative does.
class TogetherCheck
{
public:
    TogetherCheck(std::vector<const StepProgram *> programs, std::vector<int> ranks, const RankGrid &grid);
    Status run();

private:
    struct Participant {
        const StepProgram *program = nullptr;
        int rank = 0;
        std::vector<bool> done;
        std::array<std::vector<OpId>, laneCount> queues;
        std::array<std::size_t, laneCount> next{};
    };
    /// A group as one communicator: its name and first rank.
    using GroupKey = std::pair<std::string, int>;

    GroupKey keyOf(const Participant &participant, const Op &op) const;
    std::vector<std::size_t> membersOf(const Participant &participant, const Op &op) const;
    Status checkSequences() const;
    Status checkProgress();
    /// The op at the head of a lane, when its waits are done; none else.
    OpId ready(const Participant &participant, std::size_t stream) const;
    bool advance(Participant &participant);
    bool advanceTransfer(Participant &participant, const Op &op);
    void finish(Participant &participant, OpId op);
    std::string nameAt(const Participant &participant, OpId op) const
    {
        return "rank " + std::to_string(participant.rank) + ", " + opName(participant.program->op(op));
    }
    static bool alike(const Participant &a, const Op &x, const Participant &b, const Op &y);

    const RankGrid &m_grid;
    std::vector<Participant> m_participants;
    std::map<int, std::size_t> m_byRank;
};

TogetherCheck::TogetherCheck(std::vector<const StepProgram *> programs, std::vector<int> ranks,
                             const RankGrid &grid)
    : m_grid(grid)
{
    for (std::size_t i = 0; i < programs.size(); ++i) {
        Participant participant;
        participant.program = programs[i];
        participant.rank = ranks[i];
        participant.done.assign(programs[i]->ops.size(), false);
        for (const Op &op : programs[i]->ops)
            participant.queues[static_cast<std::size_t>(laneOf(op))].push_back(op.id);
        m_byRank[ranks[i]] = i;
        m_participants.push_back(std::move(participant));
    }
}

TogetherCheck::GroupKey TogetherCheck::keyOf(const Participant &participant, const Op &op) const
{
    const Group &group = participant.program->groups[at(op.group)];
    const std::vector<int> members = m_grid.members(participant.rank, group);
    return {group.name, members.empty() ? none : members.front()};
}

std::vector<std::size_t> TogetherCheck::membersOf(const Participant &participant, const Op &op) const
{
    std::vector<std::size_t> members;
    for (const int rank : m_grid.members(participant.rank, participant.program->groups[at(op.group)])) {
        if (const auto found = m_byRank.find(rank); found != m_byRank.end())
            members.push_back(found->second);
    }
    return members;
}

bool TogetherCheck::alike(const Participant &a, const Op &x, const Participant &b, const Op &y)
{
    if (x.kind != y.kind || x.payload != y.payload || x.writes.empty() || y.writes.empty())
        return false;
    // A bucket has another number on another stage.
    if (a.program->role == b.program->role
        && (x.chunk != y.chunk || x.microbatch != y.microbatch || x.peer != y.peer))
        return false;
    return a.program->buffer(x.writes[0]).dtype == b.program->buffer(y.writes[0]).dtype;
}

/// The n-th collective of a group is the same on every member.
Status TogetherCheck::checkSequences() const
{
    struct Sequence {
        const Participant *participant;
        std::vector<OpId> ops;
    };
    std::map<GroupKey, std::vector<Sequence>> groups;
    for (const Participant &participant : m_participants) {
        std::vector<std::vector<OpId>> own(participant.program->groups.size());
        for (const Op &op : participant.program->ops) {
            if (isCollective(op.kind))
                own[at(op.group)].push_back(op.id);
        }
        for (const Group &group : participant.program->groups) {
            const auto members = m_grid.members(participant.rank, group);
            if (static_cast<int>(members.size()) != group.size) {
                return Error::make(Code::Internal,
                                   "has " + std::to_string(group.size) + " ranks in the program and "
                                       + std::to_string(members.size()) + " in the layout",
                                   "rank " + std::to_string(participant.rank) + ", group " + group.name);
            }
            groups[{group.name, members.front()}].push_back({&participant, std::move(own[at(group.id)])});
        }
    }
    for (const auto &[key, sequences] : groups) {
        const Sequence &first = sequences.front();
        for (const Sequence &other : sequences) {
            const std::size_t common = std::min(first.ops.size(), other.ops.size());
            for (std::size_t i = 0; i < common; ++i) {
                const Op &x = first.participant->program->op(first.ops[i]);
                const Op &y = other.participant->program->op(other.ops[i]);
                if (!alike(*first.participant, x, *other.participant, y))
                    return Error::make(Code::Internal,
                                       "does not match " + nameAt(*first.participant, x.id)
                                           + " of the same group",
                                       nameAt(*other.participant, y.id));
            }
            if (first.ops.size() != other.ops.size()) {
                const Sequence &longer = first.ops.size() > common ? first : other;
                const Sequence &shorter = first.ops.size() > common ? other : first;
                return Error::make(Code::Internal,
                                   "rank " + std::to_string(shorter.participant->rank)
                                       + " has no op to match it",
                                   nameAt(*longer.participant, longer.ops[common]));
            }
        }
    }
    return {};
}

OpId TogetherCheck::ready(const Participant &participant, std::size_t stream) const
{
    const auto &queue = participant.queues[stream];
    if (participant.next[stream] >= queue.size())
        return none;
    const OpId id = queue[participant.next[stream]];
    const Op &op = participant.program->op(id);
    const bool free =
        std::all_of(op.waits.begin(), op.waits.end(), [&](OpId wait) { return participant.done[at(wait)]; });
    return free ? id : none;
}

void TogetherCheck::finish(Participant &participant, OpId op)
{
    participant.done[at(op)] = true;
    ++participant.next[static_cast<std::size_t>(laneOf(participant.program->op(op)))];
}

/// A transfer happens when all who take part stand at it: nothing is buffered.
bool TogetherCheck::advanceTransfer(Participant &participant, const Op &op)
{
    const GroupKey key = keyOf(participant, op);
    std::vector<std::pair<Participant *, OpId>> meeting;
    std::vector<std::size_t> members = membersOf(participant, op);
    if (!isCollective(op.kind)) { // a pair: itself and the peer at the offset on the group's axis
        const auto ranks = m_grid.members(participant.rank, participant.program->groups[at(op.group)]);
        const auto own = std::find(ranks.begin(), ranks.end(), participant.rank) - ranks.begin();
        const auto size = static_cast<std::ptrdiff_t>(ranks.size());
        const auto peer = ((own + op.peer) % size + size) % size;
        if (!m_byRank.contains(ranks[static_cast<std::size_t>(peer)]))
            return false;
        members = {m_byRank.at(participant.rank), m_byRank.at(ranks[static_cast<std::size_t>(peer)])};
    }
    for (const std::size_t index : members) {
        Participant &member = m_participants[index];
        OpId found = none;
        for (std::size_t s = 0; s < laneCount && found == none; ++s) {
            const OpId head = ready(member, s);
            if (head == none || !isTransfer(member.program->op(head).kind)
                || keyOf(member, member.program->op(head)) != key)
                continue;
            const Op &other = member.program->op(head);
            const bool self = &member == &participant;
            const bool pair = other.peer == -op.peer && other.payload == op.payload
                && other.channel == op.channel && other.microbatch == op.microbatch && other.unit == op.unit
                && other.segment == op.segment
                && other.kind == (op.kind == OpKind::Send ? OpKind::Recv : OpKind::Send);
            if (isCollective(op.kind) ? isCollective(other.kind) && alike(participant, op, member, other)
                    : self            ? head == op.id
                                      : pair)
                found = head;
        }
        if (found == none)
            return false;
        meeting.emplace_back(&member, found);
    }
    for (const auto &[member, id] : meeting)
        finish(*member, id);
    return true;
}

bool TogetherCheck::advance(Participant &participant)
{
    bool moved = false;
    for (bool again = true; again;) {
        again = false;
        for (std::size_t s = 0; s < laneCount; ++s) {
            for (OpId id = ready(participant, s); id != none; id = ready(participant, s)) {
                const Op &op = participant.program->op(id);
                if (!isTransfer(op.kind))
                    finish(participant, id);
                else if (!advanceTransfer(participant, op))
                    break;
                again = true;
            }
        }
        moved = moved || again;
    }
    return moved;
}

Status TogetherCheck::checkProgress()
{
    for (bool moved = true; moved;) {
        moved = false;
        for (Participant &participant : m_participants)
            moved = advance(participant) || moved;
    }
    for (const Participant &participant : m_participants) {
        for (std::size_t s = 0; s < laneCount; ++s) {
            if (const OpId id = ready(participant, s); id != none)
                return Error::make(Code::Internal, "is never met by its peers: the ranks wait for each other",
                                   nameAt(participant, id));
        }
    }
    for (const Participant &participant : m_participants) {
        for (std::size_t s = 0; s < laneCount; ++s) {
            if (participant.next[s] < participant.queues[s].size())
                return Error::make(Code::Internal, "never starts",
                                   nameAt(participant, participant.queues[s][participant.next[s]]));
        }
    }
    return {};
}

Status TogetherCheck::run()
{
    RY_TRY(checkSequences());
    return checkProgress();
}

/// Parameters, gradients and optimizer state stay where they are from one program of a role to the next.
Status checkStateInPlace(const Plan &plan, const StepProgram &program)
{
    std::map<std::string_view, const Buffer *> state;
    for (const StepProgram &other : plan.programs) {
        if (!(other.role == program.role))
            continue;
        if (other.arenas != program.arenas)
            return Error::make(Code::Internal, "has other arenas than the role's other programs",
                               nameOf(program.kind));
        for (const Buffer &buffer : other.buffers) {
            if (!buffer.persistent)
                continue;
            const Buffer &first = *state.try_emplace(buffer.name, &buffer).first->second;
            if (first.arena != buffer.arena || first.offset != buffer.offset || first.bytes != buffer.bytes)
                return Error::make(Code::Internal, "lies elsewhere in another program of the job",
                                   "buffer " + buffer.name);
        }
    }
    return {};
}

} // namespace

Status verifyTogether(std::span<const StepProgram *const> programs, const RankGrid &grid)
{
    std::vector<int> ranks;
    for (std::size_t i = 0; i < programs.size(); ++i)
        ranks.push_back(static_cast<int>(i));
    if (static_cast<int>(programs.size()) != grid.world())
        return Error::make(Code::Internal, "there must be one program a rank", "plan");
    return TogetherCheck({programs.begin(), programs.end()}, std::move(ranks), grid).run();
}

Status verifyTogether(const Plan &plan, ProgramKind kind)
{
    std::vector<const StepProgram *> programs;
    std::vector<int> ranks;
    for (int stage = 0; stage < plan.job.layout.pp; ++stage) {
        for (int rank = 0; rank < plan.grid.world(); ++rank) {
            const bool first = plan.grid.coordinate(rank, "tp") == 0 && plan.grid.coordinate(rank, "cp") == 0
                && plan.grid.coordinate(rank, "dp") == 0;
            if (!first || plan.grid.role(rank).stage != stage)
                continue;
            programs.push_back(&plan.program(kind, rank));
            ranks.push_back(rank);
        }
    }
    for (const StepProgram *program : programs) {
        RY_TRY(checkStateInPlace(plan, *program));
        std::int32_t microbatches = 0;
        for (const Op &op : program->ops) {
            microbatches = std::max(microbatches, op.microbatch + 1);
            if (op.unit.layer >= plan.job.model.layers)
                return broken(op, "is of a layer that the model does not have");
        }
        if (microbatches != plan.job.microBatches()) {
            return Error::make(Code::Internal, "covers another number of micro-batches than the job has",
                               nameOf(kind))
                .withFound(std::to_string(microbatches))
                .withExpected(std::to_string(plan.job.microBatches()));
        }
    }
    return TogetherCheck(std::move(programs), std::move(ranks), plan.grid).run();
}

} // namespace rankyard::plan
