// SPDX-License-Identifier: GPL-3.0-or-later
// Microseconds of a collective by size: shared memory (buffers in shared arenas, and staged), and Gloo where
// it is built in.
//   bench_comm [--ranks 2] [--repeat 200]
#include "engine/comm/communicator.h"
#ifdef RANKYARD_HAVE_GLOO
#include "engine/base/file.h"
#include "engine/comm/gloo.h"

#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace rankyard;
using namespace rankyard::comm;

namespace {

constexpr std::int64_t sizes[] = {4096, 65536, 1 << 20, 25 << 20, 100 << 20};
constexpr std::int64_t largest = 100 << 20;
constexpr const char *operations[] = {"all_reduce", "reduce_scatter", "all_gather"};

std::byte *sharedMemory(std::int64_t bytes)
{
    void *at = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte *>(at);
}

Result<Ticket> start(Communicator &communicator, int operation, void *data, std::int64_t bytes)
{
    const std::int64_t count = bytes / 4 / communicator.size() * communicator.size();
    switch (operation) {
    case 0:
        return communicator.allReduce(data, count, DType::F32, ReduceOp::Sum);
    case 1:
        return communicator.reduceScatter(data, count, DType::F32);
    default:
        return communicator.allGather(data, count, DType::F32);
    }
}

/// Least and median over batches of operations one after the other, as a training step makes them:
/// microseconds an operation.
bool measure(Communicator &communicator, const char *name, std::byte *data, int repeat)
{
    for (int operation = 0; operation < 3; ++operation) {
        for (const std::int64_t bytes : sizes) {
            const int batch = bytes > (1 << 20) ? 1 : 10;
            const int runs = bytes > (1 << 20) ? std::max(5, repeat / 10) : repeat;
            std::vector<double> times;
            for (int i = 0; i < runs + 2; ++i) {
                if (!communicator.barrier().ok())
                    return false;
                const std::int64_t begin = monotonicNs();
                for (int k = 0; k < batch; ++k) {
                    auto ticket = start(communicator, operation, data, bytes);
                    if (!ticket.ok() || !communicator.wait(*ticket).ok())
                        return false;
                }
                if (i >= 2)
                    times.push_back(static_cast<double>(monotonicNs() - begin) / 1e3 / batch);
            }
            std::sort(times.begin(), times.end());
            if (communicator.rank() == 0)
                std::printf("%-8s %d %-15s %10lld %12.1f %12.1f\n", name, communicator.size(),
                            operations[operation], static_cast<long long>(bytes), times.front(),
                            times[times.size() / 2]);
        }
    }
    std::fflush(stdout);
    return true;
}

/// Forks the ranks, gives each the process ids of all, waits.
bool onProcesses(int size, const std::function<bool(int, const std::vector<int> &)> &body)
{
    auto *pids = reinterpret_cast<std::atomic<int> *>(sharedMemory(4096));
    std::fflush(stdout);
    for (int r = 0; r < size; ++r) {
        const int pid = ::fork();
        if (pid == 0) {
            std::vector<int> known;
            for (int i = 0; i < size; ++i) {
                while (pids[i] == 0)
                    ::usleep(100);
                known.push_back(pids[i]);
            }
            ::_exit(body(r, known) ? 0 : 1);
        }
        pids[r] = pid;
    }
    bool ok = true;
    for (int r = 0; r < size; ++r) {
        int status = 0;
        ::wait(&status);
        ok = ok && status == 0;
    }
    return ok;
}

bool benchShared(int size, int repeat, bool arenas)
{
    HostGroup group;
    group.name = "bench";
    for (int r = 0; r < size; ++r)
        group.ranks.push_back(r);
    group.segmentBytes = hostSegmentBytes(size);
    group.segment = sharedMemory(group.segmentBytes);
    std::byte *memory = sharedMemory(largest * size);
    return onProcesses(size, [&](int rank, const std::vector<int> &pids) {
        HostGroup mine = group;
        mine.rank = rank;
        mine.pids = pids;
        SharedArena arena;
        arena.bytes = largest;
        for (int r = 0; r < size; ++r)
            arena.base.push_back(memory + largest * r);
        std::byte *data = arena.base[static_cast<std::size_t>(rank)];
        std::memset(data, 0, largest);
        if (arenas)
            mine.arenas = {arena};
        auto communicator = makeHostCommunicator(std::move(mine));
        return communicator.ok() && measure(**communicator, arenas ? "direct" : "staged", data, repeat);
    });
}

#ifdef RANKYARD_HAVE_GLOO
/// Keys as files, for ranks that are processes.
class FileKeyValue final : public KeyValue
{
public:
    explicit FileKeyValue(std::filesystem::path folder) : m_folder(std::move(folder)) {}

    Status set(const std::string &key, const std::string &value) override
    {
        return writeFileAtomically(pathOf(key), value);
    }
    Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout) override
    {
        for (std::int64_t waited = 0; waited < timeout.count(); ++waited) {
            if (auto content = readFile(pathOf(key)); content.ok())
                return content;
            ::usleep(1000);
        }
        return Error::make(Code::RankFailed, "nobody has set a key in time", key);
    }
    Result<std::int64_t> add(const std::string &key, std::int64_t amount) override
    {
        const Fd lock(::open((m_folder / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
        ::flock(lock.get(), LOCK_EX);
        const auto content = readFile(pathOf(key));
        const std::int64_t sum = amount + (content.ok() ? std::strtoll(content->c_str(), nullptr, 10) : 0);
        RY_TRY(set(key, std::to_string(sum)));
        return sum;
    }
    Result<bool> has(const std::string &key) override { return std::filesystem::exists(pathOf(key)); }
    Status remove(const std::string &key) override
    {
        std::filesystem::remove(pathOf(key));
        return {};
    }

private:
    std::filesystem::path pathOf(std::string key) const
    {
        std::replace(key.begin(), key.end(), '/', '_');
        return m_folder / key;
    }
    std::filesystem::path m_folder;
};

bool benchGloo(int size, int repeat)
{
    std::string pattern = (std::filesystem::temp_directory_path() / "bench-comm-XXXXXX").string();
    const std::filesystem::path folder = ::mkdtemp(pattern.data());
    const bool ok = onProcesses(size, [&](int rank, const std::vector<int> &) {
        GlooGroup group;
        group.name = "bench";
        group.rank = rank;
        for (int r = 0; r < size; ++r)
            group.ranks.push_back(r);
        group.keys = std::make_shared<FileKeyValue>(folder);
        std::vector<std::byte> data(largest);
        auto communicator = makeGlooCommunicator(group);
        if (!communicator.ok())
            std::fprintf(stderr, "%s\n", communicator.error().text().c_str());
        return communicator.ok() && measure(**communicator, "gloo", data.data(), repeat);
    });
    std::filesystem::remove_all(folder);
    return ok;
}
#endif

} // namespace

int main(int argc, char **argv)
{
    int size = 2;
    int repeat = 200;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "--ranks") == 0)
            size = std::atoi(argv[i + 1]);
        if (std::strcmp(argv[i], "--repeat") == 0)
            repeat = std::atoi(argv[i + 1]);
    }
    std::printf("%-8s %s %-15s %10s %12s %12s\n", "backend", "n", "operation", "bytes", "least us",
                "median us");
    bool ok = benchShared(size, repeat, true) && benchShared(size, repeat, false);
#ifdef RANKYARD_HAVE_GLOO
    ok = ok && benchGloo(size, repeat);
#endif
    return ok ? 0 : 1;
}
