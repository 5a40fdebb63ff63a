// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/search/weigh.h"

#include "engine/base/units.h"
#include "engine/predict/durations.h"
#include "engine/predict/flops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rankyard::search {

namespace {

std::string percent(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

} // namespace

spec::JobSpec jobOf(const spec::JobSpec &job, const Choice &choice)
{
    spec::JobSpec other = job;
    other.layout.tp = choice.tp;
    other.layout.cp = choice.cp;
    other.layout.pp = choice.pp;
    other.layout.dp = choice.dp;
    other.layout.virtualStages = choice.virtualStages;
    other.layout.stages.reset();
    other.layout.schedule = predict::nameOf(choice.schedule);
    other.layout.sequenceParallel = choice.sequenceParallel;
    other.batch.micro = choice.micro;
    other.zero.stage = choice.zero;
    other.zero.shard = 0;
    other.recompute.mode = predict::nameOf(choice.recompute);
    other.recompute.every = 1;
    other.recompute.ratio.reset();
    if (choice.recompute != predict::Recompute::Full)
        other.recompute.partition = other.recompute.toHost = false;
    other.offload.optimizer = choice.offloadOptimizer ? "cpu" : "none";
    other.offload.params = "none";
    return other;
}

Choice choiceOf(const spec::JobSpec &job)
{
    Choice choice;
    choice.tp = static_cast<std::int32_t>(job.layout.tp);
    choice.cp = static_cast<std::int32_t>(job.layout.cp);
    choice.pp = static_cast<std::int32_t>(job.layout.pp);
    choice.dp = static_cast<std::int32_t>(job.layout.dp);
    choice.virtualStages = static_cast<std::int32_t>(job.layout.virtualStages);
    choice.micro = static_cast<std::int32_t>(job.batch.micro);
    choice.microBatches = static_cast<std::int32_t>(job.microBatches());
    choice.zero = static_cast<std::int8_t>(job.zero.stage);
    choice.schedule = predict::scheduleOf(job.layout.schedule);
    choice.recompute = predict::recomputeOf(job.recompute.mode);
    choice.sequenceParallel = job.layout.sequenceParallel;
    choice.offloadOptimizer = job.offload.optimizer != "none";
    return choice;
}

std::vector<std::pair<const char *, Json>> keysOf(const Choice &choice)
{
    return {{"layout.dp", choice.dp},
            {"layout.tp", choice.tp},
            {"layout.pp", choice.pp},
            {"layout.cp", choice.cp},
            {"layout.virtual", choice.virtualStages},
            {"layout.schedule", predict::nameOf(choice.schedule)},
            {"layout.sequence_parallel", choice.sequenceParallel},
            {"zero.stage", choice.zero},
            {"batch.micro", choice.micro},
            {"recompute.mode", predict::nameOf(choice.recompute)},
            {"offload.optimizer", choice.offloadOptimizer ? "cpu" : "none"}};
}

std::vector<Change> changesOf(const Choice &from, const Choice &to)
{
    std::vector<Change> changes;
    const auto before = keysOf(from), after = keysOf(to);
    for (std::size_t i = 0; i < before.size(); ++i) {
        if (before[i].second != after[i].second)
            changes.push_back({before[i].first, before[i].second, after[i].second});
    }
    return changes;
}

std::vector<Change> changesOf(const spec::JobSpec &job, const Choice &to)
{
    std::vector<Change> changes = changesOf(choiceOf(job), to);
    // What a choice leaves at its default is a change, too: written jobs say which.
    const Json from = Json(spec::writeJob(job)), then = Json(spec::writeJob(jobOf(job, to)));
    for (const auto &[section, keys] : from.items()) {
        if (!keys.is_object())
            continue;
        for (const auto &[key, value] : keys.items()) {
            const std::string path = section + "." + key;
            const bool known = std::any_of(changes.begin(), changes.end(),
                                           [&](const Change &change) { return change.path == path; });
            if (const Json &now = then[section][key]; !known && now != value)
                changes.push_back({path, value, now});
        }
    }
    return changes;
}

std::string textOf(const Choice &choice)
{
    std::string text = "dp" + std::to_string(choice.dp) + "·tp" + std::to_string(choice.tp);
    if (choice.sequenceParallel)
        text += "+sp";
    if (choice.cp > 1)
        text += "·cp" + std::to_string(choice.cp);
    text += "·pp" + std::to_string(choice.pp) + "·z" + std::to_string(choice.zero) + ", micro-batch "
        + std::to_string(choice.micro);
    if (choice.pp > 1) {
        text += std::string(", ") + predict::nameOf(choice.schedule);
        if (choice.schedule == predict::Schedule::Interleaved)
            text += " v" + std::to_string(choice.virtualStages);
    }
    if (choice.recompute != predict::Recompute::None)
        text += std::string(", ") + predict::nameOf(choice.recompute) + " recompute";
    if (choice.offloadOptimizer)
        text += ", optimizer on the host";
    return text;
}

Scales::Scales(const spec::JobSpec &job, const predict::CostModel &cost)
    : m_job(job),
      m_cost(cost),
      m_layout(predict::layoutOf(job)),
      m_state(job),
      m_capacity(predict::capacityOf(cost.machine())),
      m_flops(predict::stepFlops(predict::shapeOf(job.model), static_cast<double>(job.batch.global),
                                 predict::Convention::Model3))
{}

predict::Layout Scales::layoutOf(const Choice &choice) const
{
    predict::Layout layout = m_layout;
    layout.dp = choice.dp;
    layout.cp = choice.cp;
    layout.pp = choice.pp;
    layout.virtualStages = choice.virtualStages;
    layout.schedule = choice.schedule;
    layout.zero = choice.zero;
    layout.shard = 0;
    layout.microBatches = choice.microBatches;
    return layout;
}

Candidate Scales::memory(const Choice &choice, const predict::UnitTimes &unit,
                         const predict::UnitMemory &memory, const predict::PeakStages &stages) const
{
    predict::StateBytes state = m_state;
    state.offloadOptimizer = choice.offloadOptimizer;
    state.onDisk = false; // a choice is host memory, or none
    return with(choice, predict::closedPeak(state, unit, memory, layoutOf(choice), stages));
}

Candidate Scales::with(const Choice &choice, const predict::ClosedPeak &peak) const
{
    Candidate candidate;
    candidate.choice = choice;
    candidate.bytes = peak.peak();
    candidate.hostBytes = peak.memory.host;
    candidate.stage = peak.stage;
    setMargin(candidate);
    return candidate;
}

void Scales::setMargin(Candidate &candidate) const
{
    candidate.margin = m_capacity.usable() - candidate.bytes;
    const double host = m_capacity.host - candidate.hostBytes;
    if (m_capacity.host > 0 && host < 0)
        candidate.margin = std::min(candidate.margin, host);
}

/// Gradients down and parameters up over the host link, and the host's update (28 bytes a parameter). 25 GB/s: what PCIe 4 x16
/// gives in practice; 100 GB/s of host memory, shared by the devices of a node.
double Scales::offloadSeconds(const Choice &choice, const predict::UnitTimes &unit) const
{
    constexpr double link = 25e9;
    constexpr double hostMemory = 100e9;
    const double layers = std::ceil(unit.layers / choice.pp);
    const double params = layers * unit.layerParams + unit.embeddingParams;
    const double held = choice.zero >= 1 ? params / (static_cast<double>(choice.dp) * choice.cp) : params;
    return held * (m_state.grad + m_state.param) / link
        + held * 28 / (hostMemory / std::min(8, m_cost.machine().island));
}

void Scales::time(Candidate &candidate, const predict::UnitTimes &unit) const
{
    const Choice &choice = candidate.choice;
    candidate.time = predict::combine(m_cost, unit, layoutOf(choice));
    if (choice.offloadOptimizer) {
        const double seconds = offloadSeconds(choice, unit);
        candidate.time.optimizer += seconds;
        candidate.time.seconds += seconds;
        candidate.time.low += seconds;
        candidate.time.high += seconds;
    }
    const double devices = static_cast<double>(choice.dp) * choice.tp * choice.pp * choice.cp;
    candidate.mfu = predict::utilisation(m_flops, candidate.time.seconds, devices,
                                         m_cost.peak(predict::precisionOf(m_job.precision.compute)));
}

Status Scales::priceMemory(Candidate &candidate, const spec::JobSpec &job, const std::stop_token &stop) const
{
    RY_ASSIGN(const auto stages, predict::footprintOf(job, stop));
    double most = 0;
    candidate.hostBytes = 0;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        const auto host =
            static_cast<double>(stages[stage].bytes[static_cast<std::size_t>(plan::MemoryKind::Host)]);
        const double bytes = static_cast<double>(stages[stage].peak) - host;
        if (bytes > most) {
            most = bytes;
            candidate.stage = static_cast<int>(stage);
        }
        candidate.hostBytes = std::max(candidate.hostBytes, host);
    }
    candidate.bytes = most;
    setMargin(candidate);
    return {};
}

Status Scales::priceTime(Candidate &candidate, const spec::JobSpec &job, const std::stop_token &stop) const
{
    RY_ASSIGN(const auto time,
              predict::programTimeOf(
                  job, [this](const plan::Plan &plan) { return predict::timelineOf(m_cost, plan); }, stop));
    const double before = candidate.time.seconds;
    predict::settle(candidate.time, time);
    candidate.mfu *= before / candidate.time.seconds;
    candidate.priced = true;
    return {};
}

std::string Scales::reason(const Candidate &candidate) const
{
    const predict::StepTime &t = candidate.time;
    const std::pair<const char *, double> parts[] = {
        {"computation", t.compute}, {"waiting for other stages", t.bubble},
        {"tensor group", t.tensor}, {"pipeline sends", t.pipeline},
        {"data group", t.data},     {"optimizer", t.optimizer}};
    std::vector<std::pair<const char *, double>> sorted(std::begin(parts), std::end(parts));
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto &a, const auto &b) { return a.second > b.second; });
    std::string text = std::string(sorted[0].first) + " " + percent(sorted[0].second / t.seconds);
    for (std::size_t i = 1; i < 3; ++i) {
        if (sorted[i].second > 0.01 * t.seconds)
            text += std::string(", ") + sorted[i].first + " " + percent(sorted[i].second / t.seconds);
    }
    text += "; " + formatBytes(candidate.bytes) + " of " + formatBytes(m_capacity.usable()) + " usable";
    if (candidate.choice.pp > 1)
        text += " on stage " + std::to_string(candidate.stage);
    return text;
}

Result<Candidate> weigh(const spec::JobSpec &job, const predict::CostModel &cost)
{
    RY_TRY(plan::checkJob(job));
    const Scales scales(job, cost);
    // The job's own stages, for no choice has all of its keys.
    RY_ASSIGN(const auto stages, predict::closedStages(job));
    const auto fullest = std::max_element(stages.begin(), stages.end(),
                                          [](const auto &a, const auto &b) { return a.peak() < b.peak(); });
    Candidate candidate = scales.with(choiceOf(job), {*fullest, static_cast<int>(fullest - stages.begin())});
    scales.time(candidate, predict::jobTime(cost, job).unit);
    candidate.why = scales.reason(candidate);
    return candidate;
}

Result<Candidate> price(const spec::JobSpec &job, const predict::CostModel &cost)
{
    RY_ASSIGN(Candidate candidate, weigh(job, cost));
    const Scales scales(job, cost);
    RY_TRY(scales.priceMemory(candidate, job));
    RY_TRY(scales.priceTime(candidate, job));
    candidate.why = scales.reason(candidate);
    return candidate;
}

} // namespace rankyard::search
