// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/reporter.h"

#include <algorithm>
#include <utility>

namespace rankyard::exec {

Reporter::Reporter(std::vector<std::string> groupNames, std::size_t mostOps)
    : m_groupNames(std::move(groupNames)),
      m_ring(1024),
      m_free(8)
{
    for (telemetry::SpanRecord &spans : m_spans) {
        spans.op.reserve(mostOps);
        spans.beginNs.reserve(mostOps);
        spans.endNs.reserve(mostOps);
        spans.digest.reserve(64);
        m_free.push(&spans);
    }
}

void Reporter::put(const StepSample &sample) { m_ring.push(sample); }
void Reporter::put(telemetry::Payload payload) { m_ring.push(std::move(payload)); }
void Reporter::report(Json message) { m_ring.push(Report{std::move(message)}); }

void Reporter::log(telemetry::Level level, std::int64_t step, std::string text)
{
    put(telemetry::Payload(telemetry::LogRecord{wallNs(), level, step, std::move(text)}));
}

void Reporter::putSpans(const Execution &execution)
{
    telemetry::SpanRecord *spans = std::exchange(m_spare, nullptr);
    if (!spans && !m_free.pop(spans))
        return;
    spans->step = execution.step;
    spans->digest.assign(execution.program->digest);
    spans->program = execution.kind;
    spans->originNs = execution.beginNs;
    spans->op.clear();
    spans->beginNs.clear();
    spans->endNs.clear();
    // Op ids ascending in time of begin: the streams' orders, merged.
    std::array<std::size_t, plan::streamCount> at{};
    for (;;) {
        std::size_t next = at.size();
        for (std::size_t stream = 0; stream < at.size(); ++stream) {
            if (at[stream] == execution.order[stream].size())
                continue;
            const auto begin = [&](std::size_t s) {
                return execution.opBegin[static_cast<std::size_t>(execution.order[s][at[s]])];
            };
            if (next == at.size() || begin(stream) < begin(next))
                next = stream;
        }
        if (next == at.size())
            break;
        const plan::OpId id = execution.order[next][at[next]++];
        spans->op.push_back(id);
        spans->beginNs.push_back(execution.opBegin[static_cast<std::size_t>(id)] - execution.beginNs);
        spans->endNs.push_back(execution.opEnd[static_cast<std::size_t>(id)] - execution.beginNs);
    }
    if (!m_ring.push(spans))
        m_spare = spans;
}

telemetry::StepRecord Reporter::expand(const StepSample &sample) const
{
    telemetry::StepRecord record = sample.record;
    for (std::size_t g = 0; g < sample.groupCount && g < m_groupNames.size(); ++g) {
        const StepSample::Group &group = sample.groups[g];
        record.comm.push_back({m_groupNames[g], group.figures.payload, group.figures.wire,
                               group.figures.moved, group.ms, group.exposedMs});
    }
    return record;
}

void Reporter::drain(const std::function<void(telemetry::Payload &&)> &payload,
                     const std::function<void(Json &&)> &report)
{
    m_ring.drain([&](Item &&item) {
        if (const auto *sample = std::get_if<StepSample>(&item)) {
            payload(expand(*sample));
        } else if (auto *spans = std::get_if<telemetry::SpanRecord *>(&item)) {
            payload(telemetry::Payload(**spans)); // a copy: the vectors go back for the next one
            m_free.push(*spans);
        } else if (auto *record = std::get_if<telemetry::Payload>(&item)) {
            payload(std::move(*record));
        } else if (auto *message = std::get_if<Report>(&item)) {
            report(std::move(message->message));
        }
        item = std::monostate{};
    });
}

} // namespace rankyard::exec
