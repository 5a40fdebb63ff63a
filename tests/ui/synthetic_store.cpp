// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ui/synthetic_store.h"

#include "engine/base/json.h"
#include "engine/base/units.h"
#include "engine/store/run_store.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

namespace rankyard::test {

namespace {

constexpr std::int64_t tokensPerStep = 16 * 256;

/// Uniform in [−1, 1), a function of its arguments alone.
double noise(unsigned seed, std::int64_t step, int what)
{
    std::uint64_t x = seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(step) * 0xBF58476D1CE4E5B9ull
        + static_cast<std::uint64_t>(what) * 0x94D049BB133111EBull;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    return static_cast<double>(x >> 11) / static_cast<double>(1ull << 52) - 1;
}

bool contains(const std::vector<std::int64_t> &steps, std::int64_t step)
{
    return std::find(steps.begin(), steps.end(), step) != steps.end();
}

double smoothLoss(const SyntheticRun &run, std::int64_t step)
{
    const double t = static_cast<double>(step) / static_cast<double>(run.steps);
    return 1.35 + 4.2 * std::exp(-9 * t * std::sqrt(run.lr / 3e-4)) + 0.55 * std::exp(-1.8 * t);
}

double stepMsOf(const SyntheticRun &run, std::int64_t step, int rank)
{
    double ms = 402 + 14 * noise(run.seed, step, 20 + rank) + rank * 9;
    if (step == 1)
        ms += 900; // the first step touches everything
    if (contains(run.overflow, step))
        ms -= 30;
    if (step > run.steps * 3 / 5 && step < run.steps * 3 / 5 + 40 && rank == 1)
        ms += 120;
    return ms;
}

double scaleAt(const SyntheticRun &run, std::int64_t step)
{
    if (run.compute != "fp16")
        return 1;
    double power = 16;
    std::int64_t good = 0;
    for (std::int64_t s = 1; s < step; ++s) {
        if (contains(run.overflow, s)) {
            power -= 1;
            good = 0;
        } else if (++good == 450) {
            power += 1;
            good = 0;
        }
    }
    return std::exp2(power);
}

std::int64_t wallOf(const SyntheticRun &run, std::int64_t step)
{
    return run.startedNs + 3'000'000'000 + step * 412'000'000;
}

telemetry::StepRecord stepOf(const SyntheticRun &run, std::int64_t step, int rank, double scale)
{
    telemetry::StepRecord record;
    record.step = step;
    record.wallNs = wallOf(run, step);
    record.endNs = record.wallNs - run.startedNs;
    record.loss = lossAt(run, step);
    record.overflow = contains(run.overflow, step);
    const double t = static_cast<double>(step) / static_cast<double>(run.steps);
    record.gradNorm = record.overflow
        ? std::numeric_limits<double>::infinity()
        : (6 * std::exp(-14 * t) + 0.45) * (1 + 0.22 * noise(run.seed, step, 2));
    const double warm = std::min(1.0, static_cast<double>(step) / (0.05 * static_cast<double>(run.steps)));
    record.lr = run.lr * warm * (0.1 + 0.9 * 0.5 * (1 + std::cos(M_PI * std::min(1.0, t))));
    record.lossScale = scale;
    record.stepMs = stepMsOf(run, step, rank);
    record.tokensPerS = static_cast<double>(tokensPerStep * run.world) / 2 / stepMsOf(run, step, 0) * 1e3;
    record.dataMs = 1.2 + 0.4 * noise(run.seed, step, 5);
    record.optimizerMs = 21 + 2 * noise(run.seed, step, 6);
    const double exposed = run.world > 1 ? 26 + 9 * noise(run.seed, step, 7 + rank) + (rank == 0 ? 9 : 0) : 0;
    record.bubbleMs = 0;
    record.computeMs = record.stepMs - record.optimizerMs - record.dataMs - exposed;
    record.mfu = run.mfu ? 0.58 + 0.02 * noise(run.seed, step, 8) : 0;
    constexpr std::int64_t MiB = 1 << 20;
    record.memory = {28 * MiB, 28 * MiB, 56 * MiB / std::max(1, run.world), 71 * MiB, 0, 25 * MiB,
                     6 * MiB,  0};
    if (run.world > 1) {
        record.comm.push_back(
            {"dp", 28 * MiB, 28 * MiB, 14 * MiB, 96 + 6 * noise(run.seed, step, 9), exposed});
        record.comm.push_back({"world", 4096, 4096, 4096, 0.4, 0.2});
    }
    return record;
}

std::string text(const char *format, auto... values)
{
    char buffer[200];
    std::snprintf(buffer, sizeof buffer, format, values...);
    return buffer;
}

/// Sequences of the streams of a run go on over several calls.
class Streams
{
public:
    Streams(store::RunStore &runs, const std::string &id, std::uint32_t epoch) : m_epoch(epoch)
    {
        const auto positions = runs.positions(id);
        for (const auto &each : *positions) {
            if (each.epoch == epoch)
                m_next[each.rank] = each.sequence + 1;
        }
    }

    void add(int rank, telemetry::Payload payload)
    {
        auto [next, fresh] = m_next.try_emplace(rank, 1);
        m_records.push_back({m_epoch, rank, next->second++, std::move(payload)});
    }

    std::vector<telemetry::Record> take() { return std::exchange(m_records, {}); }

private:
    std::uint32_t m_epoch;
    std::map<int, std::uint64_t> m_next;
    std::vector<telemetry::Record> m_records;
};

void addStep(Streams &streams, const SyntheticRun &run, std::int64_t step, double scale)
{
    using telemetry::Level;
    for (int rank = 0; rank < run.world; ++rank) {
        const auto record = stepOf(run, step, rank, scale);
        streams.add(rank, record);
        if (step % 5 == rank || step == 1)
            streams.add(rank,
                        telemetry::LogRecord{record.wallNs + rank, Level::Info, step,
                                             text("loss %.3f %.0f tok/s %.0f ms", record.loss,
                                                  record.tokensPerS, record.stepMs)});
        if (record.overflow && rank == 0) {
            streams.add(0,
                        telemetry::LogRecord{record.wallNs, Level::Warning, step,
                                             text("loss scale 2^%.0f -> 2^%.0f (overflow)", std::log2(scale),
                                                  std::log2(scale) - 1)});
            streams.add(0, telemetry::EventRecord{record.wallNs, step, "overflow", Json{{"scale", scale}}});
        }
        if (rank == 0 && std::isnan(record.loss))
            streams.add(0, telemetry::LogRecord{record.wallNs, Level::Error, step, "loss is not a number"});
    }
    const std::int64_t every = std::max<std::int64_t>(10, run.steps / 40);
    if (step % every == 0) {
        const double loss = smoothLoss(run, step) + 0.06;
        streams.add(0, telemetry::EvalRecord{step, loss, 8 * tokensPerStep, wallOf(run, step)});
        streams.add(0,
                    telemetry::LogRecord{wallOf(run, step) + 5, Level::Info, step,
                                         text("eval: loss %.3f over 8 batches", loss)});
    }
    if (step % (every * 8) == 0) {
        streams.add(-1,
                    telemetry::EventRecord{wallOf(run, step), step, "checkpoint",
                                           Json{{"path", "ckpt/step-" + std::to_string(step)}}});
        streams.add(-1,
                    telemetry::LogRecord{wallOf(run, step) + 9, Level::Info, step,
                                         "checkpoint written, 112 MiB in 0.4 s"});
    }
}

} // namespace

double lossAt(const SyntheticRun &run, std::int64_t step)
{
    if (contains(run.nan, step))
        return std::numeric_limits<double>::quiet_NaN();
    return smoothLoss(run, step) + 0.11 * noise(run.seed, step, 1);
}

std::string jobOf(const SyntheticRun &run)
{
    return dumpJson(Json{
        {"schema", "rankyard/job/1"},
        {"name", run.name},
        {"model",
         {{"family", "gpt2"}, {"layers", 6}, {"hidden", 384}, {"heads", 6}, {"seq", 256}, {"vocab", 512}}},
        {"data", {{"train", "corpus"}}},
        {"batch", {{"global", 16}, {"micro", 4}}},
        {"layout", {{"dp", run.world}}},
        {"zero", {{"stage", run.world > 1 ? 1 : 0}}},
        {"precision", {{"compute", run.compute}}},
        {"optimizer", {{"lr", run.lr}}},
        {"run", {{"steps", run.steps}}}});
}

Status putSteps(const std::filesystem::path &file, const SyntheticRun &run, std::int64_t first,
                std::int64_t last, std::uint32_t epoch)
{
    RY_ASSIGN(auto runs, store::RunStore::open(file));
    Streams streams(*runs, run.id, epoch);
    double scale = scaleAt(run, first);
    for (std::int64_t step = first; step <= last; ++step) {
        if (run.compute == "fp16" && step > first && (contains(run.overflow, step - 1) || step % 50 == 0))
            scale = scaleAt(run, step);
        addStep(streams, run, step, scale);
        if (step % 500 == 0 || step == last)
            RY_TRY(runs->ingest(run.id, streams.take()));
    }
    return {};
}

Status putRun(const std::filesystem::path &file, const SyntheticRun &given)
{
    SyntheticRun run = given;
    if (run.endedAgoNs > 0)
        run.startedNs = wallNs() - run.endedAgoNs - 3'000'000'000 - run.done * 412'000'000;
    {
        RY_ASSIGN(auto runs, store::RunStore::open(file));
        store::RunInfo info;
        info.id = run.id;
        info.name = run.name;
        info.state = telemetry::RunState::Running;
        info.runDir = "/var/lib/rankyard/runs/" + run.id;
        info.job = jobOf(run);
        info.startedNs = run.startedNs;
        info.steps = run.steps;
        info.world = run.world;
        RY_TRY(runs->putRun(info));
        Streams streams(*runs, run.id, 1);
        for (int rank = 0; rank < run.world; ++rank) {
            streams.add(rank,
                        telemetry::HelloRecord{Json{
                            {"host", "localhost"}, {"pid", 4000 + rank}, {"device", "cpu"}, {"threads", 1}}});
            streams.add(rank,
                        telemetry::LogRecord{run.startedNs + 1'000'000'000, telemetry::Level::Info, 0,
                                             "ready: arenas mapped and touched"});
        }
        RY_TRY(runs->ingest(run.id, streams.take()));
    }
    if (run.done > 0)
        RY_TRY(putSteps(file, run, 1, run.done));
    if (run.state == telemetry::RunState::Running)
        return {};
    RY_ASSIGN(auto runs, store::RunStore::open(file));
    Streams streams(*runs, run.id, 1);
    Json detail{{"from", "running"},
                {"to", telemetry::nameOf(run.state)},
                {"cause", "synthetic"},
                {"actor", "agent"}};
    if (run.error)
        detail["error"] = *run.error;
    streams.add(-1, telemetry::EventRecord{wallOf(run, run.done) + 1'000'000'000, run.done, "state", detail});
    return runs->ingest(run.id, streams.take());
}

Status putDemo(const std::filesystem::path &file)
{
    constexpr std::int64_t hour = 3'600'000'000'000;
    SyntheticRun live;
    live.id = "r-20261130T142000-k3f7qa";
    live.state = telemetry::RunState::Running;
    live.done = 1412;
    live.overflow = {212, 287, 803, 1110};
    live.nan = {640, 641, 642};
    live.endedAgoNs = 1'000'000;
    live.mfu = true;
    RY_TRY(putRun(file, live));
    SyntheticRun sample;
    sample.id = "r-20261130T111500-b2m4xz";
    sample.name = "sample";
    sample.steps = sample.done = 400;
    sample.compute = "fp32";
    sample.lr = 2e-3;
    sample.endedAgoNs = 2 * hour;
    RY_TRY(putRun(file, sample));
    sample.id = "r-20261130T093000-c5n6yp";
    sample.name = "sample-lr-low";
    sample.lr = 5e-4;
    sample.seed = 11;
    sample.endedAgoNs = 4 * hour;
    RY_TRY(putRun(file, sample));
    sample.id = "r-20261129T181000-d7k2wm";
    sample.name = "sample-bf16";
    sample.compute = "bf16";
    sample.seed = 13;
    sample.done = 263;
    sample.state = telemetry::RunState::Stopped;
    sample.endedAgoNs = 20 * hour;
    RY_TRY(putRun(file, sample));
    SyntheticRun failed;
    failed.id = "r-20261129T160000-e2q5vn";
    failed.name = "gpt-wide";
    failed.state = telemetry::RunState::Failed;
    failed.done = 93;
    failed.steps = 1000;
    failed.lr = 1e-3;
    failed.endedAgoNs = 23 * hour;
    failed.error =
        Error::make(Code::RankFailed, "the worker was killed by signal 9", "rank 1")
            .withHint(
                "Often the kernel's out-of-memory killer: see dmesg, or plan with a smaller micro-batch");
    RY_TRY(putRun(file, failed));
    return {};
}

} // namespace rankyard::test
