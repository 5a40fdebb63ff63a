// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/plan.h"

#include "engine/base/parallel.h"
#include "engine/plan/combine.h"
#include "engine/plan/digest.h"
#include "engine/plan/passes/pass.h"
#include "engine/plan/units.h"
#include "engine/spec/job_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>

namespace rankyard::plan {

namespace {

Error refused(std::string path, std::string what, std::string found, std::string expected)
{
    return Error::make(Code::BadJob, std::move(what), std::move(path))
        .withFound(std::move(found))
        .withExpected(std::move(expected));
}

/// What the passes of this version do not know yet.
Status checkFeatures(const spec::JobSpec &job)
{
    if (job.recompute.every < 1 || job.recompute.ratio.value_or(0) < 0 || job.recompute.ratio.value_or(0) > 1)
        return refused("recompute.every", "out of range", std::to_string(job.recompute.every), "1");
    return {};
}

/// Ranks are numbered by 32 bits, and reports have a line for each.
Status checkRanks(const spec::Layout &layout)
{
    constexpr std::int64_t most = std::int64_t(1) << 20;
    const std::pair<const char *, std::int64_t> axes[] = {{"layout.dp", layout.dp},
                                                          {"layout.tp", layout.tp},
                                                          {"layout.cp", layout.cp},
                                                          {"layout.pp", layout.pp}};
    std::int64_t world = 1;
    for (const auto &[path, size] : axes) {
        if (size > most / world)
            return refused(path, "more ranks than can be planned", std::to_string(size),
                           "at most " + std::to_string(most / world));
        world *= size;
    }
    return {};
}

/// Axes and their schedule.
Status checkLayout(const spec::JobSpec &job)
{
    const spec::Layout &layout = job.layout;
    for (const auto &[path, value] : {std::pair{"layout.tp", layout.tp},
                                      {"layout.cp", layout.cp},
                                      {"layout.pp", layout.pp},
                                      {"layout.virtual", layout.virtualStages}}) {
        if (value < 1 || value > 65536)
            return refused(path, "out of range", std::to_string(value), "1 to 65536");
    }
    if (job.zero.stage < 0 || job.zero.stage > 3)
        return refused("zero.stage", "out of range", std::to_string(job.zero.stage), "0 to 3");
    RY_TRY(checkRanks(layout));
    return check(layoutRules(), job);
}

/// Elements that a rank updates, over the stages of one plan: what the offloaded optimizer cuts into sub-groups.
double updatedElements(const spec::JobSpec &job)
{
    double elements = 0;
    for (const TensorSpec &tensor : modelTensors(job))
        elements += static_cast<double>(numelOf(tensor.shape));
    const std::int64_t replicas = job.layout.dp * job.layout.cp;
    const std::int64_t slices = job.zero.stage == 0 ? 1 : shardRanks(job) > 0 ? shardRanks(job) : replicas;
    return elements / static_cast<double>(slices * job.layout.tp);
}

/// Each sub-group has ops and staging buffers of its own: up to 7 KB and 140 µs (measured, states in files).
Status checkSubGroups(const spec::JobSpec &job)
{
    if (job.offload.optimizer == "none")
        return {};
    constexpr double most = 65536;
    const double elements = updatedElements(job);
    if (job.zero.subGroup > 0 && elements / static_cast<double>(job.zero.subGroup) <= most)
        return {};
    return refused("zero.sub_group", "the optimizer's update would have too many sub-groups to be planned",
                   std::to_string(job.zero.subGroup),
                   "at least " + std::to_string(static_cast<std::int64_t>(std::ceil(elements / most))));
}

/// What the passes rely on, whoever made the job. The reader of jobs says the same in its own words and earlier.
Status checkShape(const spec::JobSpec &job)
{
    const spec::Model &model = job.model;
    constexpr std::int64_t most = std::int64_t(1) << 24;
    const auto inRange = [&](const char *path, std::int64_t value) -> Status {
        if (value < 1 || value > most)
            return refused(path, "out of range", std::to_string(value), "1 to " + std::to_string(most));
        return {};
    };
    RY_TRY(inRange("model.layers", model.layers));
    RY_TRY(inRange("model.hidden", model.hidden));
    RY_TRY(inRange("model.heads", model.heads));
    RY_TRY(inRange("model.ffn", model.ffnSize()));
    RY_TRY(inRange("model.seq", model.seq));
    RY_TRY(inRange("model.vocab", model.vocab));
    RY_TRY(inRange("batch.micro", job.batch.micro));
    RY_TRY(inRange("layout.dp", job.layout.dp));
    RY_TRY(inRange("batch.global", job.batch.global));
    RY_TRY(inRange("model.kv_heads", model.keyHeads()));
    RY_TRY(inRange("model.head_dim", model.headSize()));
    if (!model.headDim && model.hidden % model.heads != 0)
        return refused("model.heads", "must divide model.hidden, or model.head_dim be given",
                       std::to_string(model.heads), "a divisor of " + std::to_string(model.hidden));
    RY_TRY(checkLayout(job));
    const double tokens = static_cast<double>(job.batch.micro) * static_cast<double>(model.seq);
    const double widest =
        static_cast<double>(std::max({model.hidden * 3, model.ffnSize(), model.vocab, model.heads}));
    if (tokens * widest > 1e15 || widest * static_cast<double>(model.hidden) > 1e15)
        return Error::make(Code::DoesNotFit, "one tensor would have more than 10^15 elements", "model");
    RY_TRY(checkSubGroups(job));
    const double ops = estimatedOps(job);
    // A plan takes about 1 KB and 5 µs an op and processor core: two million are 2 GB.
    constexpr double mostOps = 2e6;
    if (ops > mostOps)
        return Error::make(Code::DoesNotFit, "the programs of a step would have too many ops to be planned",
                           job.comm.algorithm != "library" ? "comm.algorithm"
                               : job.model.layers > 500    ? "model.layers"
                                                           : "batch.global")
            .withFound("about " + formatCount(ops))
            .withExpected("at most " + formatCount(mostOps))
            .withHint(
                "Fewer layers, fewer micro-batches in a step (a larger batch.micro), larger buckets where "
                "reductions are written out in steps make fewer");
    return {};
}

} // namespace

double estimatedOps(const spec::JobSpec &job)
{
    const spec::Layout &layout = job.layout;
    const auto cp = static_cast<double>(layout.cp);
    const double layer = 22 + (layout.tp > 1 ? 6 : 0) + (layout.cp > 1 ? 5 * cp : 0)
        + (job.recompute.mode != "none" ? 6 + 2 * cp : 0);
    const double chunks = std::ceil(static_cast<double>(Split(job).tokens)
                                    / static_cast<double>(std::max<std::int64_t>(1, lossChunkTokens(job))));
    const double micro =
        layer * static_cast<double>(job.model.layers) + 8 * static_cast<double>(layout.pp) + 2 * chunks;
    const std::vector<TensorSpec> tensors = modelTensors(job);
    double bytes = 0;
    for (const TensorSpec &tensor : tensors)
        bytes += static_cast<double>(numelOf(tensor.shape)
                                     * static_cast<std::int64_t>(bytesOf(job.precision.grad)))
            / static_cast<double>(layout.tp);
    const std::int64_t ranks = layout.dp * layout.cp;
    // Buckets do not cut tensors.
    const double buckets = ranks == 1 ? 0
                                      : std::min(static_cast<double>(tensors.size()),
                                                 std::ceil(bytes / static_cast<double>(job.zero.bucketBytes))
                                                     + static_cast<double>(layout.pp));
    const double each = job.comm.algorithm != "library" ? 2 * static_cast<double>(ranks)
        : job.zero.stage >= 2                           ? 2 + static_cast<double>(job.microBatches())
                                                        : 2;
    return static_cast<double>(job.microBatches()) * micro + buckets * each;
}

namespace {

/// The groups that this layout has. Which of them a rank is in, the grid says.
void addGroups(StepProgram &program, const spec::JobSpec &job)
{
    const spec::Layout &layout = job.layout;
    const auto add = [&](const char *name, std::vector<std::string> axes, std::int64_t size,
                         Pick pick = Pick::All) {
        if (size > 1)
            program.groups.push_back({static_cast<GroupId>(program.groups.size()), name, std::move(axes),
                                      static_cast<std::int32_t>(size), pick});
    };
    const bool context = layout.cp > 1;
    add(context ? "dp-cp" : "dp",
        context ? std::vector<std::string>{"cp", "dp"} : std::vector<std::string>{"dp"},
        layout.dp * layout.cp);
    add("world", {"tp", "cp", "dp", "pp"}, layout.world());
    add("tp", {"tp"}, layout.tp);
    add("cp", {"cp"}, layout.cp);
    add("pp", {"pp"}, layout.pp);
    if (layout.tp > 1 && layout.sequenceParallel)
        add(context ? "tp-dp-cp" : "tp-dp",
            context ? std::vector<std::string>{"tp", "cp", "dp"} : std::vector<std::string>{"tp", "dp"},
            layout.tp * layout.cp * layout.dp);
    // Shards inside blocks of neighbours, the same shard of all blocks.
    if (const std::int64_t shard = shardRanks(job); shard > 0) {
        const std::int64_t blocks = layout.dp * layout.cp / shard;
        const std::vector<std::string> axes =
            context ? std::vector<std::string>{"cp", "dp"} : std::vector<std::string>{"dp"};
        std::vector<std::string> rowAxes = axes;
        rowAxes.insert(rowAxes.begin(), "tp");
        add("shard", axes, shard, Pick::Inner);
        add("replicas", axes, blocks, Pick::Outer);
        if (layout.tp > 1 && layout.sequenceParallel) {
            add("tp-shard", rowAxes, shard * layout.tp, Pick::Inner);
            add("tp-replicas", rowAxes, blocks, Pick::Outer);
        }
    }
    add("kv", {"tp"}, Split(job).keyCopies, Pick::Inner);
    const bool ends = program.role.stage == 0 || program.role.stage == layout.pp - 1;
    const bool apart = layout.pp > 1 && layout.schedule != "zbv"; // in a V the first stage has both ends
    if (job.model.tied && ends && apart)
        add("embedding", {"pp"}, 2, Pick::Ends);
}

StepProgram buildProgram(const spec::JobSpec &job, ProgramKind kind, std::int32_t stage)
{
    StepProgram program;
    program.kind = kind;
    program.role.stage = stage;
    addGroups(program, job);
    const PassContext context{job, program};
    stagePass(context);
    tensorPass(context);
    contextPass(context);
    recomputePass(context);
    savedPass(context);
    bucketPass(context);
    compressPass(context);
    gradientShardPass(context);
    convertPass(context);
    markAccumulation(program);
    unitGatherPass(context);
    gatherPass(context);
    ringPass(context);
    tailPass(context);
    offloadPass(context);
    dropUnused(program);
    dependPass(context);
    return program;
}

/// The programs of a stage, which share its arenas.
Result<std::vector<StepProgram>> buildStage(const spec::JobSpec &job, std::int32_t stage, PlanDepth depth,
                                            const std::stop_token &stop)
{
    const auto stopped = [] { return Error::make(Code::Stopped, "planning was stopped"); };
    std::vector<StepProgram> role;
    if (stop.stop_requested())
        return stopped();
    role.push_back(buildProgram(job, ProgramKind::Train, stage));
    if (depth == PlanDepth::Ordered)
        return role;
    if (stop.stop_requested())
        return stopped();
    role.push_back(buildProgram(job, ProgramKind::Eval, stage));
    placePass(role);
    for (StepProgram &program : role) {
        if (depth != PlanDepth::Checked)
            break;
        if (stop.stop_requested())
            return stopped();
        program.digest = digestOf(program);
        RY_TRY(verify(program));
    }
    return role;
}

} // namespace

const StepProgram &Plan::program(ProgramKind kind, int rank) const
{
    const Role role = grid.role(rank);
    const auto found = std::find_if(programs.begin(), programs.end(),
                                    [&](const StepProgram &p) { return p.kind == kind && p.role == role; });
    return found != programs.end() ? *found : programs.front();
}

bool Plan::has(ProgramKind kind) const
{
    return std::any_of(programs.begin(), programs.end(),
                       [&](const StepProgram &p) { return p.kind == kind; });
}

std::string Plan::digest() const
{
    std::string text;
    for (const StepProgram &program : programs)
        text += program.digest + "\n";
    return digestOfText(text);
}

namespace {

/// With what the passes read: fp64 is fp64 throughout.
spec::JobSpec planned(const spec::JobSpec &asked)
{
    spec::JobSpec job = asked;
    if (job.precision.compute == DType::F64)
        job.precision.grad = job.precision.master = job.precision.reduce = DType::F64;
    return job;
}

} // namespace

Status checkJob(const spec::JobSpec &asked)
{
    const spec::JobSpec job = planned(asked);
    RY_TRY(checkFeatures(job));
    RY_TRY(check(combinations(), job));
    return checkShape(job);
}

Result<Plan> makePlan(const spec::JobSpec &asked, PlanDepth depth, const std::stop_token &stop)
{
    RY_TRY(checkJob(asked));
    const spec::JobSpec job = planned(asked);
    Plan plan{job, RankGrid(job.layout), {}};
    std::vector<std::optional<Result<std::vector<StepProgram>>>> stages(
        static_cast<std::size_t>(job.layout.pp));
    inParallel(stages.size(), processorCores(), [&](std::size_t stage, int) {
        stages[stage] = buildStage(job, static_cast<std::int32_t>(stage), depth, stop);
    });
    for (auto &stage : stages) {
        if (!*stage)
            return stage->error();
        std::move((*stage)->begin(), (*stage)->end(), std::back_inserter(plan.programs));
    }
    if (depth == PlanDepth::Checked) {
        RY_TRY(verifyTogether(plan, ProgramKind::Train));
        RY_TRY(verifyTogether(plan, ProgramKind::Eval));
    }
    return plan;
}

} // namespace rankyard::plan
