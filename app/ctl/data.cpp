// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "engine/base/units.h"
#include "engine/data/corpus.h"
#include "engine/data/prepare.h"

#include <cstdio>
#include <unistd.h>

namespace rankyard::ctl {

namespace {

/// Byte progress in place on a terminal; nothing elsewhere.
bool showProgress(const data::PrepareProgress &progress)
{
    static const bool live = ::isatty(2);
    if (live) {
        const double share = progress.bytesTotal > 0
            ? 100.0 * static_cast<double>(progress.bytesRead) / static_cast<double>(progress.bytesTotal)
            : 0.0;
        std::fprintf(stderr, "\r\033[K%s %s %%, %s tokens", progress.stage, formatNumber(share, 3).c_str(),
                     formatCount(static_cast<double>(progress.tokens)).c_str());
    }
    return true;
}

} // namespace

void addData(Commands &commands)
{
    CLI::App *data = commands.root().add_subcommand("data", "Text to tokens");
    data->require_subcommand(1);

    auto options = std::make_shared<data::PrepareOptions>();
    auto out = std::make_shared<std::string>();
    CLI::App *prepare =
        commands.add(*data, "prepare", "Text, JSON lines or gzip of them to an indexed dataset",
                     [options, out](Output &output) -> Result<Exit> {
                         options->out = *out;
                         options->progress = showProgress;
                         const auto report = data::prepare(*options);
                         if (::isatty(2))
                             std::fputs("\r\033[K", stderr);
                         if (!report)
                             return report.error();
                         if (output.json) {
                             output.document(*report);
                         } else {
                             output.line(*out + ".bin, .idx, .json: " + (*report)["documents"].dump()
                                         + " documents, " + (*report)["tokens"].dump()
                                         + " tokens, vocabulary " + (*report)["tokenizer"]["vocab"].dump());
                         }
                         return Exit::Done;
                     });
    prepare->add_option("inputs", options->inputs, "Text or JSONL files, also gzipped")->required();
    prepare->add_option("--tokenizer", options->tokenizer, "byte, bpe:N or spm:FILE")->required();
    prepare->add_option("--out", *out, "Prefix of the files to write")->required();

    auto name = std::make_shared<std::string>();
    CLI::App *show =
        commands.add(*data, "show", "What a dataset holds", [name](Output &output) -> Result<Exit> {
            RY_ASSIGN(const auto prefix, data::resolveCorpus(*name, std::filesystem::current_path()));
            RY_ASSIGN(const auto report, data::describeDataset(prefix));
            if (output.json)
                output.document(report);
            else
                output.line(dumpJson(report, 2));
            return Exit::Done;
        });
    show->add_option("data", *name, "A prefix or a name in the registry")->required();
}

} // namespace rankyard::ctl
