// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/comm/communicator.h"
#include "engine/exec/arena.h"
#include "engine/exec/data_source.h"
#include "engine/exec/device.h"
#include "engine/plan/plan.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rankyard::exec {

/// Communication of one group in one run of a program.
struct GroupTotals {
    comm::Figures figures;
    std::int64_t activeNs = 0;  ///< from start to completion, summed over ops
    std::int64_t exposedNs = 0; ///< time that compute stood still for it
    std::int64_t operations = 0;
};

/// One run of a program: what was executed when. Preallocated; written in place.
struct Execution {
    std::int64_t step = 0; ///< of training: from 1
    plan::ProgramKind kind = plan::ProgramKind::Train;
    const plan::StepProgram *program = nullptr;
    std::int64_t beginNs = 0;
    std::int64_t endNs = 0;
    std::vector<std::int64_t> opBegin; ///< by op id, monotonic
    std::vector<std::int64_t> opEnd;
    std::array<std::vector<plan::OpId>, plan::streamCount>
        order;                       ///< op ids in the order of their execution, by stream
    std::vector<GroupTotals> groups; ///< by group id
};

/// Executes the step programs of one rank, op by op (DESIGN 1.6). Owns the bound ops; uses arenas, device,
/// communicators and data, which must outlive it. Every call from the rank's interpreter thread. After make()
/// nothing here allocates, but errors.
///
/// Compute ops run on this thread in program order. Transfers are started in program order when their waits are done, and
/// advance in slices between compute ops and, through StepState::poll, within long ones. It knows kinds of ops, no strategies.
class Executor
{
public:
    struct Setup {
        const plan::Plan *plan = nullptr;
        int rank = 0;
        Device *device = nullptr;
        const Arenas *arenas = nullptr;
        std::map<std::string, comm::Communicator *>
            groups; ///< by the group's name; those of this rank's programs must be there
        DataSource *data = nullptr;
        std::atomic<std::uint64_t> *progress =
            nullptr; ///< counts finished ops, for the heartbeat; may be null
    };

    /// Binds every program of the plan for this rank. An error names the op.
    static Result<std::unique_ptr<Executor>> make(const Setup &setup);
    ~Executor();
    Executor(const Executor &) = delete;
    Executor &operator=(const Executor &) = delete;

    /// What the step's kernels see; the caller sets step, lossScale, lossWeight, lr and vote before a run.
    StepState &state() { return m_state; }

    /// Runs a program once over global batch `batch` (from 0). After train: state() has loss, gradNorm,
    /// overflow and the summed vote. After eval: `loss` is the batch's Σ loss · lossWeight. An error leaves
    /// the executor unusable.
    Status run(plan::ProgramKind kind, std::int64_t batch);

    /// The last runs, newest first: ago = 0 … kept − 1; null when there were fewer.
    const Execution *recent(std::size_t ago) const;
    static constexpr std::size_t kept = 8;

    /// Keeps peers and outstanding communication alive during other work than programs (checkpoints, data).
    void poll();

private:
    struct Bound;
    struct Lane;
    struct Transfer;

    explicit Executor(const Setup &setup);
    Status bind(const plan::StepProgram &program);
    Status runOp(Bound &bound, const plan::Op &op, std::int64_t batch);
    Status awaitWaits(Bound &bound, const plan::Op &op);
    Result<Lane *> laneFor(const plan::StepProgram &program, const plan::Op &op);
    Status startTransfer(Bound &bound, const plan::Op &op);
    Status start(Bound &bound, const plan::Op &op, Transfer &transfer);
    void finishScatter(const Bound &bound, const plan::Op &op) const;
    Result<bool> advanceFront(Lane &lane, std::int64_t budget);
    Status awaitOp(Bound &bound, plan::OpId id);
    Status drain(Bound &bound);
    void advance(std::int64_t budget);
    void complete(Lane &lane);
    Status loadBatch(Bound &bound, const plan::Op &op, std::int64_t batch);
    void scalars(Bound &bound);

    Setup m_setup;
    StepState m_state;
    std::vector<std::unique_ptr<Bound>> m_programs;
    std::vector<std::unique_ptr<Lane>> m_lanes;   ///< one a communicator and lane
    std::vector<std::int32_t> m_tokens, m_labels; ///< whole sequences, where context ranks share them
    int m_outstanding = 0;
    std::optional<Error> m_error;
    Execution *m_current = nullptr;
    std::vector<std::uint8_t> m_done; ///< by op id of the running program
    std::vector<Execution> m_recent;  ///< ring
    std::size_t m_runs = 0;
};

} // namespace rankyard::exec
