// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/combine.h"
#include "engine/spec/job_table.h"

#include <algorithm>
#include <numeric>

namespace rankyard::plan {

namespace {

using spec::JobSpec;
using spec::Layout;

std::string str(std::int64_t value) { return std::to_string(value); }

std::int64_t stagesOf(const Layout &layout) { return layout.pp * layout.virtualStages; }

/// Rows of a micro-batch on a rank of the context group.
std::int64_t rowsOf(const JobSpec &job) { return job.batch.micro * job.model.seq / job.layout.cp; }

/// Whether what a tensor group of `tp` ranks divides can be divided.
bool divides(const JobSpec &job, std::int64_t tp)
{
    const spec::Model &model = job.model;
    return model.heads % tp == 0 && model.ffnSize() % tp == 0
        && (model.keyHeads() % tp == 0 || tp % model.keyHeads() == 0)
        && (!job.layout.sequenceParallel || rowsOf(job) % tp == 0);
}

/// "layout.tp 4", the nearest that divides all that it has to; the smaller one of two.
std::string nearestTensor(const JobSpec &job)
{
    const std::int64_t wish = job.layout.tp;
    for (std::int64_t far = 0; far < wish; ++far) {
        for (const std::int64_t tp : {wish - far, wish + far}) {
            if (divides(job, tp))
                return "layout.tp " + str(tp);
        }
    }
    return "layout.tp 1";
}

std::string tensorOr(const JobSpec &job, const char *path, std::int64_t value)
{
    return nearestTensor(job) + ", or " + path + " " + str(spec::nearestMultiple(job.layout.tp, value));
}

/// The nearest sequence that the context group and, for sequence parallelism, the tensor group divide.
std::int64_t nearestSequence(const JobSpec &job)
{
    const Layout &layout = job.layout;
    const std::int64_t halves = layout.cp > 1 ? 2 * layout.cp : 1;
    const std::int64_t unit = layout.sequenceParallel ? std::lcm(halves, layout.cp * layout.tp) : halves;
    return spec::nearestMultiple(unit, job.model.seq);
}

std::string multipleOfTensor(const JobSpec &job)
{
    return "must be a multiple of layout.tp = " + str(job.layout.tp);
}

bool chunked(const Layout &layout) { return layout.schedule == "interleaved" || layout.schedule == "zbv"; }

std::string virtualStages(const JobSpec &job) { return str(job.layout.virtualStages); }

/// Every virtual stage but the last has a layer.
std::string nearestStages(const JobSpec &job)
{
    const std::int64_t most = (job.model.layers + 1) / job.layout.virtualStages;
    const std::string other = "model.layers " + str(stagesOf(job.layout) - 1);
    return most > 1 || job.layout.virtualStages == 1 ? str(most) + ", or " + other : other;
}

/// Whether `layout.stages` has the layers of each virtual stage.
bool isPartition(const JobSpec &job)
{
    const std::vector<std::int64_t> &given = *job.layout.stages;
    if (static_cast<std::int64_t>(given.size()) != stagesOf(job.layout))
        return false;
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const std::int64_t least = i > 0 && i + 1 == given.size() ? 0 : 1;
        if (given[i] < least || given[i] > job.model.layers - sum)
            return false;
        sum += given[i];
    }
    return sum == job.model.layers;
}

std::string partitionOf(const JobSpec &job)
{
    constexpr std::size_t most = 64;
    const std::vector<std::int64_t> &given = *job.layout.stages;
    std::string text;
    for (std::size_t i = 0; i < std::min(given.size(), most); ++i)
        text += (i == 0 ? "" : ", ") + str(given[i]);
    return "[" + text + (given.size() > most ? ", ...]" : "]");
}

std::string nearestPartition(const JobSpec &job)
{
    const std::int64_t stages = stagesOf(job.layout);
    return "null, or " + str(stages) + (stages == 1 ? " number" : " numbers") + " with the sum "
        + str(job.model.layers);
}

std::int64_t interleavedUnit(const JobSpec &job) { return job.layout.dp * job.batch.micro * job.layout.pp; }

constexpr Rule table[] = {
    {"model.kv_heads", "must divide model.heads",
     [](const JobSpec &job) { return job.model.heads % job.model.keyHeads() != 0; },
     [](const JobSpec &job) { return str(job.model.keyHeads()); }, "a divisor of model.heads", nullptr,
     [](const JobSpec &job) { return str(spec::nearestDivisor(job.model.heads, job.model.keyHeads())); }},
    {"model.heads", "must be a multiple of layout.tp",
     [](const JobSpec &job) { return job.model.heads % job.layout.tp != 0; },
     [](const JobSpec &job) { return str(job.model.heads); }, "the nearest layout.tp, or multiple",
     multipleOfTensor, [](const JobSpec &job) { return tensorOr(job, "model.heads", job.model.heads); }},
    {"model.ffn", "must be a multiple of layout.tp",
     [](const JobSpec &job) { return job.model.ffnSize() % job.layout.tp != 0; },
     [](const JobSpec &job) { return str(job.model.ffnSize()); }, "the nearest layout.tp, or multiple",
     multipleOfTensor, [](const JobSpec &job) { return tensorOr(job, "model.ffn", job.model.ffnSize()); }},
    {"model.kv_heads", "must divide layout.tp or be a multiple of it",
     [](const JobSpec &job) {
         return job.model.keyHeads() % job.layout.tp != 0 && job.layout.tp % job.model.keyHeads() != 0;
     },
     [](const JobSpec &job) { return str(job.model.keyHeads()); }, "the nearest layout.tp",
     [](const JobSpec &job) {
         return "must divide layout.tp = " + str(job.layout.tp) + " or be a multiple of it";
     },
     nearestTensor},
    {"model.seq", "must be a multiple of 2 · layout.cp: each rank has two chunks of each sequence",
     [](const JobSpec &job) { return job.layout.cp > 1 && job.model.seq % (2 * job.layout.cp) != 0; },
     [](const JobSpec &job) { return str(job.model.seq); }, "the nearest multiple",
     [](const JobSpec &job) {
         return "must be a multiple of 2 · layout.cp = " + str(2 * job.layout.cp)
             + ": each rank has two chunks of each sequence";
     },
     [](const JobSpec &job) { return str(nearestSequence(job)); }},
    {"layout.sequence_parallel", "layout.tp must divide the tokens of a micro-batch on a rank",
     [](const JobSpec &job) { return job.layout.sequenceParallel && rowsOf(job) % job.layout.tp != 0; },
     [](const JobSpec &) { return std::string("true"); }, "false, or the nearest model.seq or layout.tp",
     [](const JobSpec &job) {
         return "a micro-batch has " + str(rowsOf(job))
             + " tokens a rank, which layout.tp = " + str(job.layout.tp) + " does not divide";
     },
     [](const JobSpec &job) {
         return "false, or model.seq " + str(nearestSequence(job)) + ", or " + nearestTensor(job);
     }},
    {"layout.virtual", "needs pp > 1 and the schedule interleaved or zbv",
     [](const JobSpec &job) {
         return job.layout.virtualStages != 1 && (!chunked(job.layout) || job.layout.pp == 1);
     },
     virtualStages, "1"},
    {"layout.virtual", "zbv has two chunks a stage",
     [](const JobSpec &job) {
         return job.layout.pp > 1 && job.layout.schedule == "zbv" && job.layout.virtualStages != 2;
     },
     virtualStages, "2"},
    {"layout.pp", "layout.pp · layout.virtual stages need as many layers: only the last may lack one",
     [](const JobSpec &job) { return job.model.layers < stagesOf(job.layout) - 1; },
     [](const JobSpec &job) { return str(job.layout.pp); }, "the most stages, or the fewest model.layers",
     [](const JobSpec &job) {
         return "layout.pp · layout.virtual = " + str(stagesOf(job.layout)) + " stages are too many for "
             + str(job.model.layers) + " layers: only the last may lack one";
     },
     nearestStages},
    {"batch.global",
     "interleaved needs a number of micro-batches that layout.pp divides: a multiple of "
     "layout.dp · batch.micro · layout.pp",
     [](const JobSpec &job) {
         return job.layout.pp > 1 && job.layout.schedule == "interleaved"
             && job.microBatches() % job.layout.pp != 0;
     },
     [](const JobSpec &job) { return str(job.batch.global); }, "the nearest multiple", nullptr,
     [](const JobSpec &job) { return str(spec::nearestMultiple(interleavedUnit(job), job.batch.global)); }},
    {"layout.stages",
     "must be the layers of each virtual stage in order, at least one in each but the last, together model.layers",
     [](const JobSpec &job) { return job.layout.stages && !isPartition(job); }, partitionOf,
     "null, or one number a virtual stage", nullptr, nearestPartition},
    {"zero.stage", "with pipeline stages every micro-batch would reduce (2) or gather (3) each stage again",
     [](const JobSpec &job) { return job.zero.stage >= 2 && job.layout.pp > 1; },
     [](const JobSpec &job) { return str(job.zero.stage); }, "1, or layout.pp 1 with that many more replicas",
     [](const JobSpec &job) {
         return "with pipeline stages every micro-batch would reduce (2) or gather (3) each stage again; nearest: "
                "zero.stage 1, or layout.pp 1 with layout.dp "
             + str(job.layout.dp * job.layout.pp);
     },
     [](const JobSpec &) { return std::string("1"); }},
    {"batch.global", "must be a multiple of dp · micro",
     [](const JobSpec &job) { return job.batch.global % (job.layout.dp * job.batch.micro) != 0; },
     [](const JobSpec &job) { return str(job.batch.global); }, "the next multiple", nullptr,
     [](const JobSpec &job) {
         const std::int64_t replica = job.layout.dp * job.batch.micro;
         return str((job.batch.global + replica - 1) / replica * replica);
     }},
};

} // namespace

std::span<const Rule> layoutRules() { return table; }

} // namespace rankyard::plan
