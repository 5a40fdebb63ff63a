// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/search/search.h"

#include "engine/base/parallel.h"
#include "engine/base/units.h"
#include "engine/search/space.h"
#include "engine/search/weigh.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <tuple>

namespace rankyard::search {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin)
{
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Where a layout stands in the space: breaks ties, so that threads do not.
struct Place {
    std::size_t cut = 0;
    std::size_t layout = 0;
    auto operator<=>(const Place &) const = default;
};

struct Weighed {
    Candidate candidate;
    Place place;
    bool operator<(const Weighed &other) const
    {
        return std::tie(candidate.time.seconds, place) < std::tie(other.candidate.time.seconds, other.place);
    }
};

/// The fastest `most` of what it is given.
class Fastest
{
public:
    explicit Fastest(std::size_t most) : m_most(most) {}
    double worst() const { return m_heap.size() < m_most ? HUGE_VAL : m_heap.front().candidate.time.seconds; }
    void add(const Weighed &weighed)
    {
        if (m_heap.size() == m_most) {
            if (!(weighed < m_heap.front()))
                return;
            std::pop_heap(m_heap.begin(), m_heap.end());
            m_heap.back() = weighed;
        } else {
            m_heap.push_back(weighed);
        }
        std::push_heap(m_heap.begin(), m_heap.end());
    }
    void merge(const Fastest &other)
    {
        for (const Weighed &weighed : other.m_heap)
            add(weighed);
    }
    std::vector<Weighed> sorted() const
    {
        std::vector<Weighed> list = m_heap;
        std::sort(list.begin(), list.end());
        return list;
    }

private:
    std::size_t m_most;
    std::vector<Weighed> m_heap;
};

/// The fastest of each slice of memory: what the front is drawn from.
class Slices
{
public:
    void add(const Weighed &weighed, double usable)
    {
        const double share = std::clamp(weighed.candidate.bytes / usable, 0.0, 1.0);
        auto &best = m_best[static_cast<std::size_t>(share * (slices - 1))];
        if (!best || weighed < *best)
            best = weighed;
    }
    void merge(const Slices &other)
    {
        for (std::size_t i = 0; i < m_best.size(); ++i) {
            if (other.m_best[i] && (!m_best[i] || *other.m_best[i] < *m_best[i]))
                m_best[i] = other.m_best[i];
        }
    }
    std::vector<Candidate> front() const
    {
        std::vector<Candidate> front;
        for (const auto &best : m_best) {
            if (best && (front.empty() || best->candidate.time.seconds < front.back().time.seconds))
                front.push_back(best->candidate);
        }
        return front;
    }

private:
    static constexpr int slices = 128;
    std::array<std::optional<Weighed>, slices> m_best;
};

/// What one thread has found.
struct Share {
    Fastest fitting;
    Fastest near;
    Slices slices;
    Rejections rejected;
    std::int64_t evaluated = 0;

    explicit Share(std::size_t most) : fitting(most), near(most) {}
};

/// The memory of cuts from that of micro-batches of one and two sequences, in which it is linear (but for alignment).
class UnitMemories
{
public:
    /// Measures all that `cuts` need; the first error.
    static Result<UnitMemories> of(const spec::JobSpec &job, const std::vector<Cut> &cuts, int threads,
                                   const std::stop_token &stop)
    {
        UnitMemories memories;
        for (const Cut &cut : cuts) {
            for (const int micro : microsOf(job, cut))
                memories.m_measured.try_emplace(key(cut, micro));
        }
        std::vector<std::pair<const Key, predict::UnitMemory> *> entries;
        for (auto &entry : memories.m_measured)
            entries.push_back(&entry);
        std::vector<std::optional<Error>> errors(entries.size());
        inParallel(entries.size(), threads, [&](std::size_t i, int) {
            if (stop.stop_requested())
                return;
            const auto &[tp, cp, sequence, recompute, micro] = entries[i]->first;
            Choice choice;
            choice.tp = tp;
            choice.cp = cp;
            choice.micro = micro;
            choice.sequenceParallel = sequence;
            choice.recompute = recompute;
            if (const auto memory = predict::unitMemory(jobOf(job, choice)))
                entries[i]->second = *memory;
            else
                errors[i] = memory.error();
        });
        for (const auto &error : errors) {
            if (error)
                return *error;
        }
        return memories;
    }

    predict::UnitMemory at(const spec::JobSpec &job, const Cut &cut) const
    {
        const std::vector<int> micros = microsOf(job, cut);
        const predict::UnitMemory &one = m_measured.at(key(cut, micros.front()));
        if (micros.size() == 1)
            return one;
        const predict::UnitMemory &two = m_measured.at(key(cut, micros.back()));
        const double times = cut.micro - 1;
        const auto line = [&](double predict::UnitMemory::*part) {
            return one.*part + times * (two.*part - one.*part);
        };
        using predict::UnitMemory;
        return {line(&UnitMemory::kept), line(&UnitMemory::work), std::max(one.workspace, two.workspace),
                line(&UnitMemory::deferred), one.passes};
    }

private:
    using Key = std::tuple<int, int, bool, predict::Recompute, int>;
    static Key key(const Cut &cut, int micro)
    {
        return {cut.tp, cut.cp, cut.sequenceParallel, cut.recompute, micro};
    }
    /// Its own where one sequence cannot be cut so, or is all there is.
    static std::vector<int> microsOf(const spec::JobSpec &job, const Cut &cut)
    {
        const bool whole = cut.sequenceParallel && job.model.seq / cut.cp % cut.tp != 0;
        return whole || cut.micro == 1 ? std::vector<int>{cut.micro} : std::vector<int>{1, 2};
    }

    std::map<Key, predict::UnitMemory> m_measured;
};

/// Stages with the peak, by ways to cut the layers: a few dozen for all layouts.
class Stages
{
public:
    Stages(const spec::JobSpec &job, int devices)
    {
        Rejections ignored;
        for (int pp = 1; pp <= devices && pp <= job.model.layers + 1; ++pp) {
            if (devices % pp != 0)
                continue;
            for (const Plan &plan : plansOf(job, {pp, 1, pp}, ignored)) {
                Choice choice;
                choice.pp = pp;
                choice.virtualStages = plan.virtualStages;
                choice.schedule = plan.schedule;
                m_stages.try_emplace(key(choice), plan::layersByStage(jobOf(job, choice)));
            }
        }
    }
    const predict::PeakStages &at(const Choice &choice) const { return m_stages.at(key(choice)); }

private:
    static std::tuple<int, int, bool> key(const Choice &choice)
    {
        return {choice.pp, choice.virtualStages, choice.schedule == predict::Schedule::ZeroBubbleV};
    }
    std::map<std::tuple<int, int, bool>, predict::PeakStages> m_stages;
};

constexpr const char *noRoom = "does not fit the device's memory";
constexpr const char *noHostRoom = "does not fit the host's memory";

class Search
{
public:
    Search(const spec::JobSpec &job, const predict::CostModel &cost, const Options &options)
        : m_job(job),
          m_cost(cost),
          m_options(options),
          m_scales(job, cost),
          m_shape(predict::shapeOf(job.model)),
          m_top(static_cast<std::size_t>(std::max(1, options.top))),
          m_most(std::max<std::size_t>(64, 8 * m_top)),
          m_threads(options.threads > 0 ? options.threads : processorCores())
    {}

    Result<Outcome> run();

private:
    void weigh(Share &share, std::size_t index, const UnitMemories &memories, const Stages &stages) const;
    Status price(Candidate &candidate) const;
    void choose(Outcome &outcome, const Share &all) const;
    void take(Outcome &outcome, Candidate &candidate, const Status &priced) const;
    void chooseNear(Outcome &outcome, const Share &all) const;
    void tell(double share) const
    {
        if (m_options.progress)
            m_options.progress(share);
    }

    const spec::JobSpec &m_job;
    const predict::CostModel &m_cost;
    const Options &m_options;
    Scales m_scales;
    predict::Shape m_shape;
    std::size_t m_top;
    std::size_t m_most; ///< that are kept for pricing
    int m_threads;
    std::vector<Cut> m_cuts;
};

/// Layouts of one cut: memory first, time only of what fits or nearly does.
void Search::weigh(Share &share, std::size_t index, const UnitMemories &memories, const Stages &stages) const
{
    const Cut &cut = m_cuts[index];
    const predict::UnitMemory memory = memories.at(m_job, cut);
    predict::Micro micro = predict::microOf(m_job);
    micro.sequences = cut.micro;
    micro.tp = cut.tp;
    micro.cp = cut.cp;
    micro.sequenceParallel = cut.sequenceParallel;
    predict::UnitTimes unit = predict::unitTimes(m_cost, m_shape, micro, cut.recompute);
    unit.deferrable = memory.deferrable();
    const double usable = m_scales.capacity().usable();
    std::size_t place = 0;
    std::int64_t refused = 0, onHost = 0;
    Choice before; // layouts that differ in what follows the stages come one after the other
    const predict::PeakStages *peaks = nullptr;
    forEachLayout(m_job, m_options.devices, cut, share.rejected, [&](const Choice &choice) {
        if (!peaks || choice.pp != before.pp || choice.virtualStages != before.virtualStages
            || choice.schedule != before.schedule) {
            peaks = &stages.at(choice);
            before = choice;
        }
        Weighed weighed{m_scales.memory(choice, unit, memory, *peaks), {index, place++}};
        const bool fits = weighed.candidate.margin >= 0;
        if (!fits)
            ++(weighed.candidate.bytes > usable ? refused : onHost);
        if (weighed.candidate.bytes > 1.5 * usable)
            return;
        m_scales.time(weighed.candidate, unit);
        if (fits)
            share.slices.add(weighed, usable);
        (fits ? share.fitting : share.near).add(weighed);
    });
    share.evaluated += static_cast<std::int64_t>(place);
    if (refused > 0)
        share.rejected[noRoom] += refused;
    if (onHost > 0)
        share.rejected[noHostRoom] += onHost;
}

bool faster(const Candidate &a, const Candidate &b) { return a.time.seconds < b.time.seconds; }

/// Closed forms rank what is priced: one that seems 3 % slower than the best priced may be as fast.
constexpr double closedError = 1.03;

double fastestOf(const std::vector<Candidate> &list)
{
    return std::min_element(list.begin(), list.end(), faster)->time.seconds;
}

/// The best of each way to divide the ranks and the time: variants by ZeRO stage, sequence parallelism and offload are one entry.
std::vector<Candidate> distinct(const std::vector<Weighed> &list)
{
    std::vector<Candidate> kept;
    std::set<std::tuple<int, int, int, int, int, int, int, int>> seen;
    for (const Weighed &weighed : list) {
        const Choice &c = weighed.candidate.choice;
        if (seen.insert({c.tp, c.cp, c.pp, c.dp, c.virtualStages, c.micro, static_cast<int>(c.schedule),
                         static_cast<int>(c.recompute)})
                .second)
            kept.push_back(weighed.candidate);
    }
    return kept;
}

/// Candidates that do not fit, fastest first: those that only the programs have found out among them.
void Search::chooseNear(Outcome &outcome, const Share &all) const
{
    const double best = outcome.best.empty() ? HUGE_VAL : outcome.best.front().time.seconds;
    for (const Candidate &candidate : distinct(all.near.sorted()))
        outcome.near.push_back(candidate);
    std::erase_if(outcome.near, [&](const Candidate &candidate) { return candidate.time.seconds >= best; });
    std::stable_sort(outcome.near.begin(), outcome.near.end(), faster);
    outcome.near.resize(std::min(outcome.near.size(), m_top));
    for (Candidate &candidate : outcome.near) {
        const bool device = candidate.bytes > outcome.capacity.usable();
        candidate.why = formatBytes(device ? candidate.bytes : candidate.hostBytes)
            + (device ? " on stage " + std::to_string(candidate.stage) : std::string(" of host memory"))
            + ", " + formatBytes(-candidate.margin) + " more than is usable";
    }
}

/// By its programs; time only where the memory suffices.
Status Search::price(Candidate &candidate) const
{
    const spec::JobSpec job = jobOf(m_job, candidate.choice);
    RY_TRY(m_scales.priceMemory(candidate, job, m_options.stop));
    return candidate.margin >= 0 ? m_scales.priceTime(candidate, job, m_options.stop) : Status();
}

/// Prices the best until `top` of them are known to fit and the rest are further behind by the closed form than it may be off, as many
/// at a time as there are threads: what is priced beyond the last one that is needed is thrown away, so that their number does not
/// matter.
void Search::choose(Outcome &outcome, const Share &all) const
{
    const auto begin = Clock::now();
    std::vector<Candidate> list = distinct(all.fitting.sorted());
    const std::size_t wave = m_options.price ? static_cast<std::size_t>(m_threads) : list.size();
    const std::size_t most = m_options.price ? 2 * m_top + 8 : m_top;
    const auto enough = [&](const Candidate &next) {
        if (outcome.best.size() < m_top)
            return false;
        return outcome.best.size() >= most || next.time.seconds > closedError * fastestOf(outcome.best);
    };
    for (std::size_t first = 0; first < list.size() && !enough(list[first]); first += wave) {
        const std::size_t count = std::min(wave, list.size() - first);
        std::vector<Status> priced(count);
        if (m_options.price) {
            tell(weighing
                 + (1 - weighing)
                     * std::min(0.99, static_cast<double>(outcome.best.size()) / static_cast<double>(m_top)));
            inParallel(count, m_threads, [&](std::size_t i, int) { priced[i] = price(list[first + i]); });
            if (m_options.stop.stop_requested())
                break;
        }
        for (std::size_t i = 0; i < count && !enough(list[first + i]); ++i)
            take(outcome, list[first + i], priced[i]);
    }
    std::stable_sort(outcome.best.begin(), outcome.best.end(), faster);
    outcome.best.resize(std::min(outcome.best.size(), m_top));
    outcome.pareto = all.slices.front();
    for (Candidate &candidate : outcome.pareto)
        candidate.why = m_scales.reason(candidate);
    chooseNear(outcome, all);
    outcome.pricingSeconds = secondsSince(begin);
}

void Search::take(Outcome &outcome, Candidate &candidate, const Status &priced) const
{
    if (!priced) {
        ++outcome.rejected[priced.error().what];
    } else if (candidate.margin < 0) {
        ++outcome.rejected[candidate.bytes > m_scales.capacity().usable() ? noRoom : noHostRoom];
        outcome.near.push_back(candidate);
    } else {
        candidate.why = m_scales.reason(candidate);
        outcome.best.push_back(candidate);
    }
}

Result<Outcome> Search::run()
{
    const auto begin = Clock::now();
    Outcome outcome;
    outcome.capacity = m_scales.capacity();
    outcome.job = m_job;
    outcome.own = choiceOf(m_job);
    m_cuts = cutsOf(m_job, m_options.devices, outcome.rejected);
    RY_ASSIGN(const auto memories, UnitMemories::of(m_job, m_cuts, m_threads, m_options.stop));
    const Stages stages(m_job, m_options.devices);
    std::vector<Share> shares(static_cast<std::size_t>(m_threads), Share(m_most));
    inParallel(m_cuts.size(), m_threads, [&](std::size_t i, int thread) {
        if (m_options.stop.stop_requested())
            return;
        weigh(shares[static_cast<std::size_t>(thread)], i, memories, stages);
        if (thread == 0)
            tell((m_options.price ? weighing : 1) * static_cast<double>(i + 1)
                 / static_cast<double>(m_cuts.size()));
    });
    Share &all = shares[0];
    for (const Share &share : shares) {
        if (&share == &all)
            continue;
        all.fitting.merge(share.fitting);
        all.near.merge(share.near);
        all.slices.merge(share.slices);
        all.evaluated += share.evaluated;
        for (const auto &[rule, count] : share.rejected)
            all.rejected[rule] += count;
    }
    for (const auto &[rule, count] : all.rejected)
        outcome.rejected[rule] += count;
    outcome.evaluated = all.evaluated;
    outcome.seconds = secondsSince(begin);
    choose(outcome, all);
    outcome.cancelled = m_options.stop.stop_requested();
    return outcome;
}

} // namespace

Result<Outcome> search(const spec::JobSpec &job, const predict::CostModel &cost, const Options &options)
{
    if (options.devices < 1 || options.devices > 1 << 20)
        return Error::make(Code::Usage, "out of range", "--gpus")
            .withFound(std::to_string(options.devices))
            .withExpected("1 to 1048576");
    RY_ASSIGN(Outcome outcome, Search(job, cost, options).run());
    if (job.layout.world() > options.devices) {
        outcome.notes.push_back("the job's own layout has " + std::to_string(job.layout.world())
                                + " ranks, more than the " + std::to_string(options.devices)
                                + " devices: it has no price here");
    } else if (const auto current =
                   options.price && !outcome.cancelled ? price(job, cost) : weigh(job, cost)) {
        outcome.current = *current;
    } else {
        outcome.notes.push_back("the job's own layout has no price: " + current.error().text());
    }
    outcome.notes.push_back(
        "usable memory: the device's, less driver context, communication buffers and 4 % headroom");
    if (options.price)
        outcome.notes.push_back(
            "best: peak memory and time by the layout's programs; pareto and near: closed form");
    return outcome;
}

} // namespace rankyard::search
