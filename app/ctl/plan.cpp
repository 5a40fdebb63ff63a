// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/plan.h"
#include "app/ctl/command.h"
#include "app/ctl/plan_wide.h"
#include "engine/base/units.h"
#include "engine/cluster/sources.h"
#include "engine/plan/combine.h"
#include "engine/predict/capacity.h"
#include "engine/predict/durations.h"
#include "engine/predict/footprint.h"
#include "engine/predict/verdict.h"

#include <algorithm>

namespace rankyard::ctl {

namespace {

struct PlanOptions {
    std::string job;
    std::vector<std::string> set;
    std::optional<int> program;
    std::string kind = "train";
    bool tensors = false;
    bool explain = false;
    std::string cluster;
};

/// A row for all ranks in a row that are alike. `gpus`: what lies on the host is no part of the peak.
std::string memoryTable(const plan::Plan &plan, bool gpus)
{
    std::vector<std::vector<std::string>> rows = {{"ranks", "stage"}};
    for (int kind = 0; kind < plan::memoryKindCount; ++kind)
        rows[0].push_back(plan::nameOf(static_cast<plan::MemoryKind>(kind)));
    rows[0].insert(rows[0].end(), {"peak", "alive", "peak ÷ alive"});
    const int world = plan.grid.world();
    for (int first = 0, next = 0; first < world; first = next) {
        const plan::Role role = plan.grid.role(first);
        while (next < world && plan.grid.role(next) == role)
            ++next;
        const plan::MemoryReport memory = plan::memoryOf(plan, role);
        rows.push_back({next - first > 1 ? std::to_string(first) + "–" + std::to_string(next - 1)
                                         : std::to_string(first),
                        std::to_string(role.stage)});
        for (const std::int64_t bytes : memory.bytes)
            rows.back().push_back(bytes == 0 ? "–" : formatBytes(static_cast<double>(bytes)));
        const std::int64_t host = gpus ? memory.bytes[static_cast<std::size_t>(plan::MemoryKind::Host)] : 0;
        const auto peak = static_cast<double>(memory.peak - host);
        const auto alive = static_cast<double>(memory.liveAtOnce - host);
        rows.back().push_back(formatBytes(peak));
        rows.back().push_back(formatBytes(alive));
        rows.back().push_back(alive > 0 ? formatNumber(peak / alive, 4) : "–");
    }
    return table(rows);
}

std::string trafficTable(const plan::Plan &plan)
{
    std::vector<std::vector<std::string>> rows = {{"group", "payload a step", "wire a step"}};
    const OrderedJson report = plan::planReport(plan);
    for (const auto &[group, payload] : report["payload"].items()) {
        rows.push_back(
            {group, formatBytes(payload.get<double>()), formatBytes(report["comm"][group].get<double>())});
    }
    return rows.size() > 1 ? table(rows) : "no communication: one rank";
}

/// What the step takes on a cluster: the whole, and by stage.
struct Times {
    predict::JobTime job;
    predict::ProgramTime program;
    std::string basis;
    double usable = 0; ///< bytes of a device; 0: not known
    bool gpus = false;
};

Result<Times> timesOf(const plan::Plan &plan, const std::string &name)
{
    RY_ASSIGN(const cluster::Cluster cluster, cluster::openCluster(name));
    // Cores can be shared, GPUs are not.
    const int devices = cluster.gpus() > 0 ? cluster.gpus() : plan.grid.world();
    if (plan.grid.world() > devices) {
        return Error::make(Code::DoesNotFit, "the cluster has fewer devices than the layout has ranks", name)
            .withFound(std::to_string(devices))
            .withExpected(std::to_string(plan.grid.world()));
    }
    RY_ASSIGN(const predict::CostModel cost, predict::costModelFor(plan.job, cluster));
    RY_ASSIGN(const plan::Timeline line, predict::timelineOf(cost, plan));
    Times times{predict::jobTime(cost, plan.job), predict::programTimeOf(line),
                (cost.machine().device.empty() ? "these cores" : cost.machine().device) + ", constants "
                    + cost.constants().source + ", " + cost.constants().date,
                predict::capacityOf(cost.machine()).usable(), cluster.gpus() > 0};
    predict::settle(times.job, times.program);
    return times;
}

void addTimes(const Times &times, OrderedJson &report)
{
    const predict::StepTime &s = times.job.step;
    report["step_ms"] = 1e3 * s.seconds;
    report["bubble"] = times.program.bubble;
    report["tflops_per_device"] = times.job.tflopsPerDevice;
    report["mfu"] = times.job.mfu;
    report["interval_ms"] = {1e3 * s.low, 1e3 * s.high};
    report["timeline"] = {{"step_ms", 1e3 * times.program.seconds}, {"bubble", times.program.bubble}};
    report["parts_ms"] = {{"compute", 1e3 * s.compute},  {"bubble", 1e3 * s.bubble},
                          {"tensor", 1e3 * s.tensor},    {"pipeline", 1e3 * s.pipeline},
                          {"data", 1e3 * s.data},        {"optimizer", 1e3 * s.optimizer},
                          {"overhead", 1e3 * s.overhead}};
    for (std::size_t i = 0; i < times.program.stages.size(); ++i) {
        const predict::ProgramTime::Stage &stage = times.program.stages[i];
        double idle = times.program.seconds - stage.compute;
        OrderedJson exposed = OrderedJson::object();
        for (const auto &[group, seconds] : stage.exposed) {
            exposed[group] = 1e3 * seconds;
            idle -= seconds;
        }
        report["stages"][i]["compute_ms"] = 1e3 * stage.compute;
        report["stages"][i]["idle_ms"] = 1e3 * std::max(0.0, idle);
        report["stages"][i]["exposed_ms"] = std::move(exposed);
    }
    if (times.usable > 0 || times.gpus) {
        double most = 0;
        for (auto &rank : report["ranks"]) {
            auto &memory = rank["memory"];
            const double host = times.gpus ? memory["host"].get<double>() : 0;
            if (times.gpus) // what the host holds is no part of it
                memory["device_peak"] = memory["peak"].get<double>() - host;
            most = std::max(most, memory["peak"].get<double>() - host);
        }
        report["usable_memory"] = times.usable;
        report["margin"] = times.usable - most;
    }
    report["notes"][0] =
        "step_ms, its 80 % interval, tflops_per_device (model FLOPs, attention whole) and mfu: the program's time line on "
        + times.basis + "; launches, loader and stragglers by its closed form";
    report["notes"].erase(3);
}

/// Where each stage's time goes.
std::string stageTable(const OrderedJson &report)
{
    std::vector<std::vector<std::string>> rows = {{"stage", "compute", "idle"}};
    for (const auto &stage : report["stages"]) {
        for (const auto &[group, ms] : stage["exposed_ms"].items()) {
            const std::string title = "waits for " + group;
            if (std::find(rows[0].begin(), rows[0].end(), title) == rows[0].end())
                rows[0].push_back(title);
        }
    }
    const auto ms = [](const OrderedJson &value) { return formatDuration(value.get<double>() / 1e3); };
    for (const auto &stage : report["stages"]) {
        rows.push_back({dumpJson(stage["stage"]), ms(stage["compute_ms"]), ms(stage["idle_ms"])});
        for (std::size_t i = 3; i < rows[0].size(); ++i) {
            const auto found = stage["exposed_ms"].find(rows[0][i].substr(10));
            rows.back().push_back(found == stage["exposed_ms"].end() ? "–" : ms(*found));
        }
    }
    return table(rows);
}

std::string stepLine(const OrderedJson &report)
{
    const auto ms = [](const OrderedJson &value) { return formatDuration(value.get<double>() / 1e3); };
    const OrderedJson &interval = report["interval_ms"];
    return "step " + ms(report["step_ms"]) + " (80 %: " + ms(interval[0]) + " to " + ms(interval[1]) + "), "
        + formatNumber(report["tflops_per_device"].get<double>(), 3) + " TFLOP/s a device, MFU "
        + formatPercent(report["mfu"].get<double>(), 3) + ", bubble "
        + formatPercent(report["bubble"].get<double>(), 2);
}

OrderedJson writeFigure(const predict::Figure &figure)
{
    OrderedJson inputs = OrderedJson::object();
    for (const auto &[name, value] : figure.inputs)
        inputs[name] = value;
    return {{"kind", figure.key},
            {"bytes", figure.value},
            {"formula", figure.formula},
            {"inputs", std::move(inputs)},
            {"source", figure.source}};
}

/// The fullest stage, kind by kind.
void showFormulas(const std::vector<predict::StageMemory> &stages, Output &output)
{
    const auto fullest = std::max_element(stages.begin(), stages.end(),
                                          [](const auto &a, const auto &b) { return a.used < b.used; });
    output.line("\nstage " + std::to_string(fullest->stage) + (stages.size() > 1 ? ", the fullest" : ""));
    for (const predict::Figure &figure : fullest->figures) {
        output.line(figure.key + " " + formatBytes(figure.value) + " = " + figure.formula);
        for (const auto &[name, value] : figure.inputs)
            output.line("    " + name + ": " + value);
        output.line("    source: " + figure.source);
    }
}

/// For people.
void showReport(const plan::Plan &plan, const OrderedJson &report, Output &output)
{
    const spec::JobSpec &job = plan.job;
    output.line(job.name + ": " + std::to_string(plan.grid.world()) + " ranks, "
                + std::to_string(job.microBatches()) + " micro-batches of " + std::to_string(job.batch.micro)
                + " a replica\n");
    output.line(memoryTable(plan, report["ranks"][0]["memory"].contains("device_peak")) + "\n");
    output.line(trafficTable(plan) + "\n");
    output.line("program " + plan.digest().substr(0, 12) + ": "
                + report["program"].value("ops", Json(0)).dump() + " ops, "
                + report["program"].value("collectives", Json(0)).dump() + " collectives");
    const bool timed = !report["step_ms"].is_null();
    if (timed && job.layout.pp > 1)
        output.line("\n" + stageTable(report) + "\n");
    output.line(timed ? stepLine(report) : report["notes"][0].get<std::string>());
    if (const auto margin = report.find("margin"); margin != report.end()) {
        const double left = margin->get<double>();
        const std::string usable = formatBytes(report["usable_memory"].get<double>());
        output.line(left >= 0 ? "fits: " + formatBytes(left) + " of " + usable + " usable are left"
                              : "does not fit: " + formatBytes(-left) + " more than the " + usable
                            + " that a device has to use; rankyardctl search shows what would");
    }
    for (std::size_t i = timed ? 0 : 1; i < report["notes"].size(); ++i)
        output.line("note: " + report["notes"][i].get<std::string>());
}

Result<Exit> showPlan(const PlanOptions &options, Output &output)
{
    RY_ASSIGN(Json document, spec::loadDocument(options.job, options.set));
    if (spec::hasPlanOnly(document)) {
        if (options.program || options.tensors)
            return Error::make(Code::Usage, "a job that can only be planned has no programs",
                               options.program ? "--program" : "--tensors");
        RY_ASSIGN(const auto wide, spec::readWideJob(std::move(document), options.job));
        return planWide(wide, options.cluster, output);
    }
    RY_ASSIGN(const auto job, spec::loadJob(options.job, options.set));
    RY_ASSIGN(const auto plan, plan::makePlan(job));
    if (options.program) {
        if (*options.program < 0 || *options.program >= plan.grid.world()) {
            return Error::make(Code::Usage, "no such rank", "--program")
                .withFound(std::to_string(*options.program))
                .withExpected("0 to " + std::to_string(plan.grid.world() - 1));
        }
        const plan::ProgramKind kind =
            options.kind == "eval" ? plan::ProgramKind::Eval : plan::ProgramKind::Train;
        if (!plan.has(kind))
            return Error::make(Code::BadJob, "the job has no such program", "--kind").withFound(options.kind);
        const plan::StepProgram &program = plan.program(kind, *options.program);
        if (output.json)
            output.document(plan::writeProgram(program));
        else
            output.line(plan::describe(program));
        return Exit::Done;
    }
    if (options.tensors) {
        const OrderedJson report = plan::tensorReport(plan);
        if (output.json)
            output.document(report);
        else
            output.line(dumpJson(report, 1));
        return Exit::Done;
    }
    OrderedJson report = plan::planReport(plan);
    if (const auto times = timesOf(plan, options.cluster.empty() ? job.cluster : options.cluster))
        addTimes(*times, report);
    else if (!options.cluster.empty())
        return times.error();
    else
        report["notes"][0] = "no times: " + times.error().text();
    std::vector<predict::StageMemory> stages;
    if (options.explain) {
        RY_ASSIGN(stages, predict::explainMemory(plan));
        for (std::size_t i = 0; i < stages.size(); ++i) {
            for (const predict::Figure &figure : stages[i].figures)
                report["stages"][i]["memory"].push_back(writeFigure(figure));
        }
    }
    if (output.json) {
        output.document(report);
        return Exit::Done;
    }
    showReport(plan, report, output);
    if (options.explain)
        showFormulas(stages, output);
    return Exit::Done;
}

OrderedJson combinationsReport()
{
    OrderedJson list = OrderedJson::array();
    for (const auto &rules : {plan::combinations(), plan::layoutRules()}) {
        for (const plan::Rule &rule : rules)
            list.push_back({{"key", rule.path}, {"rule", rule.rule}, {"nearest", rule.nearest}});
    }
    return list;
}

} // namespace

void addPlan(Commands &commands)
{
    auto options = std::make_shared<PlanOptions>();
    CLI::App *app =
        commands.add(commands.root(), "plan", "Memory, traffic and programs of a job, before anything runs",
                     [options](Output &output) { return showPlan(*options, output); });
    app->add_option("job", options->job, "The job file")->required();
    app->add_option("--set", options->set, "Override a key of the job: path=value");
    app->add_option(
        "--cluster", options->cluster,
        "Times on this cluster in place of the job's: a preset with nodes (dgx-a100-80x4) or a cluster file");
    app->add_option("--program", options->program, "Print the step program of this rank");
    app->add_option("--kind", options->kind, "Which program: train or eval")
        ->check(CLI::IsMember({"train", "eval"}));
    app->add_flag(
        "--explain", options->explain,
        "Print the formula behind each number of the fullest stage's memory; all stages with --json");
    app->add_flag("--tensors", options->tensors, "Print every tensor with its shards");

    auto rules = std::make_shared<bool>(false);
    auto wide = std::make_shared<bool>(false);
    CLI::App *schema = commands.add(commands.root(), "schema", "The JSON Schema of jobs",
                                    [rules, wide](Output &output) -> Result<Exit> {
                                        output.json = true;
                                        output.document(*rules      ? combinationsReport()
                                                            : *wide ? spec::planOnlySchema()
                                                                    : spec::jobSchema());
                                        return Exit::Done;
                                    });
    schema->add_flag("--plan-only", *wide,
                     "Of the section plan_only instead: what plan takes and nothing runs");
    schema->add_flag("--rules", *rules, "What does not combine, instead: key, rule and what would work");
}

} // namespace rankyard::ctl
