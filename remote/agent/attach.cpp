// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/daemon.h"
#include "remote/agent/endpoint.h"
#include "remote/agent/protocol.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rankyard::agent {

namespace fs = std::filesystem;

namespace {

constexpr off_t logBytes = 1 << 20;

/// The daemon's log: appended to, with one older one.
Fd openLog(const fs::path &file)
{
    if (!makePrivateDir(file.parent_path()))
        return {};
    struct stat info {};
    if (::stat(file.c_str(), &info) == 0 && info.st_size > logBytes)
        ::rename(file.c_str(), (file.string() + ".1").c_str());
    return Fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

/// In the child: a new session without a terminal, standard streams that hold nobody's pipe, then `serve`.
[[noreturn]] void becomeDaemon(const std::string &program, int null, int log, int ready)
{
    ::setsid();
    if (::fork() != 0)
        ::_exit(0); // no session leader, so that it can never get a terminal
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(log >= 0 ? log : null, STDERR_FILENO);
    ::fcntl(ready, F_SETFD, 0);
    const std::string fd = std::to_string(ready);
    if (::chdir("/") == 0)
        ::execl(program.c_str(), program.c_str(), "serve", "--ready-fd", fd.c_str(),
                static_cast<char *>(nullptr));
    static constexpr char text[] = "cannot execute rankyard-agent\n";
    [[maybe_unused]] const ssize_t n = ::write(ready, text, sizeof text - 1);
    ::_exit(127);
}

Status startDaemon(const Endpoint &at)
{
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
        return Error::fromErrno(errno, "cannot create a pipe", "agent");
    const Fd read(pipe[0]);
    Fd write(pipe[1]);
    const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const Fd log = openLog(at.log());
    std::error_code error;
    const std::string program = fs::read_symlink("/proc/self/exe", error).string();
    const pid_t child = ::fork();
    if (child < 0)
        return Error::fromErrno(errno, "cannot start the agent", program);
    if (child == 0)
        becomeDaemon(program, null.get(), log.get(), write.get());
    write.reset();
    ::waitpid(child, nullptr, 0);
    std::string text;
    std::array<char, 1024> block;
    for (;;) {
        const ssize_t n = ::read(read.get(), block.data(), block.size());
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        text.append(block.data(), static_cast<std::size_t>(n));
    }
    if (text == "ready\n")
        return {};
    if (!text.empty() && text.back() == '\n')
        text.pop_back();
    return Error::make(Code::Io, "the agent could not start", at.log().string())
        .withFound(text.empty() ? "nothing said" : text);
}

/// A connection to the daemon, which is started when there is none. One that leaves just now is asked again.
Result<Fd> reach()
{
    RY_ASSIGN(const Endpoint at, endpoint());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
        auto connection = connectTo(at);
        if (connection) {
            pollfd wait{connection->get(), POLLIN, 0};
            char first = 0;
            // The daemon speaks first: end of file here means that it is leaving.
            if (::poll(&wait, 1, 15'000) > 0 && ::recv(connection->get(), &first, 1, MSG_PEEK) == 1)
                return connection;
        } else if (connection.error().code != Code::NotFound) {
            return connection.error();
        }
        if (std::chrono::steady_clock::now() > deadline)
            return Error::make(Code::Io, "the agent does not answer", at.socket().string())
                .withHint("Its log is " + at.log().string());
        RY_TRY(startDaemon(at));
        std::this_thread::sleep_for(
            std::chrono::milliseconds(5)); // another daemon may hold the lock and not listen yet
    }
}

/// Carries what `from` gives to `to`. False at the end of either.
bool carry(int from, int to)
{
    std::array<char, 65536> block;
    const ssize_t n = ::read(from, block.data(), block.size());
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    return n > 0 && writeAll(to, std::string_view(block.data(), static_cast<std::size_t>(n)), "attach").ok();
}

} // namespace

Status attach()
{
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGINT, SIG_IGN); // meant for the client on the same terminal, which will want to tell the agent
    auto connection = reach();
    if (!connection)
        return connection.error();
    RY_TRY(writeAll(STDOUT_FILENO, std::string_view(attachMagic, attachMagicBytes), "standard output"));
    // Two threads, so that a client that does not read never keeps its own requests back.
    std::thread toClient([fd = connection->get()] {
        while (carry(fd, STDOUT_FILENO)) {
        }
        ::_exit(0);
    });
    while (carry(STDIN_FILENO, connection->get())) {
    }
    ::_exit(0);
}

} // namespace rankyard::agent
