// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

/// A program in a child process, with what it prints.
class Command
{
public:
    /// Starts it. `closedStdout`: its standard output is a pipe that nobody reads from.
    explicit Command(std::vector<std::string> arguments, bool closedStdout = false);
    ~Command(); ///< kills it when it still runs

    int pid() const { return m_pid; }
    void signal(int number) const;
    /// Until it has ended; the exit status, or −signal. −1000 when the deadline passed.
    int wait(std::chrono::milliseconds deadline = std::chrono::seconds(120));
    /// Until it has printed `text` on stderr (or ended, or the deadline passed).
    bool waitForError(const std::string &text, std::chrono::milliseconds deadline = std::chrono::seconds(60));

    std::string output();
    std::string errors();
    /// The whole of stdout as one document; null when it is none.
    rankyard::Json json();

private:
    void collect(int fd, std::string &into);

    int m_pid = 0;
    bool m_ended = false;
    int m_status = 0;
    std::mutex m_mutex;
    std::string m_output;
    std::string m_errors;
    std::thread m_outputThread;
    std::thread m_errorsThread;
};
