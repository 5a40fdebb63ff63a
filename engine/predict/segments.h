// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/cost.h"
#include "engine/predict/shape.h"

/// What one segment of a unit takes on one rank (plan/units.h has the table of segments). The closed form sums them over a layer; the
/// durations of a program look them up op by op: one mechanism.
namespace rankyard::predict {

/// How a micro-batch is cut before it meets the kernels.
struct Micro {
    std::int64_t sequences = 1; ///< of the micro-batch
    std::int64_t tp = 1;
    std::int64_t cp = 1;
    std::int64_t ep = 1;
    bool sequenceParallel = false;
    bool fusedAttention = true;
    /// As our own programs have it: full recomputation leaves out what only the next layer needs (down and the second join), "attention"
    /// recomputes norms and activations as well, sequence parallelism gathers the inputs of qkv and up again for their weights.
    bool ours = false;
    bool frozen = false; ///< only adapters are trained: no gradients of weights
    Precision precision = Precision::Bf16;
    bool operator==(const Micro &) const = default;
};

/// Sizes on one rank; the letters of units.h.
struct Local {
    double tokens = 0, rows = 0;                                                ///< T, R
    double hidden = 0, headDim = 0, heads = 0, kvHeads = 0, ffn = 0, vocab = 0; ///< H, D, A, K, F, V
    double seq = 0;
    double bytes = 2; ///< of an activation
    bool gated = false;
    bool fusedAttention = true;
    bool sharedVocab =
        false; ///< the ranks of a tensor group have a part each: logits are an op of their own before the loss
    Precision precision = Precision::Bf16;

    Local(const Shape &shape, const Micro &micro);
    double queryWidth() const { return heads * headDim; }
    double width() const { return queryWidth() + 2 * kvHeads * headDim; }
};

/// Seconds of an op of this kind (Forward, BackwardInput, BackwardWeight, Recompute) on `tokens` tokens; 0 for what does nothing.
/// Of Loss: `tokens` are the chunk's; a train program's Forward of it has its two gradients in it, `withGradients`; the logits
/// themselves only where no op before it makes them.
double segmentSeconds(const CostModel &cost, const Local &local, plan::OpKind kind, plan::UnitKind unit,
                      plan::Segment segment, double tokens, bool withGradients = true);
/// How many kernels it launches.
int segmentKernels(plan::OpKind kind, plan::Segment segment);

} // namespace rankyard::predict
