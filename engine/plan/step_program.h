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
    AllReduce, ///< in place on reads[0] == writes[0]
    ReduceScatter, ///< writes[0] becomes slice `rank in group` of the sum of reads[0], of which the rest is undefined after
    AllGather, ///< writes[0] becomes the slices reads[0] of all, by rank in group
    Send,      ///< reads[0] to the Recv of the same channel on the peer
    Recv,      ///< writes[0] from the Send of the same channel on the peer
    Shift, ///< around the ring: reads[0] goes to the rank `peer` places after, writes[0] comes from the one before
    Copy,     ///< writes[0] = reads[0], between arenas; with rows these elements of the larger one of the two
    Add,      ///< writes[0] += reads[0]; without `accumulate` writes[0] = reads[0]; in the type of writes[0]
    Encode,   ///< gradients to their compressed form
    Decode,   ///< sums of the compressed contributions of a group, in its ranks' order
    GradNorm, ///< per-parameter sums of squares of the gradients that this rank owns, into `stats`
    StepScalars, ///< from the reduced `stats`: loss, gradient norm, overflow, clip factor, vote
    Optimizer,   ///< one fused pass over this rank's slice of a bucket
};

enum class UnitKind : std::uint8_t { None, Embedding, Attention, Mlp, Head };

struct Unit {
    UnitKind kind = UnitKind::None;
    std::int32_t layer = none; ///< of Attention and Mlp
    bool operator==(const Unit &) const = default;
};

enum class Segment : std::uint8_t {
    None,
    Lookup,
    Join,
    Norm,
    Qkv,
    Kv,   ///< context parallelism: packs keys and values for the ring
    Core, ///< one op, or one a context-parallel block
    Out,
    Up,
    Act, ///< the MLP's activation alone, when backward computes it again
    Down,
    Logits, ///< tensor parallelism: logits of this rank's part of the vocabulary and their statistics
    Loss,
};
constexpr int segmentCount = 13;

/// What a reader draws in one row. Ops of a stream are first in, first out, but Send and Recv: see `laneOf`.
enum class Stream : std::uint8_t { Compute, Tensor, Data, Pipeline, Copy };
constexpr int streamCount = 5;

/// Directed stage pairs of a pipeline, by what flows: a Send meets the Recv of its channel on the peer, first in, first out.
enum class Channel : std::uint8_t {
    ForwardUp,    ///< activations to the stage after (peer + 1)
    ForwardDown,  ///< activations to the stage before: the second chunk of a V (peer − 1)
    BackwardDown, ///< gradients against ForwardUp (peer − 1)
    BackwardUp,   ///< gradients against ForwardDown (peer + 1)
};
constexpr int channelCount = 4;
/// Streams, then a lane for the Sends and one for the Recvs of each channel.
constexpr int laneCount = streamCount + 2 * channelCount;

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

/// One arena per memory kind, sharing and tier. `bytes` is the maximum over the programs of a job.
struct Arena {
    ArenaId id = none;
    MemoryKind kind = MemoryKind::Activations;
    std::int64_t bytes = 0;
    bool shared = false; ///< in a memfd that the peers of this host map
    bool disk = false;   ///< a mapped file of the NVMe tier: its bytes are no memory
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
    bool disk = false;       ///< in a file of the NVMe tier
    bool persistent = false; ///< lives over all steps (parameters, gradients, optimizer): never released
    /// A view: the bytes lie inside `parent`, at `viewOffset` + ((rank in `sliceGroup`) + sliceShift mod its size) · bytes.
    BufferId parent = none;
    std::int64_t viewOffset = 0;
    GroupId sliceGroup = none;
    std::int32_t sliceShift =
        0;                  ///< of a reduction in steps: whose slice, that of the rank so many places after
    TensorId tensor = none; ///< the parameter whose value or gradient this is
    bool operator==(const Buffer &) const = default;
};

/// Which of the n ranks that share `axes`, ascending, are in a rank's group.
enum class Pick : std::uint8_t {
    All,
    Inner, ///< blocks of `size` neighbours: shards inside a node, copies of a KV head
    Outer, ///< every (n / size)-th: the same place of all blocks
    Ends,  ///< the first and the last: a tied embedding. The others are in no such group
};

struct Group {
    GroupId id = none;
    std::string
        name; ///< "tp", "cp", "pp", "dp", "dp-cp", "tp-dp", "shard", "replicas", "kv", "embedding", "world": as reports and charts call it
    std::vector<std::string> axes; ///< of the layout: {"dp"}
    std::int32_t size = 1; ///< ranks in it, > 1: groups of one need no collectives and are not in a program
    Pick pick = Pick::All;
    bool operator==(const Group &) const = default;
};

/// One op. A transfer of an activation or its gradient carries the unit, segment and micro-batch of what it moves. `reads` and `writes` stand in the order of the table in units.h; a buffer in both is updated in place.
struct Op {
    OpId id = none;
    OpKind kind = OpKind::Forward;
    Unit unit;
    Segment segment = Segment::None;
    std::int32_t microbatch = none;
    std::int32_t chunk =
        none; ///< of Head.logits and loss; the block of a core; the bucket of ops without a unit
    std::int64_t rowBegin =
        0; ///< of Head.logits and loss: the tokens of this chunk; of Optimizer and Copy: elements of the slice
    std::int64_t rowEnd = 0;
    Stream stream = Stream::Compute;
    GroupId group = none; ///< of transfers
    std::int32_t peer =
        0; ///< of Send, Recv, Shift: the other rank's place in the group is own + peer, modulo its size
    std::int32_t channel = none; ///< of Send and Recv: a Channel
    bool accumulate = false;     ///< gradients are added to what is there; false: written (beta = 0)
    std::vector<BufferId> reads;
    std::vector<BufferId> writes;
    std::vector<BufferId> releases; ///< dead after this op: what nothing later reads
    std::vector<OpId> waits; ///< ops of other streams that must be done before; own stream's order is implied
    std::int64_t payload = 0; ///< logical bytes of a collective
    std::int64_t flops = 0;   ///< multiply and add count two
    bool operator==(const Op &) const = default;
};

/// A run of rows or columns that tensor parallelism divides: q, k and v of qkv, gate and up of a gated MLP, else the whole
/// axis. Rank t of the tensor group has [t / copies · local, + local) of its `global` rows; rows from `global` on are padding.
struct Section {
    std::int64_t global = 0;
    std::int64_t local = 0;
    std::int32_t copies = 1; ///< neighbours that have the same rows: KV heads when there are fewer than ranks
    bool operator==(const Section &) const = default;
};

/// A logical parameter tensor: owns storage, named canonically, referred to by units (DESIGN 1.2).
struct Tensor {
    TensorId id = none;
    std::string name;
    std::vector<std::int64_t> shape;  ///< on this rank
    std::vector<std::int64_t> global; ///< of the model
    std::int64_t numel = 0;           ///< on this rank
    std::int32_t index = none; ///< place in modelTensors(): of its random numbers and of its sum in `stats`
    std::int32_t axis =
        none; ///< the dimension that is divided over the tensor group; none: all have the whole
    std::vector<Section> sections; ///< along `axis`, in order; empty without one
    bool counted = true; ///< in norm and checkpoints; false for the last stage's copy of a tied embedding
    std::int32_t bucket = none;
    std::int64_t offset = 0; ///< elements from the bucket's begin
    bool decay = true;       ///< weight decay applies
    BufferId param = none;   ///< views in this program; none where the bucket is gathered for each use
    BufferId grad = none;    ///< none in eval programs, and where each micro-batch has its own
    bool operator==(const Tensor &) const = default;
};

/// A piece of the flat parameter and gradient storage that is reduced and gathered as one, padded to `slices` equal slices.
struct Bucket {
    std::int64_t numel = 0;  ///< of its tensors
    std::int64_t padded = 0; ///< elements with padding: a multiple of `slices`
    std::int32_t slices = 1; ///< ranks of `group` for ZeRO ≥ 1, else 1
    GroupId group = none;    ///< gradients are summed over it; none when no other rank holds this bucket
    GroupId replicas = none; ///< the slices are then summed over it: blocks that hold the same shards
    GroupId tie = none;      ///< the slices are then summed over it: the two copies of a tied embedding
    std::vector<TensorId> tensors; ///< by offset
    BufferId param = none;         ///< none with ZeRO 3: gathered for each use
    BufferId grad = none; ///< none with ZeRO 2 and 3: each micro-batch has its own, reduced into gradSlice
    BufferId paramSlice = none; ///< this rank's slices; the whole bucket when slices = 1
    BufferId gradSlice = none;
    BufferId exp1 = none; ///< first and second moment, master copy (none when compute is the master type)
    BufferId exp2 = none;
    BufferId master = none;
    BufferId error =
        none; ///< what compressed reductions have left out so far, of all of the bucket on each rank, without padding
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
    /// The small reduced vector, fp64: [Σ squares per tensor of the model …, loss sum, non-finite count, vote]; places: StatsSlot. Persistent;
    /// before op 0 of every run of a program the executor fills it with zeros and puts its vote in.
    BufferId stats = none;

    const Buffer &buffer(BufferId id) const { return buffers[static_cast<std::size_t>(id)]; }
    const Op &op(OpId id) const { return ops[static_cast<std::size_t>(id)]; }
    bool operator==(const StepProgram &) const = default;
};

/// Places in `stats`, in elements after the per-tensor sums. Loss: added once a token of the global batch (by tensor rank 0).
enum StatsSlot : int { StatsLoss = 0, StatsNonFinite = 1, StatsVote = 2, statsSlots = 3 };

/// Ops of one lane are first in, first out.
int laneOf(const Op &op);

const char *nameOf(ProgramKind kind);
const char *nameOf(OpKind kind);
const char *nameOf(UnitKind kind);
const char *nameOf(Segment segment);
const char *nameOf(Stream stream);
const char *nameOf(MemoryKind kind);
const char *nameOf(Pick pick);
/// All ranks of the group do it together: reductions, gathers, and a Shift.
bool isCollective(OpKind kind);
bool isTransfer(OpKind kind); ///< collectives, Send and Recv
/// "attn(3).qkv", "embedding.lookup", "head.loss"; "" for ops without a unit.
std::string placeName(Unit unit, Segment segment);
/// "op 17 (forward attn(3).qkv, micro-batch 0)": how errors, logs and tool tips call an op.
std::string opName(const Op &op);

/// Where a buffer begins in its arena for the rank with index `sliceRank` in the buffer's slice group (RankGrid::indexIn;
/// ignored without one).
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
