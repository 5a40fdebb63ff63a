// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

/// The passes that build a step program, in the order in which makePlan runs them. Each takes the program as the ones before
/// left it; a new strategy is a new pass between them.
namespace rankyard::plan {

/// What a pass works on. One thread; the program belongs to the caller.
struct PassContext {
    const spec::JobSpec &job;
    StepProgram &program;

    bool training() const { return program.kind == ProgramKind::Train; }
    bool hasGroup(const std::string &name) const { return group(name) != none; }
    GroupId group(const std::string &name) const;
};

/// Tensors, and LoadBatch, Forward, BackwardInput and BackwardWeight of all units and micro-batches of the stage in the order
/// of its schedule, with the Sends and Recvs between stages.
void stagePass(PassContext context);
/// Sums and gathers over the tensor group; with sequence parallelism rows of the residual stream; the loss in two.
void tensorPass(PassContext context);
/// The attention core in blocks, keys and values round the context group.
void contextPass(PassContext context);
/// Activations that backward computes again.
void recomputePass(PassContext context);
/// Inputs of layers that are computed again, in slices or on the host until the backward needs them.
void savedPass(PassContext context);
/// Packs tensors into buckets in reverse forward order and reduces each over its group after its last gradient.
void bucketPass(PassContext context);
/// Reductions of gradients as codes: encoded, gathered, and decoded into their sum.
void compressPass(PassContext context);
/// ZeRO 2 and 3: each micro-batch's gradients in storage of their own, reduced into this rank's slice as soon as they are whole.
void gradientShardPass(PassContext context);
/// Reductions of gradients in another type than they accumulate in.
void convertPass(PassContext context);
/// ZeRO 3 and parameters on the host: brings each unit's parameters before their uses, ahead by the prefetch budget, and lets them
/// go after.
void unitGatherPass(PassContext context);
/// ZeRO 1 and 2: gathers the parameters at the head of the program, in forward order.
void gatherPass(PassContext context);
/// Gradient norm, the reduction of `stats`, the step's scalars, the optimizer.
void tailPass(PassContext context);
/// Reductions and gathers over the replicas in single steps, round the ring or to each peer.
void ringPass(PassContext context);
/// Optimizer states outside the device: sub-groups of the step are staged on the host, copies ahead of the updates and behind.
void offloadPass(PassContext context);
/// Waits between streams and releases of transient buffers, both minimal.
void dependPass(PassContext context);
/// Arenas and offsets, over all programs of a job at once.
void placePass(std::vector<StepProgram> &programs);

// ---- For passes ----

BufferId addBuffer(StepProgram &program, std::string name, MemoryKind kind, DType dtype,
                   std::vector<std::int64_t> shape);
/// A persistent one.
BufferId addState(StepProgram &program, std::string name, MemoryKind kind, DType dtype,
                  std::vector<std::int64_t> shape);
/// Makes `child` a view at `offset` bytes of `parent`.
void makeView(StepProgram &program, BufferId child, BufferId parent, std::int64_t offset);

/// Appends with the next id.
Op &appendOp(StepProgram &program, Op op);
/// Ops to put in: each before the op with that id in the program as it is (its size: at the end).
using Insertions = std::vector<std::pair<OpId, Op>>;
/// Inserts, keeps the order of equal places, renumbers, and translates the waits of the ops that were there. Waits of
/// inserted ops must refer to ops that were there.
void insertOps(StepProgram &program, Insertions insertions);

/// Sums over neighbours in the tensor group of what a bucket's gradients share with them: k and v of KV heads that have copies.
/// `gradientOf` says where a tensor's gradient is.
std::vector<Op> copyReductions(PassContext context, std::int32_t bucket,
                               const std::function<BufferId(TensorId)> &gradientOf);

/// Every so many layers, or a share of them spread evenly: 0.5 is every second.
bool recomputes(const spec::Recompute &recompute, std::int32_t layer);

/// Whether a tensor's gradient may be reduced in a lossy form: where each of its elements is on one rank of the tensor group
/// only. Copies would drift apart, as each would be encoded among other neighbours.
bool compresses(const spec::JobSpec &job, const Tensor &tensor);

/// Takes out buffers that no op, tensor or bucket refers to, and numbers the rest anew.
void dropUnused(StepProgram &program);

/// Says of each op with gradients whether it is the first to write them.
void markAccumulation(StepProgram &program);

} // namespace rankyard::plan
