// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/segments.h"

/// How long a step takes, in closed form. Two halves: what one micro-batch costs a layer (unitTimes: cache it by Micro and recompute),
/// and how layers, stages and replicas make a step of it (combine: no allocation, a few square roots, well under a microsecond).
namespace rankyard::predict {

enum class Recompute : std::uint8_t { None, Selective, Attention, Full };
enum class Schedule : std::uint8_t { GPipe, OneFOneB, Interleaved, ZeroBubbleH1, ZeroBubbleH2, ZeroBubbleV };
const char *nameOf(Schedule schedule);
const char *nameOf(Recompute recompute);
/// As jobs call them: "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv"; "none", "selective", "attention", "full".
Schedule scheduleOf(const std::string &name);
Recompute recomputeOf(const std::string &mode);

/// Seconds of one micro-batch on one rank, with what of its tensor and context groups' transfers nothing covers; sizes in elements.
struct UnitTimes {
    // One layer, the mean over dense and sparse ones.
    double forward = 0;
    double backwardInput = 0;
    double backwardWeight = 0;
    double recompute = 0;
    double exposedTensor = 0; ///< of those, waits for tensor, context and expert groups
    double deferredTensor =
        0; ///< more of them in backwardInput where a zero-bubble schedule puts weight gradients off
    double launches = 0; ///< of those, waits for the host that launches kernels
    bool parts =
        true; ///< zero-bubble schedules put weight gradients off: not where layers are computed again whole
    double deferrable =
        1; ///< what a layer keeps over what it holds until its weights' gradients: how many a zero-bubble schedule puts off
    double embedding = 0; ///< forward and backward
    double head = 0;      ///< forward and backward
    double layers = 0;
    double layerParams = 0;  ///< on this rank, without expert parallel copies
    double expertParams = 0; ///< of those, experts: reduced over dp / ep
    double embeddingParams = 0;
    double headParams = 0;    ///< 0 where it is the embedding
    double lastParams = 0;    ///< on the last of several stages: the head, or its copy of a tied table
    double boundaryBytes = 0; ///< between stages, one direction
    double tp = 1;
    double inner = 1; ///< tp · cp: ranks that are neighbours before the data group's
    double ep = 1;
    double tokens = 0; ///< of the micro-batch, over tp and cp

    double layer() const { return forward + backwardInput + backwardWeight + recompute; }
};
UnitTimes unitTimes(const CostModel &cost, const Shape &shape, const Micro &micro, Recompute recompute);
/// Its sizes alone, which no device changes; the times are 0.
UnitTimes unitSizes(const Shape &shape, const Micro &micro);

/// The rest of the layout. Plain.
struct Layout {
    int dp = 1; ///< replicas: what gradients are reduced over, context group included elsewhere (cp)
    int cp = 1;
    int pp = 1;
    int virtualStages = 1;
    Schedule schedule = Schedule::OneFOneB;
    int zero = 0;  ///< stage
    int shard = 0; ///< ZeRO 3 inside groups of so many ranks, replicated between them; 0: all of dp
    int microBatches = 1;
    bool overlapGrads = true;
    bool overlapParams = true;
    bool scatterEach = false; ///< ZeRO 2 reduces for each micro-batch, as our programs do, not once a step
    double gradBytes = 4;     ///< of one gradient on the wire
    double paramBytes = 2;
    bool evenEnds = false; ///< embedding and head count as a layer each where stages are cut
    bool scatterSends =
        false; ///< each tensor rank sends its part of what all have to the next stage (Narayanan et al. 2021, section 4.1)
    bool keepGathered = false; ///< ZeRO 3 gathers once a step instead of for each micro-batch
    double maxLive = 1e30;     ///< parameters that ZeRO 3 has gathered at once
    double reuse =
        0; ///< elements of gathered parameters between two uses of some, up to which those stay (zero.max_reuse_distance)
};

/// Where the step goes. Seconds; they add up to `seconds`.
struct StepTime {
    double seconds = 0;
    double compute = 0;  ///< of the slowest stage, recomputation included
    double bubble = 0;   ///< it waits for other stages
    double tensor = 0;   ///< exposed: tensor, context and expert groups
    double pipeline = 0; ///< exposed sends between stages
    double data = 0;     ///< exposed reductions and gathers of the data group
    double optimizer = 0;
    double overhead = 0; ///< loader, logging, stragglers
    double launches = 0; ///< of compute: the device waits for the host's launches
    double low = 0;      ///< 80 % interval
    double high = 0;

    double bubbleShare() const { return seconds > 0 ? bubble / seconds : 0; }
};
StepTime combine(const CostModel &cost, const UnitTimes &unit, const Layout &layout);

/// Of a job on this machine. Shapes, layout and precision as its keys say.
struct JobTime {
    UnitTimes unit;
    StepTime step;
    double tflopsPerDevice = 0; ///< Model3
    double mfu = 0;
};
JobTime jobTime(const CostModel &cost, const spec::JobSpec &job);
/// A step's model FLOPs (Model3) with every rank at its peak rate in the job's type, in seconds: what the MFU of a step is measured
/// against. 0 where the cluster does not say how fast it is.
double peakSeconds(const spec::JobSpec &job, const cluster::Cluster &cluster);
Micro microOf(const spec::JobSpec &job);
Layout layoutOf(const spec::JobSpec &job);

} // namespace rankyard::predict
