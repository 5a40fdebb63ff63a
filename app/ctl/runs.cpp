// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "app/ctl/run_json.h"
#include "engine/base/units.h"
#include "remote/session/session.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace rankyard::ctl {

namespace {

Result<std::unique_ptr<store::RunStore>> openStore()
{
    return store::RunStore::open(store::RunStore::defaultFile());
}

/// What the store takes for live may have ended while nobody looked: the agent knows.
void refresh(store::RunStore &store)
{
    const auto runs = store.runs();
    const auto seemsLive = [](const store::RunInfo &run) {
        return !telemetry::isTerminal(run.state) && run.state != telemetry::RunState::Draft;
    };
    if (!runs || std::none_of(runs->begin(), runs->end(), seemsLive))
        return;
    const auto service = session::RunService::open(store::RunStore::defaultFile(), {}); // follows them
    if (!service)
        return;
    for (const store::RunInfo &run : *runs) {
        const auto now = seemsLive(run) ? (*service)->session().describe(run.id)
                                        : Result<std::pair<session::RunStatus, Json>>(Error{});
        if (!now || !telemetry::isTerminal(now->first.state))
            continue;
        const std::int64_t deadline = monotonicNs() + 5'000'000'000;
        (void)(*service)->waitUntilEnded(run.id, [deadline] { return monotonicNs() > deadline; });
    }
}

Result<Exit> list(Output &output)
{
    RY_ASSIGN(const auto store, openStore());
    refresh(*store);
    RY_ASSIGN(const auto runs, store->runs());
    if (output.json) {
        OrderedJson rows = OrderedJson::array();
        for (const store::RunInfo &run : runs)
            rows.push_back(summaryJson(run));
        output.document({{"runs", std::move(rows)}});
        return Exit::Done;
    }
    if (runs.empty()) {
        output.line("no runs yet; rankyardctl train resources/sample/job.json starts one");
        return Exit::Done;
    }
    std::vector<std::vector<std::string>> rows = {
        {"run", "name", "state", "layout", "step", "loss", "best", "tokens/s", "started"}};
    for (const store::RunInfo &run : runs) {
        rows.push_back({run.id, run.name, telemetry::nameOf(run.state), layoutText(run.job),
                        std::to_string(run.step) + "/" + std::to_string(run.steps),
                        formatNumber(run.lastLoss, 4), formatNumber(run.bestLoss, 4),
                        formatCount(run.tokensPerS), timeText(run.startedNs)});
    }
    output.line(table(rows, 4));
    return Exit::Done;
}

Result<Exit> show(const std::string &id, Output &output)
{
    RY_ASSIGN(const auto store, openStore());
    RY_ASSIGN(const auto run, store->run(id));
    OrderedJson json = summaryJson(run);
    if (const auto job = parseJson(run.job, "job"); job)
        json["job"] = *job;
    OrderedJson events = OrderedJson::array();
    RY_ASSIGN(const auto rows, store->events(run.id));
    for (const telemetry::EventRecord &event : rows)
        events.push_back({{"time", timeText(event.wallNs)},
                          {"step", event.step},
                          {"kind", event.kind},
                          {"detail", event.detail}});
    json["events"] = std::move(events);
    // What each rank of the newest start said of itself: device, threads, arenas, workspace.
    OrderedJson ranks = OrderedJson::array();
    RY_ASSIGN(const auto hellos, store->hellos(run.id));
    for (const store::HelloRow &hello : hellos) {
        if (hello.epoch == run.epoch && hello.rank >= 0)
            ranks.push_back({{"rank", hello.rank}, {"detail", hello.detail}});
    }
    json["ranks"] = std::move(ranks);
    if (output.json)
        output.document(json);
    else
        output.line(dumpJson(json, 2));
    return Exit::Done;
}

Result<Exit> metrics(const std::string &id, Output &output)
{
    RY_ASSIGN(const auto store, openStore());
    RY_ASSIGN(const auto run, store->run(id));
    RY_ASSIGN(const auto document, runDocument(*store, run.id));
    if (output.json) {
        output.document(document);
        return Exit::Done;
    }
    std::vector<std::vector<std::string>> rows = {
        {"step", "loss", "grad norm", "lr", "scale", "tokens/s", "ms"}};
    for (const OrderedJson &step : document["steps"]) {
        const auto number = [&step](const char *key, int digits) {
            return step[key].is_number() ? formatNumber(step[key].get<double>(), digits) : std::string("NaN");
        };
        rows.push_back({step["step"].dump(), number("loss", 6), number("grad_norm", 4), number("lr", 3),
                        number("loss_scale", 3), number("tokens_per_s", 5), number("step_ms", 4)});
    }
    output.line(table(rows, 0));
    return Exit::Done;
}

/// Leaves of a job document by path.
void flatten(const Json &json, const std::string &path, std::map<std::string, std::string> &out)
{
    if (!json.is_object()) {
        out[path] = dumpJson(json);
        return;
    }
    for (const auto &[key, value] : json.items())
        flatten(value, path.empty() ? key : path + "." + key, out);
}

Result<Exit> compare(const std::vector<std::string> &ids, Output &output)
{
    RY_ASSIGN(const auto store, openStore());
    std::vector<store::RunInfo> runs;
    std::vector<std::map<std::string, std::string>> jobs;
    std::set<std::string> keys;
    for (const std::string &id : ids) {
        RY_ASSIGN(auto run, store->run(id));
        RY_ASSIGN(const auto job, parseJson(run.job, run.id + "/job.json"));
        flatten(job, "", jobs.emplace_back());
        for (const auto &[key, value] : jobs.back())
            keys.insert(key);
        runs.push_back(std::move(run));
    }
    std::vector<std::vector<std::string>> rows = {{"key"},  {"state"},     {"step"},
                                                  {"loss"}, {"best loss"}, {"tokens/s"}};
    OrderedJson summaries = OrderedJson::array();
    for (const store::RunInfo &run : runs) {
        rows[0].push_back(run.id);
        rows[1].push_back(telemetry::nameOf(run.state));
        rows[2].push_back(std::to_string(run.step));
        rows[3].push_back(formatNumber(run.lastLoss, 5));
        rows[4].push_back(formatNumber(run.bestLoss, 5));
        rows[5].push_back(formatCount(run.tokensPerS));
        summaries.push_back(summaryJson(run));
    }
    OrderedJson differences = OrderedJson::object();
    for (const std::string &key : keys) {
        std::set<std::string> values;
        OrderedJson list = OrderedJson::array();
        std::vector<std::string> row = {key};
        for (const auto &job : jobs) {
            const auto at = job.find(key);
            row.push_back(at == job.end() ? "–" : at->second);
            values.insert(row.back());
            list.push_back(at == job.end() ? OrderedJson() : OrderedJson::parse(at->second));
        }
        if (values.size() > 1) {
            rows.push_back(row);
            differences[key] = std::move(list);
        }
    }
    if (output.json)
        output.document({{"runs", std::move(summaries)}, {"differences", std::move(differences)}});
    else
        output.line(table(rows));
    return Exit::Done;
}

Result<Exit> remove(const std::vector<std::string> &ids, Output &output)
{
    RY_ASSIGN(const auto store, openStore());
    OrderedJson removed = OrderedJson::array();
    for (const std::string &id : ids) {
        RY_ASSIGN(const auto run, store->run(id));
        RY_ASSIGN(const auto service, session::RunService::open(store::RunStore::defaultFile(), {}));
        // The node's folder first: what is live is refused there, and nothing is lost.
        if (const Status status = service->session().remove(run.id);
            !status && status.error().code != Code::NotFound)
            return status.error();
        RY_TRY(store->removeRun(run.id));
        removed.push_back(run.id);
        output.line("removed " + run.id);
    }
    if (output.json)
        output.document({{"removed", std::move(removed)}});
    return Exit::Done;
}

} // namespace

void addRuns(Commands &commands)
{
    CLI::App *runs = commands.root().add_subcommand("runs", "The run store");
    runs->require_subcommand(1);
    commands.add(*runs, "list", "Every run, newest first", list);

    const auto withRun = [&](const char *name, const char *what,
                             Result<Exit> (*work)(const std::string &, Output &)) {
        auto run = std::make_shared<std::string>("last");
        commands.add(*runs, name, what, [run, work](Output &output) { return work(*run, output); })
            ->add_option("run", *run, "Id, a unique beginning of it, or \"last\"");
    };
    withRun("show", "A run with its job and events", show);
    withRun("metrics", "Every step of a run", metrics);

    const auto withRuns = [&](const char *name, const char *what, std::size_t least,
                              Result<Exit> (*work)(const std::vector<std::string> &, Output &)) {
        auto list = std::make_shared<std::vector<std::string>>();
        commands.add(*runs, name, what, [list, work](Output &output) { return work(*list, output); })
            ->add_option("runs", *list, "Ids, or unique beginnings of them")
            ->required()
            ->expected(static_cast<int>(least), 1000);
    };
    withRuns("compare", "Results side by side, and the job keys that differ", 2, compare);
    withRuns("rm", "Delete runs with their files", 1, remove);
}

} // namespace rankyard::ctl
