// SPDX-License-Identifier: GPL-3.0-or-later
// What a worker tells of each step.
#include "engine/base/units.h"
#include "engine/exec/worker.h"

#include <algorithm>
#include <cmath>

namespace rankyard::exec {

namespace {

double milliseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

/// Where the time of a step went.
struct StepTimes {
    std::int64_t compute = 0;
    std::int64_t data = 0;
    std::int64_t optimizer = 0;
};

StepTimes timesOf(const Execution &execution)
{
    StepTimes times;
    for (const plan::Op &op : execution.program->ops) {
        const auto id = static_cast<std::size_t>(op.id);
        const std::int64_t duration = execution.opEnd[id] - execution.opBegin[id];
        switch (op.kind) {
        case plan::OpKind::Forward:
        case plan::OpKind::BackwardInput:
        case plan::OpKind::BackwardWeight:
        case plan::OpKind::Recompute:
            times.compute += duration;
            break;
        case plan::OpKind::LoadBatch:
            times.data += duration;
            break;
        case plan::OpKind::GradNorm:
        case plan::OpKind::StepScalars:
        case plan::OpKind::Optimizer:
            times.optimizer += duration;
            break;
        default:
            break;
        }
    }
    return times;
}

} // namespace

void Worker::recordStep(std::int64_t step, double scale)
{
    const spec::JobSpec &job = m_plan->job;
    const StepState &state = m_executor->state();
    const Execution &execution = *m_executor->recent(0);
    StepSample sample;
    telemetry::StepRecord &record = sample.record;
    record.step = step;
    record.endNs = execution.endNs;
    record.wallNs = wallNs();
    record.loss = state.loss;
    record.gradNorm = state.gradNorm;
    record.lr = state.lr;
    record.lossScale = scale;
    record.overflow = state.overflow;
    record.stepMs = milliseconds(execution.endNs - execution.beginNs);
    record.tokensPerS = static_cast<double>(job.batch.global * job.model.seq) / (record.stepMs / 1e3);
    record.mfu = m_bootstrap.peakSeconds / (record.stepMs / 1e3);
    const StepTimes times = timesOf(execution);
    record.computeMs = milliseconds(times.compute);
    record.dataMs = milliseconds(times.data);
    record.optimizerMs = milliseconds(times.optimizer);
    record.memory = m_memory;
    sample.groupCount = std::min(execution.program->groups.size(), StepSample::mostGroups);
    for (std::size_t g = 0; g < sample.groupCount; ++g) {
        const GroupTotals &totals = execution.groups[g];
        sample.groups[g] = {totals.figures, milliseconds(totals.activeNs), milliseconds(totals.exposedNs)};
        // Waiting for another stage's activations or gradients is the pipeline's bubble.
        if (execution.program->groups[g].name == "pp")
            record.bubbleMs = milliseconds(totals.exposedNs);
    }
    m_reporter->put(sample);
    if (wantSpans(step, sample))
        m_reporter->putSpans(execution);
    if (state.overflow)
        m_reporter->put(telemetry::Payload(
            telemetry::EventRecord{record.wallNs, step, "overflow", {{"loss_scale", scale}}}));
}

/// Spans of the first steps, of 1 step in 100, of the last one, and of steps that are unlike the others.
bool Worker::wantSpans(std::int64_t step, const StepSample &sample)
{
    const telemetry::StepRecord &record = sample.record;
    const bool planned = step - m_firstStep < 3 || step % 100 == 0 || step == m_plan->job.run.steps;
    const bool odd = record.overflow || !std::isfinite(record.loss)
        || (m_typicalMs > 0 && record.stepMs > 2 * m_typicalMs);
    m_typicalMs = m_typicalMs == 0 ? record.stepMs : 0.9 * m_typicalMs + 0.1 * record.stepMs;
    if (!odd || step - m_lastAnomaly < 20)
        return planned;
    m_lastAnomaly = step;
    return true;
}

} // namespace rankyard::exec
