// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/telemetry/spool.h"
#include "remote/agent/connection.h"
#include "remote/agent/run_manager.h"

#include <map>
#include <memory>
#include <set>
#include <string>

namespace rankyard::agent {

/// One connected client: its requests, and the records that it subscribed to. Records are read from the spools as fast as the
/// client takes them; nothing is queued for a slow one. On the loop's thread.
class Client
{
public:
    Client(EventLoop &loop, RunManager &runs, Fd fd, std::function<void(Client *)> closed);

    Status start();
    void status(const RunReport &report);
    void records(const std::string &run);
    /// Now and then: looks at what other agents write.
    void poll();

private:
    struct Subscription {
        std::map<telemetry::StreamId, telemetry::SpoolReader> readers;
        bool news = true;
        bool caughtUp = false; ///< said so
        bool foreign = false;  ///< lives under an agent of another build
    };

    void frame(const telemetry::wire::FrameView &frame);
    void request(const Json &message);
    Result<Json> answer(const std::string &method, const Json &params, const std::string &run);
    void startRun(const Json &id, const Json &params);
    Status subscribe(const std::string &run, const Json &params);
    void pumpAll();
    void pump(const std::string &run, Subscription &subscription);
    bool pumpStream(const std::string &run, telemetry::SpoolReader &reader, const telemetry::Spool *live);
    void reply(const Json &id, const Result<Json> &result);

    EventLoop &m_loop;
    RunManager &m_runs;
    Connection m_connection;
    std::map<std::string, Subscription> m_subscriptions;
    std::shared_ptr<bool> m_alive = std::make_shared<bool>(true);
    bool m_pumpPosted = false;
};

} // namespace rankyard::agent
