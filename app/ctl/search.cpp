// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "app/ctl/interrupts.h"
#include "engine/base/units.h"
#include "engine/cluster/sources.h"
#include "engine/search/advise.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace rankyard::ctl {

namespace {

struct SearchOptions {
    std::string job;
    std::vector<std::string> set;
    std::string cluster;
    int gpus = 0;
    int top = 10;
    bool closed = false;
};

std::vector<std::string> row(const search::Candidate &candidate)
{
    return {search::textOf(candidate.choice),
            formatDuration(candidate.time.seconds),
            formatDuration(candidate.time.low) + " – " + formatDuration(candidate.time.high),
            formatPercent(candidate.mfu, 3),
            formatBytes(candidate.bytes),
            formatBytes(candidate.margin)};
}

void showCandidates(Output &output, const std::string &title, const std::vector<search::Candidate> &list)
{
    if (list.empty())
        return;
    std::vector<std::vector<std::string>> rows = {{"layout", "step", "80 %", "MFU", "peak", "left"}};
    for (const search::Candidate &candidate : list)
        rows.push_back(row(candidate));
    output.line(title + "\n" + table(rows));
    for (std::size_t i = 0; i < std::min<std::size_t>(list.size(), 3); ++i)
        output.line("  " + std::to_string(i + 1) + ": " + list[i].why);
    output.line("");
}

/// "layout.tp 8 → 2, recompute.mode "full" → "selective"".
std::string textOf(const std::vector<search::Change> &changes)
{
    std::string text;
    for (const search::Change &change : changes)
        text += (text.empty() ? "" : ", ") + change.path + " " + dumpJson(change.from) + " → "
            + dumpJson(change.to);
    return text;
}

/// What of the job the best would change, and what that brings.
void showChanges(Output &output, const search::Outcome &outcome)
{
    const search::Candidate &best = outcome.best.front();
    const search::Candidate &now = outcome.current;
    std::string gain;
    if (now.time.seconds > 0 && now.margin < 0)
        gain = "It does not fit: " + formatBytes(-now.margin) + " more than is usable. ";
    else if (now.time.seconds > 0)
        gain =
            "The best below is " + formatNumber(now.time.seconds / best.time.seconds, 3) + " times as fast. ";
    const auto changes = search::changesOf(outcome.job, best.choice);
    output.line(gain + (changes.empty() ? "It is the best." : "Change " + textOf(changes)) + "\n");
}

void showPareto(Output &output, const std::vector<search::Candidate> &front)
{
    constexpr std::size_t most = 8;
    if (front.size() < 2)
        return;
    std::vector<search::Candidate> some; // evenly, with both ends
    const std::size_t count = std::min(most, front.size());
    for (std::size_t i = 0; i < count; ++i)
        some.push_back(front[i * (front.size() - 1) / (count - 1)]);
    std::vector<std::vector<std::string>> rows = {{"layout", "step", "80 %", "MFU", "peak", "left"}};
    for (const search::Candidate &candidate : some)
        rows.push_back(row(candidate));
    output.line("time against memory, closed form (" + std::to_string(count) + " of "
                + std::to_string(front.size()) + ")\n" + table(rows) + "\n");
}

void show(Output &output, const spec::JobSpec &job, const search::Outcome &outcome)
{
    output.line(
        job.name + ": " + formatCount(static_cast<double>(outcome.evaluated)) + " layouts weighed in "
        + formatNumber(outcome.seconds, 3) + " s ("
        + formatCount(static_cast<double>(outcome.evaluated) / std::max(1e-9, outcome.seconds)) + "/s)"
        + (outcome.best.empty() ? ""
                                : ", the best priced in " + formatNumber(outcome.pricingSeconds, 3) + " s")
        + "\n");
    if (outcome.current.time.seconds > 0)
        showCandidates(output, "as the job has it", {outcome.current});
    if (!outcome.best.empty())
        showChanges(output, outcome);
    showCandidates(output, "best", outcome.best);
    showCandidates(output, "faster, but too large", outcome.near);
    if (outcome.best.empty() && outcome.cancelled)
        output.line("Stopped before a layout was priced by its programs: what follows is closed form.\n");
    showPareto(output, outcome.pareto);
    if (outcome.best.empty() && !outcome.cancelled)
        output.line("No layout fits: more devices, a smaller batch.micro or less model.seq would.\n");
    std::vector<std::vector<std::string>> rows = {{"rejected because", "layouts"}};
    for (const auto &[rule, count] : outcome.rejected)
        rows.push_back({rule, formatCount(static_cast<double>(count))});
    if (rows.size() > 1)
        output.line(table(rows));
    for (const std::string &note : outcome.notes)
        output.line("note: " + note);
}

/// The job, and what its cluster's devices take.
struct Setting {
    spec::JobSpec job;
    predict::CostModel cost;
    int devices;
};

Result<Setting> settingOf(const SearchOptions &options)
{
    RY_ASSIGN(auto job, spec::loadJob(options.job, options.set));
    RY_ASSIGN(const auto cluster,
              cluster::openCluster(options.cluster.empty() ? job.cluster : options.cluster));
    const int there = cluster::Slots(cluster).count();
    if (options.gpus > there)
        return Error::make(Code::DoesNotFit, "the cluster has fewer devices", "--gpus")
            .withFound(std::to_string(options.gpus))
            .withExpected("at most " + std::to_string(there));
    const int devices = options.gpus > 0 ? options.gpus : std::max(1, there);
    RY_ASSIGN(const predict::CostModel cost,
              predict::costModelFor(job, cluster, predict::Ranks{devices, job.run.threads.value_or(0)}));
    return Setting{std::move(job), cost, devices};
}

/// The search, with its progress on stderr: redrawn in place on a terminal, told every 5 s elsewhere. Ctrl-C ends it with what it has.
Result<search::Outcome> searched(const SearchOptions &options, const Setting &setting, Output &output)
{
    const StopOnInterrupt interrupt;
    search::Options asked;
    asked.devices = setting.devices;
    asked.top = options.top;
    asked.price = !options.closed;
    asked.stop = interrupt.token();
    const bool live = ::isatty(2) != 0;
    const auto pause = live ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000);
    bool told = false;
    auto last = std::chrono::steady_clock::now() - pause;
    asked.progress = [&](double share) {
        const auto now = std::chrono::steady_clock::now();
        if (now - last < pause)
            return;
        last = now;
        const std::string text = "searching: " + formatNumber(std::floor(100 * share), 3) + " %";
        if (live)
            std::fprintf(stderr, "\r%s", text.c_str());
        else
            output.note(text);
        told = true;
    };
    auto outcome = search::search(setting.job, setting.cost, asked);
    if (live && told)
        std::fputc('\n', stderr);
    if (outcome && outcome->cancelled)
        output.note("stopped: this is what it had found");
    return outcome;
}

Exit exitOf(const search::Outcome &outcome)
{
    return outcome.cancelled ? Exit::Stopped : outcome.best.empty() ? Exit::CannotRun : Exit::Done;
}

Result<Exit> runSearch(const SearchOptions &options, Output &output)
{
    RY_ASSIGN(const Setting setting, settingOf(options));
    RY_ASSIGN(const auto outcome, searched(options, setting, output));
    if (output.json)
        output.document(search::reportOf(outcome));
    else
        show(output, setting.job, outcome);
    return exitOf(outcome);
}

void showAdvice(Output &output, const search::Advice &advice)
{
    output.line(advice.rule + "\n  because of " + advice.trigger
                + "\n  to the letter: " + search::textOf(advice.asked) + ", " + nameOf(advice.precision)
                + (advice.illegal.empty() ? "" : " – not here: " + advice.illegal));
    if (!advice.possible)
        output.line("  no legal layout is near");
    else if (!advice.illegal.empty())
        output.line("  nearest legal: " + search::textOf(advice.nearest));
    if (advice.possible)
        output.line("  " + formatDuration(advice.candidate.time.seconds) + " a step; "
                    + advice.candidate.why);
    for (const std::string &note : advice.notes)
        output.line("  note: " + note);
    output.line("");
}

Result<Exit> runAdvise(const SearchOptions &options, Output &output)
{
    RY_ASSIGN(const Setting setting, settingOf(options));
    RY_ASSIGN(const auto list, search::advise(setting.job, setting.cost, setting.devices, !options.closed));
    RY_ASSIGN(const auto found, searched(options, setting, output));
    if (output.json) {
        OrderedJson rules = OrderedJson::array();
        for (const search::Advice &advice : list)
            rules.push_back(search::reportOf(advice));
        OrderedJson json = {{"rules", std::move(rules)}};
        json["search"] = found.best.empty() ? OrderedJson(nullptr) : search::reportOf(found.best.front());
        output.document(json);
        return found.cancelled ? Exit::Stopped : Exit::Done;
    }
    for (const search::Advice &advice : list)
        showAdvice(output, advice);
    if (!found.best.empty())
        showCandidates(output, "the search finds", {found.best.front()});
    return found.cancelled ? Exit::Stopped : Exit::Done;
}

} // namespace

void addSearch(Commands &commands)
{
    const auto add = [&](const char *name, const char *help, auto run) {
        auto options = std::make_shared<SearchOptions>();
        CLI::App *app = commands.add(commands.root(), name, help,
                                     [options, run](Output &output) { return run(*options, output); });
        app->add_option("job", options->job, "The job file")->required();
        app->add_option("--set", options->set, "Override a key of the job: path=value");
        app->add_option("--cluster", options->cluster,
                        "In place of the job's: a preset (dgx-h100x32), a cluster file, local");
        app->add_option("--gpus", options->gpus, "Devices to use; default: all of the cluster")
            ->check(CLI::Range(1, 1 << 20));
        app->add_flag("--closed", options->closed,
                      "Closed form only: do not price the best by their programs");
        return std::pair(app, options);
    };
    const auto [app, options] =
        add("search", "The best layouts of a job's model on a cluster, with reasons", runSearch);
    app->add_option("--top", options->top, "How many of the best")->check(CLI::Range(1, 1000));
    add("advise", "What rules of thumb say of a job on a cluster, beside what the search finds", runAdvise);
}

} // namespace rankyard::ctl
