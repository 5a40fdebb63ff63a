// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"

#include <algorithm>
#include <cstdio>

namespace rankyard::ctl {

void Output::document(const OrderedJson &document)
{
    m_written = true;
    const std::string text = dumpJson(document, 1) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
}

void Output::line(const std::string &text)
{
    if (!json)
        std::fprintf(stdout, "%s\n", text.c_str());
}

void Output::note(const std::string &text) { std::fprintf(stderr, "%s\n", text.c_str()); }

void Output::error(const Error &error)
{
    if (json && !m_written)
        document({{"error", Json(error)}});
    std::fprintf(stderr, "rankyardctl: %s\n", error.text().c_str());
}

bool Output::flush() { return std::fflush(stdout) == 0 && !std::ferror(stdout); }

Commands::Commands(CLI::App &root) : m_root(root) { m_root.require_subcommand(1); }

CLI::App *Commands::add(CLI::App &parent, const std::string &name, const std::string &what, Work work)
{
    auto entry = std::make_unique<Entry>();
    entry->app = parent.add_subcommand(name, what);
    entry->work = std::move(work);
    entry->app->add_flag("--json", entry->json, "One JSON document on stdout");
    CLI::App *app = entry->app;
    m_entries.push_back(std::move(entry));
    return app;
}

int Commands::run(int argc, char **argv)
{
    Output output;
    try {
        m_root.parse(argc, argv);
    } catch (const CLI::Success &success) {
        return m_root.exit(success);
    } catch (const CLI::ParseError &error) {
        // The options were not all read, so --json is looked for by hand.
        output.json = std::any_of(argv, argv + argc,
                                  [](const char *text) { return std::string_view(text) == "--json"; });
        output.error(
            Error::make(Code::Usage, error.what()).withHint("rankyardctl --help-all lists every command"));
        return static_cast<int>(Exit::BadUsage);
    }
    for (const auto &entry : m_entries) {
        if (!entry->app->parsed())
            continue;
        output.json = entry->json;
        const Result<Exit> result = entry->work(output);
        if (!result)
            output.error(result.error());
        const Exit status = result ? *result : exitFor(result.error().code);
        if (!output.flush()) {
            std::fprintf(stderr, "rankyardctl: cannot write the result to standard output\n");
            return static_cast<int>(status == Exit::Done ? Exit::CannotRun : status);
        }
        return static_cast<int>(status);
    }
    return static_cast<int>(Exit::BadUsage);
}

namespace {

/// Columns that a UTF-8 text takes, one a code point: enough for the letters and signs that we print.
std::size_t columns(const std::string &text)
{
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

} // namespace

std::string table(const std::vector<std::vector<std::string>> &rows, std::size_t left)
{
    std::vector<std::size_t> widths;
    for (const auto &row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], columns(row[i]));
    }
    std::string text;
    for (const auto &row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string pad(widths[i] - columns(row[i]), ' ');
            line += (i ? "  " : "") + (i < left ? row[i] + pad : pad + row[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += (text.empty() ? "" : "\n") + line;
    }
    return text;
}

} // namespace rankyard::ctl
