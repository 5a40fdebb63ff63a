// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/interop/interop.h"

#include "app/ctl/command.h"
#include "engine/base/file.h"

namespace rankyard::ctl {

namespace {

using namespace interop;

OrderedJson listOf(const std::vector<Remark> &remarks, Remark::Kind kind)
{
    OrderedJson list = OrderedJson::array();
    for (const Remark &remark : remarks) {
        if (remark.kind == kind)
            list.push_back({{"path", remark.path}, {"value", remark.value}, {"why", remark.why}});
    }
    return list;
}

void note(Output &output, const std::vector<Remark> &remarks)
{
    for (const Remark &remark : remarks)
        output.note(std::string(nameOf(remark.kind)) + ": " + remark.path + " = " + remark.value + ": "
                    + remark.why);
}

Result<std::optional<Engine>> engineOfOption(const std::string &name)
{
    if (name.empty())
        return std::optional<Engine>();
    if (const auto engine = engineNamed(name))
        return engine;
    return Error::make(Code::Usage, "no such engine", "--from")
        .withFound(name)
        .withExpected("deepspeed, megatron, torchtitan");
}

struct ImportArguments {
    std::string file;
    std::string from;
    std::string base;
    std::int64_t world = 0;
};

Result<Exit> import(const ImportArguments &arguments, Output &output)
{
    ImportOptions options;
    RY_ASSIGN(options.from, engineOfOption(arguments.from));
    if (!arguments.base.empty()) {
        RY_ASSIGN(options.base, spec::loadJob(arguments.base));
    } else {
        options.base.data.train = "corpus";
    }
    if (arguments.world > 0)
        options.world = arguments.world;
    RY_ASSIGN(const std::string text, readFile(arguments.file));
    RY_ASSIGN(Imported imported, importConfig(text, arguments.file, options));
    // With the keys in the order of the schema where the job can run; as it is, and why not, where it cannot.
    const auto job = spec::readJob(imported.job, arguments.file);
    const OrderedJson document = job ? spec::writeJob(*job) : OrderedJson(imported.job);
    if (output.json) {
        OrderedJson report = {{"engine", nameOf(imported.engine)},
                              {"job", document},
                              {"lost", listOf(imported.remarks, Remark::Kind::Lost)},
                              {"guessed", listOf(imported.remarks, Remark::Kind::Guessed)},
                              {"runs", job.ok()}};
        if (!job)
            report["problem"] = Json(job.error());
        output.document(report);
        return Exit::Done;
    }
    note(output, imported.remarks);
    if (!job)
        output.note("the job cannot run as it is: " + job.error().text());
    output.line(dumpJson(document, 4));
    return Exit::Done;
}

Result<Exit> exportJob(const std::string &file, const std::string &to, Output &output)
{
    const auto engine = engineNamed(to);
    if (!engine)
        return Error::make(Code::Usage, "no such engine", "--to")
            .withFound(to)
            .withExpected("deepspeed, megatron, torchtitan");
    RY_ASSIGN(const spec::JobSpec job, spec::loadJob(file));
    const Exported exported = exportConfig(job, *engine);
    if (output.json) {
        output.document({{"engine", to},
                         {"text", exported.text},
                         {"lost", listOf(exported.remarks, Remark::Kind::Lost)},
                         {"guessed", listOf(exported.remarks, Remark::Kind::Guessed)}});
        return Exit::Done;
    }
    note(output, exported.remarks);
    output.line(exported.text.substr(0, exported.text.find_last_not_of('\n') + 1));
    return Exit::Done;
}

} // namespace

void addInterop(Commands &commands)
{
    auto in = std::make_shared<ImportArguments>();
    CLI::App *read =
        commands.add(commands.root(), "import",
                     "A job from another engine's configuration; what is lost or guessed goes to stderr",
                     [in](Output &output) { return import(*in, output); });
    read->add_option("file", in->file, "DeepSpeed's JSON, a script or YAML of Megatron-LM, torchtitan's TOML")
        ->required();
    read->add_option("--from", in->from, "deepspeed, megatron or torchtitan; told by the content without it");
    read->add_option("--base", in->base, "A job that has what the file does not say");
    read->add_option("--world", in->world, "Ranks that the configuration is for")
        ->check(CLI::Range(1, 1 << 24));
    auto job = std::make_shared<std::string>();
    auto to = std::make_shared<std::string>();
    CLI::App *write = commands.add(commands.root(), "export", "The job as another engine's configuration",
                                   [job, to](Output &output) { return exportJob(*job, *to, output); });
    write->add_option("job", *job, "A job file")->required();
    write->add_option("--to", *to, "deepspeed, megatron or torchtitan")->required();
}

} // namespace rankyard::ctl
