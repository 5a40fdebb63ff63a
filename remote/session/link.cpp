// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/session/link.h"

#include "engine/base/build_id.h"
#include "engine/cluster/sources.h"
#include "engine/predict/step_time.h"
#include "remote/agent/protocol.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rankyard::session {

namespace wire = telemetry::wire;

namespace {

constexpr std::size_t noiseBytes = std::size_t{64} << 10;
constexpr int greetMs = 30'000;
constexpr std::chrono::seconds answerTime{10}; ///< but for a start, which plans and reads the corpus

/// The MFU of a run's steps needs the rate of the machine that it runs on: this one's, as `cluster probe` or a data sheet has it.
double peakHere(const spec::JobSpec &job)
{
    const auto here = cluster::openCluster("local");
    return here ? predict::peakSeconds(job, *here) : 0;
}

template<typename T>
T valueOf(const Json &json, const char *key, T fallback)
{
    const auto at = json.find(key);
    if (at == json.end())
        return fallback;
    try {
        return at->get<T>();
    } catch (const Json::exception &) {
        return fallback;
    }
}

} // namespace

RunStatus statusFrom(const Json &report)
{
    RunStatus status;
    status.id = valueOf(report, "run", std::string());
    status.name = valueOf(report, "name", std::string());
    if (!telemetry::runStateFromName(valueOf(report, "state", std::string()), status.state))
        status.state = telemetry::RunState::Lost;
    status.runDir = valueOf(report, "run_dir", std::string());
    status.epoch = valueOf(report, "epoch", std::uint32_t{0});
    status.world = valueOf(report, "world", 0);
    status.startedNs = valueOf(report, "started_ns", std::int64_t{0});
    status.step = valueOf(report, "step", std::int64_t{0});
    status.steps = valueOf(report, "steps", std::int64_t{0});
    status.loss = valueOf(report, "loss", std::numeric_limits<double>::quiet_NaN());
    if (const auto error = report.find("error"); error != report.end() && error->is_object())
        status.error = error->get<Error>();
    status.logFile = valueOf(report, "log", std::string());
    status.lastLines = valueOf(report, "last_lines", std::vector<std::string>());
    for (const Json &rank : valueOf(report, "ranks", Json::array()))
        status.pids.push_back(rank.is_object() ? valueOf(rank, "pid", 0) : 0);
    return status;
}

Link::Link(Fd fd, Callbacks callbacks, std::function<std::string()> whyGone, int child)
    : m_fd(std::move(fd)),
      m_callbacks(std::move(callbacks)),
      m_whyGone(std::move(whyGone)),
      m_child(child)
{}

Link::~Link()
{
    {
        const std::lock_guard lock(m_mutex);
        m_closing = true;
    }
    ::shutdown(m_fd.get(), SHUT_RDWR);
    if (m_thread.joinable())
        m_thread.join();
    if (m_child > 0) {
        ::kill(m_child, SIGTERM); // it ends at end of file anyhow
        ::waitpid(m_child, nullptr, 0);
    }
}

Result<std::unique_ptr<Session>> Link::open(Fd fd, Callbacks callbacks, std::function<std::string()> whyGone,
                                            int child)
{
    std::unique_ptr<Link> link(new Link(std::move(fd), std::move(callbacks), std::move(whyGone), child));
    RY_TRY(link->greet());
    link->m_thread = std::thread([self = link.get()] { self->read(); });
    return std::unique_ptr<Session>(std::move(link));
}

/// What a shell may print comes before the magic; then frames, the agent's Hello first.
Status Link::greet()
{
    RY_TRY(send([] {
        std::string hello;
        wire::appendJson(
            hello, wire::FrameType::Hello,
            {{"protocol", {agent::protocolLowest, agent::protocolHighest}}, {"build", buildId()}});
        return hello;
    }()));
    std::string noise;
    bool magic = false;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(greetMs);
    for (;;) {
        if (magic) {
            RY_ASSIGN(const auto frame, m_decoder.next());
            if (frame && frame->header.type == wire::FrameType::Hello) {
                RY_ASSIGN(const Json hello, wire::parseFrameJson(*frame));
                m_agent.build = valueOf(hello, "build", std::string());
                m_agent.host = valueOf(hello, "host", std::string());
                m_agent.bootId = valueOf(hello, "boot_id", std::string());
                m_agent.pid = valueOf(hello, "pid", 0);
                const auto range = valueOf(hello, "protocol", std::vector<int>());
                if (range.size() != 2 || range[0] > agent::protocolHighest
                    || range[1] < agent::protocolLowest)
                    return Error::make(Code::NotHere, "the agent speaks another protocol", m_agent.host)
                        .withFound(dumpJson(hello.value("protocol", Json())));
                if (m_agent.build != buildId())
                    return Error::make(Code::NotHere, "the agent is of another build", m_agent.host)
                        .withFound(m_agent.build)
                        .withExpected(buildId());
                return {};
            }
        }
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        pollfd wait{m_fd.get(), POLLIN, 0};
        const int ready = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count())) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return Error::make(Code::NodeFailed, "the agent does not answer", "agent")
                .withFound(noise.substr(0, 200));
        std::array<char, 65536> block;
        const ssize_t n = ::read(m_fd.get(), block.data(), block.size());
        if (n <= 0) {
            const std::string why = m_whyGone ? m_whyGone() : std::string();
            return Error::make(Code::NodeFailed, "the agent could not be started", "agent")
                .withFound(why.empty() ? noise.substr(0, 200) : why);
        }
        std::string_view bytes(block.data(), static_cast<std::size_t>(n));
        if (magic) {
            m_decoder.feed(bytes);
            continue;
        }
        noise.append(bytes);
        const std::size_t at = noise.find(std::string_view(agent::attachMagic, agent::attachMagicBytes));
        if (at != std::string::npos) {
            magic = true;
            m_decoder.feed(std::string_view(noise).substr(at + agent::attachMagicBytes));
        } else if (noise.size() > noiseBytes) {
            return Error::make(Code::NodeFailed, "the node prints something else than the agent", "agent")
                .withFound(noise.substr(0, 200));
        }
    }
}

// Requests ----------------------------------------------------------------------------------------------------------

Status Link::send(const std::string &bytes)
{
    const std::lock_guard lock(m_sendMutex);
    std::string_view rest = bytes;
    while (!rest.empty()) {
        const ssize_t n = ::send(m_fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return Error::make(Code::NodeFailed, "the connection to the agent is broken", m_agent.host);
        rest.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
}

Result<Json> Link::ask(const std::string &method, Json params)
{
    std::int64_t id = 0;
    {
        const std::lock_guard lock(m_mutex);
        if (m_lost)
            return *m_lost;
        id = m_nextId++;
        m_waiting[id];
    }
    std::string bytes;
    if (!wire::appendJson(bytes, wire::FrameType::Request,
                          {{"id", id}, {"method", method}, {"params", std::move(params)}}))
        return Error::make(Code::BadJob, "the request is too large", method);
    const auto sent = send(bytes);
    std::unique_lock lock(m_mutex);
    if (!sent) {
        m_waiting.erase(id);
        return sent.error();
    }
    const auto answered = [&] { return m_waiting[id].result.has_value() || m_lost; };
    if (method == "start") {
        m_answered.wait(lock, answered);
    } else if (!m_answered.wait_for(lock, answerTime, answered)) {
        m_waiting.erase(id);
        return Error::make(Code::NodeFailed, "the agent does not answer", m_agent.host)
            .withFound("nothing for 10 s after \"" + method + "\" (pid " + std::to_string(m_agent.pid) + ")")
            .withHint("It may be stopped or its disk hangs; its runs go on as far as they can");
    }
    const Waiting answer = std::move(m_waiting[id]);
    m_waiting.erase(id);
    return answer.result ? *answer.result : Result<Json>(*m_lost);
}

Status Link::simple(const std::string &method, const std::string &run)
{
    const auto result = ask(method, {{"run", run}});
    return result ? Status() : Status(result.error());
}

Result<RunStatus> Link::start(const StartRequest &request)
{
    const Json job = Json::parse(dumpJson(spec::writeJob(request.job)));
    RY_ASSIGN(const Json report,
              ask("start",
                  {{"run", request.runId.empty() ? store::makeRunId() : request.runId},
                   {"job", job},
                   {"job_dir", request.jobDir},
                   {"run_dir", request.runDir},
                   {"resume", request.resume},
                   {"peak_seconds", peakHere(request.job)}}));
    return statusFrom(report);
}

Status Link::subscribe(const std::string &run, const std::vector<store::StreamPosition> &from)
{
    Json positions = Json::array();
    for (const store::StreamPosition &position : from)
        positions.push_back({position.epoch, position.rank, position.sequence});
    const auto result = ask("subscribe", {{"run", run}, {"from", std::move(positions)}});
    return result ? Status() : Status(result.error());
}

Result<std::vector<RunStatus>> Link::list()
{
    RY_ASSIGN(const Json result, ask("list", Json::object()));
    std::vector<RunStatus> all;
    for (const Json &report : valueOf(result, "runs", Json::array())) {
        if (report.is_object())
            all.push_back(statusFrom(report));
    }
    return all;
}

Result<std::pair<RunStatus, Json>> Link::describe(const std::string &run)
{
    RY_ASSIGN(const Json result, ask("describe", {{"run", run}}));
    const Json report = valueOf(result, "report", Json::object());
    return std::make_pair(statusFrom(report), valueOf(result, "job", Json()));
}

// The reading thread ------------------------------------------------------------------------------------------------

void Link::read()
{
    std::array<char, 262144> block;
    for (;;) {
        for (;;) {
            const auto frame = m_decoder.next();
            if (!frame) {
                giveRecords();
                fail(frame.error());
                return;
            }
            if (!*frame)
                break;
            take(**frame);
        }
        giveRecords();
        const ssize_t n = ::read(m_fd.get(), block.data(), block.size());
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            fail(Error::make(Code::NodeFailed, "the connection to the agent ended", m_agent.host)
                     .withHint("Its runs go on as long as it lives; rankyardctl attach catches up"));
            return;
        }
        m_decoder.feed(std::string_view(block.data(), static_cast<std::size_t>(n)));
    }
}

void Link::fail(const Error &error)
{
    bool closing = false;
    {
        const std::lock_guard lock(m_mutex);
        m_lost = error;
        closing = m_closing;
    }
    m_answered.notify_all();
    if (!closing && m_callbacks.lost)
        m_callbacks.lost(error);
}

void Link::take(const wire::FrameView &frame)
{
    if (frame.header.type == wire::FrameType::RunRecord) {
        takeRecord(frame);
        return;
    }
    giveRecords(); // what came before stays before
    if (frame.header.type == wire::FrameType::Reply || frame.header.type == wire::FrameType::Notice) {
        const auto message = wire::parseFrameJson(frame);
        if (!message)
            return;
        frame.header.type == wire::FrameType::Reply ? takeReply(*message) : takeNotice(*message);
    } else if (frame.header.type == wire::FrameType::Ping) {
        std::string pong;
        wire::appendFrame(pong, {.type = wire::FrameType::Pong, .sequence = frame.header.sequence}, {});
        (void)send(pong);
    }
}

void Link::takeRecord(const wire::FrameView &frame)
{
    const auto view = wire::parseRunRecord(frame);
    if (!view)
        return;
    if (!wire::isKnown(static_cast<std::uint8_t>(view->record.header.type)))
        return;
    auto record = wire::decodeRecord(view->record);
    if (!record) {
        // Whatever it was, its place in the stream must not be empty.
        const Json detail = {
            {"from", frame.header.sequence}, {"to", frame.header.sequence}, {"why", record.error().text()}};
        if (view->record.payload.size() < 8)
            return;
        telemetry::Record gap;
        std::memcpy(&gap.epoch, view->record.payload.data(), 4);
        std::memcpy(&gap.rank, view->record.payload.data() + 4, 4);
        gap.sequence = frame.header.sequence;
        gap.payload = telemetry::EventRecord{wallNs(), 0, "gap", detail};
        record = std::move(gap);
    }
    m_records[std::string(view->run)].push_back(std::move(*record));
}

void Link::giveRecords()
{
    for (auto &[run, records] : m_records) {
        if (m_callbacks.records)
            m_callbacks.records(run, std::move(records));
    }
    m_records.clear();
}

void Link::takeReply(const Json &message)
{
    const std::int64_t id = valueOf(message, "id", std::int64_t{0});
    {
        const std::lock_guard lock(m_mutex);
        const auto at = m_waiting.find(id);
        if (at == m_waiting.end())
            return;
        if (const auto error = message.find("error"); error != message.end())
            at->second.result = error->get<Error>();
        else
            at->second.result = valueOf(message, "result", Json());
    }
    m_answered.notify_all();
}

void Link::takeNotice(const Json &message)
{
    const std::string kind = valueOf(message, "kind", std::string());
    if (kind == "status" && m_callbacks.status)
        m_callbacks.status(statusFrom(valueOf(message, "report", Json::object())));
    else if (kind == "caught-up" && m_callbacks.caughtUp)
        m_callbacks.caughtUp(valueOf(message, "run", std::string()));
}

} // namespace rankyard::session
