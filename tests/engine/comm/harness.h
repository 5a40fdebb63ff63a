// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/comm/communicator.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rankyard::comm::test {

/// How the ranks of a test reach each other's buffers.
enum class Mode { Pointers, Staged };

/// Memory that children of fork() share, zero-filled.
std::shared_ptr<void> sharedMemory(std::int64_t bytes);

/// A group of `size` ranks over fresh shared memory, without pids.
HostGroup groupOf(int size, Timeouts timeouts = {});

/// The communicator of `rank`; fails the test when it cannot be made. Staged: peers are said to be processes.
std::unique_ptr<Communicator> join(HostGroup group, int rank, Mode mode);

/// Runs `body(rank, communicator)` in one thread a rank.
void onThreads(int size, Mode mode, const std::function<void(int, Communicator &)> &body,
               Timeouts timeouts = {});

/// Runs `body(rank, pids)` in one child process a rank, after all are forked, and returns their wait
/// statuses. A child exits with what the body returns. `meanwhile` runs in the parent.
std::vector<int> onProcesses(int size, const std::function<int(int, const std::vector<int> &)> &body,
                             const std::function<void(const std::vector<int> &)> &meanwhile = {});

} // namespace rankyard::comm::test
