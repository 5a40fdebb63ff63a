// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/combine.h"

namespace rankyard::plan {

namespace {

using spec::JobSpec;

std::int64_t replicas(const JobSpec &job) { return job.layout.dp * job.layout.cp; }
std::string every(const JobSpec &job) { return std::to_string(job.recompute.every); }
std::string ratio(const JobSpec &job) { return dumpJson(Json(job.recompute.ratio.value_or(0))); }
std::string zeroStage(const JobSpec &job) { return std::to_string(job.zero.stage); }
std::string scaleMode(const JobSpec &job) { return job.precision.lossScale.mode; }
std::string compressionMode(const JobSpec &job) { return job.compression.mode; }

constexpr Rule table[] = {
    {"recompute.ratio", "nothing is computed again with recompute.mode none",
     [](const JobSpec &job) { return job.recompute.mode == "none" && job.recompute.ratio.has_value(); },
     ratio, "recompute.mode full"},
    {"recompute.every", "nothing is computed again with recompute.mode none",
     [](const JobSpec &job) {
         return job.recompute.mode == "none" && !job.recompute.ratio && job.recompute.every > 1;
     },
     every, "recompute.mode full"},
    {"recompute.every", "recompute.ratio says which layers",
     [](const JobSpec &job) { return job.recompute.ratio.has_value() && job.recompute.every > 1; }, every,
     "recompute.ratio null"},
    {"layout.sequence_parallel", "without a tensor group there is nobody to share rows with",
     [](const JobSpec &job) { return job.layout.sequenceParallel && job.layout.tp == 1; },
     [](const JobSpec &) { return std::string("true"); }, "layout.tp 2"},
    {"layout.schedule", "one stage has nothing to schedule",
     [](const JobSpec &job) { return job.layout.pp == 1 && job.layout.schedule != "1f1b"; },
     [](const JobSpec &job) { return job.layout.schedule; }, "layout.pp 2"},
    {"layout.schedule", "with one chunk a stage it is 1f1b",
     [](const JobSpec &job) {
         return job.layout.pp > 1 && job.layout.schedule == "interleaved" && job.layout.virtualStages == 1;
     },
     [](const JobSpec &job) { return job.layout.schedule; }, "layout.virtual 2"},
    {"zero.stage", "one replica has all of it",
     [](const JobSpec &job) { return job.zero.stage > 0 && replicas(job) == 1; }, zeroStage, "layout.dp 2"},
    {"comm.algorithm", "one replica reduces nothing",
     [](const JobSpec &job) { return job.comm.algorithm != "library" && replicas(job) == 1; },
     [](const JobSpec &job) { return job.comm.algorithm; }, "layout.dp 2"},
    {"precision.reduce", "one replica reduces nothing",
     [](const JobSpec &job) { return job.precision.reduce != job.precision.grad && replicas(job) == 1; },
     [](const JobSpec &job) { return std::string(nameOf(job.precision.reduce)); }, "layout.dp 2"},
    {"precision.loss_scale.mode", "losses are scaled in fp16 only",
     [](const JobSpec &job) {
         return job.precision.lossScale.mode == "static" && job.precision.compute != DType::F16;
     },
     scaleMode, "precision.compute fp16"},
    {"compression.mode",
     "with a minimum and a maximum for so few elements codes are larger than the elements",
     [](const JobSpec &job) {
         return (job.compression.mode == "int8" || job.compression.mode == "adaptive")
             && job.compression.block <= 2;
     },
     compressionMode, "compression.block 256"},
    {"compression.mode", "each element is sent with its place: from half of them on nothing is saved",
     [](const JobSpec &job) { return job.compression.mode == "topk" && job.compression.density >= 0.5; },
     compressionMode, "compression.density 0.1"},
};

} // namespace

std::span<const Rule> idleSettings() { return table; }

std::vector<std::string> idleNotes(const JobSpec &job)
{
    std::vector<std::string> notes;
    for (const Rule &rule : table) {
        if (rule.broken(job))
            notes.push_back(std::string(rule.path) + " " + rule.found(job) + " is of no use: " + rule.rule
                            + "; think of " + rule.nearest);
    }
    return notes;
}

} // namespace rankyard::plan
