// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/telemetry/wire.h"
#include "remote/agent/event_loop.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace rankyard::agent {

/// Frames over a non-blocking stream descriptor, which it owns. On the loop's thread.
class Connection
{
public:
    struct Callbacks {
        std::function<void(const telemetry::wire::FrameView &)> frame; ///< must not destroy the connection
        /// The other side has closed, or sent what is no frame (then with an error). Called once, last; the callback may destroy
        /// the connection.
        std::function<void(const std::optional<Error> &)> closed;
        std::function<void()> writable; ///< room again after room() was 0; may be empty
    };

    Connection(EventLoop &loop, Fd fd, Callbacks callbacks);
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    /// Makes it non-blocking and begins to read.
    Status start();
    /// Sends now what goes, the rest when there is room. Never blocks.
    void send(std::string_view bytes);
    void sendJson(telemetry::wire::FrameType type, const Json &json, std::uint64_t sequence = 0);
    /// How much should still be queued: 0 when `limit` bytes wait.
    std::size_t room() const { return m_out.size() - m_sent >= limit ? 0 : limit - (m_out.size() - m_sent); }
    bool idle() const { return m_sent == m_out.size(); }
    int fd() const { return m_fd.get(); }
    bool open() const { return m_fd.valid() && !m_closed; }

    /// Reads and delivers everything that is there, until the end of the stream or until nothing more is there.
    void drain();

private:
    static constexpr std::size_t limit = std::size_t{1} << 20;

    void ready(std::uint32_t events);
    bool readSome();
    void flush();
    void close(const std::optional<Error> &error);

    EventLoop &m_loop;
    Fd m_fd;
    Callbacks m_callbacks;
    telemetry::wire::FrameDecoder m_decoder;
    std::string m_out;
    std::size_t m_sent = 0;
    bool m_watchingOut = false;
    bool m_closed = false;
    std::shared_ptr<bool> m_alive =
        std::make_shared<bool>(true); ///< tells a function on the stack that the object is gone
};

} // namespace rankyard::agent
