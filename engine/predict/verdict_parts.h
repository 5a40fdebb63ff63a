// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/closed_memory.h"
#include "engine/predict/verdict.h"

/// Private to the verdict: its parts, in the order in which judge() calls them.
namespace rankyard::predict {

/// The job on its places.
struct Ground {
    const spec::JobSpec &job;
    const cluster::Cluster &cluster;
    cluster::Slots slots;
    const Json &document;
    const Options &options;
    std::optional<CostModel> cost{}; ///< of the cluster's devices

    bool placed() const { return job.layout.world() <= slots.count(); }
    bool stopped() const { return options.stop.stop_requested(); }
};

/// The worst link over all groups of one kind.
cluster::Slots::Worst worstOfKind(const Ground &ground, const plan::RankGrid &grid, const plan::Group &group);

/// Bytes of a slot's device, and what the driver takes of them. On a node without GPUs: its memory over the ranks on it, less what
/// capacityOf() keeps back, for no driver is a rank's there.
struct Room {
    std::int64_t capacity = 0;
    std::int64_t context = 0;
};
Room roomOf(const Ground &ground, int slot);

/// Problems that only the cluster shows, and what would be better: places, islands, idle devices, memory.
void addAdvice(const Ground &ground, Verdict &verdict);
/// The headline numbers.
void addFigures(const Ground &ground, Verdict &verdict);

/// What the figures of a step's time are made of, beside the verdict's times.
struct StepFacts {
    std::int64_t batch = 0; ///< sequences, of all ranks
    std::int64_t seq = 0;
    std::int64_t ranks = 0;
    double peak = 0; ///< FLOP/s of a device
    double targetTokens = 0;
    std::string source; ///< of the times
};
void addTimeFigures(const StepFacts &facts, Verdict &verdict);
/// Of the stage with the least left.
void addMemoryFigures(Verdict &verdict);
/// None without stages, or without times.
void addBubbleFigure(const spec::JobSpec &job, Verdict &verdict);
/// A stage's memory, kind by kind (keys are plan::nameOf of the kind), with the arithmetic of closed_memory.h that leads to each.
std::vector<Figure> memoryFigures(const spec::JobSpec &job, const ClosedStage &closed);
/// Named, without a value.
Figure memoryFigure(plan::MemoryKind kind);
/// The same kinds with what `stage.report` has of them, and what is kept back of the device.
void renewFigures(StageMemory &stage);
/// Closed forms as bytes by kind.
plan::MemoryReport reportOf(const ClosedMemory &closed);

} // namespace rankyard::predict
