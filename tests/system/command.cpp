// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/system/command.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono;

Command::Command(std::vector<std::string> arguments, bool closedStdout)
{
    int out[2];
    int err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
        std::abort();
    std::vector<char *> argv;
    for (std::string &argument : arguments)
        argv.push_back(argument.data());
    argv.push_back(nullptr);
    m_pid = ::fork();
    if (m_pid == 0) {
        ::dup2(out[1], STDOUT_FILENO);
        ::dup2(err[1], STDERR_FILENO);
        if (closedStdout)
            ::close(out[0]);
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    if (closedStdout)
        ::close(out[0]);
    else
        m_outputThread = std::thread([this, fd = out[0]] { collect(fd, m_output); });
    m_errorsThread = std::thread([this, fd = err[0]] { collect(fd, m_errors); });
}

Command::~Command()
{
    if (!m_ended) {
        ::kill(m_pid, SIGKILL);
        ::waitpid(m_pid, nullptr, 0);
    }
    if (m_outputThread.joinable())
        m_outputThread.join();
    if (m_errorsThread.joinable())
        m_errorsThread.join();
}

void Command::signal(int number) const { ::kill(m_pid, number); }

void Command::collect(int fd, std::string &into)
{
    char block[4096];
    for (;;) {
        const ssize_t n = ::read(fd, block, sizeof block);
        if (n <= 0)
            break;
        const std::lock_guard lock(m_mutex);
        into.append(block, static_cast<std::size_t>(n));
    }
    ::close(fd);
}

int Command::wait(milliseconds deadline)
{
    if (!m_ended) {
        const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, m_pid, 0));
        pollfd entry{pidfd, POLLIN, 0};
        const int ready = ::poll(&entry, 1, static_cast<int>(deadline.count()));
        ::close(pidfd);
        if (ready <= 0)
            return -1000;
        int status = 0;
        ::waitpid(m_pid, &status, 0);
        m_ended = true;
        m_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    if (m_outputThread.joinable())
        m_outputThread.join();
    if (m_errorsThread.joinable())
        m_errorsThread.join();
    return m_status;
}

bool Command::waitForError(const std::string &text, milliseconds deadline)
{
    const auto end = steady_clock::now() + deadline;
    while (steady_clock::now() < end) {
        if (errors().find(text) != std::string::npos)
            return true;
        siginfo_t info{};
        if (::waitid(P_PID, static_cast<id_t>(m_pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0
            || info.si_pid != 0)
            return errors().find(text) != std::string::npos;
        ::poll(nullptr, 0, 2);
    }
    return false;
}

std::string Command::output()
{
    const std::lock_guard lock(m_mutex);
    return m_output;
}

std::string Command::errors()
{
    const std::lock_guard lock(m_mutex);
    return m_errors;
}

rankyard::Json Command::json()
{
    const auto parsed = rankyard::parseJson(output(), "stdout");
    return parsed ? *parsed : rankyard::Json();
}
