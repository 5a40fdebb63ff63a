// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/plan.h"
#include "app/ctl/command.h"
#include "engine/base/units.h"

namespace rankyard::ctl {

namespace {

struct PlanOptions {
    std::string job;
    std::vector<std::string> set;
    std::optional<int> program;
    std::string kind = "train";
    bool tensors = false;
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
    for (const auto &[group, traffic] : plan::trafficOf(plan, 0)) {
        rows.push_back({group, formatBytes(static_cast<double>(traffic.payload)),
                        formatBytes(static_cast<double>(traffic.wire))});
    }
    return rows.size() > 1 ? table(rows) : "no communication: one rank";
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
    if (output.json || options.tensors) {
        const OrderedJson report = options.tensors ? plan::tensorReport(plan) : plan::planReport(plan);
        if (output.json)
            output.document(report);
        else
            output.line(dumpJson(report, 1));
        return Exit::Done;
    }
    const OrderedJson report = plan::planReport(plan);
    output.line(job.name + ": " + std::to_string(plan.grid.world()) + " ranks, "
                + std::to_string(job.microBatches()) + " micro-batches of " + std::to_string(job.batch.micro)
                + " a replica\n");
    output.line(memoryTable(plan) + "\n");
    output.line(trafficTable(plan) + "\n");
    output.line("program " + plan.digest().substr(0, 12) + ": "
                + report["program"].value("ops", Json(0)).dump() + " ops, "
                + report["program"].value("collectives", Json(0)).dump() + " collectives");
    for (const auto &note : report.value("notes", OrderedJson::array()))
        output.line("note: " + (note.is_string() ? note.get<std::string>() : dumpJson(note)));
    return Exit::Done;
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
    app->add_option("--program", options->program, "Print the step program of this rank");
    app->add_option("--kind", options->kind, "Which program: train or eval")
        ->check(CLI::IsMember({"train", "eval"}));
    app->add_flag("--tensors", options->tensors, "Print every tensor with its shards");

    commands.add(commands.root(), "schema", "The JSON Schema of jobs", [](Output &output) -> Result<Exit> {
        output.json = true;
        output.document(spec::jobSchema());
        return Exit::Done;
    });
}

} // namespace rankyard::ctl
