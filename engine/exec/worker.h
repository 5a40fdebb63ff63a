// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/bootstrap.h"
#include "engine/exec/checkpoint_io.h"
#include "engine/exec/control.h"
#include "engine/exec/device.h"
#include "engine/exec/executor.h"
#include "engine/exec/plugin.h"
#include "engine/exec/reporter.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rankyard::exec {

/// How far the rank is, for heartbeats: written by the interpreter's thread, read by any.
struct Progress {
    std::atomic<std::int64_t> step{0};
    std::atomic<std::uint64_t> count{0}; ///< grows with every op that was finished
};

enum class WorkerEnd { Finished, Stopped };

/// One rank of a run: plan, memory, communicators, parameters, then the training loop (DESIGN 1.6).
/// Everything happens in run(), on the calling thread, which becomes the interpreter's. Another thread may
/// use control(), progress() and drain().
class Worker
{
public:
    using DeviceFactory = std::function<Result<ChosenDevice>(const Bootstrap &)>;

    Worker(Bootstrap bootstrap, DeviceFactory makeDevice);
    ~Worker();

    /// Reports {kind: "ready"}, "paused", "resumed", "checkpoint" (with the error that a save met); sends hello, steps, evals, events, logs,
    /// spans. Errors: of the job, plan, data (exit 2 or 3), of a peer or the communication (4), of the disk.
    /// The caller reports them.
    Result<WorkerEnd> run();

    Control &control() { return m_control; }
    const Progress &progress() const { return m_progress; }
    /// What the rank has to tell, in order; nothing before the plan is made. See Reporter::drain.
    void drain(const std::function<void(telemetry::Payload &&)> &payload,
               const std::function<void(Json &&)> &report);

private:
    struct Timing;

    Status prepare();
    Status makePlanAndCheck();
    Status makeData();
    Status makeDevice();
    Status makeCommunicators();
    Status makeExecutor();
    Status fillParameters();
    Result<WorkerEnd> train();
    Status trainStep(std::int64_t step);
    Status evaluate(std::int64_t step);
    Status save(std::int64_t step, bool needed);
    void sayHello();
    void recordStep(std::int64_t step, double scale);
    bool wantSpans(std::int64_t step, const StepSample &sample);
    comm::Communicator &world();
    RankStorage storage() const { return {m_plan.get(), m_arenas.get(), m_bootstrap.rank}; }

    Bootstrap m_bootstrap;
    DeviceFactory m_makeDevice;
    Control m_control;
    Progress m_progress;
    std::optional<telemetry::LogRecord> lineFor(const telemetry::Payload &told) const;

    std::int64_t m_logEvery = 1;
    std::atomic<Reporter *> m_published{nullptr}; ///< for drain(), once it is there
    std::unique_ptr<Reporter> m_reporter;

    std::unique_ptr<plan::Plan> m_plan;
    std::unique_ptr<DataSource> m_data;
    std::string m_fingerprint;
    ChosenDevice m_chosen;
    std::unique_ptr<Arenas> m_arenas; ///< in the device's memory
    std::vector<Mapping> m_segments;
    std::map<std::string, std::unique_ptr<comm::Communicator>> m_groups;
    std::unique_ptr<comm::Communicator> m_single;
    std::unique_ptr<Executor> m_executor;
    LossScaler m_scaler;

    std::int64_t m_firstStep = 1;
    std::int64_t m_lastSaved = -1;
    std::int64_t m_skipped = 0; ///< steps that overflowed
    std::array<std::int64_t, plan::memoryKindCount> m_memory{};
    std::int64_t m_residentBefore = 0; ///< bytes of the process before its arenas
    double m_typicalMs = 0;
    std::int64_t m_lastAnomaly = -100;
};

} // namespace rankyard::exec
