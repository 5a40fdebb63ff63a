// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/run_json.h"

#include <algorithm>
#include <ctime>
#include <map>

namespace rankyard::ctl {

namespace {

/// One step from the rows of all its ranks, the lowest rank's first.
OrderedJson stepJson(const std::vector<store::StepRow>::const_iterator begin,
                     const std::vector<store::StepRow>::const_iterator end)
{
    const telemetry::StepRecord &first = begin->record;
    double stepMs = 0;
    std::array<std::int64_t, plan::memoryKindCount> memory{};
    std::map<std::string, telemetry::GroupFigures> groups;
    for (auto row = begin; row != end; ++row) {
        stepMs = std::max(stepMs, row->record.stepMs);
        for (std::size_t kind = 0; kind < memory.size(); ++kind)
            memory[kind] = std::max(memory[kind], row->record.memory[kind]);
        for (const telemetry::GroupFigures &figures : row->record.comm) {
            telemetry::GroupFigures &group = groups[figures.group];
            group.payload = std::max(group.payload, figures.payload);
            group.wire = std::max(group.wire, figures.wire);
            group.moved = std::max(group.moved, figures.moved);
            group.ms = std::max(group.ms, figures.ms);
            group.exposedMs = std::max(group.exposedMs, figures.exposedMs);
        }
    }
    OrderedJson json = {{"step", first.step},
                        {"loss", first.loss},
                        {"grad_norm", first.gradNorm},
                        {"lr", first.lr},
                        {"loss_scale", first.lossScale},
                        {"overflow", first.overflow},
                        {"tokens_per_s", first.tokensPerS},
                        {"step_ms", stepMs},
                        {"mfu", first.mfu}};
    OrderedJson bytes = OrderedJson::object();
    for (std::size_t kind = 0; kind < memory.size(); ++kind)
        bytes[plan::nameOf(static_cast<plan::MemoryKind>(kind))] = memory[kind];
    json["memory"] = std::move(bytes);
    OrderedJson comm = OrderedJson::object();
    for (const auto &[name, group] : groups) {
        comm[name] = {{"payload", group.payload},
                      {"wire", group.wire},
                      {"moved", group.moved},
                      {"ms", group.ms},
                      {"exposed_ms", group.exposedMs}};
    }
    json["comm"] = std::move(comm);
    return json;
}

} // namespace

Result<OrderedJson> stepsJson(store::RunStore &store, const std::string &run, std::int64_t first,
                              std::int64_t last)
{
    RY_ASSIGN(const auto rows, store.steps(run, -1, first, last));
    OrderedJson steps = OrderedJson::array();
    for (auto begin = rows.begin(); begin != rows.end();) {
        const auto end = std::find_if(begin, rows.end(), [&](const store::StepRow &row) {
            return row.record.step != begin->record.step;
        });
        steps.push_back(stepJson(begin, end));
        begin = end;
    }
    return steps;
}

Result<OrderedJson> runDocument(store::RunStore &store, const std::string &run)
{
    RY_ASSIGN(const auto info, store.run(run));
    RY_ASSIGN(auto steps, stepsJson(store, run));
    RY_ASSIGN(const auto evals, store.evals(run));
    OrderedJson valid = OrderedJson::array();
    for (const telemetry::EvalRecord &eval : evals)
        valid.push_back({{"step", eval.step}, {"loss", eval.loss}});
    OrderedJson document = {{"run", info.id},
                            {"state", telemetry::nameOf(info.state)},
                            {"steps", std::move(steps)},
                            {"valid", std::move(valid)},
                            {"error", nullptr}};
    if (info.error)
        document["error"] = Json(*info.error);
    return document;
}

OrderedJson summaryJson(const store::RunInfo &run)
{
    OrderedJson json = {{"run", run.id},
                        {"name", run.name},
                        {"state", telemetry::nameOf(run.state)},
                        {"started", timeText(run.startedNs)},
                        {"ended", timeText(run.endedNs)},
                        {"step", run.step},
                        {"steps", run.steps},
                        {"loss", run.lastLoss},
                        {"best_loss", run.bestLoss},
                        {"tokens_per_s", run.tokensPerS},
                        {"world", run.world},
                        {"layout", layoutText(run.job)},
                        {"node", run.node},
                        {"run_dir", run.runDir},
                        {"error", nullptr}};
    if (run.error)
        json["error"] = Json(*run.error);
    return json;
}

std::string layoutText(const std::string &job)
{
    const Result<Json> document = parseJson(job, "job");
    if (!document || !document->is_object())
        return {};
    const Json layout = document->value("layout", Json::object());
    std::string text;
    const auto add = [&text](const std::string &part) { text += (text.empty() ? "" : "·") + part; };
    for (const char *axis : {"dp", "tp", "pp", "cp"}) {
        const auto at = layout.find(axis);
        if (at != layout.end() && at->is_number_integer() && (*at != 1 || std::string(axis) == "dp"))
            add(axis + std::to_string(at->get<std::int64_t>()));
    }
    const Json zero = document->value("zero", Json::object());
    if (const auto at = zero.find("stage"); at != zero.end() && at->is_number_integer())
        add("z" + std::to_string(at->get<std::int64_t>()));
    return text;
}

std::string timeText(std::int64_t wallNs)
{
    if (wallNs == 0)
        return {};
    const std::time_t seconds = wallNs / 1'000'000'000;
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char text[32];
    return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

} // namespace rankyard::ctl
