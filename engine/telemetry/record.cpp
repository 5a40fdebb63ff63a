// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/record.h"

#include <iterator>
#include <limits>
#include <string_view>

namespace rankyard::telemetry {

namespace {

template<auto Member>
double field(const StepRecord &record)
{
    return static_cast<double>(record.*Member);
}

template<auto Member>
double sumOverGroups(const StepRecord &record)
{
    double sum = 0;
    for (const GroupFigures &group : record.comm)
        sum += static_cast<double>(group.*Member);
    return sum;
}

template<plan::MemoryKind Kind>
double memoryOf(const StepRecord &record)
{
    return static_cast<double>(record.memory[static_cast<std::size_t>(Kind)]);
}

double memoryPeak(const StepRecord &record)
{
    double sum = 0;
    for (const std::int64_t bytes : record.memory)
        sum += static_cast<double>(bytes);
    return sum;
}

struct MetricRow {
    const char *name;
    double (*value)(const StepRecord &);
};

/// New metrics go to the end: the pyramid in the store keeps them by place.
constexpr MetricRow table[] = {
    {"loss", field<&StepRecord::loss>},
    {"grad_norm", field<&StepRecord::gradNorm>},
    {"lr", field<&StepRecord::lr>},
    {"loss_scale", field<&StepRecord::lossScale>},
    {"overflow", field<&StepRecord::overflow>},
    {"tokens_per_s", field<&StepRecord::tokensPerS>},
    {"step_ms", field<&StepRecord::stepMs>},
    {"compute_ms", field<&StepRecord::computeMs>},
    {"optimizer_ms", field<&StepRecord::optimizerMs>},
    {"data_ms", field<&StepRecord::dataMs>},
    {"bubble_ms", field<&StepRecord::bubbleMs>},
    {"mfu", field<&StepRecord::mfu>},
    {"memory.params", memoryOf<plan::MemoryKind::Params>},
    {"memory.grads", memoryOf<plan::MemoryKind::Grads>},
    {"memory.optimizer", memoryOf<plan::MemoryKind::Optimizer>},
    {"memory.activations", memoryOf<plan::MemoryKind::Activations>},
    {"memory.gathered", memoryOf<plan::MemoryKind::Gathered>},
    {"memory.buckets", memoryOf<plan::MemoryKind::Buckets>},
    {"memory.workspace", memoryOf<plan::MemoryKind::Workspace>},
    {"memory.host", memoryOf<plan::MemoryKind::Host>},
    {"memory.total", memoryPeak},
    {"comm.ms", sumOverGroups<&GroupFigures::ms>},
    {"comm.exposed_ms", sumOverGroups<&GroupFigures::exposedMs>},
    {"comm.payload", sumOverGroups<&GroupFigures::payload>},
    {"comm.wire", sumOverGroups<&GroupFigures::wire>},
    {"comm.moved", sumOverGroups<&GroupFigures::moved>},
};

/// "comm.<group>.<figure>" of one group, which the table cannot know.
double groupMetric(const StepRecord &record, std::string_view name)
{
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    const std::size_t dot = name.rfind('.');
    if (!name.starts_with("comm.") || dot <= 5)
        return none;
    const std::string_view group = name.substr(5, dot - 5);
    const std::string_view figure = name.substr(dot + 1);
    for (const GroupFigures &one : record.comm) {
        if (one.group != group)
            continue;
        if (figure == "ms")
            return one.ms;
        if (figure == "exposed_ms")
            return one.exposedMs;
        const std::int64_t *bytes = figure == "payload" ? &one.payload
            : figure == "wire"                          ? &one.wire
            : figure == "moved"                         ? &one.moved
                                                        : nullptr;
        return bytes ? static_cast<double>(*bytes) : none;
    }
    return none;
}

} // namespace

double StepRecord::exposedMs() const { return sumOverGroups<&GroupFigures::exposedMs>(*this); }

const std::vector<std::string> &metricNames()
{
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const MetricRow &row : table)
            all.emplace_back(row.name);
        return all;
    }();
    return names;
}

double metric(const StepRecord &record, const std::string &name)
{
    for (const MetricRow &row : table) {
        if (name == row.name)
            return row.value(record);
    }
    return groupMetric(record, name);
}

void metrics(const StepRecord &record, std::vector<double> &values)
{
    values.resize(std::size(table));
    for (std::size_t i = 0; i < std::size(table); ++i)
        values[i] = table[i].value(record);
}

} // namespace rankyard::telemetry
