// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/daemon.h"

#include "engine/base/build_id.h"
#include "remote/agent/client.h"
#include "remote/agent/endpoint.h"
#include "remote/agent/run_manager.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rankyard::agent {

namespace fs = std::filesystem;

fs::path programFolder()
{
    if (const char *folder = std::getenv("RANKYARD_LIBEXEC"); folder && *folder)
        return folder;
    std::error_code error;
    return fs::read_symlink("/proc/self/exe", error).parent_path();
}

DaemonOptions DaemonOptions::fromEnvironment()
{
    DaemonOptions options;
    const auto milliseconds = [](const char *name, std::chrono::milliseconds &value) {
        const char *text = std::getenv(name);
        std::int64_t number = 0;
        if (text && std::from_chars(text, text + std::strlen(text), number).ec == std::errc() && number > 0)
            value = std::chrono::milliseconds(number);
    };
    milliseconds("RANKYARD_AGENT_IDLE_MS", options.idle);
    milliseconds("RANKYARD_HANG_MS", options.limits.hang);
    milliseconds("RANKYARD_STOP_MS", options.limits.stop);
    const char *worker = std::getenv("RANKYARD_WORKER");
    options.workerProgram = worker && *worker ? fs::path(worker) : programFolder() / "rankyard-worker";
    return options;
}

namespace {

void say(const std::string &text)
{
    ::dprintf(STDERR_FILENO, "%lld %s\n", static_cast<long long>(wallNs() / 1'000'000), text.c_str());
}

/// The daemon's parts, made and destroyed together.
class Daemon
{
public:
    explicit Daemon(const DaemonOptions &options) : m_options(options) {}

    Status start();
    void run() { m_loop->run(); }

private:
    Status watchSignals();
    void accept();
    void closed(Client *client);
    void onSignal();
    void tick();

    DaemonOptions m_options;
    Endpoint m_endpoint;
    Fd m_lock;
    Fd m_listen;
    Fd m_signals;
    std::unique_ptr<EventLoop> m_loop;
    std::unique_ptr<RunManager> m_runs;
    std::map<Client *, std::unique_ptr<Client>> m_clients;
    EventLoop::Clock::time_point m_busy = EventLoop::Clock::now();
    bool m_ending = false;
};

constexpr std::chrono::milliseconds tickTime{500};

Status Daemon::start()
{
    RY_ASSIGN(m_endpoint, endpoint());
    m_lock = Fd(::open(m_endpoint.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!m_lock.valid())
        return Error::fromErrno(errno, "cannot create the agent's lock", m_endpoint.lock().string());
    if (::flock(m_lock.get(), LOCK_EX | LOCK_NB) != 0)
        return Error::make(Code::InUse, "an agent serves already", m_endpoint.lock().string());
    RY_ASSIGN(m_loop, EventLoop::create());
    RY_TRY(watchSignals());
    m_runs = std::make_unique<RunManager>(
        *m_loop, m_options.workerProgram, m_options.limits,
        RunManager::Callbacks{[this](const RunReport &report) {
                                  say(report.run.id + " " + telemetry::nameOf(report.state)
                                      + (report.error ? ": " + report.error->text() : ""));
                                  for (const auto &[client, owner] : m_clients)
                                      client->status(report);
                              },
                              [this](const std::string &run) {
                                  for (const auto &[client, owner] : m_clients)
                                      client->records(run);
                              }});
    m_runs->recover();
    m_loop->setAfterRound([this] { m_runs->flush(); });
    RY_ASSIGN(m_listen, listenAt(m_endpoint));
    RY_TRY(m_loop->add(m_listen.get(), EPOLLIN, [this](std::uint32_t) { accept(); }));
    m_loop->after(tickTime, [this] { tick(); });
    say(std::string("serving, build ") + buildId() + ", pid " + std::to_string(::getpid()));
    return {};
}

Status Daemon::watchSignals()
{
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGHUP, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);         // a limit of file size is a full disk, not the end
    ::prctl(PR_SET_CHILD_SUBREAPER, 1); // what ranks leave behind comes to us, and is ended with them
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    m_signals = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!m_signals.valid())
        return Error::fromErrno(errno, "cannot watch signals", "signalfd");
    return m_loop->add(m_signals.get(), EPOLLIN, [this](std::uint32_t) { onSignal(); });
}

void Daemon::onSignal()
{
    signalfd_siginfo info{};
    while (::read(m_signals.get(), &info, sizeof info) == sizeof info) {
        say("told to end by " + signalName(static_cast<int>(info.ssi_signo)));
        if (!std::exchange(m_ending, true))
            m_loop->after(std::chrono::milliseconds(1), [this] { tick(); });
        m_runs->stopAll("signal"); // the second time it kills them
    }
}

void Daemon::accept()
{
    for (;;) {
        Fd fd(::accept4(m_listen.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd.valid())
            return;
        ucred peer{};
        socklen_t size = sizeof peer;
        if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid())
            continue; // the folder keeps others out; this says so twice
        auto client =
            std::make_unique<Client>(*m_loop, *m_runs, std::move(fd), [this](Client *gone) { closed(gone); });
        Client *raw = client.get();
        m_clients[raw] = std::move(client);
        if (!raw->start())
            m_clients.erase(raw);
    }
}

void Daemon::closed(Client *client)
{
    m_clients.erase(client);
    m_busy = EventLoop::Clock::now();
}

void Daemon::tick()
{
    m_loop->after(m_ending ? std::chrono::milliseconds(20) : tickTime, [this] { tick(); });
    m_runs->reapStrangers();
    for (const auto &[client, owner] : m_clients)
        client->poll();
    const auto now = EventLoop::Clock::now();
    if (!m_runs->idle() || (!m_clients.empty() && !m_ending)) {
        m_busy = now;
        return;
    }
    if (!m_ending && now - m_busy < m_options.idle)
        return;
    // Nobody can come between the last look and the end: who connects from here on finds no socket and starts another one.
    ::unlink(m_endpoint.socket().c_str());
    accept();
    if (!m_clients.empty() && !m_ending) {
        m_loop->remove(m_listen.get());
        auto again = listenAt(m_endpoint);
        if (again) {
            m_listen = std::move(*again);
            (void)m_loop->add(m_listen.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
        }
        return;
    }
    say("leaving");
    m_loop->quit();
}

} // namespace

Status serve(const DaemonOptions &options)
{
    Daemon daemon(options);
    const auto status = daemon.start();
    const bool another = !status && status.error().code == Code::InUse;
    if (options.readyFd >= 0) {
        const std::string text = status || another ? "ready\n" : status.error().text() + "\n";
        (void)writeAll(options.readyFd, text, "ready");
        ::close(options.readyFd);
    }
    if (another)
        return {};
    RY_TRY(status);
    daemon.run();
    return {};
}

} // namespace rankyard::agent
