// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/plan.h"

#include "engine/plan/digest.h"
#include "engine/plan/passes/pass.h"

#include <algorithm>

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
    const char *later = "not in this version";
    const auto one = [&](const char *path, std::int64_t value) -> Status {
        if (value != 1)
            return refused(path, later, std::to_string(value), "1");
        return {};
    };
    RY_TRY(one("layout.tp", job.layout.tp));
    RY_TRY(one("layout.pp", job.layout.pp));
    RY_TRY(one("layout.cp", job.layout.cp));
    RY_TRY(one("layout.virtual", job.layout.virtualStages));
    if (job.model.family != "gpt2")
        return refused("model.family", later, job.model.family, "gpt2");
    if (job.model.dropout != 0)
        return refused("model.dropout", later, formatNumber(job.model.dropout, 3), "0");
    if (job.zero.stage < 0 || job.zero.stage > 1)
        return refused("zero.stage", later, std::to_string(job.zero.stage), "0 or 1");
    if (job.recompute.mode != "none")
        return refused("recompute.mode", later, job.recompute.mode, "none");
    if (job.offload.optimizer != "none")
        return refused("offload.optimizer", later, job.offload.optimizer, "none");
    if (job.offload.params != "none")
        return refused("offload.params", later, job.offload.params, "none");
    if (job.compression.mode != "none")
        return refused("compression.mode", later, job.compression.mode, "none");
    if (job.precision.reduce != job.precision.grad)
        return refused("precision.reduce", "another type than precision.grad is not in this version",
                       nameOf(job.precision.reduce), nameOf(job.precision.grad));
    return {};
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
    if (model.heads * model.headSize() != model.hidden)
        return refused("model.heads", "heads · head_dim must be hidden",
                       std::to_string(model.heads * model.headSize()), std::to_string(model.hidden));
    if (model.keyHeads() != model.heads)
        return refused("model.kv_heads", "not in this version", std::to_string(model.keyHeads()),
                       std::to_string(model.heads));
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
    const double ops = static_cast<double>(job.microBatches()) * static_cast<double>(22 * model.layers + 8);
    if (ops > 4e6)
        return Error::make(Code::DoesNotFit, "the program would have " + formatCount(ops) + " ops",
                           "batch.global")
            .withExpected("at most 4 M");
    return {};
}

StepProgram buildProgram(const spec::JobSpec &job, ProgramKind kind)
{
    StepProgram program;
    program.kind = kind;
    if (job.layout.dp > 1) {
        const auto dp = static_cast<std::int32_t>(job.layout.dp);
        program.groups.push_back({0, "dp", {"dp"}, dp});
        program.groups.push_back({1, "world", {"tp", "cp", "dp", "pp"}, dp});
    }
    const PassContext context{job, program};
    stagePass(context);
    bucketPass(context);
    gatherPass(context);
    tailPass(context);
    dependPass(context);
    return program;
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

Result<Plan> makePlan(const spec::JobSpec &asked)
{
    spec::JobSpec job = asked;
    if (job.precision.compute == DType::F64)
        job.precision.grad = job.precision.master = job.precision.reduce = DType::F64;
    RY_TRY(checkFeatures(job));
    RY_TRY(checkShape(job));
    Plan plan{job, RankGrid(job.layout), {}};
    plan.programs.push_back(buildProgram(job, ProgramKind::Train));
    plan.programs.push_back(buildProgram(job, ProgramKind::Eval));
    placePass(plan.programs);
    for (StepProgram &program : plan.programs) {
        program.digest = digestOf(program);
        RY_TRY(verify(program));
    }
    RY_TRY(verifyTogether(plan, ProgramKind::Train));
    RY_TRY(verifyTogether(plan, ProgramKind::Eval));
    return plan;
}

} // namespace rankyard::plan
