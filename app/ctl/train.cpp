// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "app/ctl/interrupts.h"
#include "app/ctl/run_json.h"
#include "engine/base/units.h"
#include "remote/session/session.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <future>
#include <numeric>
#include <unistd.h>

namespace rankyard::ctl {

namespace {

/// The line on stderr: redrawn in place on a terminal, every 5 s elsewhere.
class ProgressLine
{
public:
    /// `lastLog`: the newest line that has been told.
    ProgressLine(store::RunStore &store, std::string run, std::int64_t lastLog)
        : m_store(store),
          m_run(std::move(run)),
          m_live(::isatty(2)),
          m_lastLog(lastLog)
    {}
    ~ProgressLine()
    {
        if (m_shown && m_live)
            std::fputc('\n', stderr);
    }

    void update(bool now)
    {
        const std::int64_t time = monotonicNs();
        if (!now && time < m_next)
            return;
        m_next = time + (m_live ? 200'000'000 : 5'000'000'000);
        tellErrors();
        const auto info = m_store.run(m_run);
        if (!info || info->step == 0 || info->step == m_step)
            return;
        m_step = info->step;
        if (m_firstStep == 0) {
            m_firstStep = info->step;
            m_firstNs = time;
        }
        std::string text = "step " + std::to_string(info->step) + "/" + std::to_string(info->steps);
        text +=
            "  loss " + formatNumber(info->lastLoss, 5) + "  " + formatCount(info->tokensPerS) + " tokens/s";
        // The step before has come from every rank.
        const std::int64_t whole = std::max<std::int64_t>(1, info->step - 1);
        if (const auto rows = m_store.steps(m_run, -1, whole, whole); rows && !rows->empty()) {
            std::int64_t bytes = 0;
            for (const store::StepRow &row : *rows)
                bytes += std::accumulate(row.record.memory.begin(), row.record.memory.end(), std::int64_t{0});
            text += "  " + formatBytes(static_cast<double>(bytes));
        }
        if (info->step > m_firstStep && info->step < info->steps) {
            const double each =
                static_cast<double>(time - m_firstNs) * 1e-9 / static_cast<double>(info->step - m_firstStep);
            text += "  " + formatDuration(each * static_cast<double>(info->steps - info->step)) + " left";
        }
        std::fprintf(stderr, m_live ? "\r\033[K%s" : "%s\n", text.c_str());
        std::fflush(stderr);
        m_shown = true;
    }

private:
    /// What the ranks log as an error, a checkpoint that failed above all, while the run goes on.
    void tellErrors()
    {
        const auto rows = m_store.logs(m_run, m_lastLog, 1000);
        if (!rows || rows->empty())
            return;
        m_lastLog = rows->back().id;
        for (const store::LogRow &row : *rows) {
            if (row.record.level == telemetry::Level::Error)
                std::fprintf(stderr, "%sstep %lld, rank %d: %s\n", m_live ? "\r\033[K" : "",
                             static_cast<long long>(row.record.step), row.rank, row.record.text.c_str());
        }
    }

    store::RunStore &m_store;
    std::string m_run;
    bool m_live;
    std::int64_t m_lastLog;
    bool m_shown = false;
    std::int64_t m_next = 0;
    std::int64_t m_step = 0;
    std::int64_t m_firstStep = 0;
    std::int64_t m_firstNs = 0;
};

/// The id of a run's newest line; 0 without one.
std::int64_t newestLog(store::RunStore &store, const std::string &run)
{
    const auto newest = store.logs(run, 0, 1);
    return newest && !newest->empty() ? newest->back().id : 0;
}

struct Watch {
    bool stopOnInterrupt = true; ///< else Ctrl-C only leaves
    std::int64_t lastLog = 0;    ///< lines after it are told
};

/// Shows a run until it has ended, then writes its document. With `stopOnInterrupt` the first Ctrl-C stops it, the second kills it.
Result<Exit> watch(session::RunService &service, const std::string &run, Output &output, Watch how)
{
    RY_ASSIGN(const auto store, store::RunStore::open(store::RunStore::defaultFile()));
    int seen = 0; // what came before the run was there counts too
    std::optional<session::RunStatus> last;
    {
        ProgressLine line(*store, run, how.lastLog);
        while (!last) {
            const auto cancelled = [&] {
                line.update(false);
                return Interrupts::count() != seen;
            };
            auto status = service.waitUntilEnded(run, cancelled);
            if (status) {
                line.update(true);
                last = std::move(status).value();
            } else if (Interrupts::count() == seen) {
                return status.error();
            } else if (!how.stopOnInterrupt) {
                output.note("left; the run goes on. rankyardctl attach " + run + " shows it again");
                return Exit::Done;
            } else {
                const bool again = seen > 0 || Interrupts::count() > 1;
                seen = Interrupts::count();
                output.note(again ? "killing the run" : "stopping at the next step; Ctrl-C again kills it");
                RY_TRY(again ? service.session().kill(run) : service.session().stop(run));
            }
        }
    }
    RY_ASSIGN(auto document, runDocument(*store, run));
    const auto info = store->run(run);
    Exit exit = Exit::Done;
    if (last->state == telemetry::RunState::Stopped) {
        exit = Exit::Stopped;
    } else if (last->state != telemetry::RunState::Finished) {
        Error error = last->error.value_or(Error::make(
            Code::RankFailed, "the run ended as " + std::string(telemetry::nameOf(last->state)), run));
        exit = exitFor(error.code);
        document["error"] = Json(error);
        // Three lines: who and why, how far it came, where to read on.
        output.note("rankyardctl: " + error.text());
        output.note(last->step > 0 ? "last step " + std::to_string(last->step) + " of "
                            + std::to_string(last->steps) + ", loss " + formatNumber(last->loss, 6)
                                   : std::string("no step was finished"));
        const std::string line = last->lastLines.empty() ? "" : ": " + last->lastLines.back();
        output.note("log " + (last->logFile.empty() ? last->runDir + "/log" : last->logFile) + line);
    }
    if (output.json) {
        output.document(document);
    } else if (info) {
        output.line(run + " " + telemetry::nameOf(last->state) + " after step " + std::to_string(info->step)
                    + (info->step > 0 ? ", loss " + formatNumber(info->lastLoss, 5) : ""));
        if (!document["valid"].empty())
            output.line("validation loss " + formatNumber(document["valid"].back().value("loss", NAN), 5));
    }
    return exit;
}

/// The connection to the agent, which says once when the store does not take what the run tells.
Result<std::unique_ptr<session::RunService>> openService(Output &output)
{
    session::RunService::Callbacks callbacks;
    callbacks.trouble = [&output, told = false](const Error &error) mutable {
        if (!std::exchange(told, true))
            output.note("rankyardctl: the run's records cannot be stored: " + error.text());
    };
    return session::RunService::open(store::RunStore::defaultFile(), std::move(callbacks));
}

/// Reading a large corpus before the start may take long: Ctrl-C calls it off.
Result<std::string> startInterruptibly(session::RunService &service, session::StartRequest request)
{
    if (request.runId.empty())
        request.runId = store::makeRunId();
    const std::string run = request.runId;
    auto started = std::async(std::launch::async, [&] { return service.start(request); });
    bool told = false;
    while (started.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
        if (Interrupts::count() > 0 && !std::exchange(told, true))
            (void)service.session().stop(
                run); // NotFound when the start is already through: watch() stops it then
    }
    return started.get();
}

struct TrainOptions {
    std::string job;
    std::string runDir;
    std::vector<std::string> set;
    std::optional<std::string> steps; ///< as given: the job's own rule judges it
    bool detach = false;
    std::string resume;
};

Result<Exit> train(const TrainOptions &options, Output &output)
{
    std::vector<std::string> overrides = options.set;
    if (options.steps)
        overrides.push_back("run.steps=" + *options.steps);
    session::StartRequest request;
    if (!options.runDir.empty())
        request.runDir = std::filesystem::absolute(options.runDir).string(); // the agent is at home elsewhere
    RY_ASSIGN(const auto store, store::RunStore::open(store::RunStore::defaultFile()));
    if (!options.resume.empty()) {
        RY_ASSIGN(const auto info, store->run(options.resume));
        request.resume = info.id;
        if (options.job.empty()) {
            // The run goes on under its own name, from its own job.
            request.runId = info.id;
            RY_ASSIGN(auto document, parseJson(info.job, info.id + "/job.json"));
            RY_ASSIGN(request.job, spec::readJob(document, info.id + "/job.json", overrides));
        }
    }
    if (!options.job.empty()) {
        RY_ASSIGN(request.job, spec::loadJob(options.job, overrides));
        request.jobDir = std::filesystem::absolute(options.job).parent_path().string();
    } else if (options.resume.empty()) {
        return Error::make(Code::Usage, "no job given")
            .withHint("rankyardctl train JOB, or train --resume RUN");
    }
    const std::int64_t lastLog = newestLog(*store, request.runId);
    const Interrupts guard; // from here on something of ours may run
    RY_ASSIGN(const auto service, openService(output));
    RY_ASSIGN(const std::string run, startInterruptibly(*service, std::move(request)));
    if (options.detach) {
        if (output.json)
            output.document({{"run", run}});
        else
            output.line(run);
        return Exit::Done;
    }
    output.note(run);
    RY_TRY(service->follow(run));
    return watch(*service, run, output, {.lastLog = lastLog});
}

} // namespace

void addTrain(Commands &commands)
{
    auto options = std::make_shared<TrainOptions>();
    CLI::App *app = commands.add(commands.root(), "train", "Run a job; exit 0 only when it finished",
                                 [options](Output &output) { return train(*options, output); });
    app->add_option("job", options->job, "The job file (rankyard/job/1)");
    app->add_option("--run-dir", options->runDir,
                    "Where the run keeps its files, instead of the node's default");
    app->add_option("--set", options->set, "Override a key of the job: path=value");
    app->add_option("--steps", options->steps, "Override run.steps");
    app->add_flag("--detach", options->detach, "Print the run's id and leave; it goes on");
    app->add_option("--resume", options->resume,
                    "Start from the newest checkpoint of this run; without a job, continue it");

    auto run = std::make_shared<std::string>("last");
    CLI::App *attach = commands.add(
        commands.root(), "attach", "Catch up with a run and follow it; Ctrl-C leaves it running",
        [run](Output &output) -> Result<Exit> {
            const Interrupts guard;
            RY_ASSIGN(const auto store, store::RunStore::open(store::RunStore::defaultFile()));
            RY_ASSIGN(const auto info, store->run(*run));
            RY_ASSIGN(const auto service, openService(output));
            const std::int64_t lastLog = newestLog(*store, info.id);
            RY_TRY(service->follow(info.id));
            return watch(*service, info.id, output, {.stopOnInterrupt = false, .lastLog = lastLog});
        });
    attach->add_option("run", *run, "Id, a unique beginning of it, or \"last\"");
}

} // namespace rankyard::ctl
