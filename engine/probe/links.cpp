// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/probe/links.h"

#include "engine/comm/communicator.h"
#include "engine/probe/crew.h"

#include <algorithm>

namespace rankyard::probe {

namespace {

using comm::Communicator;
using plan::OpKind;

constexpr std::int64_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 8 << 20, 32 << 20};
constexpr OpKind kinds[] = {OpKind::AllReduce, OpKind::AllGather, OpKind::ReduceScatter, OpKind::Send};
constexpr int repeats = 15;

/// One of them, to its end.
Status once(Communicator &group, OpKind kind, std::byte *data, std::int64_t bytes)
{
    const std::int64_t count = bytes / 4 / group.size() * group.size();
    const auto started = [&]() -> Result<comm::Ticket> {
        switch (kind) {
        case OpKind::AllReduce:
            return group.allReduce(data, count, DType::F32, comm::ReduceOp::Sum);
        case OpKind::AllGather:
            return group.allGather(data, count, DType::F32);
        case OpKind::ReduceScatter:
            return group.reduceScatter(data, count, DType::F32);
        default:
            return group.rank() == 0 ? group.send(data, bytes, 1) : group.receive(data, bytes, 0);
        }
    }();
    return started ? group.wait(*started) : Status(started.error());
}

} // namespace

std::vector<LinkGroup> linkGroups(int ranks, const std::vector<std::vector<int>> &coresByMemory)
{
    std::vector<LinkGroup> groups{{"neighbours", 2}};
    for (const std::vector<int> &cores : coresByMemory) {
        if (cores.size() >= 2 && groups[0].cores.empty())
            groups[0].cores = {cores[0], cores[1]};
    }
    if (coresByMemory.size() >= 2)
        groups.push_back(
            {"across memory nodes", 2, {coresByMemory.front().front(), coresByMemory.back().front()}});
    if (ranks > 2)
        groups.push_back({"all", ranks});
    return groups;
}

namespace {

/// Median of several, by the clock of the rank that knows when it is over.
Result<double> measure(const LinkGroup &group, std::vector<std::unique_ptr<Communicator>> &communicators,
                       OpKind kind, std::int64_t bytes)
{
    std::vector<double> seconds;
    const auto body = [&](int rank) -> Status {
        Communicator &mine = *communicators[static_cast<std::size_t>(rank)];
        std::vector<std::byte> data(static_cast<std::size_t>(bytes));
        for (int repeat = -2; repeat < repeats; ++repeat) {
            RY_TRY(mine.barrier());
            const std::int64_t begin = monotonicNs();
            RY_TRY(once(mine, kind, data.data(), bytes));
            // A sender may be done before its message is there: the receiver tells.
            if (rank == (kind == OpKind::Send ? 1 : 0) && repeat >= 0)
                seconds.push_back(1e-9 * static_cast<double>(monotonicNs() - begin));
        }
        return {};
    };
    RY_TRY(crew(group.ranks, body, group.cores));
    const auto middle = seconds.begin() + repeats / 2;
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
}

} // namespace

Result<std::vector<LinkSample>> measureLinks(const std::vector<LinkGroup> &groups,
                                             const std::function<bool()> &stop)
{
    std::vector<LinkSample> samples;
    for (const LinkGroup &group : groups) {
        auto communicators = comm::makeThreadCommunicators(group.ranks);
        if (communicators.size() != static_cast<std::size_t>(group.ranks))
            return Error::make(Code::DoesNotFit, "no memory for the segment of a group", "probe");
        for (const OpKind kind : kinds) {
            for (const std::int64_t bytes : sizes) {
                if (stop())
                    return samples;
                if (kind == OpKind::Send && group.ranks > 2)
                    continue;
                RY_ASSIGN(const double seconds, measure(group, communicators, kind, bytes));
                samples.push_back({kind, group.ranks, bytes, seconds, group.placement});
            }
        }
    }
    return samples;
}

} // namespace rankyard::probe
