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

/// `layout.stages` has the layers of each virtual stage, with one stage too: every pass relies on it.
Status checkPartition(const spec::JobSpec &job, std::int64_t stages)
{
    const auto &given = job.layout.stages;
    if (!given)
        return {};
    std::string found;
    std::int64_t sum = 0;
    bool legal = static_cast<std::int64_t>(given->size()) == stages;
    for (std::size_t i = 0; i < given->size() && i < 65; ++i)
        found += (i == 0 ? "" : ", ") + (i < 64 ? std::to_string((*given)[i]) : "...");
    for (std::size_t i = 0; i < given->size() && legal; ++i) {
        const std::int64_t layers = (*given)[i];
        const std::int64_t least = i > 0 && i + 1 == given->size() ? 0 : 1;
        legal = layers >= least && layers <= job.model.layers - sum;
        sum += legal ? layers : 0;
    }
    if (legal && sum == job.model.layers)
        return {};
    return refused("layout.stages",
                   "must be the layers of each virtual stage in order, at least one in each but the last, "
                   "together model.layers",
                   "[" + found + "]",
                   "null, or " + std::to_string(stages) + (stages == 1 ? " number" : " numbers")
                       + " with the sum " + std::to_string(job.model.layers));
}

/// What a schedule asks of micro-batches, chunks and layers.
Status checkStages(const spec::JobSpec &job)
{
    const spec::Layout &layout = job.layout;
    const std::int64_t stages = layout.pp * layout.virtualStages;
    const bool chunked = layout.schedule == "interleaved" || layout.schedule == "zbv";
    if (layout.virtualStages != 1 && (!chunked || layout.pp == 1))
        return refused("layout.virtual", "needs pp > 1 and the schedule interleaved or zbv",
                       std::to_string(layout.virtualStages), "1");
    if (layout.pp > 1 && layout.schedule == "zbv" && layout.virtualStages != 2)
        return refused("layout.virtual", "zbv has two chunks a stage", std::to_string(layout.virtualStages),
                       "2");
    if (job.model.layers < stages - 1) {
        // Every virtual stage but the last has a layer.
        const std::int64_t most = (job.model.layers + 1) / layout.virtualStages;
        const std::string other = "model.layers " + std::to_string(stages - 1);
        return refused("layout.pp",
                       "layout.pp · layout.virtual = " + std::to_string(stages) + " stages are too many for "
                           + std::to_string(job.model.layers) + " layers: only the last may lack one",
                       std::to_string(layout.pp),
                       most > 1 || layout.virtualStages == 1 ? std::to_string(most) + ", or " + other
                                                             : other);
    }
    if (layout.pp > 1 && layout.schedule == "interleaved" && job.microBatches() % layout.pp != 0) {
        const std::int64_t unit = layout.dp * job.batch.micro * layout.pp;
        return refused("batch.global",
                       "interleaved needs a number of micro-batches that layout.pp divides: a multiple of "
                       "layout.dp · batch.micro · layout.pp",
                       std::to_string(job.batch.global),
                       std::to_string(spec::nearestMultiple(unit, job.batch.global)));
    }
    return checkPartition(job, stages);
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

/// Whether what a tensor group of `tp` ranks divides can be divided.
bool divides(const spec::JobSpec &job, std::int64_t tp)
{
    const spec::Model &model = job.model;
    const std::int64_t rows = job.batch.micro * model.seq / job.layout.cp;
    return model.heads % tp == 0 && model.ffnSize() % tp == 0
        && (model.keyHeads() % tp == 0 || tp % model.keyHeads() == 0)
        && (!job.layout.sequenceParallel || rows % tp == 0);
}

/// "layout.tp 4", the nearest that divides all that it has to; the smaller one of two.
std::string nearestTensor(const spec::JobSpec &job)
{
    const std::int64_t wish = job.layout.tp;
    for (std::int64_t far = 0; far < wish; ++far) {
        for (const std::int64_t tp : {wish - far, wish + far}) {
            if (divides(job, tp))
                return "layout.tp " + std::to_string(tp);
        }
    }
    return "layout.tp 1";
}

/// Sequences that the context group and, for sequence parallelism, the tensor group divide: multiples of this.
std::int64_t sequenceUnit(const spec::Layout &layout)
{
    const std::int64_t halves = layout.cp > 1 ? 2 * layout.cp : 1;
    return layout.sequenceParallel ? std::lcm(halves, layout.cp * layout.tp) : halves;
}

/// Divisibility over the tensor and context group, stages and their schedule.
Status checkLayout(const spec::JobSpec &job)
{
    const spec::Model &model = job.model;
    const spec::Layout &layout = job.layout;
    for (const auto &[path, value] : {std::pair{"layout.tp", layout.tp},
                                      {"layout.cp", layout.cp},
                                      {"layout.pp", layout.pp},
                                      {"layout.virtual", layout.virtualStages}}) {
        if (value < 1 || value > 65536)
            return refused(path, "out of range", std::to_string(value), "1 to 65536");
    }
    RY_TRY(checkRanks(layout));
    if (model.heads % model.keyHeads() != 0)
        return refused("model.kv_heads", "must divide model.heads", std::to_string(model.keyHeads()),
                       std::to_string(spec::nearestDivisor(model.heads, model.keyHeads())));
    for (const auto &[path, value] :
         {std::pair{"model.heads", model.heads}, {"model.ffn", model.ffnSize()}}) {
        if (value % layout.tp != 0)
            return refused(path, "must be a multiple of layout.tp = " + std::to_string(layout.tp),
                           std::to_string(value),
                           nearestTensor(job) + ", or " + path + " "
                               + std::to_string(spec::nearestMultiple(layout.tp, value)));
    }
    if (model.keyHeads() % layout.tp != 0 && layout.tp % model.keyHeads() != 0)
        return refused("model.kv_heads",
                       "must divide layout.tp = " + std::to_string(layout.tp) + " or be a multiple of it",
                       std::to_string(model.keyHeads()), nearestTensor(job));
    const std::string sequence = std::to_string(spec::nearestMultiple(sequenceUnit(layout), model.seq));
    if (layout.cp > 1 && model.seq % (2 * layout.cp) != 0)
        return refused("model.seq",
                       "must be a multiple of 2 · layout.cp = " + std::to_string(2 * layout.cp)
                           + ": each rank has two chunks of each sequence",
                       std::to_string(model.seq), sequence);
    const std::int64_t rows = job.batch.micro * model.seq / layout.cp;
    if (layout.sequenceParallel && rows % layout.tp != 0)
        return refused("layout.sequence_parallel",
                       "a micro-batch has " + std::to_string(rows) + " tokens a rank, which layout.tp = "
                           + std::to_string(layout.tp) + " does not divide",
                       "true", "false, or model.seq " + sequence + ", or " + nearestTensor(job));
    return checkStages(job);
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
    if (job.zero.stage < 0 || job.zero.stage > 3)
        return refused("zero.stage", "out of range", std::to_string(job.zero.stage), "0 to 3");
    if (job.zero.stage >= 2 && job.layout.pp > 1)
        return refused(
            "zero.stage",
            "with pipeline stages every micro-batch would reduce (2) or gather (3) each stage again; nearest: "
            "zero.stage 1, or layout.pp 1 with layout.dp "
                + std::to_string(job.layout.dp * job.layout.pp),
            std::to_string(job.zero.stage), "1");
    const std::int64_t replica = job.layout.dp * job.batch.micro;
    if (job.batch.global % replica != 0) {
        return refused("batch.global", "must be a multiple of dp · micro", std::to_string(job.batch.global),
                       std::to_string((job.batch.global + replica - 1) / replica * replica));
    }
    const double tokens = static_cast<double>(job.batch.micro) * static_cast<double>(model.seq);
    const double widest =
        static_cast<double>(std::max({model.hidden * 3, model.ffnSize(), model.vocab, model.heads}));
    if (tokens * widest > 1e15 || widest * static_cast<double>(model.hidden) > 1e15)
        return Error::make(Code::DoesNotFit, "one tensor would have more than 10^15 elements", "model");
    RY_TRY(checkSubGroups(job));
    const double ops =
        static_cast<double>(job.microBatches()) * static_cast<double>(22 * model.layers + 8 * job.layout.pp);
    // A plan takes about 1 KB and 5 µs an op and processor core: two million are 2 GB.
    constexpr double mostOps = 2e6;
    if (ops > mostOps)
        return Error::make(Code::DoesNotFit, "the programs of a step would have too many ops to be planned",
                           job.model.layers > 500 ? "model.layers" : "batch.global")
            .withFound("about " + formatCount(ops))
            .withExpected("at most " + formatCount(mostOps))
            .withHint("Fewer layers, or fewer micro-batches in a step (a larger batch.micro) make fewer");
    return {};
}

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
    RY_TRY(checkCombination(job));
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
