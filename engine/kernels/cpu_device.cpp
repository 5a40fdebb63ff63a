// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/cpu_device.h"

#include "engine/comm/reduce.h"
#include "engine/kernels/convert.h"

#include <algorithm>
#include <cstring>
#include <fstream>

namespace rankyard::kernels {

void Scratch::reserve(std::int64_t bytes)
{
    if (bytes <= m_bytes)
        return;
    m_owner = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes)
                                            + 64); // zeroed: touched before the first step
    const auto address = reinterpret_cast<std::uintptr_t>(m_owner.get());
    m_data = m_owner.get() + ((64 - address % 64) % 64);
    m_bytes = bytes;
}

CpuDevice::CpuDevice(int threads, Isa isa) : m_isa(isa), m_tables(tablesFor(isa)) { setThreads(threads); }

void CpuDevice::setThreads(int threads)
{
    const int count = std::max(threads, 1);
    if (!m_team || m_team->size() != count)
        m_team = std::make_unique<Team>(count);
    m_scratch.resize(static_cast<std::size_t>(count));
    reserve(m_reserved);
}

void CpuDevice::reserve(std::int64_t bytes)
{
    m_reserved = std::max(m_reserved, bytes);
    for (Scratch &scratch : m_scratch)
        scratch.reserve(m_reserved);
}

const void *CpuDevice::keep(const void *data, std::int64_t bytes)
{
    Scratch &kept = m_kept.emplace_back();
    kept.reserve(std::max<std::int64_t>(bytes, 1));
    std::memcpy(kept.data(), data, static_cast<std::size_t>(bytes));
    return kept.data();
}

void CpuDevice::fill(void *at, std::int64_t bytes) { std::memset(at, 0, static_cast<std::size_t>(bytes)); }

void CpuDevice::copy(void *to, const void *from, std::int64_t bytes)
{
    m_team->run([&](int thread) {
        const Range range = share(bytes, m_team->size(), thread, 4096);
        std::memcpy(static_cast<std::byte *>(to) + range.begin,
                    static_cast<const std::byte *>(from) + range.begin,
                    static_cast<std::size_t>(range.size()));
    });
}

void CpuDevice::fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows)
{
    for (std::int64_t row = 0; row < rows; ++row)
        std::memset(static_cast<std::byte *>(at) + row * stride, 0, static_cast<std::size_t>(bytes));
}

void CpuDevice::copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                         std::int64_t bytes, std::int64_t rows)
{
    m_team->run([&](int thread) {
        const Range range = share(rows, m_team->size(), thread);
        for (std::int64_t row = range.begin; row < range.end; ++row)
            std::memcpy(static_cast<std::byte *>(to) + row * toStride,
                        static_cast<const std::byte *>(from) + row * fromStride,
                        static_cast<std::size_t>(bytes));
    });
}

void CpuDevice::add(DType type, const void *from, void *to, std::int64_t count)
{
    const auto size = static_cast<std::int64_t>(bytesOf(type));
    m_team->run([&](int thread) {
        const Range range = share(count, m_team->size(), thread, 64);
        std::byte *sum = static_cast<std::byte *>(to) + range.begin * size;
        const void *inputs[] = {sum, static_cast<const std::byte *>(from) + range.begin * size};
        comm::reduce(type, comm::ReduceOp::Sum, inputs, 2, sum, range.size());
    });
}

void CpuDevice::convert(const Conversion &c)
{
    const auto fromSize = static_cast<std::int64_t>(bytesOf(c.fromType));
    const auto toSize = static_cast<std::int64_t>(bytesOf(c.toType));
    m_team->run([&](int thread) {
        const Range range = share(c.count, m_team->size(), thread, 64);
        Conversion part = c;
        part.from = static_cast<const std::byte *>(c.from) + range.begin * fromSize;
        part.to = static_cast<std::byte *>(c.to) + range.begin * toSize;
        part.count = range.size();
        kernels::convert(part);
    });
}

void CpuDevice::encode(const Encoding &encoding) { kernels::encode(encoding); }

void CpuDevice::decode(const Decoding &d)
{
    const auto size = static_cast<std::int64_t>(bytesOf(d.type));
    m_team->run([&](int thread) {
        const Range range = share(d.count, m_team->size(), thread, d.compression->block);
        std::byte *sum = static_cast<std::byte *>(d.out) + range.begin * size;
        if (!d.accumulate)
            std::memset(sum, 0, static_cast<std::size_t>(range.size() * size));
        const std::int64_t end = std::min(d.begin + range.end, d.all); // padding stays zero
        for (std::int64_t rank = 0; rank < d.ranks && d.begin + range.begin < end; ++rank)
            decodeAdd(*d.compression, d.type, d.all, d.codes + rank * d.stride, d.begin + range.begin, end,
                      sum);
    });
}

Result<std::unique_ptr<exec::BoundOp>> CpuDevice::bindFileCopy(const Transfer &transfer)
{
    return m_copyLane.bind(transfer);
}

std::string CpuDevice::name() const
{
    std::string model = "CPU";
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("model name")) {
            model = line.substr(std::min(line.find(": ") + 2, line.size()));
            break;
        }
    }
    const int threads = m_team->size();
    return model + ", " + nameOf(m_isa) + ", " + std::to_string(threads)
        + (threads == 1 ? " thread" : " threads");
}

std::vector<std::pair<std::string, std::int64_t>> CpuDevice::libraryWorkspace() const
{
    std::int64_t bytes = 0;
    for (const Scratch &scratch : m_scratch)
        bytes += scratch.bytes();
    return {{"kernel scratch", bytes}, {"position tables", tableBytes()}};
}

Result<std::unique_ptr<exec::BoundOp>> CpuDevice::bind(const exec::BindContext &context, const plan::Op &op)
{
    return bindKernel(context, op);
}

} // namespace rankyard::kernels

namespace rankyard::exec {

std::unique_ptr<Device> makeCpuDevice(int threads)
{
    return std::make_unique<kernels::CpuDevice>(threads, kernels::detectIsa());
}

} // namespace rankyard::exec
