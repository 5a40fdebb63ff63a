// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

/// The frame of rankyardctl: every subcommand takes --json, prints one document on stdout with it, everything else on stderr,
/// and ends with the status of its error's code.
namespace rankyard::ctl {

/// What a subcommand writes to. Stdout is for results alone.
class Output
{
public:
    bool json = false;

    /// The result as one JSON document. Once per command.
    void document(const OrderedJson &document);
    /// The result for people, a line at a time.
    void line(const std::string &text);
    /// Progress and notes, to stderr.
    void note(const std::string &text);
    /// An error as {"error": …} with --json, and as one line on stderr.
    void error(const Error &error);
    /// False when stdout could not take everything (a full disk, a closed pipe).
    bool flush();

private:
    bool m_written = false;
};

/// Registers subcommands and runs the one that was asked for.
class Commands
{
public:
    using Work = std::function<Result<Exit>(Output &output)>;

    explicit Commands(CLI::App &root);
    /// A subcommand of `parent` with --json and its work.
    CLI::App *add(CLI::App &parent, const std::string &name, const std::string &what, Work work);
    CLI::App &root() { return m_root; }
    /// Parses and runs; the exit status of the process.
    int run(int argc, char **argv);

private:
    CLI::App &m_root;
    struct Entry {
        CLI::App *app;
        Work work;
        bool json = false;
    };
    std::vector<std::unique_ptr<Entry>> m_entries;
};

void addTrain(Commands &commands);    ///< train, attach
void addControl(Commands &commands);  ///< stop, pause, resume, checkpoint
void addPlan(Commands &commands);     ///< plan, schema
void addValidate(Commands &commands); ///< validate
void addSearch(Commands &commands);   ///< search, advise
void addCluster(Commands &commands);  ///< cluster show
void addParity(Commands &commands);   ///< parity
void addData(Commands &commands);     ///< data prepare, data show
void addInterop(Commands &commands);  ///< import, export
void addRuns(Commands &commands);     ///< runs list, show, metrics, compare, rm
void addCkpt(Commands &commands);     ///< ckpt list, show, verify

/// A table with right-aligned cells but the first `left` columns, for people.
std::string table(const std::vector<std::vector<std::string>> &rows, std::size_t left = 1);

} // namespace rankyard::ctl
