// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/build_id.h"
#include "remote/agent/daemon.h"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>

using namespace rankyard;

namespace {

constexpr char usage[] =
    "rankyard-agent serve [--ready-fd N]   the daemon of this user, host and build\n"
    "rankyard-agent attach                 starts it when there is none, and speaks for it on the standard streams\n"
    "rankyard-agent --version\n";

int finish(const Status &status)
{
    if (status)
        return 0;
    std::fprintf(stderr, "rankyard-agent: %s\n", status.error().text().c_str());
    return static_cast<int>(exitFor(status.error().code));
}

} // namespace

int main(int argc, char **argv)
{
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "--version" && argc == 2) {
        std::printf("rankyard-agent %s\n", buildId());
        return 0;
    }
    if (command == "attach" && argc == 2)
        return finish(agent::attach());
    if (command == "serve" && (argc == 2 || (argc == 4 && std::strcmp(argv[2], "--ready-fd") == 0))) {
        agent::DaemonOptions options = agent::DaemonOptions::fromEnvironment();
        if (argc == 4)
            std::from_chars(argv[3], argv[3] + std::strlen(argv[3]), options.readyFd);
        return finish(agent::serve(options));
    }
    std::fputs(usage, command == "--help" ? stdout : stderr);
    return command == "--help" ? 0 : static_cast<int>(Exit::BadUsage);
}
