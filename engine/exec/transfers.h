// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/execution.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rankyard::exec {

/// A program as transfers see it on this rank.
struct TransferContext {
    const plan::StepProgram *program = nullptr;
    std::span<std::byte *const> address;             ///< by buffer
    std::vector<comm::Communicator *> communicators; ///< by group; null where no op transfers over it
    std::vector<int> places;                         ///< of this rank in each group

    /// Of a transfer that a device makes itself: by the formulas of a ring; what it has moved is not measured.
    comm::Figures figuresOf(const plan::Op &op) const;
};

/// The transfers of a running program: issued in program order, each starts when its lane (plan::laneOf) and its waits let it,
/// and all advance together, so that none holds up another lane or the computing. Used from the rank's interpreter thread;
/// allocates nothing after construction but errors.
class Transfers
{
public:
    /// `mostOps` of any program.
    explicit Transfers(std::size_t mostOps);

    /// Before the first op of a run; nothing is under way. `execution` gets times and totals.
    void begin(const TransferContext &context, Execution &execution);
    bool done(plan::OpId op) const { return m_done[static_cast<std::size_t>(op)] != 0; }
    void setDone(plan::OpId op) { m_done[static_cast<std::size_t>(op)] = 1; } ///< an op that is no transfer
    Status issue(plan::OpId op);
    /// Does what can be done now, at most about `budget` bytes an operation.
    Status advance(std::int64_t budget);
    /// Until the op is done; a transfer that nobody has issued is an error.
    Status await(plan::OpId op);
    Status drain();
    bool idle() const { return m_underWay == 0; }

private:
    struct Entry {
        plan::OpId op = plan::none;
        comm::Ticket ticket;
        comm::Ticket second; ///< of a Shift: the message that comes in
    };
    /// What is issued and not complete, first in, first out; the first `started` of them have started.
    struct Lane {
        std::vector<Entry> ring;
        std::size_t first = 0;
        std::size_t count = 0;
        std::size_t started = 0;
        Entry &at(std::size_t place) { return ring[(first + place) % ring.size()]; }
    };

    const plan::Op &opOf(const Entry &entry) const { return m_context->program->op(entry.op); }
    comm::Communicator &communicatorOf(const plan::Op &op) const
    {
        return *m_context->communicators[static_cast<std::size_t>(op.group)];
    }
    bool mayStart(Lane &lane) const;
    bool isNext(const plan::Op &op) const;
    bool conflict(const plan::Op &earlier, const plan::Op &later) const;
    Status startReady();
    Status start(Entry &entry);
    Result<bool> advanceFront(Lane &lane, std::int64_t budget);
    void finishScatter(const plan::Op &op) const;
    void complete(Lane &lane);
    Status awaitFront(Lane &lane);

    const TransferContext *m_context = nullptr;
    Execution *m_execution = nullptr;
    std::array<Lane, plan::laneCount> m_lanes;
    std::vector<std::uint8_t> m_done; ///< by op
    int m_underWay = 0;               ///< issued and not complete
    int m_pending = 0;                ///< of them not started
};

} // namespace rankyard::exec
