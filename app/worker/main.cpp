// SPDX-License-Identifier: GPL-3.0-or-later
// rankyard-worker --fd N: one rank of a run. Started by the agent, which speaks with it over descriptor N
// (engine/exec/bootstrap.h).
#include "engine/base/build_id.h"
#include "engine/exec/agent_link.h"
#include "engine/exec/gpu_environment.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <unistd.h>

using namespace rankyard;

namespace {

int usage()
{
    std::fputs("usage: rankyard-worker --fd N\nThe agent starts it; for people there is rankyardctl train.\n",
               stderr);
    return static_cast<int>(Exit::BadUsage);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
        std::printf("rankyard-worker %s\n", buildId());
        return 0;
    }
    if (argc != 3 || std::strcmp(argv[1], "--fd") != 0)
        return usage();
    char *end = nullptr;
    const long number = std::strtol(argv[2], &end, 10);
    if (*end != '\0' || ::fcntl(static_cast<int>(number), F_GETFD) < 0)
        return usage();
    if (exec::hasDriver())
        exec::setGpuDefaults(); // before there are threads
    Fd fd(static_cast<int>(number));
    auto bootstrap = exec::receiveBootstrap(fd.get());
    if (!bootstrap.ok()) {
        std::fprintf(stderr, "rankyard-worker: %s\n", bootstrap.error().text().c_str());
        return static_cast<int>(exitFor(bootstrap.error().code));
    }
    const std::uint32_t epoch = bootstrap->epoch;
    const int rank = bootstrap->rank;
    std::error_code none;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
    exec::Worker worker(std::move(bootstrap).value(),
                        [&folder](const exec::Bootstrap &own) { return exec::chooseDevice(own, folder); });
    exec::AgentLink link(std::move(fd), worker, epoch, rank);
    const auto result = worker.run();
    link.finish(result);
    std::fflush(nullptr);
    // Without destructors: a rank that failed must not wait for peers, and one that is done has nothing to
    // put in order.
    if (!result.ok())
        ::_exit(static_cast<int>(exitFor(result.error().code)));
    ::_exit(static_cast<int>(*result == exec::WorkerEnd::Finished ? Exit::Done : Exit::Stopped));
}
