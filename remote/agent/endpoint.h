// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"

#include <chrono>
#include <filesystem>
#include <string>

/// Where the daemon of this user, host and build is reached.
namespace rankyard::agent {

struct Endpoint {
    std::filesystem::path folder; ///< runtimeDir(), mode 0700
    std::string name;             ///< "agent-<host>-<build>": .sock and .lock are appended
    std::filesystem::path socket() const { return folder / (name + ".sock"); }
    std::filesystem::path lock() const { return folder / (name + ".lock"); }
    std::filesystem::path log() const; ///< stateDir()/agent/<name>.log
};

/// Creates the folder. Errors: Io, also when somebody else owns it or may write to it.
Result<Endpoint> endpoint();

/// A listening socket at the endpoint, mode 0600; what a dead daemon left is replaced. The caller holds the lock.
Result<Fd> listenAt(const Endpoint &endpoint);
/// Connects; NotFound when nobody listens.
Result<Fd> connectTo(const Endpoint &endpoint);

} // namespace rankyard::agent
