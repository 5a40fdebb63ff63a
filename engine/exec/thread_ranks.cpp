// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/thread_ranks.h"

#include "engine/exec/host_layout.h"

#include <atomic>
#include <thread>

namespace rankyard::exec {

/// Members are destroyed from the last to the first: whoever uses before what is used.
struct ThreadRanks::Rank {
    std::unique_ptr<Device> device;
    std::unique_ptr<Arenas> arenas;
    std::map<std::string, std::unique_ptr<comm::Communicator>> groups;
    Executor::Setup setup;
    std::unique_ptr<Executor> executor;
    Status status;
    int failure = 0; ///< how many ranks had failed with it
};

ThreadRanks::~ThreadRanks() = default;

Result<std::unique_ptr<ThreadRanks>> ThreadRanks::make(const plan::Plan &plan,
                                                       const DeviceFactory &makeDevice, const DataOf &dataOf,
                                                       const Link &link)
{
    std::unique_ptr<ThreadRanks> ranks(new ThreadRanks());
    for (int rank = 0; rank < plan.grid.world(); ++rank)
        ranks->m_ranks.push_back(std::make_unique<Rank>());
    for (const GroupMembers &group : groupsOf(plan)) {
        auto communicators = comm::makeThreadCommunicators(static_cast<int>(group.ranks.size()));
        if (communicators.size() != group.ranks.size())
            return Error::make(Code::DoesNotFit, "no memory for the segment of a group", group.name);
        for (std::size_t i = 0; i < communicators.size(); ++i)
            ranks->m_ranks[static_cast<std::size_t>(group.ranks[i])]->groups[group.name] =
                link ? link(std::move(communicators[i]), group.name) : std::move(communicators[i]);
    }
    for (int rank = 0; rank < plan.grid.world(); ++rank) {
        Rank &mine = *ranks->m_ranks[static_cast<std::size_t>(rank)];
        mine.device = makeDevice();
        RY_ASSIGN(Arenas arenas, Arenas::make(plan, rank, {}, true, mine.device->memory()));
        mine.arenas = std::make_unique<Arenas>(std::move(arenas));
        mine.setup.plan = &plan;
        mine.setup.rank = rank;
        mine.setup.device = mine.device.get();
        mine.setup.arenas = mine.arenas.get();
        mine.setup.data = dataOf(rank);
        for (const auto &[name, communicator] : mine.groups)
            mine.setup.groups[name] = communicator.get();
    }
    // All at once: devices with communicators of their own meet here.
    RY_TRY(ranks->each([&ranks](ThreadRank &rank) -> Status {
        Rank &mine = *ranks->m_ranks[static_cast<std::size_t>(rank.rank)];
        RY_ASSIGN(mine.executor, Executor::make(mine.setup));
        return {};
    }));
    return ranks;
}

Status ThreadRanks::each(const std::function<Status(ThreadRank &)> &body)
{
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < m_ranks.size(); ++rank) {
        threads.emplace_back([this, rank, &body, &failures] {
            Rank &mine = *m_ranks[rank];
            if (!mine.status)
                return;
            ThreadRank context{static_cast<int>(rank), mine.arenas.get(), mine.executor.get()};
            mine.status = body(context);
            if (!mine.status) {
                mine.failure = ++failures;
                mine.executor.reset();
                mine.groups.clear();
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    const Rank *first = nullptr;
    for (const auto &rank : m_ranks) {
        if (!rank->status && (!first || rank->failure < first->failure))
            first = rank.get();
    }
    return first ? first->status : Status();
}

Arenas &ThreadRanks::arenas(int rank) { return *m_ranks[static_cast<std::size_t>(rank)]->arenas; }

} // namespace rankyard::exec
