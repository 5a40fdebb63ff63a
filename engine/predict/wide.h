// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"
#include "engine/predict/capacity.h"
#include "engine/predict/closed_memory.h"
#include "engine/predict/published.h"
#include "engine/spec/plan_only.h"

#include <string>
#include <vector>

/// Jobs that can be planned and not run (spec/plan_only.h): experts, latent attention, squared ReLU, 8 and 4 bits. No program describes
/// them, so all is closed form: times as of published runs (validate predicts rows by the same function), memory by arithmetic.
namespace rankyard::predict {

struct WidePlan {
    Run run;
    StepTime step;
    double params = 0;       ///< of the model
    double activeParams = 0; ///< that a token passes
    double flops = 0;        ///< of a step, Model3
    double mfu = 0;
    double tflopsPerDevice = 0;
    Capacity capacity;
    std::vector<ClosedMemory> stages; ///< bytes of a rank
    double peak() const;
};

/// The shape that a wide job means. BadJob: an unknown model, experts or latent attention with parts missing.
Result<Shape> shapeOf(const spec::WideJob &job);
/// Bytes of activations that a token keeps of one layer, from its forward to its backward, in 16 bits with fused attention and without
/// dropout: every tensor that a backward reads. `tp`, sequence parallelism as in the job.
double keptBytes(const Shape &shape, const Micro &micro, Recompute recompute);
/// BadJob where the layout does not divide the shape; NotHere and DoesNotFit as costModelOf() and `plan` have them.
Result<WidePlan> planWide(const spec::WideJob &job, const cluster::Cluster &cluster);
/// What its figures stand on, a sentence each.
const std::vector<std::string> &wideNotes();

} // namespace rankyard::predict
