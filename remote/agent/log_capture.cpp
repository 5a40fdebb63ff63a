// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/log_capture.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace rankyard::agent {

namespace fs = std::filesystem;

namespace {

/// Length of the valid UTF-8 sequence at the begin of `bytes`; 0 when there is none (RFC 3629).
std::size_t sequenceLength(std::string_view bytes)
{
    const auto at = [&bytes](std::size_t i) {
        return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
    };
    const auto follows = [&at](std::size_t i) { return (at(i) & 0xc0) == 0x80; };
    const unsigned first = at(0);
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first < 0xe0)
        return follows(1) ? 2 : 0;
    if (first >= 0xe0 && first < 0xf0) {
        const bool shortest = first != 0xe0 || at(1) >= 0xa0;
        const bool noSurrogate = first != 0xed || at(1) < 0xa0;
        return follows(1) && follows(2) && shortest && noSurrogate ? 3 : 0;
    }
    if (first >= 0xf0 && first < 0xf5) {
        const bool inRange = (first != 0xf0 || at(1) >= 0x90) && (first != 0xf4 || at(1) < 0x90);
        return follows(1) && follows(2) && follows(3) && inRange ? 4 : 0;
    }
    return 0;
}

} // namespace

std::string cleanLine(std::string_view bytes)
{
    std::string out;
    out.reserve(bytes.size());
    while (!bytes.empty()) {
        const std::size_t size = sequenceLength(bytes);
        if (size == 0) {
            out += "\xef\xbf\xbd";
            bytes.remove_prefix(1);
            continue;
        }
        const auto first = static_cast<unsigned char>(bytes[0]);
        if (size == 1 && ((first < 0x20 && first != '\t') || first == 0x7f))
            out.push_back(' ');
        else
            out.append(bytes.substr(0, size));
        bytes.remove_prefix(size);
    }
    return out;
}

LogCapture::LogCapture(fs::path file, std::function<void(std::string)> line)
    : m_file(std::move(file)),
      m_lineDone(std::move(line))
{
    m_fd = Fd(::open(m_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (m_fd.valid())
        m_written = std::max<std::int64_t>(0, ::lseek(m_fd.get(), 0, SEEK_END));
}

LogCapture::~LogCapture() = default;

void LogCapture::write(std::string_view bytes)
{
    if (m_fd.valid() && m_written > fileBytes) {
        std::error_code ignored;
        fs::rename(m_file, fs::path(m_file).concat(".1"), ignored);
        m_fd = Fd(::open(m_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
        m_written = 0;
    }
    while (m_fd.valid() && !bytes.empty()) {
        const ssize_t n = ::write(m_fd.get(), bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; // a full disk costs log lines, nothing else
        m_written += n;
        bytes.remove_prefix(static_cast<std::size_t>(n));
    }
}

void LogCapture::add(std::string_view bytes)
{
    write(bytes);
    while (!bytes.empty()) {
        const std::size_t end = bytes.find_first_of("\n\r");
        const std::size_t size = std::min(end, bytes.size());
        m_line.append(bytes.substr(0, std::min(size, longestLine - std::min(longestLine, m_line.size()))));
        if (end == std::string_view::npos)
            return;
        endLine();
        bytes.remove_prefix(end + 1);
    }
}

void LogCapture::finish()
{
    endLine();
    if (m_held > 0)
        m_lineDone("(" + std::to_string(m_held) + " more lines only in " + m_file.filename().string() + ")");
    m_held = 0;
}

void LogCapture::endLine()
{
    if (m_line.empty())
        return;
    std::string line = cleanLine(m_line);
    m_line.clear();
    m_last.push_back(line);
    if (m_last.size() > linesKept)
        m_last.pop_front();
    if (!mayPass()) {
        ++m_held;
        return;
    }
    if (m_held > 0)
        m_lineDone("(" + std::to_string(m_held) + " more lines only in " + m_file.filename().string() + ")");
    m_held = 0;
    m_lineDone(std::move(line));
}

bool LogCapture::mayPass()
{
    const auto now = std::chrono::steady_clock::now();
    m_credit =
        std::min(burst, m_credit + linesPerSecond * std::chrono::duration<double>(now - m_creditAt).count());
    m_creditAt = now;
    if (m_credit < 1)
        return false;
    m_credit -= 1;
    return true;
}

std::vector<std::string> LogCapture::lastLines(std::size_t count) const
{
    const std::size_t from = m_last.size() > count ? m_last.size() - count : 0;
    return {m_last.begin() + static_cast<std::ptrdiff_t>(from), m_last.end()};
}

} // namespace rankyard::agent
