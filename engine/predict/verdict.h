// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"
#include "engine/plan/plan.h"
#include "engine/plan/simulate.h"
#include "engine/predict/fixes.h"
#include "engine/predict/step_time.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

/// What a layout costs on a cluster, before anything runs: the numbers of the Design page, each with where it comes from.
namespace rankyard::predict {

/// What times stand on.
enum class Basis {
    Shares, ///< operations as time: shares of a step, no seconds
    Model,  ///< the cost model of the device's family (cost.h)
};

enum class Measure { Seconds, Bytes, Count, Flop, Share, FlopRate, Days };

/// A number that opens into its formula.
struct Figure {
    std::string key;  ///< "step"
    std::string name; ///< "Step time"
    Measure measure = Measure::Count;
    double value = 0;
    double spread = 0;     ///< half of the 80 % interval; 0: none is known
    std::string formula{}; ///< "tokens / step time"
    std::vector<std::pair<std::string, std::string>> inputs{}; ///< name and value, for people
    std::string source{};                                      ///< whose formula or data
};

/// A pipeline stage: its ranks are alike.
struct StageMemory {
    int stage = 0;
    int rank = 0; ///< the first of its ranks
    plan::MemoryReport report{};
    std::vector<Figure> figures; ///< its memory kind by kind, each with its formula; then what is kept back
    std::int64_t context =
        0; ///< of the driver, communication buffers, headroom: what capacityOf() keeps back
    std::int64_t capacity = 0; ///< of the place with the least; 0: not known
    /// On the device, with `context`: what lies in host memory does not count where ranks run on GPUs.
    std::int64_t used = 0;
    std::int64_t peak() const { return used - context; } ///< its arenas there: what `plan` calls the peak
    std::int64_t headroom() const { return capacity - used; }
    /// What lies in host memory is no part of `used`: ranks run on GPUs.
    bool hostApart() const { return used != report.peak + context; }
};

/// What the ranks of one kind of group send each other in a step.
struct Flow {
    std::string group;             ///< "tp", "dp" …: Group::name
    int size = 0;                  ///< ranks of a group
    cluster::Slots::Worst worst{}; ///< over all groups of this kind
    bool placed = false;           ///< worst is known: the cluster has room for all ranks
    std::int64_t payload = 0;      ///< that one rank sends, most of all stages
    std::int64_t wire = 0;
    double seconds = 0; ///< of its transfers, busiest stage; with Basis::Shares 0
    double exposed = 0; ///< the part in which computation waits for them
};

/// How far a verdict is: judge() tells each as soon as it has it.
enum class Depth {
    Closed, ///< memory, time and problems from closed forms: milliseconds
    Timed,  ///< and the program's time line and transfers
    Whole,  ///< and the arenas of its ranks: exact memory
};

struct Verdict {
    enum class Answer {
        Illegal,    ///< cannot run: problems say why
        DoesNotFit, ///< some stage needs more memory than there is, or the cluster has too few places
        Fits,
        NotKnown, ///< runs, and the cluster does not say how much memory it has
    };
    Answer answer = Answer::Illegal;
    bool stopped = false; ///< by Options::stop: nothing else holds
    Basis basis = Basis::Shares;
    std::vector<StageMemory> stages;
    std::vector<Flow> flows;
    std::int64_t hostUsed =
        0; ///< what the ranks of the fullest node keep in its memory, where they run on GPUs
    std::int64_t hostCapacity = 0; ///< of that node; 0: not known
    double bubble = 0;             ///< share of the step, mean over stages
    std::optional<JobTime>
        time; ///< in closed form, settled with the time line once that is there; none with Basis::Shares
    Depth depth = Depth::Whole;
    std::vector<Figure> figures; ///< headline numbers in order
    std::vector<Problem> problems;
    std::vector<std::string> notes;
    std::shared_ptr<const plan::Plan>
        plan; ///< PlanDepth::Ordered; null when Illegal, and before Depth::Timed
    std::optional<plan::Timeline> timeline; ///< nanoseconds; with Basis::Shares operations

    bool isEarly() const { return depth != Depth::Whole; }
    /// A job with a section plan_only: all is closed form, and no program follows.
    bool isPlanOnly() const { return depth == Depth::Whole && answer != Answer::Illegal && !plan; }
    const Figure *figure(std::string_view key) const;
};

struct Options {
    double targetTokens = 300e9; ///< that a training is to see, for its days
    std::stop_token stop{};      ///< looked at between the parts of the work
    /// Called with Depth::Closed, then with Depth::Timed.
    std::function<void(Verdict)> early{};
};

/// Weighs the job in closed form, then plans it, places its ranks on the cluster's slots in order, and adds up. `document` is the
/// job as written, for fixes. Never throws; takes as long as makePlan and simulate do. Any thread.
Verdict judge(const spec::JobSpec &job, const cluster::Cluster &cluster, const Json &document,
              const Options &options = {});

/// The stages of a placed plan with their memory kind by kind, each with its formula; without a cluster nothing is kept back.
Result<std::vector<StageMemory>> explainMemory(const plan::Plan &plan);

/// Of a design with a section plan_only (spec/plan_only.h): planWide() with its figures. Microseconds; any thread.
Verdict judgeWide(const Json &document, const cluster::Cluster &cluster, const Options &options = {});

} // namespace rankyard::predict
