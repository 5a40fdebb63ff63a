// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/exec/bootstrap.h"
#include "remote/agent/connection.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rankyard::agent {

/// The environment of workers: an allow-list of the agent's own, the job's `comm.env` as far as allowed, and RANKYARD_RUN, by which
/// what a worker leaves behind is found. "NAME=value", ready for execve.
std::vector<std::string> workerEnvironment(const std::string &run,
                                           const std::vector<std::pair<std::string, std::string>> &jobEnv);
bool mayBeInEnvironment(const std::string &name);

/// 'R', 'S', 'D', 'T', 'Z' … of a process as /proc tells, 0 when it is gone.
char processState(int pid);

/// How a process ended.
struct ExitStatus {
    int code = 0;   ///< when it exited
    int signal = 0; ///< when it was killed, else 0
};

/// One rank: a child process in a process group of its own, with a socket pair for frames and a pipe for what it prints. It dies
/// with the agent (PR_SET_PDEATHSIG). The destructor kills the group. On the loop's thread.
class WorkerProcess
{
public:
    struct Callbacks {
        std::function<void(const telemetry::wire::FrameView &)> frame;
        std::function<void(std::string_view)> output; ///< bytes of stdout and stderr as they come
        std::function<void(const ExitStatus &)>
            ended; ///< after the last frame and the last byte of output; may destroy this
        std::function<void(const Error &)> broken; ///< the rank sent what is no frame
    };

    struct Setup {
        std::filesystem::path program;
        std::vector<std::string> environment;
        std::vector<int> inherited;   ///< descriptors that stay open under their own numbers
        std::filesystem::path folder; ///< working directory
    };

    /// Forks and executes. The worker waits for its bootstrap document. Errors: NotHere when there is no such program, Io.
    static Result<std::unique_ptr<WorkerProcess>> start(EventLoop &loop, const Setup &setup,
                                                        Callbacks callbacks);
    ~WorkerProcess();

    /// Sends the bootstrap document, with `fd` rank's own number of the socket; frames may be sent and come after that.
    void bootstrap(const exec::Bootstrap &document);
    void control(const Json &message);

    /// Looks at once whether it has ended, and then calls ended().
    void reapIfDead() { reap(); }

    int pid() const { return m_pid; }
    bool running() const { return m_running; }
    /// To the whole group. Later exits count as ours.
    void kill(int signal);
    std::optional<int> killedBy() const { return m_killedBy; } ///< the last signal that we sent

private:
    WorkerProcess(EventLoop &loop, Callbacks callbacks) : m_loop(loop), m_callbacks(std::move(callbacks)) {}
    Status watch(Fd socket);
    void readOutput();
    void reap();

    EventLoop &m_loop;
    Callbacks m_callbacks;
    int m_pid = 0;
    bool m_running = false;
    std::optional<int> m_killedBy;
    Fd m_pidfd;
    Fd m_output;
    std::unique_ptr<Connection> m_connection;
};

} // namespace rankyard::agent
