// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/spool.h"

#include "engine/telemetry/bytes.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rankyard::telemetry {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t blockBytes = std::size_t{256} << 10;

fs::path segmentFile(const fs::path &dir, std::uint64_t first)
{
    char name[40];
    std::snprintf(name, sizeof name, "%020llu.seg", static_cast<unsigned long long>(first));
    return dir / name;
}

/// First sequences of the segments of a stream, ascending.
std::vector<std::uint64_t> segmentsOf(const fs::path &dir)
{
    std::vector<std::uint64_t> all;
    std::error_code error;
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
        const std::string name = it->path().filename().string();
        std::uint64_t first = 0;
        const char *stop = name.data() + name.size();
        if (name.ends_with(".seg") && std::from_chars(name.data(), stop, first).ptr == stop - 4 && first > 0)
            all.push_back(first);
    }
    std::sort(all.begin(), all.end());
    return all;
}

/// Reads up to `size` bytes at `offset`; fewer at the file's end.
std::string readAt(int fd, std::int64_t offset, std::size_t size)
{
    std::string bytes(size, '\0');
    std::size_t done = 0;
    while (done < size) {
        const ssize_t n = ::pread(fd, bytes.data() + done, size - done,
                                  static_cast<off_t>(offset) + static_cast<off_t>(done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += static_cast<std::size_t>(n);
    }
    bytes.resize(done);
    return bytes;
}

void syncFolder(const fs::path &dir)
{
    const Fd fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.valid())
        ::fsync(fd.get());
}

std::string gapFrame(StreamId stream, std::uint64_t from, std::uint64_t to, const char *why)
{
    Record record;
    record.epoch = stream.epoch;
    record.rank = stream.rank;
    record.sequence = to;
    EventRecord event;
    event.wallNs = wallNs();
    event.kind = "gap";
    event.detail = {{"from", from}, {"to", to}, {"why", why}};
    record.payload = std::move(event);
    std::string bytes;
    (void)wire::appendRecord(bytes, record); // small: it always fits
    return bytes;
}

} // namespace

fs::path streamDir(const fs::path &spool, StreamId stream)
{
    return spool / std::to_string(stream.epoch)
        / (stream.rank < 0 ? std::string("agent") : std::to_string(stream.rank));
}

std::vector<StreamId> spoolStreams(const fs::path &spool)
{
    std::vector<StreamId> all;
    std::error_code error;
    for (fs::directory_iterator epoch(spool, error), end; !error && epoch != end; epoch.increment(error)) {
        StreamId id;
        const std::string epochName = epoch->path().filename().string();
        const char *epochEnd = epochName.data() + epochName.size();
        if (std::from_chars(epochName.data(), epochEnd, id.epoch).ptr != epochEnd)
            continue;
        std::error_code inner;
        for (fs::directory_iterator rank(epoch->path(), inner); !inner && rank != fs::directory_iterator();
             rank.increment(inner)) {
            const std::string name = rank->path().filename().string();
            const char *nameEnd = name.data() + name.size();
            if (name == "agent")
                id.rank = -1;
            else if (std::from_chars(name.data(), nameEnd, id.rank).ptr != nameEnd || id.rank < 0)
                continue;
            all.push_back(id);
        }
    }
    std::sort(all.begin(), all.end());
    return all;
}

// Spool -------------------------------------------------------------------------------------------------------------

Spool::Spool(fs::path dir, StreamId stream, SpoolLimits limits)
    : m_dir(std::move(dir)),
      m_stream(stream),
      m_limits(limits)
{}

Spool::~Spool() { sync(); }

Result<std::unique_ptr<Spool>> Spool::open(const fs::path &spool, StreamId stream, SpoolLimits limits)
{
    const fs::path dir = streamDir(spool, stream);
    RY_TRY(makePrivateDir(dir));
    std::unique_ptr<Spool> self(new Spool(dir, stream, limits));
    RY_TRY(self->recover());
    return self;
}

/// Finds the end of the last whole frame, and cuts what comes after it.
Status Spool::recover()
{
    const std::vector<std::uint64_t> segments = segmentsOf(m_dir);
    if (segments.empty())
        return {};
    const std::uint64_t first = segments.back();
    const fs::path file = segmentFile(m_dir, first);
    Fd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd.valid())
        return Error::fromErrno(errno, "cannot open the spool", file.string());
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0)
        return Error::fromErrno(errno, "cannot read the spool", file.string());
    m_last = first - 1;
    std::int64_t offset = 0;
    std::string bytes = readAt(fd.get(), 0, static_cast<std::size_t>(info.st_size));
    for (;;) {
        const wire::FrameEnd end =
            wire::parseFrame(std::string_view(bytes).substr(static_cast<std::size_t>(offset)));
        if (end.kind != wire::FrameEnd::Kind::Complete || end.frame.header.sequence <= m_last)
            break;
        m_last = end.frame.header.sequence;
        offset += static_cast<std::int64_t>(end.size);
    }
    if (offset != info.st_size && ::ftruncate(fd.get(), offset) != 0)
        return Error::fromErrno(errno, "cannot cut the torn tail of the spool", file.string());
    m_file = std::move(fd);
    m_offset = offset;
    return {};
}

Status Spool::openSegment(std::uint64_t first)
{
    if (m_file.valid())
        ::fdatasync(m_file.get());
    const fs::path file = segmentFile(m_dir, first);
    Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.valid())
        return Error::fromErrno(errno, "cannot create a segment of the spool", file.string());
    syncFolder(m_dir);
    m_file = std::move(fd);
    m_offset = 0;
    return {};
}

void Spool::push(std::uint64_t sequence, std::string bytes)
{
    m_waitingBytes += static_cast<std::int64_t>(bytes.size());
    m_waiting.push_back({sequence, std::move(bytes)});
}

void Spool::closeGap()
{
    if (m_gapFrom == 0)
        return;
    push(m_last, gapFrame(m_stream, m_gapFrom, m_last, "the disk was full"));
    m_gapFrom = 0;
}

bool Spool::enqueue(wire::FrameHeader header, std::string_view payload, bool isEvent)
{
    const auto size = static_cast<std::int64_t>(payload.size() + wire::headerBytes + wire::trailerBytes);
    if (m_waitingBytes + size > m_limits.memoryBytes) {
        // Where the disk works this makes room, where it does not it costs one system call.
        flush();
        if (m_waitingBytes + size > m_limits.memoryBytes && !isEvent) {
            ++m_last;
            ++m_dropped;
            if (m_gapFrom == 0)
                m_gapFrom = m_last;
            return false;
        }
    }
    closeGap();
    header.sequence = ++m_last;
    std::string bytes;
    wire::appendFrame(bytes, header, payload);
    push(header.sequence, std::move(bytes));
    if (isEvent)
        sync();
    return true;
}

bool Spool::append(Record &record)
{
    record.epoch = m_stream.epoch;
    record.rank = m_stream.rank;
    record.sequence = m_last + 1;
    wire::FrameHeader header;
    const auto payload = wire::encodeRecord(record, header);
    if (!payload) {
        ++m_dropped;
        return false;
    }
    const bool kept = enqueue(header, *payload, header.stream == wire::Channel::Event);
    record.sequence = m_last;
    return kept;
}

bool Spool::appendRaw(const wire::FrameView &frame)
{
    if (!wire::isRecord(frame.header.type) || frame.payload.size() < 8) {
        ++m_dropped;
        return false;
    }
    std::string payload;
    payload.reserve(frame.payload.size());
    put(payload, m_stream.epoch);
    put(payload, m_stream.rank);
    payload.append(frame.payload.substr(8));
    return enqueue(frame.header, payload, frame.header.type == wire::FrameType::RecordEvent);
}

/// Writes as many waiting frames as go. On an error what was written of a frame is written over the next time.
Status Spool::writeWaiting()
{
    while (!m_waiting.empty()) {
        if (!m_file.valid() || m_offset >= m_limits.segmentBytes)
            RY_TRY(openSegment(m_waiting.front().sequence));
        std::string block;
        std::size_t frames = 0;
        while (frames < m_waiting.size() && (frames == 0 || block.size() < blockBytes)
               && m_offset + static_cast<std::int64_t>(block.size()) < m_limits.segmentBytes)
            block += m_waiting[frames++].bytes;
        std::size_t done = 0;
        int failure = 0;
        while (done < block.size() && failure == 0) {
            const ssize_t n = ::pwrite(m_file.get(), block.data() + done, block.size() - done,
                                       static_cast<off_t>(m_offset) + static_cast<off_t>(done));
            if (n > 0)
                done += static_cast<std::size_t>(n);
            else if (n < 0 && errno != EINTR)
                failure = errno;
            else if (n == 0)
                failure = ENOSPC;
        }
        while (!m_waiting.empty() && done >= m_waiting.front().bytes.size()) {
            const std::size_t size = m_waiting.front().bytes.size();
            done -= size;
            m_offset += static_cast<std::int64_t>(size);
            m_waitingBytes -= static_cast<std::int64_t>(size);
            m_waiting.pop_front();
            m_unsynced = true;
        }
        if (failure != 0)
            return Error::fromErrno(failure, "cannot write the run's records", m_dir.string());
    }
    return {};
}

void Spool::flush()
{
    if (m_waiting.empty() && m_gapFrom == 0)
        return;
    Status status = writeWaiting();
    if (status && m_gapFrom != 0) {
        closeGap();
        status = writeWaiting();
    }
    m_trouble = status ? std::optional<Error>() : std::optional<Error>(status.error());
}

void Spool::sync()
{
    flush();
    if (!m_unsynced || !m_file.valid())
        return;
    // A failed fsync is not tried again as if nothing had happened (the kernel may have dropped the pages): it is trouble.
    if (::fdatasync(m_file.get()) != 0)
        m_trouble = Error::fromErrno(errno, "cannot flush the run's records", m_dir.string());
    m_unsynced = false;
}

void Spool::readPending(std::uint64_t from, const std::function<bool(const wire::FrameView &)> &take) const
{
    for (const Waiting &waiting : m_waiting) {
        if (waiting.sequence >= from && !take(wire::parseFrame(waiting.bytes).frame))
            return;
    }
}

// SpoolReader -------------------------------------------------------------------------------------------------------

SpoolReader::SpoolReader(const fs::path &spool, StreamId stream, std::uint64_t next)
    : m_dir(streamDir(spool, stream)),
      m_stream(stream),
      m_next(std::max<std::uint64_t>(next, 1))
{}

void SpoolReader::rest()
{
    m_file.reset();
    m_segment = 0;
    m_offset = 0;
    m_buffer = {};
    m_at = 0;
}

/// Opens the segment that has (or will have) m_next; false when there is no later one than the open one.
bool SpoolReader::openNext()
{
    // After the open segment the next one begins with exactly m_next: one system call in the usual case.
    std::uint64_t first = m_next;
    Fd fd;
    if (m_segment != 0 && m_next != m_segment)
        fd = Fd(::open(segmentFile(m_dir, first).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
        const std::vector<std::uint64_t> all = segmentsOf(m_dir);
        auto at = std::upper_bound(all.begin(), all.end(), m_next);
        if (at != all.begin() && (m_segment == 0 || *std::prev(at) > m_segment))
            --at;
        if (at == all.end() || *at <= m_segment)
            return false;
        first = *at;
        fd = Fd(::open(segmentFile(m_dir, first).c_str(), O_RDONLY | O_CLOEXEC));
        if (!fd.valid())
            return false;
    }
    m_file = std::move(fd);
    m_segment = first;
    m_offset = 0;
    m_buffer.clear();
    m_at = 0;
    return true;
}

/// More bytes of the open segment into the buffer; false at its end.
bool SpoolReader::fill()
{
    if (!m_file.valid())
        return false;
    m_buffer.erase(0, m_at);
    m_offset += static_cast<std::int64_t>(m_at);
    m_at = 0;
    const std::string more =
        readAt(m_file.get(), m_offset + static_cast<std::int64_t>(m_buffer.size()), blockBytes);
    m_buffer += more;
    return !more.empty();
}

void SpoolReader::giveGap(std::uint64_t to, const char *why,
                          const std::function<bool(const wire::FrameView &)> &take)
{
    const std::string bytes = gapFrame(m_stream, m_next, to, why);
    m_next = to + 1;
    take(wire::parseFrame(bytes).frame);
}

/// Goes over to the segment after the damaged one; false when there is none (yet).
bool SpoolReader::skipDamage(const std::function<bool(const wire::FrameView &)> &take)
{
    const std::vector<std::uint64_t> all = segmentsOf(m_dir);
    const auto at = std::upper_bound(all.begin(), all.end(), m_segment);
    if (at == all.end())
        return false;
    if (*at > m_next)
        giveGap(*at - 1, "a segment of the spool is damaged", take);
    return openNext();
}

Result<std::size_t> SpoolReader::read(std::size_t maxBytes,
                                      const std::function<bool(const wire::FrameView &)> &take,
                                      const Spool *live)
{
    std::size_t given = 0;
    bool more = true;
    const auto give = [&](const wire::FrameView &frame, std::size_t size) {
        m_next = frame.header.sequence + 1;
        given += size;
        more = take(frame);
    };
    if (!m_file.valid())
        openNext();
    while (more && given < maxBytes && m_file.valid()) {
        // The segment before m_next may have been deleted: say so.
        if (m_segment > m_next) {
            giveGap(m_segment - 1, "a segment of the spool is missing", take);
            continue;
        }
        const wire::FrameEnd end = wire::parseFrame(std::string_view(m_buffer).substr(m_at));
        if (end.kind == wire::FrameEnd::Kind::Complete) {
            m_at += end.size;
            if (end.frame.header.sequence >= m_next)
                give(end.frame, end.size);
            continue;
        }
        if (end.kind == wire::FrameEnd::Kind::Bad) {
            // The writer may be in the middle of writing this frame over an unfinished one: look again, then give up on it.
            m_buffer.resize(m_at);
            const bool refilled = fill();
            if (refilled && wire::parseFrame(m_buffer).kind != wire::FrameEnd::Kind::Bad)
                continue;
            m_buffer.clear();
            if (!skipDamage(take))
                break;
            continue;
        }
        if (!fill() && !openNext())
            break;
    }
    if (live && more && given < maxBytes) {
        live->readPending(m_next, [&](const wire::FrameView &frame) {
            give(frame, frame.payload.size() + wire::headerBytes + wire::trailerBytes);
            return more && given < maxBytes;
        });
    }
    return given;
}

} // namespace rankyard::telemetry
