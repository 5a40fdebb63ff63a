// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/telemetry/wire.h"

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// The records of a run on its node's disk, before anybody else sees them: append-only segment files of frames, one folder a
/// stream: <spool>/<epoch>/<rank or "agent">/<sequence of the first frame>.seg.
namespace rankyard::telemetry {

/// Which stream of a run.
struct StreamId {
    std::uint32_t epoch = 0;
    std::int32_t rank = 0; ///< −1: the agent
    auto operator<=>(const StreamId &) const = default;
};

std::filesystem::path streamDir(const std::filesystem::path &spool, StreamId stream);
/// The streams that a spool folder has, ascending. Nothing when there is no such folder.
std::vector<StreamId> spoolStreams(const std::filesystem::path &spool);

struct SpoolLimits {
    std::int64_t segmentBytes = std::int64_t{16} << 20;
    std::int64_t memoryBytes = std::int64_t{8} << 20; ///< kept while the disk refuses
};

/// The writer of one stream; owns its open segment. One thread at a time.
///
/// Never fails after it was opened: while the disk is full or broken, frames wait in memory, and beyond the limit they are
/// dropped; a "gap" event then stands for what was lost. Events are not dropped.
class Spool
{
public:
    /// Continues the stream, after cutting a torn tail (a frame that was being written when the writer died).
    static Result<std::unique_ptr<Spool>> open(const std::filesystem::path &spool, StreamId stream,
                                               SpoolLimits limits = {});
    ~Spool();
    Spool(const Spool &) = delete;
    Spool &operator=(const Spool &) = delete;

    /// Gives the record the stream's epoch, rank and next sequence and takes it over. Events are on disk when it returns
    /// (if the disk works at all), others after flush(). False when it was dropped.
    bool append(Record &record);
    /// The same for a frame of a worker, not decoded: epoch, rank and sequence are replaced. False when dropped or malformed.
    bool appendRaw(const wire::FrameView &frame);

    /// Hands everything to the kernel; readers see it from then on.
    void flush();
    /// flush() and to the disk, if anything is new.
    void sync();

    std::uint64_t lastSequence() const { return m_last; }
    std::uint64_t dropped() const { return m_dropped; }
    /// Why the disk refuses at this time; empty when it works.
    const std::optional<Error> &trouble() const { return m_trouble; }

    /// Frames that the disk does not have yet, with sequence ≥ `from`: what readers take when their file has ended.
    void readPending(std::uint64_t from, const std::function<bool(const wire::FrameView &)> &take) const;

private:
    struct Waiting {
        std::uint64_t sequence;
        std::string bytes;
    };

    Spool(std::filesystem::path dir, StreamId stream, SpoolLimits limits);
    Status recover();
    Status openSegment(std::uint64_t first);
    Status writeWaiting();
    bool enqueue(wire::FrameHeader header, std::string_view payload, bool isEvent);
    void closeGap();
    void push(std::uint64_t sequence, std::string bytes);

    std::filesystem::path m_dir;
    StreamId m_stream;
    SpoolLimits m_limits;
    Fd m_file;
    std::int64_t m_offset = 0; ///< end of the last whole frame in the segment
    std::uint64_t m_last = 0;
    std::uint64_t m_dropped = 0;
    std::uint64_t m_gapFrom = 0; ///< 0: no gap is open
    std::deque<Waiting> m_waiting;
    std::int64_t m_waitingBytes = 0;
    bool m_unsynced = false;
    std::optional<Error> m_trouble;
};

/// A place in a stream: gives its frames in order, and later those that were appended since. Any number of readers beside the
/// writer, in any process. One thread at a time.
class SpoolReader
{
public:
    /// Begins with the first frame whose sequence is ≥ `next`.
    SpoolReader(const std::filesystem::path &spool, StreamId stream, std::uint64_t next);

    StreamId stream() const { return m_stream; }
    std::uint64_t next() const { return m_next; }

    /// Gives frames to `take` until about `maxBytes` were given, `take` says false, or there are no more at this time; how many bytes were given.
    /// What cannot be read any more is a "gap" event in its place. `live`: the stream's writer when it is in this process.
    Result<std::size_t> read(std::size_t maxBytes, const std::function<bool(const wire::FrameView &)> &take,
                             const Spool *live = nullptr);

    /// Closes the file and keeps the place: for a stream that may not go on for long.
    void rest();

private:
    bool openNext();
    bool fill();
    void giveGap(std::uint64_t to, const char *why, const std::function<bool(const wire::FrameView &)> &take);
    bool skipDamage(const std::function<bool(const wire::FrameView &)> &take);

    std::filesystem::path m_dir;
    StreamId m_stream;
    std::uint64_t m_next;
    Fd m_file;
    std::uint64_t m_segment = 0; ///< first sequence of the open segment, 0: none
    std::int64_t m_offset = 0;   ///< of m_buffer's begin in the file
    std::string m_buffer;
    std::size_t m_at = 0; ///< of the next frame in m_buffer
};

} // namespace rankyard::telemetry
