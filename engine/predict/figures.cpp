// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/units.h"
#include "engine/predict/verdict_parts.h"

#include <algorithm>
#include <cmath>

namespace rankyard::predict {

namespace {

std::string count(double value) { return formatCount(value); }
std::string text(std::int64_t value) { return std::to_string(value); }

/// Tokens and parameters are counted in thousands, millions, billions: "300 B".
std::string inWords(double value)
{
    std::string words = formatCount(value);
    for (const auto &[si, letter] : {std::pair{'k', 'K'}, {'G', 'B'}}) {
        if (words.back() == si)
            words.back() = letter;
    }
    return words;
}

double parametersOf(const spec::JobSpec &job)
{
    double sum = 0;
    for (const plan::TensorSpec &tensor : plan::modelTensors(job))
        sum += static_cast<double>(plan::numelOf(tensor.shape));
    return sum;
}

/// Operations of a step that the model needs: a recomputed one is work of the hardware only.
struct Work {
    double model = 0;
    double hardware = 0;
};

Work workOf(const Verdict &verdict, const spec::JobSpec &job)
{
    const double perStage = static_cast<double>(job.layout.world() / job.layout.pp);
    Work work;
    for (const StageMemory &stage : verdict.stages) {
        for (const plan::Op &op : verdict.plan->program(plan::ProgramKind::Train, stage.rank).ops) {
            const double flops = static_cast<double>(op.flops) * perStage;
            work.hardware += flops;
            if (op.kind != plan::OpKind::Recompute)
                work.model += flops;
        }
    }
    return work;
}

} // namespace

void addMemoryFigures(Verdict &verdict)
{
    std::vector<Figure> &figures = verdict.figures;
    const auto tightest =
        std::max_element(verdict.stages.begin(), verdict.stages.end(), [](const auto &a, const auto &b) {
            return (a.capacity > 0 ? -a.headroom() : a.used) < (b.capacity > 0 ? -b.headroom() : b.used);
        });
    if (tightest == verdict.stages.end())
        return;
    Figure peak{"peak", "Peak memory of a rank", Measure::Bytes, static_cast<double>(tightest->peak())};
    peak.formula = "sum of the arenas of stage " + text(tightest->stage);
    for (int kind = 0; kind < plan::memoryKindCount; ++kind) {
        if (const auto bytes = tightest->report.bytes[static_cast<std::size_t>(kind)])
            peak.inputs.emplace_back(plan::nameOf(static_cast<plan::MemoryKind>(kind)),
                                     formatBytes(static_cast<double>(bytes)));
    }
    peak.source = verdict.depth == Depth::Whole
        ? "The step program: the arenas that a worker allocates"
        : "Closed forms of the job's keys; the arenas of the program follow";
    figures.push_back(std::move(peak));
    if (tightest->capacity <= 0)
        return;
    Figure headroom{"headroom", "Headroom", Measure::Bytes, static_cast<double>(tightest->headroom())};
    headroom.formula = std::string("capacity − ")
        + (tightest->context > 0 ? "what the driver, communication and a reserve take − " : "")
        + "peak, least of all stages (stage " + text(tightest->stage) + ")";
    headroom.inputs = {{"capacity", formatBytes(static_cast<double>(tightest->capacity))},
                       {"peak", formatBytes(static_cast<double>(tightest->peak()))}};
    if (tightest->context > 0)
        headroom.inputs.emplace_back("driver, communication, reserve",
                                     formatBytes(static_cast<double>(tightest->context)));
    headroom.source =
        "Data sheet of the device; where there is no GPU, the node's memory less 4 % over the ranks on it";
    figures.push_back(std::move(headroom));
}

void addTimeFigures(const StepFacts &facts, Verdict &verdict)
{
    const StepTime &step = verdict.time->step;
    const double tokens = static_cast<double>(facts.batch * facts.seq);
    std::vector<Figure> &figures = verdict.figures;
    Figure time{"step", "Step time", Measure::Seconds, step.seconds};
    time.spread = (step.high - step.low) / 2;
    time.formula =
        "of the busiest stage: computation + waiting for other stages + waits for transfers + optimizer + overhead";
    const std::pair<const char *, double> parts[] = {
        {"computation", step.compute}, {"waiting for other stages", step.bubble},
        {"tensor group", step.tensor}, {"pipeline", step.pipeline},
        {"data group", step.data},     {"optimizer", step.optimizer},
        {"overhead", step.overhead}};
    for (const auto &[name, seconds] : parts) {
        if (seconds > 0)
            time.inputs.emplace_back(name, formatDuration(seconds));
    }
    if (verdict.timeline)
        time.inputs.emplace_back("the program's time line",
                                 formatDuration(static_cast<double>(verdict.timeline->stepNs) / 1e9));
    time.inputs.emplace_back("80 % interval", formatDuration(step.low) + " to " + formatDuration(step.high));
    time.source = facts.source;
    figures.push_back(std::move(time));
    Figure rate{"rate", "Throughput of a rank", Measure::FlopRate, verdict.time->tflopsPerDevice * 1e12};
    rate.formula = "FLOP of the model in a step / (step time · ranks)";
    rate.inputs = {{"ranks", text(facts.ranks)}};
    rate.source = "Forward and backward, attention whole, without recomputation: Korthikanti et al. 2022";
    figures.push_back(std::move(rate));
    Figure mfu{"mfu", "MFU", Measure::Share, verdict.time->mfu};
    mfu.formula = "throughput / peak rate of the device";
    mfu.inputs = {{"peak rate", count(facts.peak) + "FLOP/s"}};
    mfu.source = "Chowdhery et al. 2022, appendix B; the device's data sheet";
    figures.push_back(std::move(mfu));
    Figure day{"day", "Tokens a day", Measure::Count, tokens / step.seconds * 86400};
    day.formula = "global batch · seq / step time · 86,400 s";
    day.inputs = {{"global batch", text(facts.batch)}, {"seq", text(facts.seq)}};
    day.source = facts.source;
    figures.push_back(std::move(day));
    Figure target{"target", "Time for " + inWords(facts.targetTokens) + " tokens", Measure::Days,
                  facts.targetTokens / tokens * step.seconds / 86400};
    target.formula = "tokens / tokens a day";
    target.inputs = {{"tokens", inWords(facts.targetTokens)}};
    target.source = facts.source;
    figures.push_back(std::move(target));
}

void addBubbleFigure(const spec::JobSpec &job, Verdict &verdict)
{
    if (job.layout.pp <= 1 || (!verdict.timeline && !verdict.time))
        return;
    Figure bubble{"bubble", "Bubble", Measure::Share, verdict.bubble};
    bubble.formula = "time without work, mean over stages / step time";
    bubble.inputs = {{"stages", text(job.layout.pp)},
                     {"micro-batches", text(job.microBatches())},
                     {"(pp − 1) / (v · m + pp − 1)",
                      formatNumber(100.0 * static_cast<double>(job.layout.pp - 1)
                                       / static_cast<double>(job.layout.virtualStages * job.microBatches()
                                                             + job.layout.pp - 1),
                                   3)
                          + " %"}};
    bubble.source = !verdict.timeline   ? "Closed form of the step's time"
        : verdict.basis == Basis::Model ? "The time line below"
                                        : "The time line below, with operations as time";
    verdict.figures.push_back(std::move(bubble));
}

void addFigures(const Ground &ground, Verdict &verdict)
{
    const spec::JobSpec &job = ground.job;
    const double tokens = static_cast<double>(job.batch.global * job.model.seq);
    std::vector<Figure> &figures = verdict.figures;
    if (verdict.time)
        addTimeFigures({job.batch.global, job.model.seq, job.layout.world(),
                        ground.cost->peak(precisionOf(job.precision.compute)), ground.options.targetTokens,
                        "Cost model, constants from " + ground.cost->constants().source},
                       verdict);
    addMemoryFigures(verdict);
    addBubbleFigure(job, verdict);
    const double parameters = parametersOf(job);
    Figure size{"parameters", "Parameters", Measure::Count, parameters};
    size.formula = "sum of the model's tensors";
    size.inputs = {{"layers", text(job.model.layers)},
                   {"hidden", text(job.model.hidden)},
                   {"vocabulary", text(job.model.vocab)}};
    size.source = "The plan's table of tensors";
    figures.push_back(std::move(size));
    if (!verdict.plan)
        return;
    const Work work = workOf(verdict, job);
    Figure flop{"work", "Work of a step", Measure::Flop, work.hardware};
    flop.formula = "sum over the operations of all ranks; multiply and add count two";
    flop.inputs = {{"model", count(work.model)},
                   {"recomputed", count(work.hardware - work.model)},
                   {"6 · parameters · tokens", count(6 * parameters * tokens)}};
    flop.source = "The step program";
    figures.push_back(std::move(flop));
}

} // namespace rankyard::predict
