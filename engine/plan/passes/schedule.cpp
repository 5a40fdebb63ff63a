// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/schedule.h"

#include "engine/plan/passes/pass.h"
#include "engine/plan/units.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace rankyard::plan {

namespace {

/// Forward FLOPs of a layer and of the head on one rank; what they cost relative to each other.
struct Costs {
    double layer = 0;
    double head = 0;
};

Costs costsOf(const spec::JobSpec &job)
{
    const std::int64_t tokens = Split(job).tokens;
    Costs costs;
    for (const Segment segment : {Segment::Qkv, Segment::Core, Segment::Out, Segment::Up, Segment::Down})
        costs.layer += static_cast<double>(opFlops(job, OpKind::Forward, segment, tokens));
    costs.head = static_cast<double>(opFlops(job, OpKind::Forward, Segment::Loss, tokens));
    return costs;
}

/// Layers of the last stage; the others share the rest, one more for the later ones.
std::int64_t layersOfLast(std::int64_t layers, std::int64_t stages, const Costs &costs)
{
    std::int64_t best = 0;
    double least = HUGE_VAL;
    for (std::int64_t last = 0; last <= layers; ++last) {
        const std::int64_t rest = layers - last;
        if (rest < stages - 1)
            break; // the others need a layer each
        const double others =
            std::ceil(static_cast<double>(rest) / static_cast<double>(stages - 1)) * costs.layer;
        const double slowest = std::max(others, static_cast<double>(last) * costs.layer + costs.head);
        if (slowest < least || (slowest == least && last > 0)) {
            least = slowest;
            best = last;
        }
    }
    return best;
}

using Actions = std::vector<Action>;

void add(Actions &actions, ActionKind kind, std::int32_t chunk, std::int32_t microbatch)
{
    actions.push_back({kind, chunk, microbatch});
}

Actions gpipe(std::int32_t m)
{
    Actions actions;
    for (std::int32_t i = 0; i < m; ++i)
        add(actions, ActionKind::Forward, 0, i);
    for (std::int32_t i = 0; i < m; ++i)
        add(actions, ActionKind::Backward, 0, i);
    return actions;
}

Actions oneForwardOneBackward(std::int32_t m, std::int32_t pp, std::int32_t stage)
{
    Actions actions;
    const std::int32_t warmUp = std::min(pp - stage - 1, m);
    for (std::int32_t i = 0; i < m + warmUp; ++i) {
        if (i < m)
            add(actions, ActionKind::Forward, 0, i);
        if (i >= warmUp)
            add(actions, ActionKind::Backward, 0, i - warmUp);
    }
    return actions;
}

/// The n-th forward (or backward, chunks reversed) of a rank: groups of pp micro-batches through chunk 0, then chunk 1, …
Action interleavedAction(ActionKind kind, std::int32_t n, std::int32_t pp, std::int32_t chunks)
{
    const std::int32_t inGroup = n % (pp * chunks);
    const std::int32_t chunk = inGroup / pp;
    return {kind, kind == ActionKind::Forward ? chunk : chunks - 1 - chunk,
            n / (pp * chunks) * pp + inGroup % pp};
}

Actions interleaved(std::int32_t m, std::int32_t pp, std::int32_t chunks, std::int32_t stage)
{
    Actions actions;
    const std::int32_t all = m * chunks;
    const std::int32_t warmUp = std::min(2 * (pp - stage - 1) + (chunks - 1) * pp, all);
    for (std::int32_t n = 0; n < all + warmUp; ++n) {
        if (n < all)
            actions.push_back(interleavedAction(ActionKind::Forward, n, pp, chunks));
        if (n >= warmUp)
            actions.push_back(interleavedAction(ActionKind::Backward, n - warmUp, pp, chunks));
    }
    return actions;
}

/// The weight part runs `stage` backwards late: every stage holds pp micro-batches, and the last weights fill the drain.
Actions zeroBubbleH1(std::int32_t m, std::int32_t pp, std::int32_t stage)
{
    Actions actions;
    const std::int32_t warmUp = std::min(pp - stage - 1, m);
    std::int32_t weights = 0;
    for (std::int32_t i = 0; i < m + warmUp; ++i) {
        if (i < m)
            add(actions, ActionKind::Forward, 0, i);
        if (i < warmUp)
            continue;
        add(actions, ActionKind::BackwardInput, 0, i - warmUp);
        if (i - warmUp >= stage)
            add(actions, ActionKind::BackwardWeight, 0, weights++);
    }
    while (weights < m)
        add(actions, ActionKind::BackwardWeight, 0, weights++);
    return actions;
}

/// Planned for at least 2·pp − 1 micro-batches; those that the step does not have are left out.
Actions zeroBubbleV(std::int32_t microbatches, std::int32_t pp, std::int32_t stage)
{
    Actions actions;
    const std::int32_t m = std::max(2 * pp - 1, microbatches);
    std::int32_t forwards[2] = {0, 0};
    std::int32_t inputs[2] = {0, 0};
    std::int32_t weights[2] = {0, 0};
    const auto next = [&](ActionKind kind, std::int32_t chunk) {
        auto *counts = kind == ActionKind::Forward ? forwards
            : kind == ActionKind::BackwardInput    ? inputs
                                                   : weights;
        if (const std::int32_t i = counts[chunk]++; i < microbatches)
            add(actions, kind, chunk, i);
    };
    const auto backward = [&](std::int32_t chunk) {
        next(ActionKind::BackwardInput, chunk);
        next(ActionKind::BackwardWeight, chunk);
    };
    for (std::int32_t i = 0; i < 2 * (pp - stage) - 1; ++i)
        next(ActionKind::Forward, 0);
    for (std::int32_t i = 0; i < stage; ++i) {
        next(ActionKind::Forward, 1);
        next(ActionKind::Forward, 0);
    }
    for (std::int32_t i = 0; i < pp - stage; ++i) {
        next(ActionKind::Forward, 1);
        backward(1);
    }
    while (forwards[1] < forwards[0] || forwards[0] < m) {
        if (forwards[0] < m)
            next(ActionKind::Forward, 0);
        backward(0);
        next(ActionKind::Forward, 1);
        backward(1);
    }
    for (std::int32_t i = 0; i < stage; ++i) {
        next(ActionKind::BackwardInput, 0);
        next(ActionKind::BackwardInput, 1);
    }
    for (std::int32_t i = 0; i < pp - stage; ++i)
        backward(0);
    for (const std::int32_t chunk : {1, 0}) {
        while (weights[chunk] < inputs[chunk])
            next(ActionKind::BackwardWeight, chunk);
    }
    return actions;
}

/// What a stage's chunks hold of one micro-batch, bytes by chunk.
std::vector<LayerBytes> chunkBytes(const spec::JobSpec &job, std::int32_t stage)
{
    const LayerBytes plain = layerBytes(job, false);
    const LayerBytes again = layerBytes(job, true);
    const std::vector<StageSpan> spans = stageSpans(job);
    std::vector<LayerBytes> chunks;
    for (std::int32_t chunk = 0; chunk < chunksOf(job); ++chunk) {
        const StageSpan &span = spans[static_cast<std::size_t>(virtualStageOf(job, stage, chunk))];
        LayerBytes &bytes = chunks.emplace_back();
        for (std::int32_t i = span.begin; i < span.end; ++i) {
            const LayerBytes &layer = recomputes(job.recompute, i) ? again : plain;
            bytes.kept += layer.kept;
            bytes.pending += layer.pending;
        }
    }
    return chunks;
}

/// Keeps what a stage holds within p micro-batches and a chunk: where the next action would not fit, the oldest weight parts come
/// first (Qi et al. 2023, section 3.1: "W to recycle memory"); a backward that does not fit at all is not parted.
Actions withinMemory(const Actions &planned, const std::vector<LayerBytes> &chunks, std::int64_t pp)
{
    const auto of = [&](std::int32_t chunk) { return chunks[static_cast<std::size_t>(chunk)]; };
    std::int64_t limit = 0;
    for (const LayerBytes &chunk : chunks)
        limit += pp * chunk.kept;
    Actions actions;
    std::deque<Action> pending;
    std::int64_t held = 0;
    const auto makeRoom = [&](std::int64_t bytes, std::int64_t most) {
        for (; held + bytes > most && !pending.empty(); pending.pop_front()) {
            actions.push_back(pending.front());
            held -= of(pending.front().chunk).pending;
        }
        return held + bytes <= most;
    };
    for (Action action : planned) {
        const LayerBytes bytes = of(action.chunk);
        const std::int64_t most = limit + bytes.kept;
        if (action.kind == ActionKind::Forward) {
            makeRoom(bytes.kept, most);
            held += bytes.kept;
        } else if (action.kind == ActionKind::BackwardInput) {
            if (makeRoom(bytes.pending - bytes.kept, most)) {
                pending.push_back({ActionKind::BackwardWeight, action.chunk, action.microbatch});
                held += bytes.pending;
            } else {
                action.kind = ActionKind::Backward;
            }
            held -= bytes.kept;
        } else if (const auto found = std::find(pending.begin(), pending.end(), action);
                   found != pending.end()) {
            pending.erase(found);
            held -= bytes.pending;
        } else {
            continue; // done earlier
        }
        actions.push_back(action);
    }
    return actions;
}

} // namespace

std::int32_t chunksOf(const spec::JobSpec &job)
{
    return static_cast<std::int32_t>(job.layout.virtualStages);
}

std::int32_t virtualStageOf(const spec::JobSpec &job, std::int32_t stage, std::int32_t chunk)
{
    const auto pp = static_cast<std::int32_t>(job.layout.pp);
    const bool back = job.layout.schedule == "zbv" && chunk == 1;
    return back ? 2 * pp - 1 - stage : chunk * pp + stage;
}

StagePlace placeOfVirtualStage(const spec::JobSpec &job, std::int32_t virtualStage)
{
    const auto pp = static_cast<std::int32_t>(job.layout.pp);
    const std::int32_t chunk = virtualStage / pp;
    const bool back = job.layout.schedule == "zbv" && chunk == 1;
    return {back ? 2 * pp - 1 - virtualStage : virtualStage % pp, chunk};
}

std::vector<StageSpan> stageSpans(const spec::JobSpec &job)
{
    const std::int64_t stages = job.layout.pp * job.layout.virtualStages;
    const std::int64_t layers = job.model.layers;
    std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers);
    if (job.layout.stages) {
        counts = *job.layout.stages;
    } else if (stages > 1) {
        const std::int64_t last = layersOfLast(layers, stages, costsOf(job));
        const std::int64_t rest = layers - last;
        for (std::int64_t s = 0; s < stages - 1;
             ++s) // the first has the embedding: the later ones take one more
            counts[static_cast<std::size_t>(s)] = (rest + s) / (stages - 1);
        counts.back() = last;
    }
    std::vector<StageSpan> spans;
    std::int32_t next = 0;
    for (const std::int64_t count : counts) {
        spans.push_back({next, next + static_cast<std::int32_t>(count), spans.empty(), false});
        next = spans.back().end;
    }
    spans.back().head = true;
    return spans;
}

std::vector<std::int64_t> layersByStage(const spec::JobSpec &job)
{
    std::vector<std::int64_t> layers(static_cast<std::size_t>(job.layout.pp), 0);
    const std::vector<StageSpan> spans = stageSpans(job);
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const StagePlace place = placeOfVirtualStage(job, static_cast<std::int32_t>(i));
        layers[static_cast<std::size_t>(place.stage)] += spans[i].end - spans[i].begin;
    }
    return layers;
}

std::vector<Action> trainSchedule(const spec::JobSpec &job, std::int32_t stage)
{
    const auto m = static_cast<std::int32_t>(job.microBatches());
    const auto pp = static_cast<std::int32_t>(job.layout.pp);
    const std::string &schedule = job.layout.schedule;
    if (pp == 1)
        return oneForwardOneBackward(m, 1, 0);
    if (schedule == "gpipe")
        return gpipe(m);
    if (schedule == "interleaved")
        return interleaved(m, pp, chunksOf(job), stage);
    if (schedule == "zb-h1")
        return withinMemory(zeroBubbleH1(m, pp, stage), chunkBytes(job, stage), pp);
    if (schedule == "zbv")
        return withinMemory(zeroBubbleV(m, pp, stage), chunkBytes(job, stage), pp);
    return oneForwardOneBackward(m, pp, stage);
}

std::vector<Action> evalSchedule(const spec::JobSpec &job, std::int32_t)
{
    Actions actions;
    const auto m = static_cast<std::int32_t>(job.microBatches());
    const auto pp = static_cast<std::int32_t>(job.layout.pp);
    for (std::int32_t first = 0; first < m; first += pp) {
        for (std::int32_t chunk = 0; chunk < chunksOf(job); ++chunk) {
            for (std::int32_t i = first; i < std::min(first + pp, m); ++i)
                add(actions, ActionKind::Forward, chunk, i);
        }
    }
    return actions;
}

} // namespace rankyard::plan
