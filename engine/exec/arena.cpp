// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/arena.h"

#include "engine/exec/device.h"
#include "engine/exec/elements.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // Linux 5.14
#endif

namespace rankyard::exec {

std::int64_t residentBytes()
{
    std::ifstream in("/proc/self/statm");
    std::int64_t pages = 0;
    in >> pages >> pages; // all, then resident
    return pages * ::sysconf(_SC_PAGESIZE);
}

namespace {

constexpr std::int64_t hugePage = 2 << 20;

std::int64_t readNumber(const std::string &file)
{
    std::ifstream in(file);
    std::string word;
    if (!(in >> word))
        return -1;
    std::int64_t value = -1;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
    return parsed.ec == std::errc() ? value : -1; // "max"
}

std::int64_t memAvailable()
{
    std::ifstream in("/proc/meminfo");
    std::string key;
    std::int64_t kib = 0;
    std::string rest;
    while (in >> key >> kib && std::getline(in, rest)) {
        if (key == "MemAvailable:")
            return kib * 1024;
    }
    return std::numeric_limits<std::int64_t>::max();
}

} // namespace

Result<Fd> makeMemfd(const std::string &name, std::int64_t bytes)
{
    Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC));
    if (!fd.valid() || ::ftruncate(fd.get(), bytes) != 0)
        return Error::fromErrno(errno, "cannot make shared memory", name)
            .withFound(formatBytes(static_cast<double>(bytes)));
    return fd;
}

Result<Mapping> Mapping::make(int fd, std::int64_t bytes, const std::string &name)
{
    Mapping mapping;
    if (bytes == 0)
        return mapping;
    const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *at = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (at == MAP_FAILED)
        return Error::fromErrno(errno, "cannot map memory", name)
            .withFound(formatBytes(static_cast<double>(bytes)));
    mapping.m_data = static_cast<std::byte *>(at);
    mapping.m_bytes = bytes;
    if (bytes >= 2 * hugePage)
        ::madvise(at, static_cast<std::size_t>(bytes),
                  MADV_HUGEPAGE); // a wish: fewer page faults and TLB misses
    return mapping;
}

Mapping::Mapping(Mapping &&other) noexcept
    : m_data(std::exchange(other.m_data, nullptr)),
      m_bytes(std::exchange(other.m_bytes, 0))
{}

Mapping &Mapping::operator=(Mapping &&other) noexcept
{
    std::swap(m_data, other.m_data);
    std::swap(m_bytes, other.m_bytes);
    return *this;
}

Mapping::~Mapping()
{
    if (m_data)
        ::munmap(m_data, static_cast<std::size_t>(m_bytes));
}

Status Mapping::touch(const std::string &name)
{
    if (!m_data)
        return {};
    if (::madvise(m_data, static_cast<std::size_t>(m_bytes), MADV_POPULATE_WRITE) == 0)
        return {};
    if (errno != EINVAL)
        return Error::make(Code::DoesNotFit, "the system gave no memory for an arena", name)
            .withFound(formatBytes(static_cast<double>(m_bytes)) + ": " + std::strerror(errno));
    const std::int64_t page = ::sysconf(_SC_PAGESIZE);
    for (std::int64_t at = 0; at < m_bytes; at += page)
        *const_cast<volatile std::byte *>(m_data + at) = std::byte{0};
    return {};
}

// ---------------------------------------------------------------------------------------------------- budget

std::int64_t cgroupLeft(const std::string &folder)
{
    std::int64_t limit = readNumber(folder + "/memory.max");
    std::int64_t used = readNumber(folder + "/memory.current");
    std::string file = "inactive_file";
    if (used < 0) {
        limit = readNumber(folder + "/memory.limit_in_bytes");
        used = readNumber(folder + "/memory.usage_in_bytes");
        file = "total_inactive_file";
    }
    if (limit < 0 || used < 0 || limit > std::int64_t(1) << 60)
        return -1;
    // Pages of files that nobody uses count as used but give way.
    std::ifstream stat(folder + "/memory.stat");
    std::string key;
    std::int64_t value = 0;
    while (stat >> key >> value) {
        if (key == file)
            used -= std::min(used, value);
    }
    return std::max<std::int64_t>(0, limit - used);
}

MemoryBudget memoryBudget()
{
    MemoryBudget budget;
    budget.available = memAvailable();
    std::ifstream in("/proc/self/cgroup");
    std::string line;
    while (std::getline(in, line)) {
        std::istringstream fields(line);
        std::string id, controllers, path;
        if (!std::getline(fields, id, ':') || !std::getline(fields, controllers, ':')
            || !std::getline(fields, path))
            continue;
        const bool unified = controllers.empty();
        if (!unified && controllers.find("memory") == std::string::npos)
            continue;
        const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        // A limit may stand at any level above.
        for (;;) {
            const std::string folder = path == "/" ? root : root + path;
            const std::int64_t left = cgroupLeft(folder);
            if (left >= 0 && (budget.cgroupLeft < 0 || left < budget.cgroupLeft)) {
                budget.cgroupLeft = left;
                budget.cgroup = folder;
            }
            if (path.size() <= 1)
                break;
            path.resize(path.rfind('/'));
            if (path.empty())
                path = "/";
        }
    }
    return budget;
}

// ---------------------------------------------------------------------------------------------------- arenas

namespace {

Error tooMuch(std::int64_t needed, std::int64_t left, const std::string &limit, const plan::Plan &plan,
              int rank)
{
    const plan::MemoryReport report = plan::memoryOf(plan, rank);
    std::size_t largest = 0;
    for (std::size_t kind = 0; kind < report.bytes.size(); ++kind)
        largest = report.bytes[kind] > report.bytes[largest] ? kind : largest;
    return Error::make(Code::DoesNotFit, "the arenas of a rank do not fit into memory",
                       "rank " + std::to_string(rank))
        .withFound(formatBytes(static_cast<double>(needed)) + ", of it "
                   + formatBytes(static_cast<double>(report.bytes[largest])) + " "
                   + plan::nameOf(static_cast<plan::MemoryKind>(largest)))
        .withExpected("at most " + formatBytes(static_cast<double>(left)) + " (" + limit + ")")
        .withHint("A smaller micro-batch, more ranks with ZeRO, or a smaller model needs less");
}

Status checkBudget(std::int64_t needed, const plan::Plan &plan, int rank)
{
    const MemoryBudget budget = memoryBudget();
    const bool byCgroup = budget.cgroupLeft >= 0 && budget.cgroupLeft < budget.available;
    const std::int64_t left = byCgroup ? budget.cgroupLeft : budget.available;
    if (needed <= left)
        return {};
    return tooMuch(needed, left, byCgroup ? "limit of " + budget.cgroup : "free memory", plan, rank);
}

} // namespace

Result<Arenas> Arenas::make(const plan::Plan &plan, int rank, const std::vector<BootstrapArena> &shared,
                            bool checkFit, DeviceMemory *device)
{
    Arenas arenas;
    const std::vector<plan::Arena> &own = plan.program(plan::ProgramKind::Train, rank).arenas;
    std::int64_t onHost = 0, onDevice = 0;
    for (const plan::Arena &arena : own)
        (device && arena.kind != plan::MemoryKind::Host ? onDevice : onHost) += arena.disk ? 0 : arena.bytes;
    if (checkFit)
        RY_TRY(checkBudget(onHost, plan, rank));
    if (device && onDevice > device->freeBytes())
        return tooMuch(onDevice, device->freeBytes(), "free memory of the device", plan, rank);
    arenas.m_device = device;
    arenas.m_grid = plan.grid;
    arenas.m_rank = rank;
    arenas.m_base.resize(own.size());
    for (const BootstrapArena &entry : device ? std::vector<BootstrapArena>() : shared) {
        const std::vector<plan::Arena> &theirs = plan.program(plan::ProgramKind::Train, entry.rank).arenas;
        if (entry.arena < 0 || static_cast<std::size_t>(entry.arena) >= theirs.size())
            return Error::make(Code::Internal, "a shared arena that the plan does not have")
                .withFound(std::to_string(entry.arena));
        const std::int64_t bytes = theirs[static_cast<std::size_t>(entry.arena)].bytes;
        RY_ASSIGN(Mapping mapping, Mapping::make(entry.fd, bytes, "shared arena"));
        arenas.m_shared.push_back({entry.rank, entry.arena, mapping.data(), bytes});
        if (entry.rank == rank) {
            RY_TRY(mapping.touch("shared arena"));
            arenas.m_base[static_cast<std::size_t>(entry.arena)] = mapping.data();
        }
        arenas.m_mappings.push_back(std::move(mapping));
    }
    for (const plan::Arena &arena : own) {
        arenas.m_bytes[static_cast<std::size_t>(arena.kind)] += arena.disk ? 0 : arena.bytes;
        std::byte *&base = arenas.m_base[static_cast<std::size_t>(arena.id)];
        if (base || arena.bytes == 0)
            continue;
        const std::string name = plan::nameOf(arena.kind);
        if (arena.disk) {
            const std::string folder = plan.job.offload.nvmePath.value_or("");
            RY_ASSIGN(const Fd file, makeNamelessFile(folder, arena.bytes));
            RY_ASSIGN(Mapping onDisk, Mapping::make(file.get(), arena.bytes, folder));
            base = onDisk.data();
            arenas.m_mappings.push_back(std::move(onDisk));
            continue;
        }
        const bool host = arena.kind == plan::MemoryKind::Host;
        if (device && (!host || plan.job.offload.pin)) {
            RY_ASSIGN(auto memory, device->allocate(arena.bytes, host));
            base = memory.get();
            arenas.m_deviceMemory.push_back(std::move(memory));
            continue;
        }
        RY_ASSIGN(Mapping mapping, Mapping::make(-1, arena.bytes, name));
        RY_TRY(mapping.touch(name));
        base = mapping.data();
        arenas.m_mappings.push_back(std::move(mapping));
    }
    return arenas;
}

std::byte *Arenas::address(const plan::StepProgram &program, plan::BufferId id) const
{
    const plan::Buffer &buffer = program.buffer(id);
    const int slice = buffer.sliceGroup == plan::none
        ? 0
        : m_grid.indexIn(m_rank, program.groups[static_cast<std::size_t>(buffer.sliceGroup)]);
    return base(buffer.arena) + plan::offsetOf(program, id, slice);
}

Status Arenas::read(void *to, const std::byte *from, std::int64_t bytes) const
{
    if (m_device)
        return m_device->copy(to, from, bytes);
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return {};
}

Status Arenas::write(std::byte *to, const void *from, std::int64_t bytes) const
{
    if (m_device)
        return m_device->copy(to, from, bytes);
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return {};
}

Status Arenas::readElements(const plan::StepProgram &program, plan::BufferId id, std::int64_t at,
                            double *values, std::int64_t count) const
{
    const DType type = program.buffer(id).dtype;
    const auto size = static_cast<std::int64_t>(bytesOf(type));
    if (!m_device) {
        loadElements(type, address(program, id), at, values, count);
        return {};
    }
    std::vector<std::byte> raw(static_cast<std::size_t>(count * size));
    RY_TRY(read(raw.data(), address(program, id) + at * size, count * size));
    loadElements(type, raw.data(), 0, values, count);
    return {};
}

Status Arenas::writeElements(const plan::StepProgram &program, plan::BufferId id, std::int64_t at,
                             const double *values, std::int64_t count) const
{
    const DType type = program.buffer(id).dtype;
    const auto size = static_cast<std::int64_t>(bytesOf(type));
    if (!m_device) {
        storeElements(type, address(program, id), at, values, count);
        return {};
    }
    std::vector<std::byte> raw(static_cast<std::size_t>(count * size));
    storeElements(type, raw.data(), 0, values, count);
    return write(address(program, id) + at * size, raw.data(), count * size);
}

std::vector<comm::SharedArena> Arenas::sharedAmong(const std::vector<int> &ranks) const
{
    std::vector<comm::SharedArena> result;
    for (std::size_t id = 0; id < m_base.size(); ++id) {
        comm::SharedArena arena;
        for (const int rank : ranks) {
            for (const Peer &peer : m_shared) {
                if (peer.rank == rank && static_cast<std::size_t>(peer.arena) == id) {
                    arena.base.push_back(peer.base);
                    arena.bytes = peer.bytes;
                }
            }
        }
        if (!arena.base.empty() && arena.base.size() == ranks.size())
            result.push_back(std::move(arena));
    }
    return result;
}

} // namespace rankyard::exec
