// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/step_program.h"
#include "engine/spec/job.h"

#include <array>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace rankyard::plan {

/// Coordinates of a rank on the layout's axes, and who shares a group with it. Order: `layout.order`, first axis fastest.
class RankGrid
{
public:
    explicit RankGrid(const spec::Layout &layout);

    int world() const { return m_world; }
    /// Coordinate of `rank` on "tp", "cp", "dp" or "pp".
    int coordinate(int rank, const std::string &axis) const;
    /// Global ranks of the group of `rank` over `axes`, ascending; contains `rank`.
    std::vector<int> members(int rank, const std::vector<std::string> &axes) const;
    /// The ranks that share a group of a program with `rank`, ascending; empty when it is in none (Pick::Ends).
    std::vector<int> members(int rank, const Group &group) const;
    /// Place of `rank` among the group's members; −1 when it is in none.
    int indexIn(int rank, const Group &group) const;
    Role role(int rank) const;

private:
    struct Axis {
        std::string name;
        int size;
        int stride;
    };
    std::vector<Axis> m_axes;
    int m_world = 1;
};

/// All programs of a job, one a kind and role, over one set of arenas.
struct Plan {
    spec::JobSpec job;
    RankGrid grid;
    std::vector<StepProgram> programs;

    const StepProgram &program(ProgramKind kind, int rank) const;
    bool has(ProgramKind kind) const;
    /// Digest over the digests of all programs: what agent and workers compare.
    std::string digest() const;
};

/// How far makePlan goes: each depth costs several times the one before.
enum class PlanDepth : std::uint8_t {
    Ordered, ///< train programs with their waits and releases: enough for time lines and traffic
    Placed,  ///< all programs, in their arenas
    Checked, ///< with digests, and verified: what may run
};

/// Runs the passes, in this order: units of the stage by its schedule → transfers of the tensor group → rings of the context
/// group → recomputation → saved inputs elsewhere → gradient buckets and reductions → compression → gradients and parameters in shards → parameter gathers → rings written out → optimizer
/// tail → dependencies (waits, releases) → placement; then the verifier. Deterministic: equal jobs give equal digests anywhere.
/// Code::Stopped soon after `stop` is requested.
Result<Plan> makePlan(const spec::JobSpec &job, PlanDepth depth = PlanDepth::Checked,
                      const std::stop_token &stop = {});
/// What makePlan refuses, without planning: features, combinations, divisibility, sizes.
Status checkJob(const spec::JobSpec &job);

/// Ops of a step's program over all stages, before it is planned: within a factor of 1.5.
double estimatedOps(const spec::JobSpec &job);

/// Ranks that share the slices of a bucket with zero.shard, 0 where all replicas do.
std::int64_t shardRanks(const spec::JobSpec &job);
/// Layers of each pipeline stage, its chunks together: `layout.stages`, or balanced with the head's operations.
std::vector<std::int64_t> layersByStage(const spec::JobSpec &job);

/// Bytes by memory kind of one rank: the arenas of the plan. `peak` is their sum.
struct MemoryReport {
    std::array<std::int64_t, memoryKindCount> bytes{};
    std::int64_t peak = 0;
    /// Most bytes of a kind alive at once in any program, each buffer rounded up to 64: bytes[k] ÷ live[k] is what packing loses.
    std::array<std::int64_t, memoryKindCount> live{};
    std::int64_t liveAtOnce =
        0; ///< the same over all kinds at one moment; below the sum of `live` when kinds peak apart
};
MemoryReport memoryOf(const Plan &plan, Role role);
MemoryReport memoryOf(const Plan &plan, int rank);

/// Payload and wire bytes that one rank sends per step, by group name. Wire: 2·(n−1)/n·payload for all-reduce,
/// (n−1)/n·payload for reduce-scatter and all-gather (ring formula; Thakur et al. 2005).
struct Traffic {
    std::int64_t payload = 0;
    std::int64_t wire = 0;
};
std::map<std::string, Traffic> trafficOf(const Plan &plan, int rank);
std::int64_t wireBytes(OpKind kind, std::int64_t payload, int groupSize);

/// Each violated invariant is one error that names the op: every buffer defined before use and written by somebody, released
/// once and never used after, conflicting accesses ordered by streams and waits, no two live buffers overlapping in an arena,
/// waits acyclic, collectives of one group in one order and equal payload on every member, no deadlock under zero buffering.
Status verify(const StepProgram &program);
/// The members' programs against each other, each of which has passed verify(): one rank a role stands for its peers. Also that
/// the program covers the job's micro-batches, and that state lies where the other programs of the role have it.
Status verifyTogether(const Plan &plan, ProgramKind kind);
/// Groups and progress with every rank's own program, by rank.
Status verifyTogether(std::span<const StepProgram *const> programs, const RankGrid &grid);

/// `rankyardctl plan --json` (DESIGN 3.2), with `alive` of each rank beside the arenas: what packing and kinds that peak apart add to
/// it; without times: who has a cost model of the cluster adds them. Traffic and programs of each
/// stage in `stages`, the most of any stage above.
OrderedJson planReport(const Plan &plan);
/// `plan --tensors`: of every stage's tensors name, shape on a rank and of the model, bucket, and the flat ranges of every rank.
OrderedJson tensorReport(const Plan &plan);

} // namespace rankyard::plan
