// SPDX-License-Identifier: GPL-3.0-or-later
// What workers say and do, and how a run ends.
#include "engine/base/units.h"
#include "engine/checkpoint/store.h"
#include "remote/agent/run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <unistd.h>
#include <utility>

namespace rankyard::agent {

namespace fs = std::filesystem;
namespace wire = telemetry::wire;
using telemetry::RunState;

namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr std::chrono::milliseconds tickTime{250};
constexpr int exitStopped = static_cast<int>(Exit::Stopped);

const char *wordsFor(char state)
{
    switch (state) {
    case 'T':
    case 't':
        return "stopped by a signal";
    case 'D':
        return "waiting inside the kernel";
    case 'R':
        return "computing";
    case 'S':
        return "waiting";
    default:
        return "in an unknown state";
    }
}

} // namespace

void Run::frame(Rank &rank, const wire::FrameView &view)
{
    m_dirty = true;
    if (wire::isRecord(view.header.type)) {
        record(rank, view);
    } else if (view.header.type == wire::FrameType::Heartbeat) {
        const auto heartbeat = wire::parseHeartbeat(view);
        if (heartbeat) {
            rank.beats = true;
            rank.step = std::max(rank.step, heartbeat->step);
            beat(rank, heartbeat->progress);
        }
    } else if (view.header.type == wire::FrameType::Report) {
        if (const auto message = wire::parseFrameJson(view))
            note(rank, *message);
    }
}

void Run::record(Rank &rank, const wire::FrameView &view)
{
    rank.spool->appendRaw(view);
    if (view.header.type == wire::FrameType::RecordStep) {
        const auto decoded = wire::decodeRecord(view);
        if (!decoded)
            return;
        const auto &step = std::get<telemetry::StepRecord>(decoded->payload);
        rank.step = step.step;
        beat(rank, rank.progress + 1);
        if (rank.number == 0) {
            m_step = step.step;
            m_loss = step.loss;
            m_stepMs = step.stepMs;
            skipped(step);
        }
    } else if (view.header.type == wire::FrameType::RecordEvent) {
        const auto decoded = wire::decodeRecord(view);
        const auto *event = decoded ? std::get_if<telemetry::EventRecord>(&decoded->payload) : nullptr;
        if (event && event->kind == "error") {
            const Error error = event->detail.get<Error>();
            fail({kindOfError(error, rank.number), rank.number, rank.pid, {}, error});
        }
    }
}

/// A dynamic scale comes down from 2^16 to 1 in 17 steps: who skips more in a row will not train by itself.
void Run::skipped(const telemetry::StepRecord &step)
{
    constexpr int most = 32;
    m_skipped = step.overflow ? m_skipped + 1 : 0;
    if (m_skipped == 0)
        return heals("updates");
    if (m_skipped != most)
        return;
    const bool fixed = m_prepared.job.precision.lossScale.mode == "static";
    ails("updates",
         Error::make(Code::BadJob,
                     "gradients overflow in every step: the last " + std::to_string(most)
                         + " changed no parameter",
                     "step " + std::to_string(step.step))
             .withFound("loss scale " + formatNumber(step.lossScale, 6))
             .withHint(
                 fixed ? "a smaller precision.loss_scale.value, or precision.loss_scale.mode dynamic"
                       : "a smaller optimizer.lr, or precision.compute bf16, which has the range of fp32"));
}

namespace {

Error checkpointError(const Json &message)
{
    return Error::make(Code::Io, "the last checkpoint was not saved; training goes on",
                       "step " + std::to_string(message.value("step", std::int64_t{0})))
        .causedBy(message["error"].get<Error>());
}

} // namespace

void Run::note(Rank &rank, const Json &message)
{
    const auto at = message.find("kind");
    const std::string kind = at != message.end() && at->is_string() ? at->get<std::string>() : std::string();
    const auto all = [this](auto member) {
        return std::all_of(m_ranks.begin(), m_ranks.end(), [member](const Rank &one) { return one.*member; });
    };
    if (kind == "ready") {
        rank.ready = true;
        if (m_state == RunState::Starting && all(&Rank::ready))
            moveTo(RunState::Running, "all ranks are ready", "agent");
    } else if (kind == "paused") {
        rank.paused = true;
        if (m_state == RunState::Pausing && all(&Rank::paused))
            moveTo(RunState::Paused, "all ranks have paused", "agent");
    } else if (kind == "resumed") {
        rank.paused = false;
    } else if (kind == "checkpoint") {
        if (message.contains("error"))
            ails("checkpoint", checkpointError(message));
        else
            heals("checkpoint");
    } else if (kind == "end") {
        rank.saidEnd = true;
    } else if (kind == "error" && message.contains("error")) {
        const Error error = message["error"].get<Error>();
        const auto peer = message.find("peer");
        const bool ofPeer = peer != message.end() && peer->is_boolean() && peer->get<bool>();
        const auto evidence = ofPeer ? Evidence::Kind::PeerError : kindOfError(error, rank.number);
        fail({evidence, rank.number, rank.pid, {}, error});
    }
}

void Run::beat(Rank &rank, std::uint64_t progress)
{
    rank.beatNs = monotonicNs();
    if (progress != rank.progress || rank.progressNs == 0)
        rank.progressNs = rank.beatNs;
    rank.progress = progress;
}

void Run::line(Rank &rank, std::string text)
{
    telemetry::Record record;
    record.payload = telemetry::LogRecord{wallNs(), telemetry::Level::Info, rank.step, std::move(text)};
    rank.spool->append(record);
    m_dirty = true;
}

/// Every quarter of a second: durability, hangs, records that the disk refuses.
void Run::tick()
{
    m_tick = m_loop.after(tickTime, [this] { tick(); });
    const std::int64_t now = monotonicNs();
    // After a time in which this process did not run (stopped, a suspended host) nothing was heard of the ranks either.
    if (now - std::exchange(m_tickNs, now) > 4 * std::chrono::nanoseconds(tickTime).count()) {
        for (Rank &rank : m_ranks)
            rank.beatNs = rank.progressNs = now;
    }
    if (now - m_syncedNs >= second) {
        m_syncedNs = now;
        m_spool->sync();
        for (const Rank &rank : m_ranks)
            rank.spool->sync();
        checkSpools();
    }
    if (m_state == RunState::Running || m_state == RunState::Degraded)
        checkBeats(now);
    // Processes that not even SIGKILL ends (a hung disk) do not keep the run's end back for ever.
    if (m_killedNs != 0 && now - m_killedNs > 3 * second)
        conclude();
}

void Run::checkBeats(std::int64_t now)
{
    const Rank *hung = nullptr;
    const double steps = std::isfinite(m_stepMs) ? 5 * m_stepMs : 0;
    const auto limit =
        static_cast<std::int64_t>(std::max(static_cast<double>(m_limits.hang.count()), steps) * 1e6);
    // A rank that stands still may wait for one that is long in a checkpoint, or slow: one that goes on in its step, or an
    // earlier one. While there is such a rank, only silence is a hang.
    const auto waits = [&](const Rank &rank) {
        return std::any_of(m_ranks.begin(), m_ranks.end(), [&](const Rank &other) {
            return !other.ended && now - other.progressNs <= limit && other.step <= rank.step;
        });
    };
    for (const Rank &rank : m_ranks) {
        if (!rank.beats || rank.ended || rank.paused)
            continue;
        // Ranks that wait for a hung one stand still as well: it is the one without heartbeats, else the one that is furthest behind.
        const bool silent = now - rank.beatNs > limit;
        if (!silent && (now - rank.progressNs <= limit || waits(rank)))
            continue;
        const bool worse = !hung || rank.beatNs + second < hung->beatNs
            || (std::abs(rank.beatNs - hung->beatNs) <= second && rank.progressNs < hung->progressNs);
        if (worse)
            hung = &rank;
    }
    if (!hung)
        return;
    const double seconds = static_cast<double>(now - std::min(hung->beatNs, hung->progressNs)) / 1e9;
    const char state = processState(hung->pid);
    Error error = Error::make(Code::RankFailed,
                              "makes no progress for " + formatDuration(seconds) + ": it is "
                                  + wordsFor(state) + " (pid " + std::to_string(hung->pid) + ")",
                              "rank " + std::to_string(hung->number));
    error.found = std::string("process state ") + (state ? std::string(1, state) : "?");
    fail({Evidence::Kind::Hang, hung->number, hung->pid, {}, std::move(error)});
}

void Run::checkSpools()
{
    const telemetry::Spool *broken = m_spool->trouble() ? m_spool.get() : nullptr;
    for (const Rank &rank : m_ranks) {
        if (rank.spool->trouble())
            broken = rank.spool.get();
    }
    if ((broken != nullptr) == m_ailments.contains("records"))
        return;
    if (broken) {
        event("note",
              {{"text", "records cannot be written; training goes on"}, {"error", *broken->trouble()}});
        ails("records",
             Error::make(Code::Io, "records cannot be written; training goes on", m_folder.string())
                 .causedBy(*broken->trouble()));
    } else {
        event("note", {{"text", "records can be written again"}});
        heals("records");
    }
}

// The end -----------------------------------------------------------------------------------------------------------

bool Run::wellEnded(const Rank &rank, const ExitStatus &status) const
{
    if (status.signal != 0)
        return m_stopping && rank.process->killedBy() == status.signal;
    if (m_stopping)
        return status.code == 0 || status.code == exitStopped || rank.process->killedBy().has_value();
    return (status.code == 0 || status.code == exitStopped) && (rank.saidEnd || rank.step >= m_file.steps);
}

void Run::ended(Rank &rank, const ExitStatus &status)
{
    rank.ended = true;
    rank.exit = status;
    rank.log->finish();
    m_dirty = true;
    const bool ours = status.signal != 0 && rank.process->killedBy() == status.signal;
    if (!wellEnded(rank, status) && !(m_failing && ours)) {
        const auto kind = status.signal != 0 ? Evidence::Kind::Signal : Evidence::Kind::ExitCode;
        fail({kind, rank.number, rank.pid, status, {}});
    }
    const bool all = std::all_of(m_ranks.begin(), m_ranks.end(), [](const Rank &one) { return one.ended; });
    if (all)
        m_loop.post([alive = std::weak_ptr<bool>(m_alive), this] {
            if (!alive.expired())
                conclude(); // not from inside a worker's own callback
        });
}

void Run::fail(Evidence evidence)
{
    m_evidence.push_back(std::move(evidence));
    if (m_failing || m_killing)
        return;
    m_failing = true;
    m_loop.cancel(m_deadline);
    // Deaths that nobody has looked at yet are evidence too, not our doing.
    for (Rank &rank : m_ranks) {
        if (rank.process && !rank.ended)
            rank.process->reapIfDead();
    }
    killAll(SIGKILL);
}

void Run::conclude()
{
    if (m_concluded)
        return;
    m_concluded = true;
    m_loop.cancel(m_tick);
    m_loop.cancel(m_deadline);
    killOrphans();
    RunState state = m_stopping ? RunState::Stopped : RunState::Finished;
    std::string cause = m_stopping ? "stopped by the user" : "all steps are done";
    if (m_stopping && !m_killing && m_step >= m_file.steps) {
        state = RunState::Finished; // the last step was the boundary
        cause = "all steps are done";
    }
    if (m_failing) {
        if (!m_error)
            m_error = firstCause(m_evidence, m_oom.evidence());
        cause = m_error->what;
        const bool resumable =
            checkpoint::newestCheckpoint(m_file.checkpointDir, checkpoint::Verify::Sizes).ok();
        state = resumable ? RunState::FailedResumable : RunState::Failed;
    }
    moveTo(state, cause, m_stopping ? m_actor : "agent");
    const RunReport last = report();
    ExitFile exit;
    exit.id = m_file.id;
    exit.epoch = m_file.epoch;
    exit.state = state;
    exit.step = m_step;
    exit.loss = m_loss;
    exit.endedNs = wallNs();
    exit.error = m_error;
    exit.logFile = last.logFile;
    exit.lastLines = last.lastLines;
    exit.ranks = last.ranks;
    (void)writeExitFile(
        m_folder, exit); // a full disk: the state event may have made it, and the next agent says "lost"
    m_spool->sync();
    for (const Rank &rank : m_ranks) {
        if (rank.spool)
            rank.spool->sync();
    }
    m_dirty = true;
    flush();
    m_lock.reset();
    const auto ended = m_callbacks.ended;
    if (ended)
        ended();
}

/// Processes that left their rank's group: found by the run's name in their environment.
void Run::killOrphans() const
{
    const std::string mark = "RANKYARD_RUN=" + m_file.id;
    std::error_code error;
    for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
        const std::string name = it->path().filename().string();
        int pid = 0;
        if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()
            || pid == ::getpid())
            continue;
        const auto environment = readFile(it->path() / "environ");
        if (!environment)
            continue;
        const std::size_t at = environment->find(mark);
        if (at == std::string::npos || (at > 0 && (*environment)[at - 1] != '\0'))
            continue;
        ::kill(pid, SIGKILL);
    }
}

} // namespace rankyard::agent
