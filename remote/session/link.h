// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/telemetry/wire.h"
#include "remote/session/session.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace rankyard::session {

/// The client's end of a byte stream to an agent: requests with their replies, records, notices. Its own thread reads and calls
/// back; any thread may ask. Launchers differ only in where the descriptor comes from.
class Link final : public Session
{
public:
    /// Skips to the magic, exchanges Hello, checks the protocol and, unless `anyBuild`, the build. `fd` is a stream socket. `whyGone` gives what
    /// the launcher knows when the stream ends early (its stderr); may be empty.
    static Result<std::unique_ptr<Session>> open(Fd fd, Callbacks callbacks,
                                                 std::function<std::string()> whyGone, int child);
    ~Link() override;

    AgentInfo agent() const override { return m_agent; }
    Result<RunStatus> start(const StartRequest &request) override;
    Status subscribe(const std::string &run, const std::vector<store::StreamPosition> &from) override;
    Status stop(const std::string &run) override { return simple("stop", run); }
    Status kill(const std::string &run) override { return simple("kill", run); }
    Status pause(const std::string &run) override { return simple("pause", run); }
    Status resume(const std::string &run) override { return simple("resume", run); }
    Status checkpoint(const std::string &run) override { return simple("checkpoint", run); }
    Result<std::vector<RunStatus>> list() override;
    Result<std::pair<RunStatus, Json>> describe(const std::string &run) override;
    Status remove(const std::string &run) override { return simple("remove", run); }

private:
    struct Waiting {
        std::optional<Result<Json>> result;
    };

    Link(Fd fd, Callbacks callbacks, std::function<std::string()> whyGone, int child);
    Status greet();
    Result<Json> ask(const std::string &method, Json params);
    Status simple(const std::string &method, const std::string &run);
    Status send(const std::string &bytes);
    void read();
    void take(const telemetry::wire::FrameView &frame);
    void takeRecord(const telemetry::wire::FrameView &frame);
    void takeReply(const Json &message);
    void takeNotice(const Json &message);
    void giveRecords();
    void fail(const Error &error);

    Fd m_fd;
    Callbacks m_callbacks;
    std::function<std::string()> m_whyGone;
    int m_child;
    AgentInfo m_agent;
    telemetry::wire::FrameDecoder m_decoder;

    std::mutex m_sendMutex;
    std::mutex m_mutex; ///< of what follows
    std::condition_variable m_answered;
    std::map<std::int64_t, Waiting> m_waiting;
    std::int64_t m_nextId = 1;
    std::optional<Error> m_lost;
    bool m_closing = false;

    std::map<std::string, std::vector<telemetry::Record>>
        m_records; ///< read, not yet given; the reading thread's
    std::thread m_thread;
};

/// Of a report document of the agent.
RunStatus statusFrom(const Json &report);

} // namespace rankyard::session
