// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/units.h"
#include "engine/predict/verdict_parts.h"
#include "engine/predict/wide.h"

#include <cctype>
#include <cmath>
#include <tuple>

namespace rankyard::predict {

namespace {

/// Where a model's memory comes from that no program holds.
std::vector<Figure> formulas()
{
    using plan::MemoryKind;
    const std::tuple<MemoryKind, const char *, const char *> kinds[] = {
        {MemoryKind::Params, "bytes of a parameter · (dense ones / tp + experts / ep) of the stage",
         "Shapes of the model"},
        {MemoryKind::Grads, "bytes of a gradient · parameters of the rank, shared with ZeRO 2",
         "Shapes of the model"},
        {MemoryKind::Optimizer,
         "states · (dense ones over dp · cp + experts over dp · cp / ep), with ZeRO 1 and on",
         "Rajbhandari et al. 2020 (ZeRO), section 3"},
        {MemoryKind::Activations,
         "what a layer keeps of a token · tokens of a micro-batch · layers · micro-batches in flight",
         "Every tensor that a backward reads; arXiv:2412.19437 for latent attention"},
        {MemoryKind::Workspace, "6 bytes · tokens · vocabulary / tp",
         "Logits in fp32 and their gradient in 16 bits"}};
    std::vector<Figure> figures;
    for (const auto &[kind, formula, source] : kinds) {
        Figure &figure = figures.emplace_back(memoryFigure(kind));
        figure.formula = formula;
        figure.source = source;
    }
    return figures;
}

/// Stages as those of programs are told: the room is one device's, alike on all.
void addStages(const WidePlan &plan, const spec::Layout &layout, Verdict &verdict)
{
    const plan::RankGrid grid(layout);
    for (std::size_t i = 0; i < plan.stages.size(); ++i) {
        StageMemory stage;
        stage.stage = static_cast<int>(i);
        while (stage.rank < grid.world() - 1 && grid.role(stage.rank).stage != stage.stage)
            ++stage.rank;
        stage.report = reportOf(plan.stages[i]);
        stage.figures = formulas();
        stage.capacity = std::llround(plan.capacity.bytes);
        stage.context = std::llround(plan.capacity.bytes - plan.capacity.usable());
        stage.used = stage.report.peak + stage.context;
        if (stage.headroom() < 0)
            verdict.answer = Verdict::Answer::DoesNotFit;
        renewFigures(stage);
        verdict.stages.push_back(std::move(stage));
    }
}

void addSizes(const WidePlan &plan, Verdict &verdict)
{
    Figure size{"parameters", "Parameters", Measure::Count, plan.params};
    size.formula = "sum of the model's tensors";
    size.source = plan.run.shape.name;
    if (plan.activeParams < plan.params)
        size.inputs = {{"of them a token passes", formatCount(plan.activeParams)}};
    verdict.figures.push_back(std::move(size));
    Figure work{"work", "Work of a step", Measure::Flop, plan.flops};
    work.formula = "three times the forward pass of all tokens; multiply and add count two";
    work.source = "Korthikanti et al. 2022, of the experts that a token passes";
    verdict.figures.push_back(std::move(work));
}

} // namespace

const std::vector<std::string> &wideNotes()
{
    static const std::vector<std::string> notes = {
        "plan only: no program has such layers, and nothing runs them. All is closed form",
        "times: as published runs of such models on this kind of device, their constants; docs/prediction.md has how far they are off",
        "memory: parameters, gradients and optimizer by arithmetic; activations: every tensor that a backward reads, in 16 bits, with fused attention; workspace: logits"};
    return notes;
}

Verdict judgeWide(const Json &document, const cluster::Cluster &cluster, const Options &options)
{
    Verdict verdict;
    const auto job = readWideDesign(document);
    const auto plan = job ? planWide(*job, cluster) : job.error();
    if (!plan) {
        verdict.problems = {problemOf(plan.error(), document)};
        return verdict;
    }
    verdict.answer = plan->capacity.bytes > 0 ? Verdict::Answer::Fits : Verdict::Answer::NotKnown;
    verdict.basis = Basis::Model;
    verdict.time.emplace();
    verdict.time->step = plan->step;
    verdict.time->tflopsPerDevice = plan->tflopsPerDevice;
    verdict.time->mfu = plan->mfu;
    verdict.bubble = plan->step.bubbleShare();
    const spec::JobSpec &spec = job->job;
    addStages(*plan, spec.layout, verdict);
    const Run &run = plan->run;
    addTimeFigures({spec.batch.global, spec.model.seq, spec.layout.world(),
                    run.machine.peak[static_cast<std::size_t>(run.micro.precision)], options.targetTokens,
                    "Published runs of such models"},
                   verdict);
    addMemoryFigures(verdict);
    addBubbleFigure(spec, verdict);
    addSizes(*plan, verdict);
    for (std::string note : wideNotes()) { // a list of sentences there
        note[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(note[0])));
        verdict.notes.push_back(note + ".");
    }
    return verdict;
}

} // namespace rankyard::predict
