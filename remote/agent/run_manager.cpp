// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/run_manager.h"

#include "engine/checkpoint/store.h"
#include "engine/store/run_store.h"

#include <cmath>
#include <csignal>
#include <sys/wait.h>

namespace rankyard::agent {

namespace fs = std::filesystem;
using telemetry::RunState;

RunManager::RunManager(EventLoop &loop, fs::path workerProgram, Run::Limits limits, Callbacks callbacks)
    : m_loop(loop),
      m_workerProgram(std::move(workerProgram)),
      m_limits(limits),
      m_callbacks(std::move(callbacks))
{}

RunManager::~RunManager()
{
    for (auto &[id, pending] : m_pending) {
        pending.stop.request_stop();
        if (pending.thread.joinable())
            pending.thread.join();
    }
}

Run *RunManager::live(const std::string &id)
{
    const auto at = m_live.find(id);
    return at == m_live.end() ? nullptr : at->second.get();
}

void RunManager::start(StartOrder order, StartReply reply)
{
    const std::string id = order.id;
    if (const Run *run = live(id)) {
        reply(run->report());
        return;
    }
    if (const auto at = m_pending.find(id); at != m_pending.end()) {
        at->second.replies.push_back(std::move(reply));
        return;
    }
    if (store::isRunId(id) && order.resume != id) {
        if (const auto known = reportFromDisk(id)) {
            reply(known);
            return;
        }
    }
    Pending &pending = m_pending[id];
    pending.replies.push_back(std::move(reply));
    pending.thread =
        std::thread([this, id, order = std::move(order), stop = pending.stop.get_token()]() mutable {
            auto prepared = std::make_shared<Result<Prepared>>(prepareRun(std::move(order), stop));
            m_loop.post([this, id, prepared] { startPrepared(id, prepared); });
        });
}

bool RunManager::cancel(const std::string &id)
{
    const auto at = m_pending.find(id);
    if (at == m_pending.end())
        return false;
    at->second.stop.request_stop();
    return true;
}

void RunManager::startPrepared(const std::string &id, const std::shared_ptr<Result<Prepared>> &prepared)
{
    Pending pending = std::move(m_pending[id]);
    m_pending.erase(id);
    pending.thread.join();
    const Result<RunReport> result = [&]() -> Result<RunReport> {
        if (pending.stop.stop_requested())
            return Error::make(Code::Stopped, "called off before it started", id);
        if (!*prepared)
            return prepared->error();
        return startHere(std::move(**prepared));
    }();
    for (const StartReply &reply : pending.replies)
        reply(result);
    if (result)
        m_callbacks.status(*result);
}

Result<RunReport> RunManager::startHere(Prepared prepared)
{
    const std::string id = prepared.order.id;
    RY_ASSIGN(fs::path folder, claimFolder(id, prepared.order.runDir));
    RY_ASSIGN(Fd lock, lockFolder(folder));
    Run::Callbacks callbacks;
    callbacks.changed = [this, id] {
        if (const Run *run = live(id))
            m_callbacks.status(run->report());
    };
    callbacks.records = [this, id] { m_callbacks.records(id); };
    callbacks.ended = [this, id] {
        // The run itself is calling: let it return first.
        m_loop.post([this, id] {
            m_live.erase(id);
            m_callbacks.records(id); // subscribers see that there is nothing to come
        });
    };
    RY_ASSIGN(auto run,
              Run::start(m_loop, std::move(prepared), std::move(folder), std::move(lock), m_workerProgram,
                         m_limits, std::move(callbacks)));
    const RunReport report = run->report();
    m_live[id] = std::move(run);
    return report;
}

Result<RunReport> RunManager::reportFromDisk(const std::string &id) const
{
    std::error_code error;
    const fs::path link = runLink(id);
    if (!store::isRunId(id) || !fs::exists(link, error))
        return Error::make(Code::NotFound, "there is no such run on this node", id);
    RunReport report;
    RY_ASSIGN(report.run, readRunFile(link));
    report.folder = fs::canonical(link, error).string();
    report.loss = std::nan("");
    report.state = RunState::Lost; // until its exit record says otherwise
    const auto exit = readExitFile(link);
    if (exit && exit->epoch >= report.run.epoch) {
        report.state = exit->state;
        report.step = exit->step;
        report.loss = exit->loss;
        report.error = exit->error;
        report.logFile = exit->logFile;
        report.lastLines = exit->lastLines;
        report.ranks = exit->ranks;
    } else if (const auto lock = lockFolder(link); !lock && lock.error().code == Code::InUse) {
        report.state = RunState::Running; // under an agent of another build
    }
    return report;
}

Result<RunReport> RunManager::report(const std::string &id)
{
    if (const Run *run = live(id))
        return run->report();
    return reportFromDisk(id);
}

Result<Json> RunManager::job(const std::string &id)
{
    if (!store::isRunId(id))
        return Error::make(Code::NotFound, "there is no such run on this node", id);
    RY_ASSIGN(const std::string text, readFile(runLink(id) / "job.json"));
    return parseJson(text, (runLink(id) / "job.json").string());
}

std::vector<RunReport> RunManager::list()
{
    std::vector<RunReport> all;
    for (const std::string &id : knownRuns()) {
        if (const auto one = report(id))
            all.push_back(*one);
    }
    return all;
}

Status RunManager::remove(const std::string &id)
{
    RY_ASSIGN(const RunReport known, report(id));
    if (!telemetry::isTerminal(known.state) || live(id))
        return Error::make(Code::InUse, "the run lives", id).withHint("Stop it first");
    {
        RY_ASSIGN(const Fd lock, lockFolder(runLink(id)));
    }
    return removeFolder(id);
}

void RunManager::stopAll(const std::string &actor)
{
    for (auto &[id, pending] : m_pending)
        pending.stop.request_stop();
    for (const auto &[id, run] : m_live)
        run->stop(actor);
}

void RunManager::flush()
{
    for (const auto &[id, run] : m_live)
        run->flush();
}

void RunManager::reapStrangers()
{
    for (;;) {
        siginfo_t info{};
        if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        for (const auto &[id, run] : m_live) {
            if (run->owns(info.si_pid))
                return; // its own watch takes it
        }
        ::waitpid(info.si_pid, nullptr, WNOHANG);
    }
}

// Recovery ----------------------------------------------------------------------------------------------------------

void RunManager::recover()
{
    for (const std::string &id : knownRuns())
        recoverOne(id);
}

/// A run without an exit record whose lock is free: its agent died, and the workers with it.
void RunManager::recoverOne(const std::string &id)
{
    std::error_code error;
    const fs::path folder = fs::canonical(runLink(id), error);
    const auto run = error ? Result<RunFile>(Error{}) : readRunFile(folder);
    if (!run)
        return;
    const auto exit = readExitFile(folder);
    if (exit && exit->epoch >= run->epoch)
        return;
    const auto lock = lockFolder(folder);
    if (!lock)
        return;
    ExitFile record;
    record.id = id;
    record.epoch = run->epoch + 1; // of the event below: a stream that nobody has seen yet
    record.endedNs = wallNs();
    record.loss = std::nan("");
    const bool resumable = checkpoint::newestCheckpoint(run->checkpointDir, checkpoint::Verify::Sizes).ok();
    record.state = resumable ? RunState::FailedResumable : RunState::Failed;
    record.error =
        Error::make(Code::NodeFailed, "the agent of the run died, and the run's ranks with it", id);
    if (resumable)
        record.error->hint = "rankyardctl train JOB --resume " + id + " goes on from its newest checkpoint";
    // The last step that made it to the disk, whichever rank told it.
    for (int rank = 0; rank < run->world; ++rank) {
        telemetry::SpoolReader reader(folder / "spool", {run->epoch, rank}, 1);
        (void)reader.read(std::size_t{1} << 40, [&record](const telemetry::wire::FrameView &frame) {
            if (frame.header.type != telemetry::wire::FrameType::RecordStep)
                return true;
            const auto told = telemetry::wire::decodeRecord(frame);
            if (!told)
                return true;
            const auto &step = std::get<telemetry::StepRecord>(told->payload);
            if (step.step > record.step) {
                record.step = step.step;
                record.loss = step.loss;
            }
            return true;
        });
    }
    if (auto spool = telemetry::Spool::open(folder / "spool", {record.epoch, -1})) {
        telemetry::Record event;
        event.payload = telemetry::EventRecord{record.endedNs,
                                               record.step,
                                               "state",
                                               {{"from", "running"},
                                                {"to", telemetry::nameOf(record.state)},
                                                {"cause", record.error->what},
                                                {"actor", "agent"},
                                                {"error", *record.error}}};
        (*spool)->append(event);
    }
    (void)writeExitFile(folder, record);
}

} // namespace rankyard::agent
