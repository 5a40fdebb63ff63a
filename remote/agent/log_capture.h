// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rankyard::agent {

/// The text with every byte that is no part of valid UTF-8 replaced by U+FFFD, and control characters but tab by spaces.
std::string cleanLine(std::string_view bytes);

/// What one rank prints: all of it into log/<rank>.log (the file and one older of 64 MiB each), line by line to `line` as long as the
/// rank does not flood (2,000 lines a second), the newest lines in memory. Nothing here ever makes the rank wait or fail.
class LogCapture
{
public:
    LogCapture(std::filesystem::path file, std::function<void(std::string)> line);
    ~LogCapture();

    void add(std::string_view bytes);
    /// The rank has ended: an unfinished line counts as a line.
    void finish();

    const std::filesystem::path &file() const { return m_file; }
    std::vector<std::string> lastLines(std::size_t count) const;

private:
    static constexpr std::size_t longestLine = 16384;
    static constexpr std::size_t linesKept = 50;
    static constexpr std::int64_t fileBytes = std::int64_t{64} << 20;
    static constexpr double linesPerSecond = 2000;
    static constexpr double burst = 4000;

    void write(std::string_view bytes);
    void endLine();
    bool mayPass();

    std::filesystem::path m_file;
    std::function<void(std::string)> m_lineDone;
    Fd m_fd;
    std::int64_t m_written = 0;
    std::string m_line;
    std::deque<std::string> m_last;
    double m_credit = burst;
    std::chrono::steady_clock::time_point m_creditAt = std::chrono::steady_clock::now();
    std::int64_t m_held = 0; ///< lines that only the file has, since the last that passed
};

} // namespace rankyard::agent
