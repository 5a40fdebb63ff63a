// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/connection.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rankyard::agent {

namespace wire = telemetry::wire;

Connection::Connection(EventLoop &loop, Fd fd, Callbacks callbacks)
    : m_loop(loop),
      m_fd(std::move(fd)),
      m_callbacks(std::move(callbacks))
{}

Connection::~Connection()
{
    *m_alive = false;
    if (m_fd.valid())
        m_loop.remove(m_fd.get());
}

Status Connection::start()
{
    const int flags = ::fcntl(m_fd.get(), F_GETFL);
    if (flags < 0 || ::fcntl(m_fd.get(), F_SETFL, flags | O_NONBLOCK) != 0)
        return Error::fromErrno(errno, "cannot use a connection", "fd " + std::to_string(m_fd.get()));
    return m_loop.add(m_fd.get(), EPOLLIN, [this](std::uint32_t events) { ready(events); });
}

void Connection::ready(std::uint32_t events)
{
    if (events & EPOLLOUT) {
        const bool full = room() == 0;
        flush();
        if (full && room() > 0 && m_callbacks.writable)
            m_callbacks.writable();
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && open())
        readSome();
}

void Connection::drain()
{
    const std::shared_ptr<bool> alive = m_alive;
    while (*alive && open() && readSome()) {
    }
}

/// One read and the frames that it completes. False when nothing more can be read; then this object may be gone.
bool Connection::readSome()
{
    std::array<char, 65536> block;
    const ssize_t n = ::read(m_fd.get(), block.data(), block.size());
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0) {
        close(std::nullopt);
        return false;
    }
    m_decoder.feed(std::string_view(block.data(), static_cast<std::size_t>(n)));
    for (;;) {
        const auto frame = m_decoder.next();
        if (!frame) {
            close(frame.error());
            return false;
        }
        if (!*frame)
            return true;
        m_callbacks.frame(**frame);
        if (!open())
            return false;
    }
}

void Connection::send(std::string_view bytes)
{
    if (!open())
        return;
    m_out.append(bytes);
    if (!m_watchingOut)
        flush();
}

void Connection::sendJson(wire::FrameType type, const Json &json, std::uint64_t sequence)
{
    std::string bytes;
    wire::appendJson(bytes, type, json, sequence);
    send(bytes);
}

void Connection::flush()
{
    while (m_sent < m_out.size()) {
        const ssize_t n = ::send(m_fd.get(), m_out.data() + m_sent, m_out.size() - m_sent, MSG_NOSIGNAL);
        if (n > 0) {
            m_sent += static_cast<std::size_t>(n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            // The reading side reports the end; until then there is nobody to write to.
            m_out.clear();
            m_sent = 0;
        }
        break;
    }
    if (m_sent == m_out.size()) {
        m_out.clear();
        m_sent = 0;
    } else if (m_sent > limit) {
        m_out.erase(0, m_sent);
        m_sent = 0;
    }
    const bool waiting = m_sent < m_out.size();
    if (waiting != m_watchingOut) {
        m_watchingOut = waiting;
        m_loop.change(m_fd.get(), waiting ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
}

void Connection::close(const std::optional<Error> &error)
{
    if (m_closed)
        return;
    m_closed = true;
    m_loop.remove(m_fd.get());
    m_fd.reset();
    const auto closed = m_callbacks.closed; // the callback may destroy this object
    closed(error);
}

} // namespace rankyard::agent
