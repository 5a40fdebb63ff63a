// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/cluster/cluster.h"
#include "engine/predict/capacity.h"
#include "engine/predict/closed_memory.h"
#include "engine/predict/footprint.h"

#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

/// The layouts of a model on a cluster: every legal one weighed in closed form, the best priced by their programs.
namespace rankyard::search {

/// What the search chooses; the rest is the job's.
struct Choice {
    std::int32_t tp = 1, cp = 1, pp = 1, dp = 1;
    std::int32_t virtualStages = 1;
    std::int32_t micro = 1;
    std::int32_t microBatches = 1;
    std::int8_t zero = 0;
    predict::Schedule schedule = predict::Schedule::OneFOneB;
    predict::Recompute recompute = predict::Recompute::None;
    bool sequenceParallel = false;
    bool offloadOptimizer = false;
    bool operator==(const Choice &) const = default;
};
/// The job with this layout.
spec::JobSpec jobOf(const spec::JobSpec &job, const Choice &choice);
Choice choiceOf(const spec::JobSpec &job);
/// The job's keys that it sets, with their values, in the job's order.
std::vector<std::pair<const char *, Json>> keysOf(const Choice &choice);
struct Change {
    std::string path; ///< "layout.tp"
    Json from;
    Json to;
};
std::vector<Change> changesOf(const Choice &from, const Choice &to);
/// And what of the job no choice has (layout.stages, zero.shard, recompute.every …), which goes back to its default.
std::vector<Change> changesOf(const spec::JobSpec &job, const Choice &to);
/// "dp8·tp8·pp4·z1 mb 4, full recompute, 1f1b".
std::string textOf(const Choice &choice);

struct Candidate {
    Choice choice;
    predict::StepTime time; ///< of `priced` ones: seconds, low and high scaled to the program's
    double bytes = 0;       ///< peak of the fullest rank on its device
    double hostBytes = 0;
    int stage = 0;     ///< where that peak is
    double margin = 0; ///< usable bytes that are left; negative: does not fit, there or in the host's memory
    double mfu = 0;
    bool priced = false; ///< by its programs: bytes and seconds are theirs
    std::string why;     ///< what bounds it, in words
};

/// Of the whole work, where the best are priced: until then every layout is weighed.
constexpr double weighing = 0.1;

struct Options {
    int devices = 1;
    int top = 10;
    int threads = 0; ///< 0: as many as there are cores
    bool price = true;
    std::stop_token stop{}; ///< cancels: the result says so
    std::function<void(double share)> progress =
        {}; ///< of the whole work, from the calling thread, now and then
};

struct Outcome {
    std::int64_t evaluated = 0; ///< legal layouts weighed
    double seconds = 0;         ///< that took, without pricing
    double pricingSeconds = 0;
    bool cancelled = false;
    predict::Capacity capacity;
    spec::JobSpec job;             ///< that candidates change
    Choice own;                    ///< its layout
    Candidate current;             ///< what it costs; 0 seconds when it is not legal or has too many ranks
    std::vector<Candidate> best;   ///< by time
    std::vector<Candidate> pareto; ///< no other is both faster and smaller; by memory
    std::vector<Candidate>
        near; ///< faster than the best by the closed form, but does not fit: fastest first, with the reason
    std::map<std::string, std::int64_t> rejected; ///< by rule
    std::vector<std::string> notes;
};

/// Deterministic: the same input gives the same answer on any number of threads.
Result<Outcome> search(const spec::JobSpec &job, const predict::CostModel &cost, const Options &options);

/// The job's layout in closed form, without a search.
Result<Candidate> weigh(const spec::JobSpec &job, const predict::CostModel &cost);
/// The same by the job's programs.
Result<Candidate> price(const spec::JobSpec &job, const predict::CostModel &cost);

/// `rankyardctl search --json` (DESIGN 3.2).
OrderedJson reportOf(const Outcome &outcome);
OrderedJson reportOf(const Candidate &candidate);

} // namespace rankyard::search
