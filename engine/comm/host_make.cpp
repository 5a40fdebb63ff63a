// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/host.h"

#include <sys/mman.h>

namespace rankyard::comm {

Result<std::unique_ptr<Communicator>> makeHostCommunicator(HostGroup group)
{
    const int size = static_cast<int>(group.ranks.size());
    if (size < 1 || group.rank < 0 || group.rank >= size || group.segment == nullptr
        || group.segmentBytes < hostSegmentBytes(size))
        return Error::make(Code::Internal, "the segment does not belong to this group", group.name)
            .withFound(std::to_string(group.segmentBytes) + " bytes, " + std::to_string(size) + " ranks");
    for (const SharedArena &arena : group.arenas) {
        if (static_cast<int>(arena.base.size()) != size)
            return Error::make(Code::Internal, "a shared arena has another number of ranks", group.name);
    }
    auto communicator = std::make_unique<HostCommunicator>(std::move(group));
    RY_TRY(communicator->open());
    return std::unique_ptr<Communicator>(std::move(communicator));
}

std::vector<std::unique_ptr<Communicator>> makeThreadCommunicators(int size, Timeouts timeouts)
{
    const auto bytes = static_cast<std::size_t>(hostSegmentBytes(size));
    void *memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return {};
    const std::shared_ptr<void> owner(memory, [bytes](void *at) { ::munmap(at, bytes); });
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (int r = 0; r < size; ++r) {
        HostGroup group;
        group.name = "threads";
        group.rank = r;
        for (int i = 0; i < size; ++i)
            group.ranks.push_back(i);
        group.segment = memory;
        group.segmentBytes = static_cast<std::int64_t>(bytes);
        group.pids.assign(static_cast<std::size_t>(size), 0);
        group.keepAlive = owner;
        group.timeouts = timeouts;
        auto communicator = makeHostCommunicator(std::move(group));
        if (!communicator)
            return {};
        communicators.push_back(std::move(communicator).value());
    }
    return communicators;
}

} // namespace rankyard::comm
