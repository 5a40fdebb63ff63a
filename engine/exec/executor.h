// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/comm/communicator.h"
#include "engine/exec/arena.h"
#include "engine/exec/data_source.h"
#include "engine/exec/device.h"
#include "engine/exec/execution.h"
#include "engine/exec/transfers.h"
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

/// Executes the step programs of one rank, op by op (DESIGN 1.6). Owns the bound ops; uses arenas, device,
/// communicators and data, which must outlive it. Every call from the rank's interpreter thread. After make()
/// nothing here allocates, but errors.
///
/// Compute ops run on this thread in program order; on a device with queues (DeviceQueue) every op is only started by it, and it
/// waits where a scalar is read and at the end. Transfers of the others are issued in program order (Transfers) and advance in slices between compute ops and, through StepState::poll, within long ones. It knows kinds of ops, no strategies.
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

    Executor(const Setup &setup, std::size_t mostOps);
    Status bind(const plan::StepProgram &program);
    Status execute(Bound &bound, std::int64_t batch);
    void finish(Bound &bound, plan::OpId op);
    Status runOp(Bound &bound, const plan::Op &op, std::int64_t batch);
    Status runQueued(Bound &bound, const plan::Op &op, std::int64_t batch);
    Status finishQueued(Bound &bound);
    Status loadBatch(Bound &bound, const plan::Op &op, std::int64_t batch);
    void scalars(Bound &bound);

    Setup m_setup;
    DeviceQueue *m_queue = nullptr; ///< of a device that works beside the host
    StepState m_state;
    std::vector<std::unique_ptr<Bound>> m_programs;
    Transfers m_transfers;
    std::vector<std::int32_t> m_tokens, m_labels; ///< whole sequences, where context ranks share them
    std::optional<Error> m_error;
    Execution *m_current = nullptr;
    std::vector<Execution> m_recent; ///< ring
    std::size_t m_runs = 0;
};

} // namespace rankyard::exec
