// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/step_time.h"
#include "engine/spec/job.h"

#include <vector>

/// Peak memory in closed form, for a search that weighs a million layouts a second. What a layer keeps is read off the programs of
/// one and two layers, once for each way to cut a micro-batch; the rest is arithmetic. footprint.h has the exact bytes.
namespace rankyard::predict {

/// Activations of one micro-batch on one rank, bytes.
struct UnitMemory {
    double kept = 0;      ///< of a layer, from its forward to its backward
    double work = 0;      ///< beyond what the layers keep: the layer in work, embedding and head
    double workspace = 0; ///< logits of a chunk
    double deferred =
        0; ///< of a layer, from the gradient of its input to those of its weights where schedules part them
    double passes =
        2; ///< of a layer's parameters in a micro-batch: forward, backward, and again forward where it is computed twice
    double deferrable() const { return deferred > 0 ? kept / deferred : 1; } ///< UnitTimes has what it is for
};
/// By the job's model, micro-batch, tp, cp, sequence parallelism, precision and recomputation; its other keys do not matter.
Result<UnitMemory> unitMemory(const spec::JobSpec &job);

/// Bytes of one rank of a stage, by kind.
struct ClosedMemory {
    double params = 0;
    double grads = 0;
    double optimizer = 0;
    double activations = 0;
    double gathered = 0;
    double buckets = 0;
    double workspace = 0;
    double host = 0;
    double peak() const { return params + grads + optimizer + activations + gathered + buckets + workspace; }
};

/// What of the job the search holds fixed.
struct StateBytes {
    double param = 2;
    double grad = 4;
    double optimizer = 12; ///< both moments, and the master copy where there is one
    double maxLive = 1e9;  ///< elements, of ZeRO 3
    double maxReuse = 1e9; ///< as many
    double bucket = 25e6;
    double reduce = 0; ///< of a gradient's copy in the type in which it is summed, where that is another
    bool offloadOptimizer = false; ///< to host memory, or through it to a disk
    bool onDisk = false;
    bool offloadParams = false; ///< with ZeRO 3
    double staged = 2;          ///< buffers that an update is fed from
    double subGroup = 1e9;      ///< elements of one, at most
    double largest = 0;         ///< elements of the largest tensor before tp: buckets do not cut tensors
    double widest = 0;          ///< of the largest unit: an attention, an MLP, a table
    double smallLayer = 0;  ///< of a layer's tensors that stay whole with ZeRO 3 (zero.persistence_threshold)
    double smallTables = 0; ///< of those outside of layers
    explicit StateBytes(const spec::JobSpec &job);
};

/// Stages that may have the peak, with their layers: the first, the first of those with most layers, the last.
struct PeakStages {
    struct Stage {
        int stage = 0;
        double layers = 0;
    };
    Stage first, most, last;
    explicit PeakStages(const std::vector<std::int64_t> &layersByStage);
};

struct ClosedPeak {
    ClosedMemory memory;
    int stage = 0;
    double peak() const { return memory.peak(); }
};
/// The fullest of them. No allocation.
ClosedPeak closedPeak(const StateBytes &state, const UnitTimes &unit, const UnitMemory &memory,
                      const Layout &layout, const PeakStages &stages);

/// What a stage's closed form is made of; of one rank.
struct MemoryTerms {
    double layers = 0;
    double layerParams = 0; ///< of a layer
    double tableParams = 0; ///< of embedding and head, where the stage has them
    double shards = 1;      ///< ranks that states are divided over
    double small = 0;       ///< parameters of tensors that stay whole with ZeRO 3
    double kept = 0;        ///< bytes that a layer keeps of a micro-batch
    double flight = 1;      ///< micro-batches that the stage holds at once
    double held = 0;        ///< bytes of those, with what zero-bubble schedules put off
    double work = 0;        ///< bytes of the layer in work, embedding and head
    double sent = 0;        ///< bytes that stages exchange
    double widest = 0;      ///< parameters of the widest unit
    double params() const { return layers * layerParams + tableParams; }
};
struct ClosedStage : ClosedMemory {
    MemoryTerms terms;
};

/// Every stage of a job, in order. Where layers differ in what they keep (recompute.every, recompute.ratio) the mean counts.
Result<std::vector<ClosedStage>> closedStages(const spec::JobSpec &job);

/// Micro-batches (of all a stage's layers) whose activations a stage holds at once: gpipe m; 1f1b and zb-h1 min(m, p − s);
/// interleaved ((v − 1)·p + 2·(p − s) − 1) ÷ v (Narayanan et al. 2021); zbv p (Qi et al. 2024), and
/// no more than (m + s + 1) ÷ 2.
double inFlight(const Layout &layout, int stage);

} // namespace rankyard::predict
