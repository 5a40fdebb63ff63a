// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/bootstrap.h"

#include "engine/base/file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace rankyard::exec {

namespace {

constexpr const char *schema = "rankyard/bootstrap/1";
constexpr std::uint32_t maxBytes = 64u << 20;
constexpr std::array<const char *, 5> requestNames = {"", "stop", "pause", "resume", "checkpoint"};

Json orNull(const std::string &text) { return text.empty() ? Json(nullptr) : Json(text); }

/// Reads keys of one object; the first that is missing or of another type becomes the error.
class Reader
{
public:
    Reader(const Json &json, std::string path) : m_json(json), m_path(std::move(path)) {}

    template<typename T>
    void read(const char *key, T &value)
    {
        if (m_error)
            return;
        const auto at = m_json.find(key);
        if (at == m_json.end()) {
            m_error = Error::make(Code::BadData, "a key is missing", m_path + key);
            return;
        }
        try {
            at->get_to(value);
        } catch (const Json::exception &) {
            m_error =
                Error::make(Code::BadData, "a value has the wrong type", m_path + key).withFound(at->dump());
        }
    }
    void readOptional(const char *key, std::string &value)
    {
        if (const auto at = m_json.find(key); at != m_json.end() && !at->is_null())
            read(key, value);
    }
    Status status() const { return m_error ? Status(*m_error) : Status(); }

private:
    const Json &m_json;
    std::string m_path;
    std::optional<Error> m_error;
};

Status readHost(const Json &host, Bootstrap &bootstrap)
{
    if (!host.is_object() || !host.contains("segments") || !host.contains("arenas"))
        return Error::make(Code::BadData, "not the description of a host", "host");
    Reader top(host, "host.");
    top.read("ranks", bootstrap.hostRanks);
    RY_TRY(top.status());
    for (const Json &json : host["segments"]) {
        BootstrapSegment segment;
        Reader reader(json, "host.segments.");
        reader.read("group", segment.group);
        reader.read("ranks", segment.ranks);
        reader.read("fd", segment.fd);
        RY_TRY(reader.status());
        bootstrap.segments.push_back(std::move(segment));
    }
    for (const Json &json : host["arenas"]) {
        BootstrapArena arena;
        Reader reader(json, "host.arenas.");
        reader.read("rank", arena.rank);
        reader.read("arena", arena.arena);
        reader.read("fd", arena.fd);
        RY_TRY(reader.status());
        bootstrap.arenas.push_back(arena);
    }
    return {};
}

Status readAll(int fd, char *bytes, std::size_t count)
{
    while (count > 0) {
        const ssize_t n = ::read(fd, bytes, count);
        if (n == 0)
            return Error::make(Code::Io,
                               "the agent closed the descriptor before the bootstrap document was whole");
        if (n < 0 && errno != EINTR)
            return Error::fromErrno(errno, "cannot read the bootstrap document", "fd " + std::to_string(fd));
        if (n > 0) {
            bytes += n;
            count -= static_cast<std::size_t>(n);
        }
    }
    return {};
}

} // namespace

Json writeBootstrap(const Bootstrap &bootstrap)
{
    Json segments = Json::array();
    for (const BootstrapSegment &segment : bootstrap.segments)
        segments.push_back({{"group", segment.group}, {"ranks", segment.ranks}, {"fd", segment.fd}});
    Json arenas = Json::array();
    for (const BootstrapArena &arena : bootstrap.arenas)
        arenas.push_back({{"rank", arena.rank}, {"arena", arena.arena}, {"fd", arena.fd}});
    return {{"schema", schema},
            {"run", bootstrap.run},
            {"epoch", bootstrap.epoch},
            {"rank", bootstrap.rank},
            {"world", bootstrap.world},
            {"job", bootstrap.job},
            {"job_dir", bootstrap.jobDir},
            {"run_dir", bootstrap.runDir},
            {"ckpt_dir", bootstrap.ckptDir},
            {"build_id", bootstrap.buildId},
            {"plan_digest", bootstrap.planDigest},
            {"resume", orNull(bootstrap.resume)},
            {"start_step", bootstrap.startStep},
            {"threads", bootstrap.threads},
            {"cores", bootstrap.cores},
            {"spare_core", bootstrap.spareCore},
            {"hang_ms", bootstrap.hangMs},
            {"peak_seconds", bootstrap.peakSeconds},
            {"host", {{"ranks", bootstrap.hostRanks}, {"segments", segments}, {"arenas", arenas}}}};
}

Result<Bootstrap> readBootstrap(const Json &document, const std::string &name)
{
    RY_TRY(checkSchema(document, "rankyard/bootstrap", 1, name));
    Bootstrap bootstrap;
    Reader reader(document, "");
    reader.read("run", bootstrap.run);
    reader.read("epoch", bootstrap.epoch);
    reader.read("rank", bootstrap.rank);
    reader.read("world", bootstrap.world);
    reader.read("job", bootstrap.job);
    reader.read("job_dir", bootstrap.jobDir);
    reader.read("run_dir", bootstrap.runDir);
    reader.read("ckpt_dir", bootstrap.ckptDir);
    reader.read("build_id", bootstrap.buildId);
    reader.read("plan_digest", bootstrap.planDigest);
    reader.readOptional("resume", bootstrap.resume);
    reader.read("start_step", bootstrap.startStep);
    reader.read("threads", bootstrap.threads);
    reader.read("cores", bootstrap.cores);
    reader.read("spare_core", bootstrap.spareCore);
    reader.read("hang_ms", bootstrap.hangMs);
    reader.read("peak_seconds", bootstrap.peakSeconds);
    Json host;
    reader.read("host", host);
    RY_TRY(reader.status());
    RY_TRY(readHost(host, bootstrap));
    if (bootstrap.world < 1 || bootstrap.rank < 0 || bootstrap.rank >= bootstrap.world
        || bootstrap.threads < 1)
        return Error::make(Code::BadData, "rank, world or threads are out of range", name)
            .withFound("rank " + std::to_string(bootstrap.rank) + " of " + std::to_string(bootstrap.world));
    return bootstrap;
}

Status sendBootstrap(int fd, const Bootstrap &bootstrap)
{
    const std::string text = dumpJson(writeBootstrap(bootstrap));
    const auto length = static_cast<std::uint32_t>(text.size());
    std::string bytes;
    for (int shift = 0; shift < 32; shift += 8)
        bytes.push_back(static_cast<char>(length >> shift & 0xff));
    return writeAll(fd, bytes + text, "fd " + std::to_string(fd));
}

Result<Bootstrap> receiveBootstrap(int fd)
{
    std::array<unsigned char, 4> header{};
    RY_TRY(readAll(fd, reinterpret_cast<char *>(header.data()), header.size()));
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < header.size(); ++i)
        length |= static_cast<std::uint32_t>(header[i]) << (8 * i);
    if (length > maxBytes)
        return Error::make(Code::BadData, "the bootstrap document is too long")
            .withFound(std::to_string(length));
    std::string text(length, '\0');
    RY_TRY(readAll(fd, text.data(), text.size()));
    RY_ASSIGN(const Json document, parseJson(text, "bootstrap document"));
    return readBootstrap(document, "bootstrap document");
}

Json writeWorkerMessage(const WorkerMessage &message)
{
    Json json = Json::object();
    if (!message.pids.empty())
        json["pids"] = message.pids;
    if (message.request != WorkerMessage::Request::None)
        json["command"] = requestNames[static_cast<std::size_t>(message.request)];
    return json;
}

Result<WorkerMessage> readWorkerMessage(const Json &document)
{
    WorkerMessage message;
    try {
        if (document.contains("pids"))
            document.at("pids").get_to(message.pids);
        if (document.contains("command")) {
            const auto name = document.at("command").get<std::string>();
            const auto at = std::find(requestNames.begin() + 1, requestNames.end(), name);
            if (at == requestNames.end())
                return Error::make(Code::BadData, "unknown request to a worker").withFound(name);
            message.request = static_cast<WorkerMessage::Request>(at - requestNames.begin());
        }
    } catch (const Json::exception &exception) {
        return Error::make(Code::BadData, "not a message to a worker").withFound(exception.what());
    }
    return message;
}

} // namespace rankyard::exec
