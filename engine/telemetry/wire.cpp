// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/wire.h"

#include "engine/telemetry/bytes.h"
#include "engine/telemetry/crc32c.h"

#include <algorithm>
#include <limits>

namespace rankyard::telemetry::wire {

namespace {

Error bad(std::string what) { return Error::make(Code::BadData, std::move(what), "frame"); }

} // namespace

bool isKnown(std::uint8_t type)
{
    return (type >= 1 && type <= 7) || (type >= 16 && type <= 18) || (type >= 32 && type <= 37);
}

bool isRecord(FrameType type) { return type >= FrameType::RecordHello && type <= FrameType::RecordSpans; }

bool appendFrame(std::string &out, const FrameHeader &header, std::string_view payload)
{
    if (payload.size() > maxPayload)
        return false;
    const std::size_t begin = out.size();
    out.reserve(begin + headerBytes + payload.size() + trailerBytes);
    put(out, static_cast<std::uint32_t>(payload.size()));
    put(out, static_cast<std::uint8_t>(header.type));
    put(out, static_cast<std::uint8_t>(header.stream));
    put(out, header.flags);
    put(out, header.sequence);
    out.append(payload);
    put(out, crc32c(out.data() + begin, out.size() - begin));
    return true;
}

FrameEnd parseFrame(std::string_view bytes)
{
    FrameEnd end;
    if (bytes.size() < headerBytes) {
        // A length that cannot be is known from the first four bytes: do not wait for the rest of a hostile frame.
        if (bytes.size() >= 4 && ByteReader(bytes).get<std::uint32_t>() > maxPayload) {
            end.kind = FrameEnd::Kind::Bad;
            end.why = "the frame is longer than 1 MiB";
        }
        return end;
    }
    ByteReader reader(bytes);
    const auto length = reader.get<std::uint32_t>();
    if (length > maxPayload) {
        end.kind = FrameEnd::Kind::Bad;
        end.why = "the frame is longer than 1 MiB";
        return end;
    }
    const std::size_t size = headerBytes + length + trailerBytes;
    if (bytes.size() < size)
        return end;
    const auto stored = ByteReader(bytes.substr(headerBytes + length)).get<std::uint32_t>();
    if (stored != crc32c(bytes.data(), headerBytes + length)) {
        end.kind = FrameEnd::Kind::Bad;
        end.why = "the frame's checksum is wrong";
        return end;
    }
    end.frame.header.type = static_cast<FrameType>(reader.get<std::uint8_t>());
    end.frame.header.stream = static_cast<Channel>(reader.get<std::uint8_t>());
    end.frame.header.flags = reader.get<std::uint16_t>();
    end.frame.header.sequence = reader.get<std::uint64_t>();
    end.frame.payload = bytes.substr(headerBytes, length);
    end.kind = FrameEnd::Kind::Complete;
    end.size = size;
    return end;
}

void FrameDecoder::feed(std::string_view bytes)
{
    if (m_at > 0) {
        m_bytes.erase(0, m_at);
        m_at = 0;
    }
    if (!m_error)
        m_bytes.append(bytes);
}

Result<std::optional<FrameView>> FrameDecoder::next()
{
    while (!m_error) {
        const FrameEnd end = parseFrame(std::string_view(m_bytes).substr(m_at));
        if (end.kind == FrameEnd::Kind::Partial)
            return std::optional<FrameView>();
        if (end.kind == FrameEnd::Kind::Bad) {
            m_error = bad(end.why);
            break;
        }
        m_at += end.size;
        if (isKnown(static_cast<std::uint8_t>(end.frame.header.type)))
            return std::optional<FrameView>(end.frame);
        if (end.frame.header.flags & critical)
            m_error = bad("a frame that must be understood is of an unknown type")
                          .withFound(std::to_string(static_cast<int>(end.frame.header.type)))
                          .withHint("The other side is a newer version");
    }
    m_bytes.clear();
    m_at = 0;
    return *m_error;
}

// Records -----------------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint8_t bodyVersion = 1;

void putStep(std::string &out, const StepRecord &step)
{
    put(out, bodyVersion);
    put(out, step.step);
    put(out, step.endNs);
    put(out, step.wallNs);
    for (const double value :
         {step.loss, step.gradNorm, step.lr, step.lossScale, step.tokensPerS, step.stepMs, step.computeMs,
          step.optimizerMs, step.dataMs, step.bubbleMs, step.mfu})
        put(out, value);
    put(out, static_cast<std::uint8_t>(step.overflow));
    put(out, static_cast<std::uint8_t>(step.memory.size()));
    for (const std::int64_t bytes : step.memory)
        put(out, bytes);
    putVarint(out, step.comm.size());
    for (const GroupFigures &group : step.comm) {
        putText(out, group.group);
        put(out, group.payload);
        put(out, group.wire);
        put(out, group.moved);
        put(out, group.ms);
        put(out, group.exposedMs);
    }
}

StepRecord getStep(ByteReader &in)
{
    StepRecord step;
    if (in.get<std::uint8_t>() != bodyVersion)
        in.fail();
    step.step = in.get<std::int64_t>();
    step.endNs = in.get<std::int64_t>();
    step.wallNs = in.get<std::int64_t>();
    for (double *value :
         {&step.loss, &step.gradNorm, &step.lr, &step.lossScale, &step.tokensPerS, &step.stepMs,
          &step.computeMs, &step.optimizerMs, &step.dataMs, &step.bubbleMs, &step.mfu})
        *value = in.get<double>();
    step.overflow = in.get<std::uint8_t>() != 0;
    const std::size_t kinds = in.get<std::uint8_t>();
    for (std::size_t i = 0; i < kinds; ++i) {
        const auto bytes = in.get<std::int64_t>();
        if (i < step.memory.size())
            step.memory[i] = bytes;
    }
    const std::uint64_t groups = in.getVarint();
    constexpr std::size_t leastBytes = 41; // of one group: so a false count cannot make us reserve much
    if (groups > in.left() / leastBytes)
        in.fail();
    for (std::uint64_t i = 0; i < groups && in.ok(); ++i) {
        GroupFigures group;
        group.group = in.getText();
        group.payload = in.get<std::int64_t>();
        group.wire = in.get<std::int64_t>();
        group.moved = in.get<std::int64_t>();
        group.ms = in.get<double>();
        group.exposedMs = in.get<double>();
        step.comm.push_back(std::move(group));
    }
    return step;
}

/// Columns as differences: op ids mostly follow each other, begins ascend, lengths are short.
void putSpans(std::string &out, const SpanRecord &spans)
{
    const std::size_t count = std::min({spans.op.size(), spans.beginNs.size(), spans.endNs.size()});
    put(out, bodyVersion);
    put(out, spans.step);
    put(out, static_cast<std::uint8_t>(spans.program));
    put(out, spans.originNs);
    putText(out, spans.digest);
    putVarint(out, count);
    std::int64_t op = -1;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < count; ++i) {
        putVarint(out, zigzag(std::int64_t{spans.op[i]} - op - 1));
        op = spans.op[i];
    }
    for (std::size_t i = 0; i < count; ++i) {
        putVarint(out, zigzag(spans.beginNs[i] - begin));
        begin = spans.beginNs[i];
    }
    for (std::size_t i = 0; i < count; ++i)
        putVarint(out, zigzag(spans.endNs[i] - spans.beginNs[i]));
}

template<typename T>
T narrowed(ByteReader &in, std::int64_t value)
{
    if (value < std::int64_t{std::numeric_limits<T>::min()}
        || value > std::int64_t{std::numeric_limits<T>::max()})
        in.fail();
    return static_cast<T>(value);
}

/// base + difference with both from the wire: may not overflow.
std::int64_t added(ByteReader &in, std::int64_t base, std::int64_t difference)
{
    std::int64_t sum = 0;
    if (__builtin_add_overflow(base, difference, &sum))
        in.fail();
    return sum;
}

SpanRecord getSpans(ByteReader &in)
{
    SpanRecord spans;
    if (in.get<std::uint8_t>() != bodyVersion)
        in.fail();
    spans.step = in.get<std::int64_t>();
    spans.program = static_cast<plan::ProgramKind>(in.get<std::uint8_t>());
    if (spans.program > plan::ProgramKind::Gather)
        in.fail();
    spans.originNs = in.get<std::int64_t>();
    spans.digest = in.getText();
    const std::uint64_t count = in.getVarint();
    if (!in.ok() || count > in.left() / 3) {
        in.fail();
        return spans;
    }
    const auto size = static_cast<std::size_t>(count);
    spans.op.reserve(size);
    spans.beginNs.reserve(size);
    spans.endNs.reserve(size);
    std::int64_t last = -1;
    for (std::size_t i = 0; i < size && in.ok(); ++i) {
        last = narrowed<std::int32_t>(in, added(in, last + 1, unzigzag(in.getVarint())));
        spans.op.push_back(static_cast<std::int32_t>(last));
    }
    last = 0;
    for (std::size_t i = 0; i < size && in.ok(); ++i) {
        last = added(in, last, unzigzag(in.getVarint()));
        spans.beginNs.push_back(last);
    }
    for (std::size_t i = 0; i < size && in.ok(); ++i)
        spans.endNs.push_back(added(in, spans.beginNs[i], unzigzag(in.getVarint())));
    return spans;
}

Json getJson(ByteReader &in)
{
    auto json = parseJson(in.getText(), "record");
    if (!json) {
        in.fail();
        return {};
    }
    return std::move(json).value();
}

std::string cutText(const std::string &text)
{
    if (text.size() <= maxLogText)
        return text;
    std::size_t end = maxLogText;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
        --end; // not in the middle of a character
    return text.substr(0, end) + " … (" + std::to_string(text.size() - end) + " bytes cut)";
}

struct Encoder {
    std::string &out;
    FrameHeader &header;

    void operator()(const HelloRecord &hello) const
    {
        header.type = FrameType::RecordHello;
        header.stream = Channel::Event;
        putText(out, dumpJson(hello.detail));
    }
    void operator()(const StepRecord &step) const
    {
        header.type = FrameType::RecordStep;
        header.stream = Channel::Metric;
        putStep(out, step);
    }
    void operator()(const EvalRecord &eval) const
    {
        header.type = FrameType::RecordEval;
        header.stream = Channel::Metric;
        put(out, eval.step);
        put(out, eval.loss);
        put(out, eval.tokens);
        put(out, eval.wallNs);
    }
    void operator()(const LogRecord &log) const
    {
        header.type = FrameType::RecordLog;
        header.stream = Channel::Log;
        put(out, log.wallNs);
        put(out, static_cast<std::uint8_t>(log.level));
        put(out, log.step);
        putText(out, cutText(log.text));
    }
    void operator()(const EventRecord &event) const
    {
        header.type = FrameType::RecordEvent;
        header.stream = Channel::Event;
        put(out, event.wallNs);
        put(out, event.step);
        putText(out, event.kind);
        putText(out, dumpJson(event.detail));
    }
    void operator()(const SpanRecord &spans) const
    {
        header.type = FrameType::RecordSpans;
        header.stream = Channel::Span;
        putSpans(out, spans);
    }
};

Payload getPayload(ByteReader &in, FrameType type)
{
    switch (type) {
    case FrameType::RecordHello:
        return HelloRecord{getJson(in)};
    case FrameType::RecordStep:
        return getStep(in);
    case FrameType::RecordEval: {
        EvalRecord eval;
        eval.step = in.get<std::int64_t>();
        eval.loss = in.get<double>();
        eval.tokens = in.get<std::int64_t>();
        eval.wallNs = in.get<std::int64_t>();
        return eval;
    }
    case FrameType::RecordLog: {
        LogRecord log;
        log.wallNs = in.get<std::int64_t>();
        log.level = static_cast<Level>(std::min<std::uint8_t>(in.get<std::uint8_t>(), 3));
        log.step = in.get<std::int64_t>();
        log.text = in.getText();
        return log;
    }
    case FrameType::RecordEvent: {
        EventRecord event;
        event.wallNs = in.get<std::int64_t>();
        event.step = in.get<std::int64_t>();
        event.kind = in.getText();
        event.detail = getJson(in);
        return event;
    }
    case FrameType::RecordSpans:
        return getSpans(in);
    default:
        in.fail();
        return HelloRecord{};
    }
}

} // namespace

Result<std::string> encodeRecord(const Record &record, FrameHeader &header)
{
    std::string out;
    put(out, record.epoch);
    put(out, record.rank);
    std::visit(Encoder{out, header}, record.payload);
    header.flags = 0;
    header.sequence = record.sequence;
    if (out.size() + 512 > maxPayload) // room for the run id of a RunRecord
        return Error::make(Code::Internal, "a record is too large for a frame",
                           "rank " + std::to_string(record.rank))
            .withFound(std::to_string(out.size()) + " bytes")
            .withExpected("at most " + std::to_string(maxPayload));
    return out;
}

Status appendRecord(std::string &out, const Record &record)
{
    FrameHeader header;
    RY_ASSIGN(const std::string payload, encodeRecord(record, header));
    appendFrame(out, header, payload);
    return {};
}

Result<Record> decodeRecord(const FrameView &frame)
{
    ByteReader in(frame.payload);
    Record record;
    record.sequence = frame.header.sequence;
    record.epoch = in.get<std::uint32_t>();
    record.rank = in.get<std::int32_t>();
    record.payload = getPayload(in, frame.header.type);
    if (!in.ok())
        return bad("a record is malformed")
            .withFound("type " + std::to_string(static_cast<int>(frame.header.type)));
    return record;
}

std::string packStep(const StepRecord &step)
{
    std::string out;
    putStep(out, step);
    return out;
}

Result<StepRecord> unpackStep(std::string_view bytes)
{
    ByteReader in(bytes);
    StepRecord step = getStep(in);
    if (!in.ok())
        return bad("a packed step is malformed");
    return step;
}

std::string packSpans(const SpanRecord &spans)
{
    std::string out;
    putSpans(out, spans);
    return out;
}

Result<SpanRecord> unpackSpans(std::string_view bytes)
{
    ByteReader in(bytes);
    SpanRecord spans = getSpans(in);
    if (!in.ok())
        return bad("packed spans are malformed");
    return spans;
}

// Other frames ------------------------------------------------------------------------------------------------------

bool appendRunRecord(std::string &out, std::string_view run, const FrameView &record)
{
    if (run.size() > 255)
        return false;
    std::string payload;
    payload.reserve(run.size() + record.payload.size() + 2);
    put(payload, static_cast<std::uint8_t>(run.size()));
    payload.append(run);
    put(payload, static_cast<std::uint8_t>(record.header.type));
    payload.append(record.payload);
    FrameHeader header = record.header;
    header.type = FrameType::RunRecord;
    return appendFrame(out, header, payload);
}

Result<RunRecordView> parseRunRecord(const FrameView &frame)
{
    ByteReader in(frame.payload);
    RunRecordView view;
    const std::size_t size = in.get<std::uint8_t>();
    if (frame.header.type != FrameType::RunRecord || !in.ok() || in.left() < size + 1)
        return bad("a record of a run is malformed");
    view.run = frame.payload.substr(1, size);
    view.record.header = frame.header;
    view.record.header.type = static_cast<FrameType>(static_cast<std::uint8_t>(frame.payload[1 + size]));
    view.record.payload = frame.payload.substr(2 + size);
    return view;
}

void appendHeartbeat(std::string &out, const Heartbeat &beat)
{
    std::string payload;
    put(payload, beat.step);
    put(payload, beat.progress);
    appendFrame(out, {.type = FrameType::Heartbeat}, payload);
}

Result<Heartbeat> parseHeartbeat(const FrameView &frame)
{
    ByteReader in(frame.payload);
    Heartbeat beat;
    beat.step = in.get<std::int64_t>();
    beat.progress = in.get<std::uint64_t>();
    if (!in.ok())
        return bad("a heartbeat is malformed");
    return beat;
}

bool appendJson(std::string &out, FrameType type, const Json &json, std::uint64_t sequence)
{
    return appendFrame(out, {.type = type, .flags = critical, .sequence = sequence}, dumpJson(json));
}

Result<Json> parseFrameJson(const FrameView &frame)
{
    RY_ASSIGN(Json json, parseJson(frame.payload, "frame"));
    if (!json.is_object())
        return bad("a frame's document is no object");
    return json;
}

} // namespace rankyard::telemetry::wire
