// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/comm/communicator.h"
#include "engine/cuda/gpu.h"

#include <deque>
#include <functional>
#include <map>
#include <random>

/// A GPU that is none: kernels by the launcher, products by the CPU's gemm, links by thread communicators, and streams that do
/// nothing until the host waits. Then they go on in an order that chance decides, as far as events let them: work that lacks a wait
/// is done too early or too late sooner or later. "Device" memory can be touched by that work alone; the host gets a segfault.
namespace rankyard::cuda::test {

class HostGpu : public Gpu
{
public:
    enum class Mode {
        Lazy,      ///< as above
        Immediate, ///< every call is done when it returns; memory is what the caller has
    };
    explicit HostGpu(Mode mode, unsigned seed = 1) : m_mode(mode), m_random(seed) {}
    ~HostGpu() override;

    /// From now on streams do not wait for each other: what a program without waits would do.
    void ignoreWaits() { m_ignoreWaits = true; }
    /// A kernel of launchOnHost.
    void start(Stream stream, std::function<void()> work);

    std::string name() const override { return "a GPU played by the CPU"; }
    const Tables &tables() const override;
    std::int64_t freeBytes() const override { return std::int64_t(1) << 40; }
    Result<std::byte *> allocate(std::int64_t bytes, Where where) override;
    void release(std::byte *memory, Where where) override;
    Result<Stream> makeStream() override;
    Result<Event> makeEvent() override;
    Status record(Event event, Stream stream) override;
    Status wait(Stream stream, Event event) override;
    Status copy(void *to, const void *from, std::int64_t bytes, Stream stream) override;
    Status copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                    std::int64_t bytes, std::int64_t rows, Stream stream) override;
    Status fill(void *at, std::int64_t bytes, Stream stream) override;
    Status fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows,
                    Stream stream) override;
    Status multiply(const kernels::Gemm &gemm, Number type, Stream stream) override;
    Result<bool> done(Event event) override;
    Result<std::int64_t> between(Event begin, Event end) override;
    Status copyNow(void *to, const void *from, std::int64_t bytes) override;
    Result<LinkId> makeLinkId() override;
    Result<std::unique_ptr<Link>> link(const LinkId &id, int rank, int size) override;
    std::vector<std::pair<std::string, std::int64_t>> libraryBytes() const override { return {}; }

    std::int64_t kernelsRun() const { return m_kernels; }

private:
    friend class HostLink;
    /// Done when it returns true; else it is asked again.
    using Task = std::function<Result<bool>()>;
    struct Lane { ///< of what is issued and not done
        std::deque<Task> tasks;
    };
    struct Mark {
        std::uint64_t recorded = 0, reached = 0;
        std::int64_t ns = 0;
    };

    Status enqueue(Stream stream, Task task);
    Status progress();
    bool advance(Lane &lane, unsigned long most);
    void protect(bool on);

    Mode m_mode;
    std::minstd_rand m_random;
    std::vector<std::unique_ptr<Lane>> m_lanes;
    std::vector<std::unique_ptr<Mark>> m_marks;
    std::byte *m_memory = nullptr; ///< of the device, from one piece, so that one call protects all of it
    std::int64_t m_taken = 0;
    std::map<std::byte *, std::int64_t> m_pinned;
    std::int64_t m_kernels = 0;
    bool m_ignoreWaits = false;
    std::optional<Error> m_error;
};

} // namespace rankyard::cuda::test
