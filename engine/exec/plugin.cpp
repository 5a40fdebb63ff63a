// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/plugin.h"

#include "engine/base/build_id.h"

#include <algorithm>
#include <dlfcn.h>

namespace rankyard::exec {

namespace fs = std::filesystem;

bool hasDriver()
{
    std::error_code error;
    return fs::exists("/dev/nvidiactl", error) || fs::exists("/dev/dxg", error);
}

Result<const DevicePlugin *> openPlugin(const fs::path &path)
{
    std::error_code none;
    if (!fs::exists(path, none))
        return Error::make(Code::NotFound, "there is no plug-in", path.string());
    void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return Error::make(Code::NotHere, "the plug-in cannot be loaded", path.string())
            .withFound(::dlerror());
    using Entry = const DevicePlugin *();
    auto *entry = reinterpret_cast<Entry *>(::dlsym(library, devicePluginSymbol));
    if (!entry)
        return Error::make(Code::NotHere, "the file is no plug-in", path.string())
            .withExpected(std::string("the symbol ") + devicePluginSymbol);
    const DevicePlugin *plugin = entry();
    if (plugin->abi != Device::abi)
        return Error::make(Code::NotHere, "the plug-in is for another version of the worker", path.string())
            .withFound("ABI " + std::to_string(plugin->abi))
            .withExpected("ABI " + std::to_string(Device::abi))
            .withHint("Build plug-in and worker together");
    if (plugin->build != std::string(buildId()))
        return Error::make(Code::NotHere, "the plug-in is of another build than the worker", path.string())
            .withFound(plugin->build)
            .withExpected(buildId())
            .withHint("Build plug-in and worker together");
    return plugin;
}

Result<ChosenDevice> chooseDevice(const Bootstrap &bootstrap, const fs::path &folder)
{
    const auto cpu = [&](std::string note) {
        return ChosenDevice{makeCpuDevice(bootstrap.threads), std::move(note)};
    };
    std::error_code none;
    if (!hasDriver() || !fs::exists(folder / devicePluginFile, none))
        return cpu({});
    const auto plugin = openPlugin(folder / devicePluginFile);
    if (!plugin.ok() && plugin.error().what == "the plug-in cannot be loaded")
        return cpu("on the CPU: " + plugin.error().text());
    RY_TRY(plugin);
    const int count = (*plugin)->count(), ranks = std::max(1, static_cast<int>(bootstrap.hostRanks.size()));
    if (count == 0)
        return cpu({});
    if (count < ranks)
        return cpu("on the CPU: this host has " + std::to_string(count) + " GPUs for " + std::to_string(ranks)
                   + " ranks");
    const auto own = std::find(bootstrap.hostRanks.begin(), bootstrap.hostRanks.end(), bootstrap.rank);
    const auto index = own == bootstrap.hostRanks.end() ? 0 : own - bootstrap.hostRanks.begin();
    RY_ASSIGN(auto device, (*plugin)->make(bootstrap.threads, static_cast<int>(index)));
    return ChosenDevice{std::move(device), {}};
}

} // namespace rankyard::exec
