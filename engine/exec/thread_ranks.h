// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/executor.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rankyard::exec {

/// One rank among the threads of this process.
struct ThreadRank {
    int rank = 0;
    Arenas *arenas = nullptr;
    Executor *executor = nullptr;
};

/// All ranks of a plan in this process, each with arenas, a device, communicators and an executor of its own, as workers have
/// them: for parity and for tests. Owned and called by one thread, which starts a thread a rank in each().
class ThreadRanks
{
public:
    using DeviceFactory = std::function<std::unique_ptr<Device>()>;
    using DataOf = std::function<DataSource *(int rank)>; ///< called in order of ranks; the caller owns them

    /// What stands between a rank and its group: a link that is slow, for tests.
    using Link = std::function<std::unique_ptr<comm::Communicator>(std::unique_ptr<comm::Communicator>,
                                                                   const std::string &group)>;

    /// `plan` must outlive it. An error of any rank is the error.
    static Result<std::unique_ptr<ThreadRanks>> make(const plan::Plan &plan, const DeviceFactory &makeDevice,
                                                     const DataOf &dataOf, const Link &link = {});
    ~ThreadRanks();
    ThreadRanks(const ThreadRanks &) = delete;
    ThreadRanks &operator=(const ThreadRanks &) = delete;

    /// Calls `body` for all ranks at once, each in a thread of its own; the error of the rank that failed first. A rank that failed
    /// leaves its groups, so that the others do not wait for it.
    Status each(const std::function<Status(ThreadRank &)> &body);
    Arenas &arenas(int rank);

private:
    struct Rank;
    ThreadRanks() = default;
    std::vector<std::unique_ptr<Rank>> m_ranks;
};

} // namespace rankyard::exec
