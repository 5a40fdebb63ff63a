// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/run.h"

#include "engine/base/build_id.h"
#include "engine/plan/combine.h"
#include "engine/spec/job.h"

#include <algorithm>
#include <cmath>
#include <csignal>

namespace rankyard::agent {

namespace fs = std::filesystem;
namespace wire = telemetry::wire;
using telemetry::RunState;

namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr std::chrono::milliseconds tickTime{250};
constexpr std::size_t linesInReport = 10;

} // namespace

Json writeReport(const RunReport &report)
{
    Json json = {{"run", report.run.id},
                 {"name", report.run.name},
                 {"state", telemetry::nameOf(report.state)},
                 {"run_dir", report.folder},
                 {"epoch", report.run.epoch},
                 {"world", report.run.world},
                 {"steps", report.run.steps},
                 {"started_ns", report.run.startedNs},
                 {"step", report.step},
                 {"loss", nullptr},
                 {"log", report.logFile},
                 {"last_lines", report.lastLines},
                 {"ranks", report.ranks}};
    if (std::isfinite(report.loss))
        json["loss"] = report.loss;
    if (report.error)
        json["error"] = *report.error;
    return json;
}

Run::Run(EventLoop &loop, Prepared prepared, fs::path folder, Fd lock, Limits limits, Callbacks callbacks)
    : m_loop(loop),
      m_prepared(std::move(prepared)),
      m_folder(std::move(folder)),
      m_lock(std::move(lock)),
      m_limits(limits),
      m_callbacks(std::move(callbacks)),
      m_loss(std::nan(""))
{}

Run::~Run()
{
    m_loop.cancel(m_tick);
    m_loop.cancel(m_deadline);
}

Result<std::unique_ptr<Run>> Run::start(EventLoop &loop, Prepared prepared, fs::path folder, Fd lock,
                                        fs::path workerProgram, Limits limits, Callbacks callbacks)
{
    std::unique_ptr<Run> run(
        new Run(loop, std::move(prepared), std::move(folder), std::move(lock), limits, std::move(callbacks)));
    auto ready = run->writeDocuments();
    if (ready)
        ready = run->openSpools();
    if (!ready) {
        ExitFile exit;
        exit.id = run->m_file.id;
        exit.epoch = run->m_file.epoch;
        exit.state = RunState::Failed;
        exit.loss = run->m_loss;
        exit.endedNs = wallNs();
        exit.error = ready.error();
        (void)writeExitFile(run->m_folder, exit);
        return ready.error();
    }
    run->moveTo(RunState::Preflight, "start", "client");
    run->moveTo(RunState::Starting, "the job can run here", "agent");
    const auto status = run->startWorkers(workerProgram);
    if (!status) {
        run->m_callbacks = {};
        run->m_error = status.error();
        run->m_failing = true;
        for (Rank &rank : run->m_ranks)
            rank.process.reset(); // kills it
        run->conclude();
        return status.error();
    }
    run->m_tick = loop.after(tickTime, [self = run.get()] { self->tick(); });
    return run;
}

/// What is known before anything runs. An earlier epoch of this run sets the number of this one.
Status Run::writeDocuments()
{
    const auto before = readRunFile(m_folder);
    m_file.id = m_prepared.order.id;
    m_file.name = m_prepared.job.name;
    m_file.epoch = before ? before->epoch + 1 : 1;
    for (const telemetry::StreamId stream : telemetry::spoolStreams(m_folder / "spool"))
        m_file.epoch = std::max(
            m_file.epoch, stream.epoch + 1); // whoever was there before died before it could write run.json
    m_file.world = m_prepared.plan.grid.world();
    m_file.steps = m_prepared.job.run.steps;
    m_file.startedNs = before ? before->startedNs : wallNs();
    m_file.jobDir = m_prepared.order.jobDir;
    m_file.checkpointDir = checkpointDir(m_prepared.job, m_file.jobDir, m_folder).string();
    m_file.build = buildId();
    m_step = m_prepared.startStep;
    RY_TRY(writeFileAtomically(m_folder / "job.json", dumpJson(spec::writeJob(m_prepared.job), 2) + "\n"));
    for (const plan::StepProgram &program : m_prepared.plan.programs) {
        const std::string name =
            std::string(plan::nameOf(program.kind)) + "-" + std::to_string(program.role.stage) + ".json";
        RY_TRY(
            writeFileAtomically(m_folder / "program" / name, dumpJson(plan::writeProgram(program)) + "\n"));
    }
    return writeRunFile(m_folder, m_file);
}

Status Run::openSpools()
{
    const fs::path spool = m_folder / "spool";
    RY_ASSIGN(m_spool, telemetry::Spool::open(spool, {m_file.epoch, -1}));
    m_ranks.resize(static_cast<std::size_t>(m_file.world));
    for (int number = 0; number < m_file.world; ++number) {
        Rank &rank = m_ranks[static_cast<std::size_t>(number)];
        rank.number = number;
        RY_ASSIGN(rank.spool, telemetry::Spool::open(spool, {m_file.epoch, number}));
        rank.log =
            std::make_unique<LogCapture>(m_folder / "log" / (std::to_string(number) + ".log"),
                                         [this, &rank](std::string text) { line(rank, std::move(text)); });
    }
    telemetry::Record hello;
    hello.payload = telemetry::HelloRecord{{{"build", buildId()},
                                            {"boot_id", bootId()},
                                            {"monotonic_ns", monotonicNs()},
                                            {"wall_ns", wallNs()},
                                            {"world", m_file.world},
                                            {"steps", m_file.steps},
                                            {"start_step", m_prepared.startStep},
                                            {"resume", m_prepared.resumeFolder},
                                            {"plan_digest", m_prepared.plan.digest()}}};
    m_spool->append(hello);
    declareLostSteps();
    tellSkippedCheckpoints();
    tellIdleSettings();
    return {};
}

/// Workers can save a step that their agent did not live to record. Going on from there leaves a hole in the history: it is told.
void Run::declareLostSteps()
{
    const auto exit = readExitFile(m_folder);
    if (!exit || exit->step >= m_prepared.startStep)
        return;
    telemetry::Record gap;
    gap.payload = telemetry::EventRecord{
        wallNs(),
        m_prepared.startStep,
        "gap",
        {{"first_step", exit->step + 1},
         {"last_step", m_prepared.startStep},
         {"why", "the agent died before it recorded these steps; the checkpoint holds them"}}};
    m_spool->append(gap);
}

/// Newer checkpoints than the one that the run goes on from, and what is wrong with them.
void Run::tellSkippedCheckpoints()
{
    for (const Error &error : m_prepared.skipped) {
        const std::string text = "a newer checkpoint cannot be used: " + error.text();
        event("note", {{"text", text}, {"error", error}});
        telemetry::Record record;
        record.payload =
            telemetry::LogRecord{wallNs(), telemetry::Level::Error, m_prepared.startStep,
                                 text + ". Going on from step " + std::to_string(m_prepared.startStep)};
        m_ranks.front().spool->append(record);
    }
}

void Run::tellIdleSettings()
{
    for (const std::string &text : plan::idleNotes(m_prepared.job)) {
        event("note", {{"text", text}});
        telemetry::Record record;
        record.payload =
            telemetry::LogRecord{wallNs(), telemetry::Level::Warning, m_prepared.startStep, text};
        m_ranks.front().spool->append(record);
    }
}

Status Run::startWorkers(const fs::path &program)
{
    std::vector<int> hostRanks;
    for (const Rank &rank : m_ranks)
        hostRanks.push_back(rank.number);
    RY_ASSIGN(m_memory, exec::createHostMemory(m_prepared.plan, hostRanks));
    WorkerProcess::Setup setup;
    setup.program = program;
    setup.environment = workerEnvironment(m_file.id, m_prepared.job.comm.env);
    setup.folder = m_folder;
    for (const Fd &fd : m_memory.fds)
        setup.inherited.push_back(fd.get());
    for (Rank &rank : m_ranks)
        RY_TRY(startWorker(rank, setup));
    exec::WorkerMessage pids;
    for (Rank &rank : m_ranks) {
        exec::Bootstrap document;
        document.run = m_file.id;
        document.epoch = m_file.epoch;
        document.rank = rank.number;
        document.world = m_file.world;
        document.job = Json::parse(dumpJson(spec::writeJob(m_prepared.job)));
        document.jobDir = m_file.jobDir;
        document.runDir = m_folder.string();
        document.ckptDir = m_file.checkpointDir;
        document.buildId = buildId();
        document.planDigest = m_prepared.plan.digest();
        document.resume = m_prepared.resumeFolder;
        document.startStep = m_prepared.startStep;
        const CoreShare &share = m_prepared.shares[static_cast<std::size_t>(rank.number)];
        document.threads = share.threads;
        document.cores = share.cores;
        document.spareCore = share.spareCore;
        // Ranks find a hanging peer a little later than the agent does, so that the agent's word is the first.
        document.hangMs = m_limits.hang.count() * 3 / 2;
        document.peakSeconds = m_prepared.order.peakSeconds;
        exec::fillHost(document, m_memory, hostRanks);
        rank.process->bootstrap(document);
        pids.pids.push_back(rank.pid);
    }
    for (const Rank &rank : m_ranks)
        rank.process->control(exec::writeWorkerMessage(pids));
    m_memory = {}; // the workers have it
    return {};
}

Status Run::startWorker(Rank &rank, const WorkerProcess::Setup &setup)
{
    RY_ASSIGN(
        rank.process,
        WorkerProcess::start(m_loop, setup,
                             {[this, &rank](const wire::FrameView &view) { frame(rank, view); },
                              [&rank](std::string_view bytes) { rank.log->add(bytes); },
                              [this, &rank](const ExitStatus &status) { ended(rank, status); },
                              [this, &rank](const Error &error) {
                                  Evidence evidence{Evidence::Kind::Broken, rank.number, rank.pid, {}, error};
                                  evidence.error.code = Code::RankFailed;
                                  evidence.error.where = "rank " + std::to_string(rank.number);
                                  fail(std::move(evidence));
                              }}));
    rank.pid = rank.process->pid();
    return {};
}

const telemetry::Spool *Run::spool(telemetry::StreamId stream) const
{
    if (stream.epoch != m_file.epoch || stream.rank >= m_file.world)
        return nullptr;
    return stream.rank < 0 ? m_spool.get() : m_ranks[static_cast<std::size_t>(stream.rank)].spool.get();
}

bool Run::owns(int pid) const
{
    return std::any_of(m_ranks.begin(), m_ranks.end(),
                       [pid](const Rank &rank) { return rank.pid == pid && !rank.ended; });
}

RunReport Run::report() const
{
    RunReport report;
    report.run = m_file;
    report.folder = m_folder.string();
    report.state = m_state;
    report.step = m_step;
    report.loss = m_loss;
    report.error = m_error;
    if (!m_error && !m_ailments.empty() && telemetry::isLive(m_state))
        report.error = m_ailments.begin()->second;
    for (const Rank &rank : m_ranks) {
        Json json = {{"rank", rank.number}, {"pid", rank.pid}};
        if (rank.ended && rank.exit.signal != 0)
            json["signal"] = signalName(rank.exit.signal);
        else if (rank.ended)
            json["exit"] = rank.exit.code;
        report.ranks.push_back(std::move(json));
    }
    if (const Rank *rank = culprit()) {
        report.logFile = rank->log->file().string();
        report.lastLines = rank->log->lastLines(linesInReport);
    }
    return report;
}

/// The rank that the error names, else the first.
const Run::Rank *Run::culprit() const
{
    if (m_ranks.empty() || !m_ranks.front().log)
        return nullptr;
    if (m_error) {
        for (const Rank &rank : m_ranks) {
            if (m_error->where == "rank " + std::to_string(rank.number) && rank.log)
                return &rank;
        }
    }
    return &m_ranks.front();
}

void Run::event(std::string kind, Json detail)
{
    telemetry::Record record;
    record.payload = telemetry::EventRecord{wallNs(), m_step, std::move(kind), std::move(detail)};
    m_spool->append(record);
    m_dirty = true;
}

void Run::moveTo(RunState state, const std::string &cause, const std::string &actor)
{
    if (state == m_state || !telemetry::canMove(m_state, state))
        return;
    Json detail = {{"from", telemetry::nameOf(m_state)},
                   {"to", telemetry::nameOf(state)},
                   {"cause", cause},
                   {"actor", actor}};
    if (telemetry::isTerminal(state) && m_error)
        detail["error"] = *m_error;
    m_state = state;
    event("state", std::move(detail));
    if (m_callbacks.changed)
        m_callbacks.changed();
}

/// A run that trains but does not do all that it should is degraded, with the first such thing as its error, until all is well again.
void Run::ails(const std::string &what, const Error &error)
{
    m_ailments.insert_or_assign(what, error);
    settleHealth();
}

void Run::heals(const std::string &what)
{
    if (m_ailments.erase(what) > 0)
        settleHealth();
}

void Run::settleHealth()
{
    if (m_state == RunState::Running && !m_ailments.empty())
        moveTo(RunState::Degraded, m_ailments.begin()->second.text(), "agent");
    else if (m_state == RunState::Degraded && m_ailments.empty())
        moveTo(RunState::Running, "all is well again", "agent");
    else if (m_callbacks.changed)
        m_callbacks.changed();
}

void Run::flush()
{
    if (!m_dirty)
        return;
    m_dirty = false;
    m_spool->flush();
    for (const Rank &rank : m_ranks)
        rank.spool->flush();
    if (m_callbacks.records)
        m_callbacks.records();
}

// What the user wants -----------------------------------------------------------------------------------------------

void Run::command(exec::WorkerMessage::Request request)
{
    exec::WorkerMessage message;
    message.request = request;
    for (const Rank &rank : m_ranks) {
        if (rank.process && !rank.ended)
            rank.process->control(exec::writeWorkerMessage(message));
    }
}

void Run::stop(const std::string &actor)
{
    if (telemetry::isTerminal(m_state) || m_failing)
        return;
    if (m_stopping || m_state == RunState::Starting || m_state == RunState::Preflight) {
        kill(actor); // nothing to save yet, or the second time
        return;
    }
    m_stopping = true;
    m_actor = actor;
    moveTo(RunState::Stopping, "stop", actor);
    command(exec::WorkerMessage::Request::Stop);
    // A step may take longer than the limit itself: count from its likely end.
    const auto limit = m_limits.stop
        + std::chrono::milliseconds(static_cast<std::int64_t>(std::min(2 * m_stepMs, 600'000.0)));
    m_deadline = m_loop.after(limit, [this] {
        m_killing = true;
        killAll(SIGTERM);
        m_deadline = m_loop.after(std::chrono::seconds(2), [this] { kill(m_actor); });
    });
}

void Run::kill(const std::string &actor)
{
    if (telemetry::isTerminal(m_state) || m_failing)
        return;
    m_stopping = true;
    m_killing = true;
    m_actor = actor;
    moveTo(RunState::Stopping, "kill", actor);
    killAll(SIGKILL);
}

Status Run::pause(const std::string &actor)
{
    if (m_state != RunState::Running && m_state != RunState::Degraded)
        return Error::make(Code::Usage, "only a running run can be paused", m_file.id)
            .withFound(telemetry::nameOf(m_state));
    moveTo(RunState::Pausing, "pause", actor);
    command(exec::WorkerMessage::Request::Pause);
    return {};
}

Status Run::resume(const std::string &actor)
{
    if (m_state != RunState::Paused && m_state != RunState::Pausing)
        return Error::make(Code::Usage, "only a paused run can go on", m_file.id)
            .withFound(telemetry::nameOf(m_state));
    for (Rank &rank : m_ranks) {
        rank.paused = false;
        rank.progressNs = monotonicNs();
    }
    command(exec::WorkerMessage::Request::Resume);
    moveTo(RunState::Running, "resume", actor);
    settleHealth();
    return {};
}

Status Run::checkpoint(const std::string &actor)
{
    if (m_state != RunState::Running && m_state != RunState::Degraded && m_state != RunState::Paused)
        return Error::make(Code::Usage, "only a running run can save a checkpoint", m_file.id)
            .withFound(telemetry::nameOf(m_state));
    event("note", {{"text", "checkpoint asked for"}, {"actor", actor}});
    command(exec::WorkerMessage::Request::Checkpoint);
    return {};
}

void Run::killAll(int signal)
{
    if (m_killedNs == 0 && signal == SIGKILL)
        m_killedNs = monotonicNs();
    for (const Rank &rank : m_ranks) {
        if (rank.process && !rank.ended)
            rank.process->kill(signal);
    }
}

} // namespace rankyard::agent
