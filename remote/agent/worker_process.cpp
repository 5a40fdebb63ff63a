// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/worker_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace rankyard::agent {

namespace wire = telemetry::wire;

char processState(int pid)
{
    const auto text = readFile("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t name = text ? text->rfind(')') : std::string::npos;
    return name != std::string::npos && name + 2 < text->size() ? (*text)[name + 2] : '\0';
}

bool mayBeInEnvironment(const std::string &name)
{
    static constexpr const char *exact[] = {
        "PATH",          "HOME",          "LC_ALL",          "LANG",
        "TMPDIR",        "XDG_DATA_HOME", "LD_LIBRARY_PATH", "ASAN_OPTIONS",
        "UBSAN_OPTIONS", "TSAN_OPTIONS",  "LSAN_OPTIONS"};
    static constexpr const char *prefixes[] = {"OMP_", "MKL_", "CUDA_", "NCCL_", "GOMP_", "DNNL_", "ONEDNN_"};
    for (const char *one : exact) {
        if (name == one)
            return true;
    }
    for (const char *prefix : prefixes) {
        if (name.starts_with(prefix))
            return true;
    }
    return false;
}

std::vector<std::string> workerEnvironment(const std::string &run,
                                           const std::vector<std::pair<std::string, std::string>> &jobEnv)
{
    std::vector<std::string> all;
    for (char **at = environ; *at; ++at) {
        const std::string entry = *at;
        const std::string name = entry.substr(0, entry.find('='));
        bool overridden = false;
        for (const auto &[key, value] : jobEnv)
            overridden = overridden || key == name;
        if (!overridden && mayBeInEnvironment(name))
            all.push_back(entry);
    }
    for (const auto &[key, value] : jobEnv) {
        if (mayBeInEnvironment(key))
            all.push_back(key + "=" + value);
    }
    all.push_back("RANKYARD_RUN=" + run);
    return all;
}

namespace {

/// Between fork and exec: only calls that are safe there. `status` gets errno when exec fails.
[[noreturn]] void becomeWorker(const WorkerProcess::Setup &setup, char *const *arguments,
                               char *const *environment, int parent, int input, int output, int status)
{
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent)
        ::_exit(127); // the agent died in between
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int signal = 1; signal < 32; ++signal)
        ::signal(signal, SIG_DFL);
    ::dup2(input, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    for (const int fd : setup.inherited)
        ::fcntl(fd, F_SETFD, 0);
    if (::chdir(setup.folder.c_str()) == 0)
        ::execve(setup.program.c_str(), arguments, environment);
    const int failure = errno;
    [[maybe_unused]] const ssize_t n = ::write(status, &failure, sizeof failure);
    ::_exit(127);
}

struct Pipe {
    Fd read;
    Fd write;
};

Result<Pipe> makePipe()
{
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
        return Error::fromErrno(errno, "cannot create a pipe", "worker");
    return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<char *> pointersOf(std::vector<std::string> &texts)
{
    std::vector<char *> pointers;
    for (std::string &text : texts)
        pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
}

} // namespace

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(EventLoop &loop, const Setup &setup,
                                                            Callbacks callbacks)
{
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
        return Error::fromErrno(errno, "cannot create a socket pair", "worker");
    Fd ours(pair[0]);
    Fd theirs(pair[1]);
    RY_ASSIGN(Pipe output, makePipe());
    RY_ASSIGN(Pipe status, makePipe());
    const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    Setup all = setup;
    all.inherited.push_back(theirs.get());
    std::vector<std::string> arguments{setup.program.string(), "--fd", std::to_string(theirs.get())};
    const std::vector<char *> argv = pointersOf(arguments);
    const std::vector<char *> envp = pointersOf(all.environment);
    const int parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0)
        return Error::fromErrno(errno, "cannot start a worker", setup.program.string());
    if (child == 0)
        becomeWorker(all, argv.data(), envp.data(), parent, null.get(), output.write.get(),
                     status.write.get());
    ::setpgid(child, child); // both sides: whoever is first
    theirs.reset();
    output.write.reset();
    status.write.reset();
    int failure = 0;
    ssize_t n = 0;
    do {
        n = ::read(status.read.get(), &failure, sizeof failure); // EOF at exec
    } while (n < 0 && errno == EINTR);
    if (n == sizeof failure) {
        ::waitpid(child, nullptr, 0);
        Error error = Error::fromErrno(failure, "cannot start the worker program", setup.program.string());
        error.code = Code::NotHere;
        error.hint = failure == ENOENT ? "This installation has no worker: build it with LibTorch" : "";
        return error;
    }
    std::unique_ptr<WorkerProcess> worker(new WorkerProcess(loop, std::move(callbacks)));
    worker->m_pid = child;
    worker->m_running = true;
    worker->m_output = std::move(output.read);
    RY_TRY(worker->watch(std::move(ours)));
    return worker;
}

Status WorkerProcess::watch(Fd socket)
{
    m_pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, m_pid, 0)));
    if (!m_pidfd.valid())
        return Error::fromErrno(errno, "cannot watch a worker", "pid " + std::to_string(m_pid));
    ::fcntl(m_pidfd.get(), F_SETFD, FD_CLOEXEC);
    ::fcntl(m_output.get(), F_SETFL, O_NONBLOCK);
    RY_TRY(m_loop.add(m_pidfd.get(), EPOLLIN, [this](std::uint32_t) { reap(); }));
    RY_TRY(m_loop.add(m_output.get(), EPOLLIN, [this](std::uint32_t) { readOutput(); }));
    m_connection = std::make_unique<Connection>(
        m_loop, std::move(socket),
        Connection::Callbacks{[this](const wire::FrameView &frame) { m_callbacks.frame(frame); },
                              [this](const std::optional<Error> &error) {
                                  if (error && m_running)
                                      m_callbacks.broken(*error);
                              },
                              {}});
    return m_connection->start();
}

WorkerProcess::~WorkerProcess()
{
    if (m_pidfd.valid())
        m_loop.remove(m_pidfd.get());
    if (m_output.valid())
        m_loop.remove(m_output.get());
    if (m_running) {
        kill(SIGKILL);
        ::waitpid(m_pid, nullptr,
                  WNOHANG); // else the daemon reaps it: one that hangs in the kernel would hold us
    }
}

void WorkerProcess::bootstrap(const exec::Bootstrap &document)
{
    const std::string text = dumpJson(exec::writeBootstrap(document));
    std::string bytes;
    for (unsigned shift = 0; shift < 32; shift += 8)
        bytes.push_back(static_cast<char>(text.size() >> shift & 0xff));
    m_connection->send(bytes + text);
}

void WorkerProcess::control(const Json &message)
{
    m_connection->sendJson(wire::FrameType::Control, message);
}

void WorkerProcess::kill(int signal)
{
    if (!m_running)
        return;
    // A process of several threads may be dead and not yet gone: then its end is not our doing.
    if (processState(m_pid) != 'Z')
        m_killedBy = signal;
    // The group and, should it have left the group, the process itself.
    ::kill(-m_pid, signal);
    ::syscall(SYS_pidfd_send_signal, m_pidfd.get(), signal, nullptr, 0);
    if (signal == SIGTERM)
        ::kill(-m_pid, SIGCONT); // a stopped process would not see it
}

void WorkerProcess::readOutput()
{
    std::array<char, 65536> block;
    for (int rounds = 0; rounds < 4; ++rounds) { // fair to the others when a rank floods
        const ssize_t n = ::read(m_output.get(), block.data(), block.size());
        if (n > 0) {
            m_callbacks.output(std::string_view(block.data(), static_cast<std::size_t>(n)));
            continue;
        }
        if (n == 0) {
            m_loop.remove(m_output.get());
            m_output.reset();
        }
        return;
    }
}

/// The process has ended: what it sent and printed before is delivered first.
void WorkerProcess::reap()
{
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(m_pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0
        || info.si_pid == 0)
        return;
    m_running = false;
    m_loop.remove(m_pidfd.get());
    ::kill(-m_pid, SIGKILL); // what it left in its group, while the number cannot be anybody else's
    ::waitid(P_PID, static_cast<id_t>(m_pid), &info, WEXITED | WNOHANG);
    if (m_connection)
        m_connection->drain();
    // A grandchild may still hold the pipe: take what is there, do not wait for its end.
    for (int rounds = 0; rounds < 64 && m_output.valid(); ++rounds)
        readOutput();
    ExitStatus status;
    if (info.si_code == CLD_EXITED)
        status.code = info.si_status;
    else
        status.signal = info.si_status;
    const auto ended = m_callbacks.ended;
    ended(status);
}

} // namespace rankyard::agent
