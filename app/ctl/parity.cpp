// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/parity.h"

#include "app/ctl/command.h"
#include "engine/data/corpus.h"
#include "engine/exec/plugin.h"
#include "engine/exec/sampler_source.h"

#include <algorithm>
#include <filesystem>

namespace rankyard::ctl {

namespace {

struct ParityCommand {
    std::string job;
    std::vector<std::string> set;
    std::int64_t steps = 20;
    std::string precision = "fp64";
    std::string device = "cpu";
};

/// Devices of the plug-in for the ranks of a layout, or an error that says what is missing.
Result<std::vector<std::unique_ptr<exec::Device>>> openGpus(int ranks)
{
    std::error_code none;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
    RY_ASSIGN(const exec::DevicePlugin *plugin, exec::openPlugin(folder / exec::devicePluginFile));
    if (const int count = plugin->count(); count < ranks)
        return Error::make(Code::NotHere, "there are fewer GPUs than ranks", "--device gpu")
            .withFound(std::to_string(count))
            .withExpected(std::to_string(ranks));
    std::vector<std::unique_ptr<exec::Device>> devices;
    for (int rank = 0; rank < ranks; ++rank) {
        RY_ASSIGN(devices.emplace_back(), plugin->make(1, rank));
    }
    return devices;
}

OrderedJson documentOf(const exec::ParityReport &report)
{
    OrderedJson steps = OrderedJson::array();
    for (const exec::ParityStep &step : report.steps) {
        steps.push_back({{"loss", step.loss},
                         {"loss_scale", step.lossScale},
                         {"reference_loss_scale", step.referenceLossScale},
                         {"overflow", step.overflow},
                         {"reference_overflow", step.referenceOverflow},
                         {"exact_loss", report.exactLimit > 0 ? OrderedJson(step.exactLoss) : OrderedJson()},
                         {"reference_loss", step.referenceLoss},
                         {"grad_norm", step.gradNorm},
                         {"reference_grad_norm", step.referenceGradNorm}});
    }
    return {{"ok", report.ok()},
            {"steps", steps},
            {"loss", {{"relative_error", report.worstLoss}, {"limit", report.lossLimit}}},
            {"exact",
             report.exactLimit > 0
                 ? OrderedJson({{"relative_error", report.worstExact}, {"limit", report.exactLimit}})
                 : OrderedJson()},
            {"worst",
             {{"parameter", report.worst.parameter},
              {"unit", report.worst.unit},
              {"step", report.worst.step},
              {"relative_error", report.worst.relativeError},
              {"limit", report.gradientLimit}}}};
}

void printReport(const exec::ParityReport &report, Output &output)
{
    std::vector<std::vector<std::string>> rows = {
        {"step", "loss", "on one rank", "gradient norm", "on one rank"}};
    for (std::size_t i = 0; i < report.steps.size(); ++i) {
        const exec::ParityStep &step = report.steps[i];
        rows.push_back({std::to_string(i + 1), formatNumber(step.loss, 12),
                        formatNumber(step.referenceLoss, 12), formatNumber(step.gradNorm, 8),
                        formatNumber(step.referenceGradNorm, 8)});
    }
    output.line(table(rows) + "\n");
    output.line("losses differ by " + formatNumber(report.worstLoss, 3) + " at most (limit "
                + formatNumber(report.lossLimit, 3) + ")");
    if (report.exactLimit > 0)
        output.line("from one rank in fp64 they differ by " + formatNumber(report.worstExact, 3)
                    + " at most (limit " + formatNumber(report.exactLimit, 3) + ")");
    if (report.worst.parameter.empty())
        return;
    output.line("worst gradient: " + report.worst.parameter + " of " + report.worst.unit + ", error "
                + formatNumber(report.worst.relativeError, 3) + " at step "
                + std::to_string(report.worst.step) + " (limit " + formatNumber(report.gradientLimit, 3)
                + ")");
}

/// In words what the report does not say.
std::string verdictOf(const exec::ParityReport &report, const spec::JobSpec &asked, const spec::JobSpec &job)
{
    const std::string type = nameOf(job.precision.compute);
    if (report.worst.parameter.empty())
        return "nothing was compared: every step overflowed. NO parity";
    std::string text = (report.ok() ? "parity in " : "NO parity in ") + type;
    if (asked.precision.compute != job.precision.compute)
        text += std::string("; the job's own type: --precision ") + nameOf(asked.precision.compute);
    if (!report.ok() && job.compression.mode != "none" && job.precision.compute != DType::F64)
        text +=
            "; codes make whole levels out of roundings, so that below fp64 layouts of one job part: compare in fp64";
    return text;
}

Result<Exit> checkJob(const ParityCommand &command, Output &output)
{
    RY_ASSIGN(const spec::JobSpec asked, spec::loadJob(command.job, command.set));
    spec::JobSpec job = asked;
    DType type = DType::F64;
    if (!dtypeFromName(command.precision, type))
        return Error::make(Code::Usage, "unknown type", "--precision").withFound(command.precision);
    job.precision.compute = type;
    job.precision.grad = job.precision.master = type == DType::F64 ? type : DType::F32;
    if (type == DType::F64)
        job.precision.reduce = type;
    RY_TRY(spec::validateJob(job));
    const std::string folder = std::filesystem::absolute(command.job).parent_path().string();
    exec::ParityOptions options;
    options.steps = command.steps;
    options.makeReference = [] { return exec::makeCpuDevice(1); };
    options.makeDevice = options.makeReference;
    std::vector<std::unique_ptr<exec::Device>> gpus;
    if (command.device == "gpu") {
        RY_ASSIGN(gpus, openGpus(plan::RankGrid(job.layout).world()));
        std::reverse(gpus.begin(), gpus.end());
        options.makeDevice = [&gpus] {
            auto device = std::move(gpus.back());
            gpus.pop_back();
            return device;
        };
    }
    options.makeData = [&folder](const spec::JobSpec &each) -> Result<std::unique_ptr<exec::DataSource>> {
        RY_ASSIGN(const data::Corpus corpus, data::Corpus::open(each, folder));
        return std::unique_ptr<exec::DataSource>(
            std::make_unique<exec::SamplerSource>(data::Sampler(corpus, each)));
    };
    options.progress = [&](std::int64_t step) {
        output.note("step " + std::to_string(step) + " of " + std::to_string(command.steps));
    };
    RY_ASSIGN(const exec::ParityReport report, exec::checkParity(job, options));
    const bool compared = !report.worst.parameter.empty();
    if (output.json) {
        OrderedJson document = documentOf(report);
        document["ok"] = report.ok() && compared;
        document["precision"] = nameOf(job.precision.compute);
        document["verdict"] = verdictOf(report, asked, job);
        output.document(document);
    } else {
        printReport(report, output);
        output.line(verdictOf(report, asked, job));
    }
    return report.ok() && compared ? Exit::Done : Exit::RankFailed;
}

} // namespace

void addParity(Commands &commands)
{
    auto options = std::make_shared<ParityCommand>();
    CLI::App *app =
        commands.add(commands.root(), "parity",
                     "The job in its layout and on one rank: losses and every parameter's gradient",
                     [options](Output &output) { return checkJob(*options, output); });
    app->add_option("job", options->job, "The job file")->required();
    app->add_option("--set", options->set, "Override a key of the job: path=value");
    app->add_option("--steps", options->steps, "Steps of training")->check(CLI::Range(1, 1000000));
    app->add_option("--precision", options->precision,
                    "Type to compute in, whatever the job's: fp64 proves the layout")
        ->check(CLI::IsMember({"fp64", "fp32", "bf16", "fp16"}));
    app->add_option("--device", options->device,
                    "What the layout's ranks compute on; the one rank is the CPU's")
        ->check(CLI::IsMember({"cpu", "gpu"}));
}

} // namespace rankyard::ctl
