// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/cgroup.h"

#include "engine/base/file.h"

#include <algorithm>

namespace rankyard::agent {

namespace fs = std::filesystem;

// The folder of this process's memory cgroup: v1's hierarchy, else v2's. In a container the path that /proc names may
// not be visible; then the mount's root is ours.
MemoryCgroup memoryCgroup()
{
    const auto text = readFile("/proc/self/cgroup");
    std::string own1;
    std::string own2;
    if (text) {
        for (std::size_t at = 0; at < text->size();) {
            const std::size_t end = std::min(text->find('\n', at), text->size());
            const std::string line = text->substr(at, end - at);
            const std::size_t first = line.find(':');
            const std::size_t second = line.find(':', first + 1);
            if (first != std::string::npos && second != std::string::npos) {
                const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
                if (controllers.find(",memory,") != std::string::npos)
                    own1 = line.substr(second + 1);
                else if (controllers == ",,")
                    own2 = line.substr(second + 1);
            }
            at = end + 1;
        }
    }
    std::error_code error;
    for (const fs::path &folder :
         {fs::path("/sys/fs/cgroup/memory" + own1), fs::path("/sys/fs/cgroup/memory")}) {
        if (!own1.empty() && fs::exists(folder / "memory.oom_control", error)) {
            return {folder, true};
        }
    }
    for (const fs::path &folder : {fs::path("/sys/fs/cgroup" + own2), fs::path("/sys/fs/cgroup")}) {
        if (fs::exists(folder / "memory.events", error))
            return {folder, false};
    }
    return {};
}

} // namespace rankyard::agent
