// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/client.h"

#include "engine/base/build_id.h"
#include "engine/store/run_store.h"
#include "remote/agent/protocol.h"

#include <unistd.h>

namespace rankyard::agent {

namespace wire = telemetry::wire;

namespace {

constexpr std::size_t portion = std::size_t{256} << 10;

std::string textOf(const Json &json, const char *key)
{
    const auto at = json.find(key);
    return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::string hostName()
{
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

} // namespace

Client::Client(EventLoop &loop, RunManager &runs, Fd fd, std::function<void(Client *)> closed)
    : m_loop(loop),
      m_runs(runs),
      m_connection(loop, std::move(fd),
                   {[this](const wire::FrameView &view) { frame(view); },
                    [this, closed](const std::optional<Error> &) { closed(this); }, [this] { pumpAll(); }})
{}

Status Client::start()
{
    RY_TRY(m_connection.start());
    m_connection.sendJson(wire::FrameType::Hello,
                          {{"protocol", {protocolLowest, protocolHighest}},
                           {"build", buildId()},
                           {"host", hostName()},
                           {"pid", ::getpid()},
                           {"boot_id", bootId()},
                           {"monotonic_ns", monotonicNs()},
                           {"wall_ns", wallNs()}});
    return {};
}

void Client::frame(const wire::FrameView &view)
{
    if (view.header.type == wire::FrameType::Ping) {
        std::string pong;
        wire::appendFrame(pong, {.type = wire::FrameType::Pong, .sequence = view.header.sequence}, {});
        m_connection.send(pong);
    } else if (view.header.type == wire::FrameType::Request) {
        if (const auto message = wire::parseFrameJson(view))
            request(*message);
        else
            reply(nullptr, message.error());
    }
}

void Client::reply(const Json &id, const Result<Json> &result)
{
    if (result)
        m_connection.sendJson(wire::FrameType::Reply, {{"id", id}, {"result", *result}});
    else
        m_connection.sendJson(wire::FrameType::Reply, {{"id", id}, {"error", result.error()}});
}

void Client::request(const Json &message)
{
    const Json id = message.contains("id") ? message["id"] : Json();
    const std::string method = textOf(message, "method");
    const Json params =
        message.contains("params") && message["params"].is_object() ? message["params"] : Json::object();
    if (method == "start")
        startRun(id, params);
    else
        reply(id, answer(method, params, textOf(params, "run")));
}

void Client::startRun(const Json &id, const Json &params)
{
    StartOrder order;
    order.id = textOf(params, "run");
    order.job = params.contains("job") ? params["job"] : Json();
    order.jobDir = textOf(params, "job_dir");
    order.runDir = textOf(params, "run_dir");
    order.resume = textOf(params, "resume");
    if (const auto peak = params.find("peak_seconds"); peak != params.end() && peak->is_number())
        order.peakSeconds = std::max(0.0, peak->get<double>());
    m_runs.start(std::move(order),
                 [this, id, alive = std::weak_ptr<bool>(m_alive)](const Result<RunReport> &result) {
                     if (alive.expired())
                         return; // the client has gone; the run goes on
                     reply(id, result ? Result<Json>(writeReport(*result)) : Result<Json>(result.error()));
                 });
}

Result<Json> Client::answer(const std::string &method, const Json &params, const std::string &run)
{
    if (method == "list") {
        Json all = Json::array();
        for (const RunReport &report : m_runs.list())
            all.push_back(writeReport(report));
        return Json{{"runs", std::move(all)}};
    }
    if (method == "describe") {
        RY_ASSIGN(const RunReport report, m_runs.report(run));
        RY_ASSIGN(Json job, m_runs.job(run));
        return Json{{"report", writeReport(report)}, {"job", std::move(job)}};
    }
    if (method == "subscribe") {
        RY_TRY(subscribe(run, params));
        return Json::object();
    }
    if (method == "unsubscribe") {
        m_subscriptions.erase(run);
        return Json::object();
    }
    if (method == "remove") {
        RY_TRY(m_runs.remove(run));
        return Json::object();
    }
    static const std::set<std::string> commands = {"stop", "kill", "pause", "resume", "checkpoint"};
    if (!commands.contains(method))
        return Error::make(Code::NotHere, "the agent has no such method", method);
    if ((method == "stop" || method == "kill") && m_runs.cancel(run))
        return Json::object();
    RY_ASSIGN(const RunReport known, m_runs.report(run)); // a run that is not known is NotFound
    Run *live = m_runs.live(run);
    if (!live && !telemetry::isTerminal(known.state))
        return Error::make(Code::NotHere, "the run lives under an agent of another build", run)
            .withFound(known.run.build)
            .withExpected(buildId())
            .withHint("Ask with the rankyardctl of that build");
    if (!live && (method == "stop" || method == "kill"))
        return Json::object(); // it has ended: what was wanted is so
    if (!live)
        return Error::make(Code::Usage, "the run does not live", run);
    if (method == "stop")
        live->stop("client");
    else if (method == "kill")
        live->kill("client");
    else if (method == "pause")
        RY_TRY(live->pause("client"));
    else if (method == "resume")
        RY_TRY(live->resume("client"));
    else
        RY_TRY(live->checkpoint("client"));
    return Json::object();
}

Status Client::subscribe(const std::string &run, const Json &params)
{
    RY_ASSIGN(const RunReport report, m_runs.report(run));
    Subscription subscription;
    const Json from = params.contains("from") ? params["from"] : Json::array();
    for (const Json &position : from) {
        if (!position.is_array() || position.size() != 3 || !position[0].is_number_unsigned()
            || !position[1].is_number_integer() || !position[2].is_number_unsigned())
            return Error::make(Code::BadData, "a position is malformed", "from")
                .withFound(dumpJson(position));
        const telemetry::StreamId stream{position[0].get<std::uint32_t>(), position[1].get<std::int32_t>()};
        subscription.readers.try_emplace(stream, report.folder + "/spool", stream,
                                         position[2].get<std::uint64_t>() + 1);
    }
    m_subscriptions.insert_or_assign(run, std::move(subscription));
    status(report); // in the stream, so that the client's last word on the run is never older than its first
    records(run);
    return {};
}

void Client::status(const RunReport &report)
{
    m_connection.sendJson(wire::FrameType::Notice, {{"kind", "status"}, {"report", writeReport(report)}});
}

void Client::records(const std::string &run)
{
    const auto at = m_subscriptions.find(run);
    if (at == m_subscriptions.end())
        return;
    at->second.news = true;
    if (m_pumpPosted)
        return;
    m_pumpPosted = true;
    // After the reply to the request at hand, and once for several runs.
    m_loop.post([this, alive = std::weak_ptr<bool>(m_alive)] {
        if (alive.expired())
            return;
        m_pumpPosted = false;
        pumpAll();
    });
}

void Client::pumpAll()
{
    for (auto &[run, subscription] : m_subscriptions) {
        if (subscription.news && m_connection.open())
            pump(run, subscription);
    }
}

/// Sends what the spools have, as far as the connection takes it. Ranks before the agent: so the event of the end comes last.
void Client::pump(const std::string &run, Subscription &subscription)
{
    const Run *live = m_runs.live(run);
    const auto before = m_runs.report(run);
    // Under an agent of another build: its files are read as they grow, see poll().
    subscription.foreign = !live && before && !telemetry::isTerminal(before->state);
    const std::filesystem::path spool = (live ? live->folder() : runLink(run)) / "spool";
    for (const telemetry::StreamId stream : telemetry::spoolStreams(spool))
        subscription.readers.try_emplace(stream, spool, stream, 1);
    for (const bool agents : {false, true}) {
        for (auto &[stream, reader] : subscription.readers) {
            if ((stream.rank < 0) != agents)
                continue;
            if (!pumpStream(run, reader, live ? live->spool(stream) : nullptr)) {
                subscription.caughtUp = false;
                return; // no room: goes on when there is
            }
        }
    }
    subscription.news = false;
    if (live || subscription.foreign || m_runs.starting(run)) {
        subscription.caughtUp = false;
        return;
    }
    for (auto &[stream, reader] : subscription.readers)
        reader.rest();
    if (!subscription.caughtUp) {
        subscription.caughtUp = true;
        m_connection.sendJson(wire::FrameType::Notice, {{"kind", "caught-up"}, {"run", run}});
    }
}

void Client::poll()
{
    for (auto &[run, subscription] : m_subscriptions) {
        if (!subscription.foreign)
            continue;
        if (const auto report = m_runs.report(run); report && telemetry::isTerminal(report->state))
            status(*report);
        records(run);
    }
}

/// False when the connection is full before the stream is at its end.
bool Client::pumpStream(const std::string &run, telemetry::SpoolReader &reader, const telemetry::Spool *live)
{
    for (;;) {
        if (m_connection.room() == 0)
            return false;
        std::string out;
        const auto given = reader.read(
            portion,
            [&](const wire::FrameView &frame) {
                wire::appendRunRecord(out, run, frame);
                return true;
            },
            live);
        m_connection.send(out);
        if (!given || *given < portion)
            return true;
    }
}

} // namespace rankyard::agent
