// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/plan_wide.h"

#include "engine/base/units.h"
#include "engine/cluster/sources.h"
#include "engine/predict/wide.h"

#include <utility>
#include <vector>

namespace rankyard::ctl {

namespace {

using predict::ClosedMemory;

constexpr std::pair<const char *, double ClosedMemory::*> kinds[] = {
    {"params", &ClosedMemory::params},       {"grads", &ClosedMemory::grads},
    {"optimizer", &ClosedMemory::optimizer}, {"activations", &ClosedMemory::activations},
    {"gathered", &ClosedMemory::gathered},   {"workspace", &ClosedMemory::workspace}};

OrderedJson reportOf(const predict::WidePlan &plan)
{
    const predict::StepTime &s = plan.step;
    OrderedJson stages = OrderedJson::array();
    for (std::size_t i = 0; i < plan.stages.size(); ++i) {
        OrderedJson memory = OrderedJson::object();
        for (const auto &[name, part] : kinds)
            memory[name] = plan.stages[i].*part;
        memory["peak"] = plan.stages[i].peak();
        stages.push_back({{"stage", i}, {"memory", std::move(memory)}});
    }
    OrderedJson report = {{"plan_only", true},
                          {"model", plan.run.shape.name},
                          {"params", plan.params},
                          {"active_params", plan.activeParams},
                          {"flops", plan.flops},
                          {"step_ms", 1e3 * s.seconds},
                          {"interval_ms", {1e3 * s.low, 1e3 * s.high}},
                          {"tflops_per_device", plan.tflopsPerDevice},
                          {"mfu", plan.mfu},
                          {"bubble", s.bubbleShare()},
                          {"parts_ms",
                           {{"compute", 1e3 * s.compute},
                            {"bubble", 1e3 * s.bubble},
                            {"tensor", 1e3 * s.tensor},
                            {"pipeline", 1e3 * s.pipeline},
                            {"data", 1e3 * s.data},
                            {"optimizer", 1e3 * s.optimizer},
                            {"overhead", 1e3 * s.overhead}}},
                          {"stages", std::move(stages)},
                          {"usable_memory", plan.capacity.usable()},
                          {"margin", plan.capacity.usable() - plan.peak()}};
    report["notes"] = predict::wideNotes();
    return report;
}

std::string memoryTable(const predict::WidePlan &plan)
{
    std::vector<std::vector<std::string>> rows = {{"stage"}};
    for (const auto &[name, part] : kinds)
        rows[0].emplace_back(name);
    rows[0].emplace_back("peak");
    for (std::size_t i = 0; i < plan.stages.size(); ++i) {
        rows.push_back({std::to_string(i)});
        for (const auto &[name, part] : kinds) {
            const double bytes = plan.stages[i].*part;
            rows.back().push_back(bytes == 0 ? "–" : formatBytes(bytes));
        }
        rows.back().push_back(formatBytes(plan.stages[i].peak()));
    }
    return table(rows);
}

void show(const spec::WideJob &job, const predict::WidePlan &plan, Output &output)
{
    const predict::StepTime &s = plan.step;
    std::string what = plan.run.shape.name + ", " + formatCount(plan.params) + " parameters";
    if (plan.activeParams < plan.params)
        what += ", " + formatCount(plan.activeParams) + " of them for a token";
    output.line(job.job.name + ": " + what + ", " + std::to_string(job.job.layout.world()) + " ranks, "
                + std::to_string(job.job.microBatches()) + " micro-batches of "
                + std::to_string(job.job.batch.micro) + " a replica, "
                + predict::nameOf(plan.run.micro.precision) + "\n");
    output.line(memoryTable(plan) + "\n");
    output.line("step " + formatDuration(s.seconds) + " (80 %: " + formatDuration(s.low) + " to "
                + formatDuration(s.high) + "), " + formatNumber(plan.tflopsPerDevice, 4)
                + " TFLOP/s a device, MFU " + formatPercent(plan.mfu, 3) + ", bubble "
                + formatPercent(s.bubbleShare(), 2));
    const double left = plan.capacity.usable() - plan.peak();
    const std::string usable = formatBytes(plan.capacity.usable());
    output.line(left >= 0 ? "fits: " + formatBytes(left) + " of " + usable + " usable are left"
                          : "does not fit: " + formatBytes(-left) + " more than the " + usable
                        + " that a device has to use");
    for (const std::string &note : predict::wideNotes())
        output.line("note: " + note);
}

} // namespace

Result<Exit> planWide(const spec::WideJob &job, const std::string &cluster, Output &output)
{
    RY_ASSIGN(const cluster::Cluster devices,
              cluster::openCluster(cluster.empty() ? job.job.cluster : cluster));
    RY_ASSIGN(const predict::WidePlan plan, predict::planWide(job, devices));
    if (output.json)
        output.document(reportOf(plan));
    else
        show(job, plan, output);
    return Exit::Done;
}

} // namespace rankyard::ctl
