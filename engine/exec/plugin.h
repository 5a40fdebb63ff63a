// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/bootstrap.h"
#include "engine/exec/device.h"

#include <filesystem>
#include <memory>
#include <string>

/// Devices that come with a shared library, so that a worker on a host without them needs none of their vendor's libraries.
namespace rankyard::exec {

/// What the library's one symbol returns. `abi` and `build` stand first and are looked at before anything else: C++ objects go over
/// this border, so both sides are of one build.
struct DevicePlugin {
    int abi;           ///< Device::abi
    const char *build; ///< buildId()
    const char *kind;  ///< "CUDA"
    int (*count)();    ///< devices that this process may use
    /// `threads`: of what it does on the host; `index` < count().
    Result<std::unique_ptr<Device>> (*make)(int threads, int index);
};
inline constexpr const char *devicePluginSymbol = "rankyard_device_plugin";
inline constexpr const char *devicePluginFile = "librankyard-cuda.so"; ///< beside the worker

/// Opens it for ever. NotFound: there is no such file; NotHere: a library that it needs is missing, or it is of another build.
Result<const DevicePlugin *> openPlugin(const std::filesystem::path &path);

/// Whether a driver for such devices is there at all: without one the plug-in could do nothing, and its libraries are large.
bool hasDriver();

/// What a rank computes on, and why.
struct ChosenDevice {
    std::unique_ptr<Device> device;
    std::string note; ///< why it is not a GPU where one might expect it; may be empty
};

/// A GPU each for the ranks of this host, in their order, where the plug-in in `folder` finds enough of them; else the CPU for all.
/// Errors: of a plug-in of another build, and of a GPU that cannot be used.
Result<ChosenDevice> chooseDevice(const Bootstrap &bootstrap, const std::filesystem::path &folder);

} // namespace rankyard::exec
