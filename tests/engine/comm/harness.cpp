// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/comm/harness.h"

#include <atomic>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rankyard::comm::test {

std::shared_ptr<void> sharedMemory(std::int64_t bytes)
{
    const auto size = static_cast<std::size_t>(bytes);
    void *at =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return nullptr;
    return {at, [size](void *p) { ::munmap(p, size); }};
}

HostGroup groupOf(int size, Timeouts timeouts)
{
    HostGroup group;
    group.name = "test";
    for (int r = 0; r < size; ++r)
        group.ranks.push_back(10 + r);
    group.segmentBytes = hostSegmentBytes(size);
    group.keepAlive = sharedMemory(group.segmentBytes);
    group.segment = group.keepAlive.get();
    group.timeouts = timeouts;
    return group;
}

std::unique_ptr<Communicator> join(HostGroup group, int rank, Mode mode)
{
    group.rank = rank;
    group.pids.assign(group.ranks.size(), mode == Mode::Staged ? ::getpid() : 0);
    auto made = makeHostCommunicator(std::move(group));
    if (!made) {
        ADD_FAILURE() << made.error().text();
        std::abort();
    }
    return std::move(made).value();
}

void onThreads(int size, Mode mode, const std::function<void(int, Communicator &)> &body, Timeouts timeouts)
{
    const HostGroup group = groupOf(size, timeouts);
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
        threads.emplace_back([&, r] {
            const auto communicator = join(group, r, mode);
            body(r, *communicator);
        });
    }
    for (std::thread &thread : threads)
        thread.join();
}

std::vector<int> onProcesses(int size, const std::function<int(int, const std::vector<int> &)> &body,
                             const std::function<void(const std::vector<int> &)> &meanwhile)
{
    const auto shared = sharedMemory(4096);
    auto *pids = static_cast<std::atomic<int> *>(shared.get());
    std::vector<int> children;
    for (int r = 0; r < size; ++r) {
        const int pid = ::fork();
        if (pid == 0) {
            std::vector<int> known;
            for (int i = 0; i < size; ++i) {
                while (pids[i] == 0)
                    ::usleep(100);
                known.push_back(pids[i]);
            }
            ::_exit(body(r, known));
        }
        pids[r] = pid;
        children.push_back(pid);
    }
    if (meanwhile)
        meanwhile(children);
    std::vector<int> statuses;
    for (const int pid : children) {
        int status = -1;
        ::waitpid(pid, &status, 0);
        statuses.push_back(status);
    }
    return statuses;
}

} // namespace rankyard::comm::test
