// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/plan.h"
#include "app/ctl/command.h"
#include "engine/base/units.h"
#include "engine/cluster/sources.h"
#include "engine/plan/combine.h"
#include "engine/predict/durations.h"
#include "engine/predict/step_time.h"

namespace rankyard::ctl {

namespace {

struct PlanOptions {
    std::string job;
    std::vector<std::string> set;
    std::optional<int> program;
    std::string kind = "train";
    bool tensors = false;
    std::string cluster;
};

std::string memoryTable(const plan::Plan &plan)
{
    std::vector<std::vector<std::string>> rows = {{"rank"}};
    for (int kind = 0; kind < plan::memoryKindCount; ++kind)
        rows[0].push_back(plan::nameOf(static_cast<plan::MemoryKind>(kind)));
    rows[0].push_back("peak");
    for (int rank = 0; rank < plan.grid.world(); ++rank) {
        const plan::MemoryReport memory = plan::memoryOf(plan, rank);
        rows.push_back({std::to_string(rank)});
        for (const std::int64_t bytes : memory.bytes)
            rows.back().push_back(bytes == 0 ? "–" : formatBytes(static_cast<double>(bytes)));
        rows.back().push_back(formatBytes(static_cast<double>(memory.peak)));
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

/// What the step takes on `cluster`: the closed form with its interval, and the program's own time line.
Status addTimes(const plan::Plan &plan, const std::string &name, OrderedJson &report)
{
    RY_ASSIGN(const cluster::Cluster cluster, cluster::openCluster(name));
    // Cores can be shared, GPUs are not.
    const int devices = cluster.gpus() > 0 ? cluster.gpus() : plan.grid.world();
    if (plan.grid.world() > devices) {
        return Error::make(Code::DoesNotFit, "the cluster has fewer devices than the layout has ranks", name)
            .withFound(std::to_string(devices))
            .withExpected(std::to_string(plan.grid.world()));
    }
    RY_ASSIGN(const predict::CostModel cost, predict::costModelOf(cluster, predict::ranksOf(plan.job)));
    const predict::JobTime time = predict::jobTime(cost, plan.job);
    RY_ASSIGN(const plan::Timeline line, predict::timelineOf(cost, plan));
    report["step_ms"] = 1e3 * time.step.seconds;
    report["bubble"] = time.step.bubbleShare();
    report["tflops_per_device"] = time.tflopsPerDevice;
    report["mfu"] = time.mfu;
    report["interval_ms"] = {1e3 * time.step.low, 1e3 * time.step.high};
    report["timeline"] = {{"step_ms", static_cast<double>(line.stepNs) / 1e6}, {"bubble", line.bubble()}};
    // What was probed are programs: theirs is the step. Constants of published runs are those of the closed form.
    if (cost.machine().cooperative) {
        report["step_ms"] = report["timeline"]["step_ms"];
        report["bubble"] = line.bubble();
    }
    const predict::StepTime &s = time.step;
    report["parts_ms"] = {{"compute", 1e3 * s.compute},  {"bubble", 1e3 * s.bubble},
                          {"tensor", 1e3 * s.tensor},    {"pipeline", 1e3 * s.pipeline},
                          {"data", 1e3 * s.data},        {"optimizer", 1e3 * s.optimizer},
                          {"overhead", 1e3 * s.overhead}};
    report["notes"][0] =
        "step_ms, its 80 % interval, tflops_per_device (model FLOPs, attention whole) and mfu: closed form on "
        + cost.machine().device + ", constants " + cost.constants().source + ", " + cost.constants().date
        + "; timeline: the program's ops by the same cost model, without the software's overheads";
    return {};
}

Result<Exit> showPlan(const PlanOptions &options, Output &output)
{
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
    OrderedJson times = plan::planReport(plan);
    if (!options.cluster.empty())
        RY_TRY(addTimes(plan, options.cluster, times));
    if (output.json || options.tensors) {
        const OrderedJson report = options.tensors ? plan::tensorReport(plan) : times;
        if (output.json)
            output.document(report);
        else
            output.line(dumpJson(report, 1));
        return Exit::Done;
    }
    const OrderedJson &report = times;
    output.line(job.name + ": " + std::to_string(plan.grid.world()) + " ranks, "
                + std::to_string(job.microBatches()) + " micro-batches of " + std::to_string(job.batch.micro)
                + " a replica\n");
    output.line(memoryTable(plan) + "\n");
    output.line(trafficTable(plan) + "\n");
    output.line("program " + plan.digest().substr(0, 12) + ": "
                + report["program"].value("ops", Json(0)).dump() + " ops, "
                + report["program"].value("collectives", Json(0)).dump() + " collectives");
    if (!report["step_ms"].is_null()) {
        output.line("step " + formatDuration(report["step_ms"].get<double>() / 1e3)
                    + " (80 %: " + formatDuration(report["interval_ms"][0].get<double>() / 1e3) + " to "
                    + formatDuration(report["interval_ms"][1].get<double>() / 1e3) + "), "
                    + formatNumber(report["tflops_per_device"].get<double>(), 3) + " TFLOP/s a device, MFU "
                    + formatNumber(100 * report["mfu"].get<double>(), 3) + " %, bubble "
                    + formatNumber(100 * report["bubble"].get<double>(), 2) + " %");
    }
    for (const auto &note : report.value("notes", OrderedJson::array()))
        output.line("note: " + (note.is_string() ? note.get<std::string>() : dumpJson(note)));
    return Exit::Done;
}

OrderedJson combinationsReport()
{
    OrderedJson list = OrderedJson::array();
    for (const plan::Combination &rule : plan::combinations())
        list.push_back({{"key", rule.path}, {"rule", rule.rule}, {"nearest", rule.nearest}});
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
    app->add_option("--cluster", options->cluster,
                    "Predict times on this cluster: a preset with nodes (dgx-a100-80x4) or a cluster file");
    app->add_option("--program", options->program, "Print the step program of this rank");
    app->add_option("--kind", options->kind, "Which program: train or eval")
        ->check(CLI::IsMember({"train", "eval"}));
    app->add_flag("--tensors", options->tensors, "Print every tensor with its shards");

    auto rules = std::make_shared<bool>(false);
    CLI::App *schema = commands.add(commands.root(), "schema", "The JSON Schema of jobs",
                                    [rules](Output &output) -> Result<Exit> {
                                        output.json = true;
                                        output.document(*rules ? combinationsReport() : spec::jobSchema());
                                        return Exit::Done;
                                    });
    schema->add_flag("--rules", *rules, "What does not combine, instead: key, rule and what would work");
}

} // namespace rankyard::ctl
