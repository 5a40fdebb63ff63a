// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/cuda/host_gpu.h"

#include "engine/base/units.h"
#include "tests/engine/cuda/host_launcher.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>

namespace rankyard::cuda {

void launchOnHost(Grid grid, int threads, i64 shared, bool cooperative, std::function<void(Block &)> kernel)
{
    const Queue &queue = currentQueue();
    static_cast<test::HostGpu *>(queue.gpu)->start(queue.stream, [=, kernel = std::move(kernel)] {
        test::runGrid(grid, threads, shared, cooperative, kernel);
    });
}

namespace test {

namespace {

constexpr std::size_t deviceBytes = 256 << 20;

Result<std::byte *> pages(std::size_t bytes)
{
    void *at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return Error::make(Code::DoesNotFit, "no memory for a test");
    return static_cast<std::byte *>(at);
}

/// Communicators whose members have not all come yet.
struct Meeting {
    std::mutex mutex;
    std::map<LinkId, std::vector<std::unique_ptr<comm::Communicator>>> made;
};
Meeting &meeting()
{
    static Meeting all;
    return all;
}

} // namespace

/// Operations one after the other, as NCCL has them within a communicator, on copies of the buffers: peers never see "device"
/// memory.
class HostLink : public Link
{
public:
    HostLink(HostGpu &gpu, std::unique_ptr<comm::Communicator> communicator)
        : m_gpu(gpu),
          m_communicator(std::move(communicator))
    {}
    Status allReduce(void *data, std::int64_t count, DType type, Stream stream) override
    {
        const auto bytes = bytesFor(count, type);
        return add(
            stream, data, bytes, data, bytes, 0, [=, this](std::byte *all, Tickets &tickets) -> Status {
                RY_ASSIGN(tickets.one, m_communicator->allReduce(all, count, type, comm::ReduceOp::Sum));
                return {};
            });
    }
    Status reduceScatter(const void *from, void *to, std::int64_t count, DType type, Stream stream) override
    {
        const auto slice = bytesFor(count, type);
        const int size = m_communicator->size(), own = m_communicator->rank();
        return add(stream, from, slice * static_cast<std::size_t>(size), to, slice,
                   slice * static_cast<std::size_t>(own),
                   [=, this](std::byte *all, Tickets &tickets) -> Status {
                       RY_ASSIGN(tickets.one, m_communicator->reduceScatter(all, count * size, type));
                       return {};
                   });
    }
    Status allGather(const void *from, void *to, std::int64_t count, DType type, Stream stream) override
    {
        const auto slice = bytesFor(count, type);
        const int size = m_communicator->size();
        return add(stream, from, slice, to, slice * static_cast<std::size_t>(size), 0,
                   [=, this](std::byte *all, Tickets &tickets) -> Status {
                       std::memmove(all + slice * static_cast<std::size_t>(m_communicator->rank()), all,
                                    slice);
                       RY_ASSIGN(tickets.one, m_communicator->allGather(all, count * size, type));
                       return {};
                   });
    }
    Status send(const void *data, std::int64_t bytes, int peer, Stream stream) override
    {
        return add(stream, data, static_cast<std::size_t>(bytes), nullptr, 0, 0,
                   [=, this](std::byte *all, Tickets &tickets) -> Status {
                       RY_ASSIGN(tickets.one, m_communicator->send(all, bytes, peer));
                       return {};
                   });
    }
    Status receive(void *data, std::int64_t bytes, int peer, Stream stream) override
    {
        return add(stream, nullptr, 0, data, static_cast<std::size_t>(bytes), 0,
                   [=, this](std::byte *all, Tickets &tickets) -> Status {
                       RY_ASSIGN(tickets.one, m_communicator->receive(all, bytes, peer));
                       return {};
                   });
    }
    Status exchange(const void *out, void *in, std::int64_t bytes, int to, int from, Stream stream) override
    {
        const auto size = static_cast<std::size_t>(bytes);
        return add(stream, out, size, in, size, size, [=, this](std::byte *all, Tickets &tickets) -> Status {
            RY_ASSIGN(tickets.one, m_communicator->send(all, bytes, to));
            RY_ASSIGN(tickets.two, m_communicator->receive(all + size, bytes, from));
            return {};
        });
    }
    Status health() override { return {}; }

private:
    struct Tickets {
        comm::Ticket one, two;
    };
    static std::size_t bytesFor(std::int64_t count, DType type)
    {
        return static_cast<std::size_t>(count) * bytesOf(type);
    }

    /// `in` is copied to a staging area, start() works on it, and `out` is copied from its place there.
    Status add(Stream stream, const void *in, std::size_t inBytes, void *out, std::size_t outBytes,
               std::size_t outPlace, std::function<Status(std::byte *, Tickets &)> start)
    {
        struct Work {
            std::uint64_t turn;
            bool started = false;
            std::vector<std::byte> staging;
            Tickets tickets;
        };
        auto work = std::make_shared<Work>();
        work->turn = m_added++;
        return m_gpu.enqueue(stream, [=, this, start = std::move(start)]() -> Result<bool> {
            if (work->turn != m_finished)
                return false;
            if (!work->started) {
                work->started = true;
                work->staging.resize(std::max(inBytes, outPlace + outBytes));
                if (in)
                    std::memcpy(work->staging.data(), in, inBytes);
                RY_TRY(start(work->staging.data(), work->tickets));
            }
            for (const comm::Ticket ticket : {work->tickets.one, work->tickets.two}) {
                if (ticket.sequence == 0)
                    continue;
                RY_ASSIGN(const bool done, m_communicator->advance(ticket, 1 << 20));
                if (!done)
                    return false;
            }
            if (out)
                std::memcpy(out, work->staging.data() + outPlace, outBytes);
            ++m_finished;
            return true;
        });
    }

    HostGpu &m_gpu;
    std::unique_ptr<comm::Communicator> m_communicator;
    std::uint64_t m_added = 0, m_finished = 0;
};

HostGpu::~HostGpu()
{
    if (m_memory)
        ::munmap(m_memory, deviceBytes);
    for (const auto &[at, bytes] : m_pinned)
        ::munmap(at, static_cast<std::size_t>(bytes));
}

const Tables &HostGpu::tables() const { return hostTables(); }

// ---------------------------------------------------------------------------------------------------- streams

Status HostGpu::enqueue(Stream stream, Task task)
{
    if (m_mode == Mode::Lazy) {
        static_cast<Lane *>(stream)->tasks.push_back(std::move(task));
        return {};
    }
    for (;;) {
        RY_ASSIGN(const bool done, task());
        if (done)
            return {};
    }
}

/// Lets chance pick streams, and how far each of them goes.
Status HostGpu::progress()
{
    if (m_error)
        return *m_error;
    protect(false);
    for (bool some = true; some && !m_error;) {
        some = false;
        std::shuffle(m_lanes.begin(), m_lanes.end(), m_random);
        for (auto &lane : m_lanes)
            some |= advance(*lane, m_random() % 8);
    }
    protect(true);
    return m_error ? Status(*m_error) : Status();
}

/// At most so many tasks of a lane; whether there was one.
bool HostGpu::advance(Lane &lane, unsigned long most)
{
    bool some = false;
    for (; most > 0 && !lane.tasks.empty() && !m_error; --most) {
        const auto done = lane.tasks.front()();
        if (!done.ok())
            m_error = done.error();
        if (!done.ok() || !*done)
            break;
        lane.tasks.pop_front();
        some = true;
    }
    return some;
}

void HostGpu::protect(bool on)
{
    if (m_memory)
        ::mprotect(m_memory, static_cast<std::size_t>(m_taken), on ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void HostGpu::start(Stream stream, std::function<void()> work)
{
    (void)enqueue(stream, [this, work = std::move(work)]() -> Result<bool> {
        work();
        ++m_kernels;
        return true;
    });
}

Result<Stream> HostGpu::makeStream()
{
    m_lanes.push_back(std::make_unique<Lane>());
    return Stream(m_lanes.back().get());
}

Result<Event> HostGpu::makeEvent()
{
    m_marks.push_back(std::make_unique<Mark>());
    return Event(m_marks.back().get());
}

Status HostGpu::record(Event event, Stream stream)
{
    auto *mark = static_cast<Mark *>(event);
    const std::uint64_t number = ++mark->recorded;
    return enqueue(stream, [mark, number]() -> Result<bool> {
        mark->reached = number;
        mark->ns = monotonicNs();
        return true;
    });
}

Status HostGpu::wait(Stream stream, Event event)
{
    if (m_ignoreWaits)
        return {};
    const auto *mark = static_cast<const Mark *>(event);
    return enqueue(stream,
                   [mark, number = mark->recorded]() -> Result<bool> { return mark->reached >= number; });
}

Result<bool> HostGpu::done(Event event)
{
    RY_TRY(progress());
    const auto *mark = static_cast<const Mark *>(event);
    return mark->reached >= mark->recorded;
}

Result<std::int64_t> HostGpu::between(Event begin, Event end)
{
    return static_cast<const Mark *>(end)->ns - static_cast<const Mark *>(begin)->ns;
}

// ---------------------------------------------------------------------------------------------------- memory

/// Pages for themselves, so that nothing of the device shares one with something of the host.
Result<std::byte *> HostGpu::allocate(std::int64_t bytes, Where where)
{
    constexpr std::int64_t page = 4096;
    const std::int64_t size = (bytes + page - 1) / page * page;
    if (where == Where::PinnedHost) {
        RY_ASSIGN(std::byte * memory, pages(static_cast<std::size_t>(size)));
        m_pinned[memory] = size;
        return memory;
    }
    if (!m_memory) {
        RY_ASSIGN(m_memory, pages(deviceBytes));
    }
    if (m_taken + size > static_cast<std::int64_t>(deviceBytes))
        return Error::make(Code::DoesNotFit, "a test wants more than the device that is played here has");
    std::byte *memory = m_memory + m_taken;
    m_taken += size;
    protect(m_mode == Mode::Lazy);
    return memory;
}

/// The device's goes with the device.
void HostGpu::release(std::byte *memory, Where where)
{
    const auto found = m_pinned.find(memory);
    if (where != Where::PinnedHost || found == m_pinned.end())
        return;
    ::munmap(memory, static_cast<std::size_t>(found->second));
    m_pinned.erase(found);
}

Status HostGpu::copy(void *to, const void *from, std::int64_t bytes, Stream stream)
{
    return copyRows(to, bytes, from, bytes, bytes, 1, stream);
}

Status HostGpu::copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                         std::int64_t bytes, std::int64_t rows, Stream stream)
{
    return enqueue(stream, [=]() -> Result<bool> {
        for (std::int64_t row = 0; row < rows; ++row)
            std::memcpy(static_cast<std::byte *>(to) + row * toStride,
                        static_cast<const std::byte *>(from) + row * fromStride,
                        static_cast<std::size_t>(bytes));
        return true;
    });
}

Status HostGpu::fill(void *at, std::int64_t bytes, Stream stream)
{
    return fillRows(at, bytes, bytes, 1, stream);
}

Status HostGpu::fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows, Stream stream)
{
    return enqueue(stream, [=]() -> Result<bool> {
        for (std::int64_t row = 0; row < rows; ++row)
            std::memset(static_cast<std::byte *>(at) + row * stride, 0, static_cast<std::size_t>(bytes));
        return true;
    });
}

Status HostGpu::copyNow(void *to, const void *from, std::int64_t bytes)
{
    protect(false);
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    protect(true);
    return {};
}

Status HostGpu::multiply(const kernels::Gemm &gemm, Number type, Stream stream)
{
    const kernels::IsaTables &tables = kernels::tablesFor(kernels::detectIsa());
    const kernels::KernelTable &table = type == Number::F32 ? tables.f32
        : type == Number::F64                               ? tables.f64
        : type == Number::Bf16                              ? tables.bf16
                                                            : tables.f16;
    return enqueue(stream, [gemm, &table]() -> Result<bool> {
        kernels::Gemm now = gemm;
        const auto bytes = static_cast<std::size_t>(table.gemmScratch(now) + 63) / 64 * 64;
        const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, bytes + 64),
                                                                  std::free);
        now.scratch = scratch.get();
        table.gemm(now);
        return true;
    });
}

// ---------------------------------------------------------------------------------------------------- links

Result<LinkId> HostGpu::makeLinkId()
{
    static std::atomic<std::uint64_t> count{0};
    const std::uint64_t number = ++count;
    LinkId id{};
    std::memcpy(id.data(), &number, sizeof number);
    return id;
}

Result<std::unique_ptr<Link>> HostGpu::link(const LinkId &id, int rank, int size)
{
    std::unique_ptr<comm::Communicator> own;
    {
        const std::lock_guard lock(meeting().mutex);
        auto [place, isNew] = meeting().made.try_emplace(id);
        if (isNew)
            place->second = comm::makeThreadCommunicators(size);
        own = std::move(place->second.at(static_cast<std::size_t>(rank)));
    }
    RY_TRY(own->barrier());
    return std::unique_ptr<Link>(std::make_unique<HostLink>(*this, std::move(own)));
}

} // namespace test
} // namespace rankyard::cuda
