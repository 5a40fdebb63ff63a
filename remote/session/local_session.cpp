// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/session/link.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rankyard::session {

namespace fs = std::filesystem;

namespace {

fs::path agentProgram()
{
    if (const char *folder = std::getenv("RANKYARD_LIBEXEC"); folder && *folder)
        return fs::path(folder) / "rankyard-agent";
    std::error_code error;
    return fs::read_symlink("/proc/self/exe", error).parent_path() / "rankyard-agent";
}

/// What the child printed on stderr; it has ended, or is about to.
std::string readRest(int fd)
{
    std::string text;
    std::array<char, 4096> block;
    for (;;) {
        const ssize_t n = ::read(fd, block.data(), block.size());
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || text.size() > 8192)
            break;
        text.append(block.data(), static_cast<std::size_t>(n));
    }
    while (!text.empty() && text.back() == '\n')
        text.pop_back();
    const std::string prefix = "rankyard-agent: ";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

} // namespace

/// A child on a socket pair, as a remote agent is an exec channel: the same bytes from there on.
Result<std::unique_ptr<Session>> Session::openLocal(Callbacks callbacks)
{
    const std::string program = agentProgram().string();
    if (::access(program.c_str(), X_OK) != 0)
        return Error::make(Code::NotHere, "the agent's program is missing", program)
            .withHint("It belongs beside this one; $RANKYARD_LIBEXEC names another folder");
    std::array<int, 2> pair{};
    std::array<int, 2> errors{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
        return Error::fromErrno(errno, "cannot create a socket pair", program);
    Fd ours(pair[0]);
    Fd theirs(pair[1]);
    if (::pipe2(errors.data(), O_CLOEXEC) != 0)
        return Error::fromErrno(errno, "cannot create a pipe", program);
    auto stderrRead = std::make_shared<Fd>(errors[0]);
    Fd stderrWrite(errors[1]);
    char attach[] = "attach";
    std::string name = program;
    char *const arguments[] = {name.data(), attach, nullptr};
    const pid_t child = ::fork();
    if (child < 0)
        return Error::fromErrno(errno, "cannot start the agent", program);
    if (child == 0) {
        ::setsid(); // keys of the terminal (Ctrl-C) are the client's business
        ::dup2(theirs.get(), STDIN_FILENO);
        ::dup2(theirs.get(), STDOUT_FILENO);
        ::dup2(stderrWrite.get(), STDERR_FILENO);
        ::execv(program.c_str(), arguments);
        ::_exit(127);
    }
    theirs.reset(); // so that the child's end is an end of file here
    stderrWrite.reset();
    return Link::open(
        std::move(ours), std::move(callbacks), [stderrRead] { return readRest(stderrRead->get()); }, child);
}

} // namespace rankyard::session
