// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/agent_link.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rankyard::exec {

namespace wire = telemetry::wire;

namespace {

constexpr std::int64_t beatNs = 250'000'000;
constexpr int roundMs = 50;

} // namespace

AgentLink::AgentLink(Fd fd, Worker &worker, std::uint32_t epoch, std::int32_t rank)
    : m_fd(std::move(fd)),
      m_worker(worker),
      m_epoch(epoch),
      m_rank(rank)
{
    m_thread = std::thread([this] { loop(); });
}

AgentLink::~AgentLink()
{
    m_ending = true;
    if (m_thread.joinable())
        m_thread.join();
}

void AgentLink::loop()
{
    while (!m_ending) {
        pollfd entry{m_fd.get(), POLLIN, 0};
        if (::poll(&entry, 1, roundMs) > 0)
            receive();
        sendNews();
        if (monotonicNs() - m_lastBeat >= beatNs)
            sendHeartbeat();
        flush();
    }
}

void AgentLink::receive()
{
    std::array<char, 4096> block;
    const ssize_t n = ::recv(m_fd.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        ::_exit(static_cast<int>(exitFor(Code::NodeFailed)));
    m_decoder.feed({block.data(), static_cast<std::size_t>(n)});
    for (;;) {
        const auto frame = m_decoder.next();
        if (!frame.ok())
            ::_exit(static_cast<int>(exitFor(Code::NodeFailed)));
        if (!frame->has_value())
            return;
        if ((*frame)->header.type != wire::FrameType::Control)
            continue;
        const auto json = wire::parseFrameJson(**frame);
        if (!json.ok())
            continue;
        if (const auto message = readWorkerMessage(*json); message.ok())
            m_worker.control().take(*message);
    }
}

void AgentLink::sendNews()
{
    m_worker.drain(
        [this](telemetry::Payload &&payload) {
            telemetry::Record record{m_epoch, m_rank, ++m_sequence, std::move(payload)};
            if (!wire::appendRecord(m_out, record).ok())
                --m_sequence; // too large for a frame: nothing was appended
        },
        [this](Json &&report) { wire::appendJson(m_out, wire::FrameType::Report, report); });
}

void AgentLink::sendHeartbeat()
{
    m_lastBeat = monotonicNs();
    const Progress &progress = m_worker.progress();
    wire::appendHeartbeat(
        m_out,
        {progress.step.load(std::memory_order_relaxed), progress.count.load(std::memory_order_relaxed)});
}

void AgentLink::flush()
{
    std::string_view left = m_out;
    while (!left.empty()) {
        const ssize_t n = ::send(m_fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            ::_exit(static_cast<int>(exitFor(Code::NodeFailed)));
        if (n > 0)
            left.remove_prefix(static_cast<std::size_t>(n));
    }
    m_out.clear();
}

void AgentLink::finish(const Result<WorkerEnd> &end)
{
    m_ending = true;
    m_thread.join();
    sendNews();
    if (end.ok()) {
        const Json report = {{"kind", "end"},
                             {"state", *end == WorkerEnd::Finished ? "finished" : "stopped"},
                             {"step", m_worker.progress().step.load()}};
        wire::appendJson(m_out, wire::FrameType::Report, report);
    } else {
        const Error &error = end.error();
        const bool peer = error.code == Code::RankFailed && error.where.starts_with("rank ")
            && error.where != "rank " + std::to_string(m_rank);
        const Json report = {
            {"kind", "error"}, {"error", error}, {"peer", peer}, {"step", m_worker.progress().step.load()}};
        wire::appendJson(m_out, wire::FrameType::Report, report);
    }
    flush();
    ::shutdown(m_fd.get(), SHUT_WR);
}

} // namespace rankyard::exec
