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

Result<std::vector<LinkSample>> measureLinks(int ranks, const std::function<bool()> &stop)
{
    std::vector<LinkSample> samples;
    std::vector<int> groups{2};
    if (ranks > 2)
        groups.push_back(ranks);
    for (const int size : groups) {
        auto communicators = comm::makeThreadCommunicators(size);
        if (communicators.size() != static_cast<std::size_t>(size))
            return Error::make(Code::DoesNotFit, "no memory for the segment of a group", "probe");
        for (const OpKind kind : kinds) {
            for (const std::int64_t bytes : sizes) {
                if (stop())
                    return samples;
                if (kind == OpKind::Send && size > 2)
                    continue;
                std::vector<double> seconds;
                const Status all = crew(size, [&](int rank) -> Status {
                    Communicator &group = *communicators[static_cast<std::size_t>(rank)];
                    std::vector<std::byte> data(static_cast<std::size_t>(bytes));
                    for (int repeat = -2; repeat < repeats; ++repeat) {
                        RY_TRY(group.barrier());
                        const std::int64_t begin = monotonicNs();
                        RY_TRY(once(group, kind, data.data(), bytes));
                        // A sender may be done before its message is there: the receiver tells.
                        if (rank == (kind == OpKind::Send ? 1 : 0) && repeat >= 0)
                            seconds.push_back(1e-9 * static_cast<double>(monotonicNs() - begin));
                    }
                    return {};
                });
                RY_TRY(all);
                const auto middle = seconds.begin() + repeats / 2;
                std::nth_element(seconds.begin(), middle, seconds.end());
                samples.push_back({kind, size, bytes, *middle});
            }
        }
    }
    return samples;
}

} // namespace rankyard::probe
