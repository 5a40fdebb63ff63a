// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/base/units.h"

#include <cstdint>
#include <string>
#include <vector>

/// The step program: everything that one rank does in a training step, written down before it runs (DESIGN section 1).
/// Planned once, then predicted, executed, drawn, taught and checked. Plain data, no behaviour; any thread may read it.
namespace rankyard::plan {

using OpId = std::int32_t;     ///< dense from 0; also the op's place in program order
using BufferId = std::int32_t; ///< dense from 0
using ArenaId = std::int32_t;
using GroupId = std::int32_t;
using TensorId = std::int32_t;
constexpr std::int32_t none = -1;

enum class ProgramKind : std::uint8_t { Train, Eval, Gather };

enum class OpKind : std::uint8_t {
    LoadBatch, ///< tokens and labels of a micro-batch into their buffers
    Forward,
    BackwardInput,
    BackwardWeight,
    Recompute,
    AllReduce,     ///< in place on reads[0] == writes[0]
    ReduceScatter, ///< in place: slice `rank in group` of writes[0] becomes the sum, the rest is undefined
    AllGather,     ///< in place: slice `rank in group` of writes[0] goes to everybody
    Send,
    Recv,
    Copy,
    GradNorm,    ///< per-parameter sums of squares of the gradients that this rank owns, into `stats`
    StepScalars, ///< from the reduced `stats`: loss, gradient norm, overflow, clip factor, vote
    Optimizer,   ///< one fused pass over this rank's slice of a bucket
};

enum class UnitKind : std::uint8_t { None, Embedding, Attention, Mlp, Head };

struct Unit {
    UnitKind kind = UnitKind::None;
    std::int32_t layer = none; ///< of Attention and Mlp
    bool operator==(const Unit &) const = default;
};

enum class Segment : std::uint8_t { None, Lookup, Join, Norm, Qkv, Core, Out, Up, Down, Loss };

enum class Stream : std::uint8_t { Compute, Tensor, Data, Pipeline, Copy };
constexpr int streamCount = 5;

/// What a byte is for: the rows of every memory report, bar and legend.
enum class MemoryKind : std::uint8_t {
    Params,
    Grads,
    Optimizer,
    Activations,
    Gathered,
    Buckets,
    Workspace,
    Host
};
constexpr int memoryKindCount = 8;

/// One arena per memory kind and sharing. `bytes` is the maximum over the programs of a job.
struct Arena {
    ArenaId id = none;
    MemoryKind kind = MemoryKind::Activations;
    std::int64_t bytes = 0;
    bool shared = false; ///< in a memfd that the peers of this host map
    bool operator==(const Arena &) const = default;
};

struct Buffer {
    BufferId id = none;
    std::string name; ///< "layers.0.attn.qkv.weight", "grad:…", "layers.0.attn.x@1" (micro-batch 1)
    MemoryKind kind = MemoryKind::Activations;
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;
    ArenaId arena = none;
    std::int64_t offset =
        0; ///< in the arena, set by placement, aligned to 64; of a view: its begin for slice 0
    std::int64_t bytes = 0;
    bool shared = false;
    bool persistent = false; ///< lives over all steps (parameters, gradients, optimizer): never released
    /// A view: the bytes lie inside `parent`, at `viewOffset` + (rank in `sliceGroup`) · bytes.
    BufferId parent = none;
    std::int64_t viewOffset = 0;
    GroupId sliceGroup = none;
    bool operator==(const Buffer &) const = default;
};

struct Group {
    GroupId id = none;
    std::string name;              ///< "dp", "dp-cp", "world": as reports and charts call it
    std::vector<std::string> axes; ///< of the layout: {"dp"}
    std::int32_t size = 1; ///< ranks in it, > 1: groups of one need no collectives and are not in a program
    bool operator==(const Group &) const = default;
};

/// One op. `reads` and `writes` stand in the order of the table in units.h; a buffer in both is updated in place.
struct Op {
    OpId id = none;
    OpKind kind = OpKind::Forward;
    Unit unit;
    Segment segment = Segment::None;
    std::int32_t microbatch = none;
    std::int32_t chunk = none; ///< of Head.loss; the bucket of ReduceScatter, AllGather, GradNorm, Optimizer
    std::int64_t rowBegin = 0; ///< of Head.loss: the tokens of this chunk
    std::int64_t rowEnd = 0;
    Stream stream = Stream::Compute;
    GroupId group = none;    ///< of collectives
    std::int32_t peer = 0;   ///< of Send and Recv: offset on the group's axis
    bool accumulate = false; ///< gradients are added to what is there; false: written (beta = 0)
    std::vector<BufferId> reads;
    std::vector<BufferId> writes;
    std::vector<BufferId> releases; ///< dead after this op: what nothing later reads
    std::vector<OpId> waits; ///< ops of other streams that must be done before; own stream's order is implied
    std::int64_t payload = 0; ///< logical bytes of a collective
    std::int64_t flops = 0;   ///< multiply and add count two
    bool operator==(const Op &) const = default;
};

/// A logical parameter tensor: owns storage, named canonically, referred to by units (DESIGN 1.2).
struct Tensor {
    TensorId id = none;
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t numel = 0;
    std::int32_t bucket = none;
    std::int64_t offset = 0; ///< elements from the bucket's begin
    bool decay = true;       ///< weight decay applies
    BufferId param = none;   ///< views in this program
    BufferId grad = none;    ///< none in eval programs
    bool operator==(const Tensor &) const = default;
};

/// A piece of the flat parameter and gradient storage that is reduced and gathered as one, padded to `slices` equal slices.
struct Bucket {
    std::int64_t numel = 0;  ///< of its tensors
    std::int64_t padded = 0; ///< elements with padding: a multiple of `slices`
    std::int32_t slices = 1; ///< dp for ZeRO ≥ 1, else 1
    GroupId group = none;    ///< gradients are summed over it; none when no other rank holds this bucket
    std::vector<TensorId> tensors; ///< by offset
    BufferId param = none;
    BufferId grad = none;
    BufferId paramSlice = none; ///< this rank's slices; the whole bucket when slices = 1
    BufferId gradSlice = none;
    BufferId exp1 = none; ///< first and second moment, master copy (none when compute is the master type)
    BufferId exp2 = none;
    BufferId master = none;
    bool operator==(const Bucket &) const = default;
};

/// Which program of a job: same for all ranks with this role.
struct Role {
    std::int32_t stage = 0;
    bool operator==(const Role &) const = default;
};

struct StepProgram {
    std::string digest; ///< XXH3-128 of the canonical JSON without the digest, hex
    ProgramKind kind = ProgramKind::Train;
    Role role;
    std::vector<Group> groups;
    std::vector<Arena> arenas;
    std::vector<Buffer> buffers;
    std::vector<Tensor> tensors;
    std::vector<Bucket> buckets;
    std::vector<Op> ops;
    /// The small reduced vector, fp64: [Σ squares per tensor …, loss sum, non-finite count, vote]; places: StatsSlot. Persistent;
    /// before op 0 of every run of a program the executor fills it with zeros and puts its vote in.
    BufferId stats = none;

    const Buffer &buffer(BufferId id) const { return buffers[static_cast<std::size_t>(id)]; }
    const Op &op(OpId id) const { return ops[static_cast<std::size_t>(id)]; }
    bool operator==(const StepProgram &) const = default;
};

/// Places in `stats`, in elements after the per-tensor sums.
enum StatsSlot : int { StatsLoss = 0, StatsNonFinite = 1, StatsVote = 2, statsSlots = 3 };

const char *nameOf(ProgramKind kind);
const char *nameOf(OpKind kind);
const char *nameOf(UnitKind kind);
const char *nameOf(Segment segment);
const char *nameOf(Stream stream);
const char *nameOf(MemoryKind kind);
bool isCollective(OpKind kind);
/// "attn(3).qkv", "embedding.lookup", "head.loss"; "" for ops without a unit.
std::string placeName(Unit unit, Segment segment);
/// "op 17 (forward attn(3).qkv, micro-batch 0)": how errors, logs and tool tips call an op.
std::string opName(const Op &op);

/// Where a buffer begins in its arena for the rank with index `sliceRank` in the buffer's slice group (ignored without one).
std::int64_t offsetOf(const StepProgram &program, BufferId id, int sliceRank);
/// Elements of a shape; 1 for an empty one.
std::int64_t numelOf(const std::vector<std::int64_t> &shape);

/// `rankyard/program/1` (DESIGN 1.4); what has its default value is left out. readProgram(writeProgram(p)) == p; a malformed document is an error, never a crash.
OrderedJson writeProgram(const StepProgram &program);
Result<StepProgram> readProgram(const Json &document, const std::string &name);
/// The digest of the program as it stands.
std::string digestOf(const StepProgram &program);
/// One line an op, for people: "  17 compute forward  mlp(3).up mb 0  reads … writes … waits …".
std::string describe(const StepProgram &program);

} // namespace rankyard::plan
