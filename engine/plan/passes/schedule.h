// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/spec/job.h"

#include <cstdint>
#include <vector>

/// Who computes which layers, and in which order a stage works off its micro-batches: plain functions of the job.
namespace rankyard::plan {

/// The layers [begin, end) of one virtual stage.
struct StageSpan {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    bool embedding = false;
    bool head = false;
};

/// Spans by virtual stage, pp · virtual of them. `layout.stages` when given; else balanced: the slowest stage is as fast as
/// it can be with whole layers, where the head counts with its FLOPs. Only the last stage may be left without a layer.
std::vector<StageSpan> stageSpans(const spec::JobSpec &job);

/// The virtual stage of a rank's chunk: chunk · pp + stage; in a V (zbv) the second chunk runs backwards, 2 · pp − 1 − stage.
std::int32_t virtualStageOf(const spec::JobSpec &job, std::int32_t stage, std::int32_t chunk);
/// Chunks a rank holds: layout.virtual.
std::int32_t chunksOf(const spec::JobSpec &job);
/// The inverse: stage (rank on the pipeline axis) and chunk of a virtual stage.
struct StagePlace {
    std::int32_t stage = 0;
    std::int32_t chunk = 0;
};
StagePlace placeOfVirtualStage(const spec::JobSpec &job, std::int32_t virtualStage);

enum class ActionKind : std::uint8_t { Forward, Backward, BackwardInput, BackwardWeight };

/// A micro-batch through one chunk of a stage.
struct Action {
    ActionKind kind = ActionKind::Forward;
    std::int32_t chunk = 0;
    std::int32_t microbatch = 0;
    bool operator==(const Action &) const = default;
};

/// The actions of a stage in a training step, by `layout.schedule`:
///   gpipe        all forwards, all backwards (Huang et al. 2019)
///   1f1b         min(pp − stage − 1, m) forwards, then one forward and one backward in turn (Narayanan et al. 2019)
///   interleaved  the same over `virtual` chunks, micro-batches in groups of pp (Narayanan et al. 2021)
///   zb-h1        1f1b with the backward in two: the weight part of a micro-batch `stage` backwards later (Qi et al. 2023)
///   zbv          two chunks in a V (Qi et al. 2024, with PyTorch's order of actions)
/// Both are held to the memory that their papers promise: p micro-batches of the stage, and what one chunk in work has beyond. A
/// layer that is computed again holds more from its input's to its weights' gradient than it kept before; then weight parts come
/// earlier, or are not parted at all, and some of the bubble comes back.
std::vector<Action> trainSchedule(const spec::JobSpec &job, std::int32_t stage);
/// Forwards only, chunk after chunk for each group of pp micro-batches.
std::vector<Action> evalSchedule(const spec::JobSpec &job, std::int32_t stage);

} // namespace rankyard::plan
