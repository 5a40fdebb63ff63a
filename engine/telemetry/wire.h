// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/telemetry/record.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Frames: what goes over every pipe of a run (worker – agent – client) and into the spool, little-endian:
///
///   u32 length of the payload (≤ 1 MiB) · u8 type · u8 stream · u16 flags · u64 sequence · payload · u32 CRC-32C of all before it
///
/// A type that the reader does not know is skipped, unless the flag `critical` is set: then the reader must give up.
namespace rankyard::telemetry::wire {

constexpr std::size_t headerBytes = 16;
constexpr std::size_t trailerBytes = 4;
constexpr std::size_t maxPayload = std::size_t{1} << 20;
constexpr std::uint16_t critical = 1;     ///< flag
constexpr std::size_t maxLogText = 16384; ///< longer lines are cut, with a mark

/// The payloads of 1 … 31 are JSON unless said otherwise.
enum class FrameType : std::uint8_t {
    // Client – agent.
    Hello = 1,     ///< {protocol: [lowest, highest], build, …}, first on both sides
    Request = 2,   ///< {id, method, params}
    Reply = 3,     ///< {id, result} or {id, error}
    Notice = 4,    ///< {kind, …} without a request: status of a run
    RunRecord = 5, ///< binary: u8 length of the run id, run id, u8 type (32 …), payload of that type
    Ping = 6,      ///< empty; answered with the same sequence by Pong
    Pong = 7,
    // Agent – worker.
    Control = 16, ///< agent → worker: {command: "stop" | "pause" | "resume" | "checkpoint"}
    Report =
        17, ///< worker → agent: {kind: "ready" | "error" | "paused" | "resumed" | "checkpoint" | "end", …}
    Heartbeat =
        18, ///< worker → agent, binary: i64 step, u64 progress (grows with every op that the rank finished)
    // Records, binary: u32 epoch, i32 rank, then the body.
    RecordHello = 32,
    RecordStep = 33,
    RecordEval = 34,
    RecordLog = 35,
    RecordEvent = 36,
    RecordSpans = 37,
};

/// Of FrameHeader::stream: which queue a frame belongs to when there is no room for all.
enum class Channel : std::uint8_t { Control = 0, Event = 1, Metric = 2, Log = 3, Span = 4 };

struct FrameHeader {
    FrameType type = FrameType::Notice;
    Channel stream = Channel::Control;
    std::uint16_t flags = 0;
    std::uint64_t sequence = 0;
};

/// A frame inside somebody else's buffer.
struct FrameView {
    FrameHeader header;
    std::string_view payload;
};

bool isKnown(std::uint8_t type);
bool isRecord(FrameType type);

/// Appends a frame to `out`. The payload must not be longer than maxPayload (checked: false and nothing appended).
bool appendFrame(std::string &out, const FrameHeader &header, std::string_view payload);

/// Where the first frame of `bytes` ends.
struct FrameEnd {
    enum class Kind { Complete, Partial, Bad } kind = Kind::Partial;
    FrameView frame;      ///< when Complete
    std::size_t size = 0; ///< bytes of the frame, when Complete
    const char *why = ""; ///< when Bad
};
FrameEnd parseFrame(std::string_view bytes);

/// Takes bytes as they come and gives whole frames. Holds at most one frame and what was fed with it. Any thread, one at a time.
class FrameDecoder
{
public:
    void feed(std::string_view bytes);
    /// The next frame of a known type, valid until the next feed(); empty when more bytes are needed. An error (too long, bad
    /// checksum, unknown and critical) stays: after it the stream cannot be trusted.
    Result<std::optional<FrameView>> next();
    std::size_t buffered() const { return m_bytes.size() - m_at; }

private:
    std::string m_bytes;
    std::size_t m_at = 0;
    std::optional<Error> m_error;
};

/// The frame of a record. Fails when the record cannot be put into one frame (an event or a program that is too large).
Status appendRecord(std::string &out, const Record &record);
/// The payload alone, and its type.
Result<std::string> encodeRecord(const Record &record, FrameHeader &header);
/// A record frame's content. Bytes after the known fields are ignored (a newer writer); anything malformed is an error.
Result<Record> decodeRecord(const FrameView &frame);

/// The metrics of a step by themselves, as stores keep them.
std::string packStep(const StepRecord &step);
Result<StepRecord> unpackStep(std::string_view bytes);
std::string packSpans(const SpanRecord &spans);
Result<SpanRecord> unpackSpans(std::string_view bytes);

/// RunRecord frames: a record frame of a run, wrapped without decoding it.
bool appendRunRecord(std::string &out, std::string_view run, const FrameView &record);
struct RunRecordView {
    std::string_view run;
    FrameView record;
};
Result<RunRecordView> parseRunRecord(const FrameView &frame);

struct Heartbeat {
    std::int64_t step = 0;
    std::uint64_t progress = 0;
};
void appendHeartbeat(std::string &out, const Heartbeat &beat);
Result<Heartbeat> parseHeartbeat(const FrameView &frame);

/// A JSON frame and back.
bool appendJson(std::string &out, FrameType type, const Json &json, std::uint64_t sequence = 0);
Result<Json> parseFrameJson(const FrameView &frame);

} // namespace rankyard::telemetry::wire
