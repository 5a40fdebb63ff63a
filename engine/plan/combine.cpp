// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/combine.h"

#include "engine/plan/plan.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

using spec::JobSpec;

bool compresses(const JobSpec &job) { return job.compression.mode != "none"; }
bool offloadsParams(const JobSpec &job) { return job.offload.params != "none"; }
std::string paramsTier(const JobSpec &job) { return job.offload.params; }
std::string zeroStage(const JobSpec &job) { return std::to_string(job.zero.stage); }
std::string nvmePath(const JobSpec &job) { return job.offload.nvmePath.value_or("null"); }
std::string shardOf(const JobSpec &job) { return std::to_string(job.zero.shard); }
std::string partition(const JobSpec &job) { return job.recompute.partition ? "true" : "false"; }
std::string toHost(const JobSpec &job) { return job.recompute.toHost ? "true" : "false"; }
std::string algorithm(const JobSpec &job) { return job.comm.algorithm; }
std::int64_t replicas(const JobSpec &job) { return job.layout.dp * job.layout.cp; }
std::string compressionMode(const JobSpec &job) { return job.compression.mode; }

bool converts(const JobSpec &job) { return job.precision.reduce != job.precision.grad; }
std::string reduceType(const JobSpec &job) { return nameOf(job.precision.reduce); }

constexpr Rule table[] = {
    {"precision.reduce", "codes are gathered: there is no sum to make in another type",
     [](const JobSpec &job) { return converts(job) && compresses(job); }, reduceType,
     "compression.mode none, or the type of precision.grad"},
    {"precision.reduce",
     "without the loss scale of fp16 computation small gradients are below what fp16 can hold",
     [](const JobSpec &job) {
         return converts(job) && job.precision.reduce == DType::F16 && job.precision.compute != DType::F16;
     },
     reduceType, "bf16, or precision.compute fp16"},
    {"precision.reduce", "reductions in steps work on the gradients themselves",
     [](const JobSpec &job) { return converts(job) && job.comm.algorithm != "library"; }, reduceType,
     "comm.algorithm library, or the type of precision.grad"},
    {"compression.mode",
     "ZeRO 2 and 3 reduce every micro-batch by itself, compression is of a step's gradient",
     [](const JobSpec &job) { return compresses(job) && job.zero.stage >= 2; }, compressionMode,
     "none, or zero.stage 1"},
    {"compression.mode", "without replicas there is no data-parallel reduction to compress",
     [](const JobSpec &job) { return compresses(job) && job.layout.dp * job.layout.cp == 1; },
     compressionMode, "none, or layout.dp 2"},
    {"recompute.partition", "inputs are what is saved of a layer that is computed again whole",
     [](const JobSpec &job) { return job.recompute.partition && job.recompute.mode != "full"; }, partition,
     "false, or recompute.mode full"},
    {"recompute.partition", "without a tensor group there is nobody to share with",
     [](const JobSpec &job) { return job.recompute.partition && job.layout.tp == 1; }, partition,
     "false, or layout.tp 2"},
    {"recompute.partition", "with sequence parallelism each rank has its own rows already",
     [](const JobSpec &job) { return job.recompute.partition && job.layout.sequenceParallel; }, partition,
     "false, or layout.sequence_parallel false"},
    {"recompute.partition", "layout.tp does not divide the elements of a layer's input",
     [](const JobSpec &job) {
         return job.recompute.partition && job.layout.tp > 0 && job.layout.cp > 0
             && job.batch.micro * job.model.seq / job.layout.cp * job.model.hidden % job.layout.tp != 0;
     },
     partition, "false, or a model.hidden that layout.tp divides"},
    {"recompute.to_host", "inputs are what is saved of a layer that is computed again whole",
     [](const JobSpec &job) { return job.recompute.toHost && job.recompute.mode != "full"; }, toHost,
     "false, or recompute.mode full"},
    {"comm.algorithm", "codes are gathered, there is no sum to write out in steps",
     [](const JobSpec &job) { return job.comm.algorithm != "library" && compresses(job); }, algorithm,
     "library, or compression.mode none"},
    {"comm.algorithm", "the reductions of ZeRO 2 and 3 are not written out in steps",
     [](const JobSpec &job) { return job.comm.algorithm != "library" && job.zero.stage >= 2; }, algorithm,
     "library, or zero.stage 1"},
    {"comm.algorithm", "a program with a step for each of more than 64 ranks would be nothing to read",
     [](const JobSpec &job) {
         return job.comm.algorithm != "library"
             && replicas(job) * (job.layout.sequenceParallel ? job.layout.tp : 1) > 64;
     },
     algorithm, "library"},
    {"zero.shard", "shards need something that is sharded",
     [](const JobSpec &job) { return job.zero.shard > 0 && job.zero.stage == 0; }, shardOf,
     "0, or zero.stage 1"},
    {"zero.shard", "blocks of equal size, of two ranks at least: a divisor of layout.dp · layout.cp",
     [](const JobSpec &job) {
         return job.zero.shard > 0 && (job.zero.shard == 1 || replicas(job) % job.zero.shard != 0);
     },
     shardOf, "0 (all of them), or a divisor above 1"},
    {"offload.params", "parameters on the host are updated there, by an optimizer on the host",
     [](const JobSpec &job) { return offloadsParams(job) && job.offload.optimizer == "none"; }, paramsTier,
     "none, or offload.optimizer cpu"},
    {"zero.stage", "parameters on the host come unit by unit: whole on every rank, or in slices of ZeRO 3",
     [](const JobSpec &job) {
         return offloadsParams(job) && (job.zero.stage == 1 || job.zero.stage == 2)
             && job.layout.dp * job.layout.cp > 1;
     },
     zeroStage, "3 or 0, or offload.params none"},
    {"offload.nvme_path", "states on NVMe need a folder, by its absolute path",
     [](const JobSpec &job) {
         return job.offload.optimizer == "nvme" && !job.offload.nvmePath.value_or("").starts_with('/');
     },
     nvmePath, "an absolute path, or offload.optimizer cpu"},
    {"offload.nvme_path", "nothing is kept on NVMe",
     [](const JobSpec &job) { return job.offload.optimizer != "nvme" && job.offload.nvmePath.has_value(); },
     nvmePath, "null, or offload.optimizer nvme"},
};

} // namespace

std::int64_t shardRanks(const JobSpec &job)
{
    return job.zero.shard > 1 && job.zero.shard < replicas(job) ? job.zero.shard : 0;
}

std::span<const Rule> combinations() { return table; }

Status check(std::span<const Rule> rules, const JobSpec &job)
{
    const auto broken =
        std::find_if(rules.begin(), rules.end(), [&](const Rule &rule) { return rule.broken(job); });
    if (broken == rules.end())
        return {};
    return Error::make(Code::BadJob, broken->says ? broken->says(job) : broken->rule, broken->path)
        .withFound(broken->found(job))
        .withExpected(broken->values ? broken->values(job) : broken->nearest);
}

} // namespace rankyard::plan
