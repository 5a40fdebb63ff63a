// SPDX-License-Identifier: GPL-3.0-or-later
// A worker without LibTorch for tests of the agent: speaks the bootstrap and the frames, and misbehaves when the job's name says so,
// as words "key=value" or "what=STEP:RANK":
//   step_ms=N            time of a step (default 5)
//   kill, segv, abort, exit7, early, error, peer_error, hang, freeze, garbage, close = STEP:RANK
//   saves, waits = STEP:RANK   2.5 s in a step, with progress or, as a rank that waits for the other one, without
//   watch=1              reports a dead peer as its own communicator would
//   spew=N               prints N lines at the start     orphan=1  leaves a process in a session of its own
//   env=1                prints its environment          never_ready=1, ignore_stop=1, slow_end_ms=N
#include "engine/base/build_id.h"
#include "engine/base/units.h"
#include "engine/exec/bootstrap.h"
#include "engine/spec/job.h"
#include "engine/telemetry/wire.h"

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace rankyard;
using namespace rankyard::telemetry;

extern char **environ;

namespace {

using Request = exec::WorkerMessage::Request;

class Worker
{
public:
    Worker(int fd, exec::Bootstrap bootstrap) : m_fd(fd), m_bootstrap(std::move(bootstrap))
    {
        std::istringstream words(m_bootstrap.job.value("name", std::string()));
        for (std::string word; words >> word;) {
            const std::size_t at = word.find('=');
            if (at != std::string::npos)
                m_options[word.substr(0, at)] = word.substr(at + 1);
        }
    }

    int run()
    {
        if (m_bootstrap.buildId != buildId())
            return report(Error::make(Code::NotHere, "this worker is of another build", "worker"));
        HelloRecord hello{
            {{"pid", ::getpid()}, {"rank", m_bootstrap.rank}, {"start_step", m_bootstrap.startStep}}};
        send(hello);
        std::thread([this] { listen(); }).detach();
        atStart();
        if (number("never_ready", 0)) {
            for (;;)
                ::pause();
        }
        std::thread([this] { beat(); }).detach();
        say({{"kind", "ready"}});
        const auto steps = m_bootstrap.job["run"]["steps"].get<std::int64_t>();
        std::int64_t step = m_bootstrap.startStep;
        while (step < steps && !m_stop) {
            waitWhilePaused(step);
            ++step;
            std::this_thread::sleep_for(std::chrono::milliseconds(number("step_ms", 5)));
            misbehave(step);
            sendStep(step);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(number("slow_end_ms", 0)));
        say({{"kind", "end"}, {"reason", step < steps ? "stopped" : "finished"}, {"step", step}});
        return 0;
    }

    int report(const Error &error)
    {
        send(EventRecord{wallNs(), m_step, "error", Json(error)});
        return static_cast<int>(exitFor(error.code));
    }

private:
    std::int64_t number(const char *key, std::int64_t fallback) const
    {
        const auto at = m_options.find(key);
        return at == m_options.end() ? fallback : std::atoll(at->second.c_str());
    }

    bool is(const char *what, std::int64_t step) const
    {
        const auto at = m_options.find(what);
        return at != m_options.end()
            && at->second == std::to_string(step) + ":" + std::to_string(m_bootstrap.rank);
    }

    void write(const std::string &bytes)
    {
        std::string_view rest = bytes;
        while (!rest.empty()) {
            const ssize_t n = ::send(m_fd, rest.data(), rest.size(), MSG_NOSIGNAL);
            if (n <= 0)
                ::_exit(75);
            rest.remove_prefix(static_cast<std::size_t>(n));
        }
    }

    void send(Payload payload)
    {
        const std::lock_guard lock(m_mutex);
        Record record{m_bootstrap.epoch, m_bootstrap.rank, ++m_sequence, std::move(payload)};
        std::string bytes;
        (void)wire::appendRecord(bytes, record);
        write(bytes);
    }

    void say(const Json &json)
    {
        const std::lock_guard lock(m_mutex);
        std::string bytes;
        wire::appendJson(bytes, wire::FrameType::Report, json);
        write(bytes);
    }

    void sendStep(std::int64_t step)
    {
        m_step = step;
        ++m_progress;
        StepRecord record;
        record.step = step;
        record.endNs = monotonicNs();
        record.wallNs = wallNs();
        record.loss = 10.0 / static_cast<double>(step);
        record.lr = 0.001;
        record.tokensPerS = 1000;
        record.stepMs = static_cast<double>(number("step_ms", 5));
        record.memory[0] = 1000 + m_bootstrap.rank;
        record.comm = {{"dp", 100, 200, 50, 0.5, 0.25}};
        send(record);
        if (step % 50 == 0 && m_bootstrap.rank == 0)
            send(EvalRecord{step, 11.0 / static_cast<double>(step), 1000, wallNs()});
    }

    void beat()
    {
        for (;;) {
            {
                const std::lock_guard lock(m_mutex);
                std::string bytes;
                wire::appendHeartbeat(bytes, {m_step, m_progress});
                write(bytes);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
    }

    /// Control frames, until the agent is gone.
    void listen()
    {
        wire::FrameDecoder decoder;
        char block[4096];
        for (;;) {
            const ssize_t n = ::read(m_fd, block, sizeof block);
            if (n <= 0)
                ::_exit(75);
            decoder.feed(std::string_view(block, static_cast<std::size_t>(n)));
            for (;;) {
                const auto frame = decoder.next();
                if (!frame)
                    ::_exit(76);
                if (!*frame)
                    break;
                const auto json = wire::parseFrameJson(**frame);
                const auto message =
                    json ? exec::readWorkerMessage(*json) : Result<exec::WorkerMessage>(json.error());
                if (message)
                    obey(*message);
            }
        }
    }

    void obey(const exec::WorkerMessage &message)
    {
        if (!message.pids.empty() && number("watch", 0))
            std::thread([this, pids = message.pids] { watch(pids); }).detach();
        switch (message.request) {
        case Request::Stop:
            m_stop = !number("ignore_stop", 0);
            break;
        case Request::Pause:
            m_pause = true;
            break;
        case Request::Resume:
            m_pause = false;
            break;
        case Request::Checkpoint:
            send(EventRecord{wallNs(), m_step, "checkpoint", {{"step", m_step.load()}, {"path", "none"}}});
            break;
        case Request::None:
            break;
        }
    }

    /// As a communicator does: a dead peer is an error of this rank.
    void watch(const std::vector<int> &pids)
    {
        std::vector<pollfd> peers;
        for (const int pid : pids)
            peers.push_back(
                {pid == ::getpid() ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0});
        for (;;) {
            if (::poll(peers.data(), peers.size(), -1) < 0)
                continue;
            for (std::size_t rank = 0; rank < peers.size(); ++rank) {
                if (peers[rank].revents == 0)
                    continue;
                const std::string name = "rank " + std::to_string(rank);
                ::_exit(report(Error::make(Code::RankFailed, name + " has died", name)));
            }
        }
    }

    void waitWhilePaused(std::int64_t step)
    {
        if (!m_pause)
            return;
        say({{"kind", "paused"}, {"step", step}});
        while (m_pause && !m_stop) {
            ++m_progress;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        say({{"kind", "resumed"}, {"step", step}});
    }

    void atStart()
    {
        for (std::int64_t i = 0; i < number("spew", 0); ++i)
            std::printf("line %lld of rank %d \xff\n", static_cast<long long>(i), m_bootstrap.rank);
        std::printf("rank %d starts\n", m_bootstrap.rank);
        if (number("env", 0)) {
            for (char **at = environ; *at; ++at)
                std::printf("env %s\n", *at);
        }
        std::fflush(stdout);
        if (number("orphan", 0) && ::fork() == 0) {
            ::setsid();
            for (;;)
                ::pause();
        }
    }

    void misbehave(std::int64_t step)
    {
        if (is("kill", step))
            ::raise(SIGKILL);
        if (is("segv", step)) {
            std::fprintf(stderr, "about to fault\n");
            ::signal(SIGSEGV, SIG_DFL); // not the sanitizer's handler
            ::raise(SIGSEGV);
        }
        if (is("abort", step)) {
            std::fprintf(stderr, "terminate called without an active exception\n");
            ::raise(SIGABRT);
        }
        if (is("exit7", step))
            ::_exit(7);
        if (is("early", step))
            ::_exit(0);
        if (is("error", step))
            ::_exit(
                report(Error::make(Code::DoesNotFit, "cannot allocate 5.0 GiB for activations", "op 17")));
        if (is("peer_error", step)) {
            const int other = 1 - m_bootstrap.rank;
            const std::string name = "rank " + std::to_string(other);
            ::_exit(report(Error::make(Code::RankFailed, name + " hangs: no progress for 10000 ms", name)));
        }
        if (is("freeze", step))
            ::raise(SIGSTOP);
        if (is("hang", step)) {
            for (;;)
                ::pause();
        }
        for (const char *what : {"saves", "waits"}) {
            for (int i = 0; is(what, step) && i < 50; ++i) {
                m_progress += *what == 's' ? 1 : 0;
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
            }
        }
        if (is("garbage", step)) {
            const std::lock_guard lock(m_mutex);
            write(std::string(100, '\xee'));
            for (;;)
                ::pause();
        }
        if (is("close", step)) {
            ::shutdown(m_fd, SHUT_RDWR);
            for (;;)
                ::pause();
        }
    }

    int m_fd;
    exec::Bootstrap m_bootstrap;
    std::map<std::string, std::string> m_options;
    std::mutex m_mutex; ///< of the descriptor and the sequence
    std::uint64_t m_sequence = 0;
    std::atomic<std::int64_t> m_step{0};
    std::atomic<std::uint64_t> m_progress{0};
    std::atomic<bool> m_stop{false};
    std::atomic<bool> m_pause{false};
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3 || std::strcmp(argv[1], "--fd") != 0)
        return 2;
    const int fd = std::atoi(argv[2]);
    auto bootstrap = exec::receiveBootstrap(fd);
    if (!bootstrap) {
        std::fprintf(stderr, "fake worker: %s\n", bootstrap.error().text().c_str());
        return 3;
    }
    Worker worker(fd, std::move(*bootstrap));
    const int status = worker.run();
    ::_exit(status);
}
