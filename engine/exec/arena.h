// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/comm/communicator.h"
#include "engine/exec/bootstrap.h"
#include "engine/plan/plan.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rankyard::exec {

class DeviceMemory;

/// Bytes of this process that are in memory, shared ones included (/proc/self/statm); 0 when it cannot be read.
std::int64_t residentBytes();

/// Anonymous shared memory of `bytes` zero bytes, close-on-exec, without a name in any folder.
Result<Fd> makeMemfd(const std::string &name, std::int64_t bytes);

/// An owned mapping, readable and writable. Move-only.
class Mapping
{
public:
    Mapping() = default;
    /// Of a descriptor (shared) or, with fd < 0, private zero pages.
    static Result<Mapping> make(int fd, std::int64_t bytes, const std::string &name);
    Mapping(Mapping &&other) noexcept;
    Mapping &operator=(Mapping &&other) noexcept;
    ~Mapping();

    std::byte *data() const { return m_data; }
    std::int64_t bytes() const { return m_bytes; }
    /// Gives every page its memory now, so that nothing is paid for and nothing can fail later. DoesNotFit
    /// when there is none.
    Status touch(const std::string &name);

private:
    std::byte *m_data = nullptr;
    std::int64_t m_bytes = 0;
};

/// Memory that this process may still take: by the kernel's estimate and by the limits of its cgroups.
struct MemoryBudget {
    std::int64_t available = 0;   ///< MemAvailable
    std::int64_t cgroupLeft = -1; ///< limit less use, the tightest of all levels; -1: no limit
    std::string cgroup;           ///< the folder of that limit
};
MemoryBudget memoryBudget();
/// The limit of one cgroup folder less its use, v2 or v1; -1 without one.
std::int64_t cgroupLeft(const std::string &folder);

/// All arenas of one rank, mapped and touched, and where those of the other ranks of this host are mapped
/// (DESIGN 1.5).
class Arenas
{
public:
    /// `shared`: the descriptors of the host's shared arenas; without any, shared arenas are private memory
    /// (thread ranks, dp = 1). `checkFit`: compare with the budget before mapping, DoesNotFit with the
    /// figures. `device`: where all arenas but those on disk are, and nothing is shared; must outlive the arenas.
    static Result<Arenas> make(const plan::Plan &plan, int rank,
                               const std::vector<BootstrapArena> &shared = {}, bool checkFit = true,
                               DeviceMemory *device = nullptr);

    std::byte *base(plan::ArenaId id) const { return m_base[static_cast<std::size_t>(id)]; }
    /// Where a buffer lies in this process; of a view by slices, this rank's slice.
    std::byte *address(const plan::StepProgram &program, plan::BufferId id) const;
    /// Copies from or to an address, wherever it lies, while nothing is under way.
    Status read(void *to, const std::byte *from, std::int64_t bytes) const;
    Status write(std::byte *to, const void *from, std::int64_t bytes) const;
    /// The same of elements as fp64, `at` elements from the buffer's begin.
    Status readElements(const plan::StepProgram &program, plan::BufferId id, std::int64_t at, double *values,
                        std::int64_t count) const;
    Status writeElements(const plan::StepProgram &program, plan::BufferId id, std::int64_t at,
                         const double *values, std::int64_t count) const;
    /// Bytes mapped and touched, by memory kind.
    const std::array<std::int64_t, plan::memoryKindCount> &bytes() const { return m_bytes; }
    /// What a communicator over `ranks` needs to reach peers' buffers in place; empty when one of them is not
    /// mapped here.
    std::vector<comm::SharedArena> sharedAmong(const std::vector<int> &ranks) const;

private:
    struct Peer {
        int rank;
        plan::ArenaId arena;
        std::byte *base;
        std::int64_t bytes;
    };
    plan::RankGrid m_grid{spec::Layout()};
    int m_rank = 0;
    std::vector<std::byte *> m_base;
    std::array<std::int64_t, plan::memoryKindCount> m_bytes{};
    std::vector<Mapping> m_mappings;
    DeviceMemory *m_device = nullptr;
    std::vector<std::shared_ptr<std::byte>> m_deviceMemory;
    std::vector<Peer> m_shared; ///< of all ranks of the host, this one too
};

} // namespace rankyard::exec
