// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/units.h"
#include "engine/predict/capacity.h"
#include "engine/predict/verdict_parts.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace rankyard::predict {

namespace {

using plan::MemoryKind;
using Inputs = std::vector<std::pair<std::string, std::string>>;

/// To the last one, so that it can be calculated with: "5,523,456,000".
std::string whole(double value)
{
    std::string digits = std::to_string(std::llround(value));
    for (std::size_t at = digits.size(); at > 3; at -= 3)
        digits.insert(at - 3, ",");
    return digits;
}

std::string typed(DType type) { return std::to_string(bytesOf(type)) + " (" + nameOf(type) + ")"; }

const char *nameOfKind(MemoryKind kind)
{
    switch (kind) {
    case MemoryKind::Params:
        return "Parameters";
    case MemoryKind::Grads:
        return "Gradients";
    case MemoryKind::Optimizer:
        return "Optimizer";
    case MemoryKind::Activations:
        return "Activations";
    case MemoryKind::Gathered:
        return "Gathered parameters";
    case MemoryKind::Buckets:
        return "Buckets";
    case MemoryKind::Workspace:
        return "Workspace";
    case MemoryKind::Host:
        return "On the host";
    }
    return "";
}

double bytesOfKind(const ClosedMemory &closed, MemoryKind kind)
{
    return static_cast<double>(reportOf(closed).bytes[static_cast<std::size_t>(kind)]);
}

} // namespace

Figure memoryFigure(MemoryKind kind) { return {plan::nameOf(kind), nameOfKind(kind), Measure::Bytes}; }

namespace {

/// The stage's figures, one after the other.
class Writer
{
public:
    Writer(const spec::JobSpec &job, const ClosedStage &closed) : m_job(job), m_closed(closed) {}

    void add(MemoryKind kind, std::string formula, Inputs inputs, std::string source)
    {
        const double bytes = bytesOfKind(m_closed, kind);
        Figure figure = memoryFigure(kind);
        figure.value = bytes;
        figure.formula = std::move(formula);
        figure.inputs = std::move(inputs);
        figure.inputs.emplace_back("by this formula", formatBytes(bytes));
        figure.source = std::move(source);
        figures.push_back(std::move(figure));
    }

    void states()
    {
        const spec::Precision &precision = m_job.precision;
        const std::int64_t zero = m_job.zero.stage;
        state(MemoryKind::Params, "bytes of a parameter", typed(precision.compute), zero >= 3);
        state(MemoryKind::Grads, "bytes of a gradient", typed(precision.grad), zero >= 2);
        const bool master = precision.master != precision.compute;
        const std::size_t each = bytesOf(precision.master);
        const std::string states = std::to_string((master ? 3 : 2) * each) + " (two moments"
            + (master ? " and a master copy" : "") + " in " + nameOf(precision.master) + ")";
        if (m_job.offload.optimizer == "none")
            return state(MemoryKind::Optimizer, "bytes of a parameter's states", states, zero >= 1);
        const MemoryTerms &t = m_closed.terms;
        add(MemoryKind::Host,
            std::string(m_job.offload.optimizer == "nvme" ? "states are on the disk; " : "states + ")
                + (m_job.offload.params == "none" ? "" : "parameters + ")
                + "what an update is fed from: buffers of gradients and of what else is not in host memory",
            {{"states of a parameter", states},
             {"parameters of the rank", whole(t.params())},
             {"ranks that share them", formatNumber(zero >= 1 ? t.shards : 1, 9)},
             {"offload.buffers", std::to_string(m_job.offload.buffers)},
             {"zero.sub_group", whole(static_cast<double>(m_job.zero.subGroup))}},
            "The step program's copies; Rajbhandari et al. 2021 (ZeRO-Infinity)");
    }

    void activations()
    {
        const MemoryTerms &t = m_closed.terms;
        const bool deferred = t.held > 1.0001 * t.layers * t.kept * t.flight;
        Inputs inputs{{"a layer keeps of a micro-batch", formatBytes(t.kept)},
                      {"layers here", formatNumber(t.layers, 6)},
                      {"micro-batches in flight", formatNumber(t.flight, 4) + ", " + flightBy()}};
        if (m_job.recompute.mode != "none")
            inputs.emplace_back("computed again", m_job.recompute.mode);
        if (deferred)
            inputs.emplace_back("with weight gradients that are put off", formatBytes(t.held));
        inputs.emplace_back("the layer in work, embedding, head", formatBytes(t.work));
        if (t.sent > 0)
            inputs.emplace_back("sent and received between stages", formatBytes(t.sent));
        add(MemoryKind::Activations,
            "what a layer keeps · layers · micro-batches in flight + what is in work + what stages send",
            std::move(inputs),
            "Tensors that the programs of one and two such layers keep; Korthikanti et al. 2022 has the sizes of GPT layers");
    }

    void rest()
    {
        const MemoryTerms &t = m_closed.terms;
        const std::string widest = whole(t.widest);
        add(MemoryKind::Gathered,
            "bytes of a parameter · parameters that are whole at once: the unit in work, the next, and those needed again soon",
            {{"bytes of a parameter", typed(m_job.precision.compute)},
             {"widest unit, on a rank", widest},
             {"zero.max_live", whole(static_cast<double>(m_job.zero.maxLive))},
             {"zero.max_reuse_distance", whole(static_cast<double>(m_job.zero.maxReuseDistance))}},
            "Rajbhandari et al. 2020 (ZeRO 3); the keys are DeepSpeed's stage3_max_live_parameters and its kin");
        add(MemoryKind::Buckets,
            m_job.zero.stage >= 2
                ? "gradients of two units or buckets until they are reduced, and their copies in the type of the sum"
                : "copies of two buckets in the type of the sum",
            {{"zero.bucket_bytes", formatBytes(static_cast<double>(m_job.zero.bucketBytes))},
             {"widest unit, on a rank", widest},
             {"type of gradients", typed(m_job.precision.grad)},
             {"type of the sum", typed(m_job.precision.reduce)}},
            "The step program's reductions");
        add(MemoryKind::Workspace, "logits of a chunk of tokens and their gradient, where the head is",
            {{"vocabulary", whole(static_cast<double>(m_job.model.vocab))},
             {"tensor ranks", std::to_string(m_job.layout.tp)}},
            "The program of one such layer and the head");
    }

    std::vector<Figure> figures;

private:
    void state(MemoryKind kind, const char *bytes, const std::string &each, bool sharded)
    {
        const MemoryTerms &t = m_closed.terms;
        Inputs inputs{
            {bytes, each},
            {"parameters of the rank", whole(t.params())},
            {"layers here", formatNumber(t.layers, 6)},
            {"of a layer, over " + std::to_string(m_job.layout.tp) + " tensor ranks", whole(t.layerParams)}};
        if (t.tableParams > 0)
            inputs.emplace_back("embedding and head", whole(t.tableParams));
        if (sharded)
            inputs.emplace_back("ranks that share them", formatNumber(t.shards, 9));
        if (kind == MemoryKind::Params && sharded && m_job.offload.params != "none")
            return add(kind, "bytes of a parameter · small tensors; the others are in host memory",
                       {{bytes, each}, {"of small tensors, which stay whole", whole(t.small)}},
                       "zero.persistence_threshold says which are small");
        const bool small = sharded && kind == MemoryKind::Params && t.small > 0;
        if (small)
            inputs.emplace_back("of small tensors, which stay whole", whole(t.small));
        add(kind,
            std::string(bytes)
                + (small ? " · (the rank's without small tensors / ranks that share them + small tensors)"
                         : " · parameters of the rank")
                + (sharded && !small ? " / ranks that share them" : ""),
            std::move(inputs),
            sharded ? "Rajbhandari et al. 2020 (ZeRO), section 3" : "Shapes of the model's tensors");
    }

    std::string flightBy() const
    {
        const std::string &schedule = m_job.layout.schedule;
        if (m_job.layout.pp == 1)
            return "no pipeline";
        const std::string text = schedule == "gpipe" ? "all"
            : schedule == "interleaved" ? "min(m, ((v − 1)·p + 2·(p − s) − 1) / v): Narayanan et al. 2021"
            : schedule == "zbv"         ? "min(m, p, (m + s + 1) / 2): Qi et al. 2024"
                                        : "min(m, p − s): Narayanan et al. 2021";
        return schedule + ": " + text;
    }

    const spec::JobSpec &m_job;
    const ClosedStage &m_closed;
};

Figure keptBack(const char *key, const char *name, double bytes, const char *formula, const char *source)
{
    Figure figure{key, name, Measure::Bytes, bytes};
    figure.formula = formula;
    figure.source = source;
    return figure;
}

void addKeptBack(StageMemory &stage)
{
    if (stage.context <= 0)
        return;
    const Capacity capacity = capacityOf(static_cast<double>(stage.capacity));
    stage.figures.push_back(keptBack("context", "Driver's context", capacity.context, "1,573 MiB a process",
                                     "Measured on an A100 (BigScience); kernels and libraries of a process"));
    stage.figures.push_back(keptBack("communicators", "Communication buffers", capacity.communicators,
                                     "1 GiB where a layout has several groups",
                                     "Rule of thumb: 0.2 to 2 GB"));
    stage.figures.push_back(keptBack("reserve", "Reserve", capacity.headroom, "4 % of the device",
                                     "For what kernels allocate inside, and for what nobody knows"));
}

} // namespace

std::vector<Figure> memoryFigures(const spec::JobSpec &job, const ClosedStage &closed)
{
    Writer writer(job, closed);
    writer.states();
    writer.activations();
    writer.rest();
    return std::move(writer.figures);
}

Result<std::vector<StageMemory>> explainMemory(const plan::Plan &plan)
{
    RY_ASSIGN(const auto closed, closedStages(plan.job));
    std::vector<StageMemory> stages;
    for (std::size_t i = 0; i < closed.size(); ++i) {
        StageMemory &stage = stages.emplace_back();
        stage.stage = static_cast<int>(i);
        stage.report = plan::memoryOf(plan, plan::Role{static_cast<std::int32_t>(i)});
        stage.used = stage.report.peak;
        stage.figures = memoryFigures(plan.job, closed[i]);
        renewFigures(stage);
    }
    return stages;
}

void renewFigures(StageMemory &stage)
{
    std::vector<Figure> before = std::exchange(stage.figures, {});
    for (int i = 0; i < plan::memoryKindCount; ++i) {
        const auto kind = static_cast<MemoryKind>(i);
        const auto bytes = stage.report.bytes[static_cast<std::size_t>(i)];
        if (bytes == 0)
            continue;
        const auto found = std::find_if(before.begin(), before.end(), [&](const Figure &figure) {
            return figure.key == plan::nameOf(kind);
        });
        Figure figure = found != before.end() ? std::move(*found) : memoryFigure(kind);
        if (figure.formula.empty()) {
            figure.formula = "what the program puts there";
            figure.source = "The step program's arena";
        }
        figure.value = static_cast<double>(bytes);
        stage.figures.push_back(std::move(figure));
    }
    std::vector<Figure> host; // last, for it is no part of the device
    if (stage.hostApart() && !stage.figures.empty()
        && stage.figures.back().key == plan::nameOf(MemoryKind::Host)) {
        host.push_back(std::move(stage.figures.back()));
        host[0].name = "Beside it, on the host";
        stage.figures.pop_back();
    }
    addKeptBack(stage);
    std::move(host.begin(), host.end(), std::back_inserter(stage.figures));
}

} // namespace rankyard::predict
