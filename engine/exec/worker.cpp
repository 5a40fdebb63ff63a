// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/worker.h"

#include "engine/base/build_id.h"
#include "engine/checkpoint/store.h"
#include "engine/data/corpus.h"
#include "engine/exec/gpu_environment.h"
#include "engine/exec/init.h"
#include "engine/exec/sampler_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sched.h>
#include <unistd.h>

namespace rankyard::exec {

namespace fs = std::filesystem;
using telemetry::Level;

namespace {

constexpr std::chrono::seconds pidsTimeout{60};

Error differs(const char *what, std::string found, std::string expected)
{
    return Error::make(Code::NotHere, std::string("the worker's ") + what + " is not the agent's")
        .withFound(std::move(found))
        .withExpected(std::move(expected))
        .withHint("Agent and worker must be of one build");
}

/// "2.1130": lines below each other have their digits below each other.
std::string formatFixed(double value, int decimals)
{
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals);
    return end.ec == std::errc() ? std::string(text, end.ptr) : formatNumber(value, decimals + 1);
}

Status bindToCores(const std::vector<int> &cores)
{
    if (cores.empty())
        return {};
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) {
        if (core >= 0 && core < CPU_SETSIZE)
            CPU_SET(static_cast<std::size_t>(core), &set);
    }
    if (::sched_setaffinity(0, sizeof set, &set) != 0)
        return Error::fromErrno(errno, "cannot bind the rank to its cores", "rank");
    return {};
}

std::vector<std::string> groupNames(const plan::StepProgram &program)
{
    std::vector<std::string> names;
    for (const plan::Group &group : program.groups)
        names.push_back(group.name);
    return names;
}

} // namespace

Worker::Worker(Bootstrap bootstrap, DeviceFactory makeDevice)
    : m_bootstrap(std::move(bootstrap)),
      m_makeDevice(std::move(makeDevice))
{}

Worker::~Worker() = default;

void Worker::drain(const std::function<void(telemetry::Payload &&)> &payload,
                   const std::function<void(Json &&)> &report)
{
    Reporter *reporter = m_published.load(std::memory_order_acquire);
    if (!reporter)
        return;
    reporter->drain(
        [&](telemetry::Payload &&told) {
            auto line = lineFor(told);
            payload(std::move(told));
            if (line)
                payload(telemetry::Payload(std::move(*line)));
        },
        report);
}

/// What people read beside the figures. Made here, on the reporting thread: a step itself allocates nothing.
std::optional<telemetry::LogRecord> Worker::lineFor(const telemetry::Payload &told) const
{
    const auto say = [](std::int64_t time, Level level, std::int64_t step, std::string text) {
        return telemetry::LogRecord{time, level, step, std::move(text)};
    };
    if (const auto *step = std::get_if<telemetry::StepRecord>(&told)) {
        if (!std::isfinite(step->loss))
            return say(step->wallNs, Level::Warning, step->step, "loss is " + formatNumber(step->loss, 5));
        if (step->overflow)
            return say(step->wallNs, Level::Warning, step->step,
                       "overflow at loss scale " + formatNumber(step->lossScale, 6) + ", no update");
        if (m_bootstrap.rank == 0 && step->step % std::max<std::int64_t>(1, m_logEvery) == 0)
            return say(step->wallNs, Level::Info, step->step,
                       "loss " + formatFixed(step->loss, 4) + "  " + formatCount(step->tokensPerS)
                           + " tokens/s");
    } else if (const auto *eval = std::get_if<telemetry::EvalRecord>(&told)) {
        return say(eval->wallNs, Level::Info, eval->step,
                   "validation loss " + formatNumber(eval->loss, 5) + " over "
                       + formatCount(static_cast<double>(eval->tokens)) + " tokens");
    } else if (const auto *hello = std::get_if<telemetry::HelloRecord>(&told)) {
        return say(wallNs(), Level::Info, hello->detail.value("first_step", std::int64_t{1}) - 1,
                   hello->detail.value("device", std::string()) + ", process "
                       + std::to_string(hello->detail.value("pid", 0)));
    } else if (const auto *event = std::get_if<telemetry::EventRecord>(&told)) {
        if (event->kind == "checkpoint" && event->detail.contains("error"))
            return say(event->wallNs, Level::Error, event->step,
                       "checkpoint failed: " + event->detail["error"].get<Error>().text());
        if (event->kind == "checkpoint")
            return say(event->wallNs, Level::Info, event->step,
                       "checkpoint saved in " + formatDuration(event->detail.value("ms", 0.0) / 1e3));
    }
    return {};
}

Result<WorkerEnd> Worker::run()
{
    RY_TRY(prepare());
    auto end = train();
    if (end.ok()) {
        // Says goodbye to the peers, who would take a rank that ends without it for dead. One that failed
        // does not wait.
        m_executor.reset();
        m_groups.clear();
    }
    return end;
}

// --------------------------------------------------------------------------------------------------- prepare

Status Worker::prepare()
{
    RY_TRY(bindToCores(m_bootstrap.cores));
    RY_TRY(makePlanAndCheck());
    RY_TRY(makeData());
    RY_TRY(makeDevice());
    RY_TRY(makeCommunicators());
    RY_TRY(makeExecutor());
    RY_TRY(fillParameters());
    sayHello();
    RY_TRY(world().barrier());
    m_reporter->report({{"kind", "ready"}, {"step", m_firstStep - 1}});
    return {};
}

Status Worker::makePlanAndCheck()
{
    if (m_bootstrap.buildId != buildId())
        return differs("build", buildId(), m_bootstrap.buildId);
    RY_ASSIGN(const spec::JobSpec job, spec::readJob(m_bootstrap.job, "job"));
    RY_ASSIGN(plan::Plan plan, plan::makePlan(job));
    if (plan.digest() != m_bootstrap.planDigest)
        return differs("plan", plan.digest(), m_bootstrap.planDigest);
    if (plan.grid.world() != m_bootstrap.world)
        return differs("world", std::to_string(plan.grid.world()), std::to_string(m_bootstrap.world));
    m_plan = std::make_unique<plan::Plan>(std::move(plan));
    m_logEvery = m_plan->job.run.logEvery;
    std::size_t mostOps = 0;
    for (const plan::StepProgram &program : m_plan->programs)
        mostOps = std::max(mostOps, program.ops.size());
    const auto names = groupNames(m_plan->program(plan::ProgramKind::Train, m_bootstrap.rank));
    m_reporter = std::make_unique<Reporter>(names, mostOps);
    m_published.store(m_reporter.get(), std::memory_order_release);
    m_scaler = LossScaler(m_plan->job.precision);
    return {};
}

Status Worker::makeData()
{
    RY_ASSIGN(const data::Corpus corpus, data::Corpus::open(m_plan->job, m_bootstrap.jobDir));
    m_fingerprint = corpus.fingerprint();
    m_data = std::make_unique<SamplerSource>(data::Sampler(corpus, m_plan->job));
    return {};
}

Status Worker::makeDevice()
{
    RY_ASSIGN(m_chosen, m_makeDevice(m_bootstrap));
    if (!m_chosen.note.empty())
        m_reporter->log(Level::Info, 0, m_chosen.note);
    if (m_chosen.device->queue() && m_bootstrap.rank == 0) {
        const Json environment = gpuEnvironment();
        for (const auto &[name, value] : environment.items())
            m_reporter->log(Level::Info, 0, name + "=" + value.get<std::string>());
    }
    return {};
}

Status Worker::makeCommunicators()
{
    std::vector<int> pids;
    if (m_bootstrap.world > 1) {
        pids = m_control.waitForPids(pidsTimeout);
        if (pids.size() != static_cast<std::size_t>(m_bootstrap.world))
            return Error::make(Code::Internal, "the agent did not say who the other ranks are")
                .withFound(std::to_string(pids.size()));
    }
    m_residentBefore = residentBytes();
    RY_ASSIGN(Arenas arenas,
              Arenas::make(*m_plan, m_bootstrap.rank, m_bootstrap.arenas, true, m_chosen.device->memory()));
    m_arenas = std::make_unique<Arenas>(std::move(arenas));
    m_memory = m_arenas->bytes();
    for (const BootstrapSegment &entry : m_bootstrap.segments) {
        comm::HostGroup group;
        group.name = entry.group;
        group.ranks = entry.ranks;
        group.rank = static_cast<int>(std::find(entry.ranks.begin(), entry.ranks.end(), m_bootstrap.rank)
                                      - entry.ranks.begin());
        group.segmentBytes = comm::hostSegmentBytes(static_cast<int>(entry.ranks.size()));
        RY_ASSIGN(Mapping mapping, Mapping::make(entry.fd, group.segmentBytes, "segment of " + entry.group));
        group.segment = mapping.data();
        m_segments.push_back(std::move(mapping));
        for (const int rank : entry.ranks)
            group.pids.push_back(pids.at(static_cast<std::size_t>(rank)));
        group.arenas = m_arenas->sharedAmong(entry.ranks);
        group.timeouts.hang = std::chrono::milliseconds(m_bootstrap.hangMs);
        RY_ASSIGN(m_groups[entry.group], comm::makeHostCommunicator(std::move(group)));
    }
    m_single = comm::makeSingleCommunicator();
    return {};
}

comm::Communicator &Worker::world()
{
    const auto found = m_groups.find("world");
    return found == m_groups.end() ? *m_single : *found->second;
}

Status Worker::makeExecutor()
{
    Executor::Setup setup;
    setup.plan = m_plan.get();
    setup.rank = m_bootstrap.rank;
    setup.device = m_chosen.device.get();
    setup.arenas = m_arenas.get();
    for (const auto &[name, communicator] : m_groups)
        setup.groups[name] = communicator.get();
    setup.data = m_data.get();
    setup.progress = &m_progress.count;
    RY_ASSIGN(m_executor, Executor::make(setup));
    for (const auto &[name, bytes] : m_chosen.device->libraryWorkspace())
        m_memory[static_cast<std::size_t>(plan::MemoryKind::Workspace)] += bytes;
    return {};
}

Status Worker::fillParameters()
{
    const auto alive = [this] { m_executor->poll(); };
    if (m_bootstrap.resume.empty()) {
        if (!m_plan->job.init.from)
            return initialiseParameters(*m_plan, *m_arenas, m_bootstrap.rank, alive);
        fs::path from = *m_plan->job.init.from;
        if (from.is_relative())
            from = fs::path(m_bootstrap.jobDir) / from;
        return loadParameters(storage(), from, alive);
    }
    RY_ASSIGN(const checkpoint::Manifest manifest, loadCheckpoint(storage(), m_bootstrap.resume, alive));
    if (manifest.step != m_bootstrap.startStep)
        return Error::make(Code::BadData, "the checkpoint is of another step", m_bootstrap.resume)
            .withFound(std::to_string(manifest.step))
            .withExpected(std::to_string(m_bootstrap.startStep));
    if (!manifest.dataFingerprint.empty() && manifest.dataFingerprint != m_fingerprint)
        m_reporter->log(Level::Warning, manifest.step,
                        "the corpus is not the one that the checkpoint was trained on");
    m_scaler.restore({manifest.scaler.scale, manifest.scaler.goodSteps, manifest.scaler.hysteresis});
    m_skipped = manifest.skippedSteps;
    m_firstStep = manifest.step + 1;
    m_lastSaved = manifest.step;
    return {};
}

void Worker::sayHello()
{
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    Json arenas = Json::array();
    for (const plan::Arena &arena : m_plan->program(plan::ProgramKind::Train, m_bootstrap.rank).arenas)
        arenas.push_back(
            {{"kind", plan::nameOf(arena.kind)}, {"bytes", arena.bytes}, {"shared", arena.shared}});
    Json programs = Json::object();
    for (const plan::StepProgram &program : m_plan->programs)
        programs[plan::nameOf(program.kind)] = program.digest;
    Json groups = Json::object();
    for (const auto &[name, communicator] : m_groups)
        groups[name] = communicator->backend();
    Json workspace = Json::object();
    for (const auto &[name, bytes] : m_chosen.device->libraryWorkspace())
        workspace[name] = bytes;
    m_reporter->put(telemetry::Payload(telemetry::HelloRecord{{{"host", host.data()},
                                                               {"boot_id", bootId()},
                                                               {"pid", ::getpid()},
                                                               {"build", buildId()},
                                                               {"device", m_chosen.device->name()},
                                                               {"threads", m_bootstrap.threads},
                                                               {"environment", gpuEnvironment()},
                                                               {"cores", m_bootstrap.cores},
                                                               {"plan", m_bootstrap.planDigest},
                                                               {"programs", programs},
                                                               {"arenas", arenas},
                                                               {"workspace", workspace},
                                                               {"resident_before_arenas", m_residentBefore},
                                                               {"groups", groups},
                                                               {"first_step", m_firstStep}}}));
}

// ----------------------------------------------------------------------------------------------------- train

Result<WorkerEnd> Worker::train()
{
    const spec::JobSpec &job = m_plan->job;
    const spec::Run &run = job.run;
    m_progress.step = m_firstStep - 1;
    for (std::int64_t step = m_firstStep; step <= run.steps; ++step) {
        RY_TRY(trainStep(step));
        m_progress.step = step;
        const Vote decision = Vote::decode(m_executor->state().vote);
        const bool last = step == run.steps;
        if ((run.evalEvery > 0 && step % run.evalEvery == 0) || last)
            RY_TRY(evaluate(step));
        const bool periodic = run.checkpointEvery > 0 && step % run.checkpointEvery == 0;
        if (periodic || last || decision.stop || decision.checkpoint)
            RY_TRY(save(step, last || decision.stop));
        if (decision.checkpoint)
            m_control.checkpointTaken();
        if (decision.stop && !last)
            return WorkerEnd::Stopped;
        if (decision.pause && !last) {
            m_reporter->report({{"kind", "paused"}, {"step", step}});
            m_control.sleepWhilePaused();
            m_reporter->report({{"kind", "resumed"}, {"step", step}});
        }
    }
    return WorkerEnd::Finished;
}

Status Worker::trainStep(std::int64_t step)
{
    const spec::JobSpec &job = m_plan->job;
    StepState &state = m_executor->state();
    const double scale = m_scaler.scale();
    state.step = step;
    state.skipped = m_skipped;
    state.lr = spec::learningRate(job, state.update());
    state.lossScale = scale;
    state.lossWeight = 1.0 / (static_cast<double>(job.batch.global) * static_cast<double>(job.model.seq));
    state.vote = m_control.vote().encode();
    RY_TRY(m_executor->run(plan::ProgramKind::Train, step - 1));
    const Status scaled = m_scaler.update(state.overflow);
    m_skipped += state.overflow ? 1 : 0;
    recordStep(step, scale);
    if (!scaled.ok()) {
        RY_TRY(save(step, true));
        return scaled;
    }
    return {};
}

Status Worker::evaluate(std::int64_t step)
{
    const std::int64_t batches = m_data->evalBatches();
    const bool everyBatch = m_plan->has(plan::ProgramKind::Eval) && batches > 0;
    if (!everyBatch)
        return {};
    StepState &state = m_executor->state();
    double sum = 0;
    for (std::int64_t batch = 0; batch < batches; ++batch) {
        state.vote = 0;
        RY_TRY(m_executor->run(plan::ProgramKind::Eval, batch));
        sum += state.loss;
    }
    if (m_bootstrap.rank == 0) {
        const spec::JobSpec &job = m_plan->job;
        m_reporter->put(telemetry::Payload(telemetry::EvalRecord{
            step, sum / static_cast<double>(batches), batches * job.batch.global * job.model.seq, wallNs()}));
    }
    return {};
}

/// `needed`: the run ends with it, so an error ends the rank; else it is told and training goes on.
Status Worker::save(std::int64_t step, bool needed)
{
    if (m_lastSaved == step)
        return {};
    const std::int64_t begin = monotonicNs();
    SaveInfo info;
    info.folder = m_bootstrap.ckptDir;
    info.run = m_bootstrap.run;
    info.epoch = m_bootstrap.epoch;
    info.build = buildId();
    info.step = step;
    info.skippedSteps = m_skipped;
    info.scaler = m_scaler.state();
    info.dataFingerprint = m_fingerprint;
    info.keep = m_plan->job.run.keep;
    const auto saved = saveCheckpoint(storage(), world(), info, [this] { m_executor->poll(); });
    if (!saved.ok() && (needed || saved.error().code == Code::RankFailed))
        return saved.error();
    if (saved.ok())
        m_lastSaved = step;
    if (m_bootstrap.rank != 0)
        return {};
    Json detail = {{"step", step}, {"ms", static_cast<double>(monotonicNs() - begin) / 1e6}};
    Json report = {{"kind", "checkpoint"}, {"step", step}};
    if (saved.ok())
        detail["folder"] = saved->string();
    else
        detail["error"] = report["error"] = saved.error();
    m_reporter->put(telemetry::Payload(telemetry::EventRecord{wallNs(), step, "checkpoint", detail}));
    m_reporter->report(report);
    return {};
}

} // namespace rankyard::exec
