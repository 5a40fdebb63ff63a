// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/bytes.h"
#include "engine/telemetry/crc32c.h"
#include "engine/telemetry/wire.h"
#include "tests/engine/telemetry/samples.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace rankyard;
using namespace rankyard::telemetry;
using namespace rankyard::telemetry::wire;

namespace {

/// Bytes are compared, so that NaN equals NaN.
std::string bytesOf(const Record &record)
{
    std::string bytes;
    EXPECT_TRUE(appendRecord(bytes, record));
    return bytes;
}

} // namespace

TEST(Crc32c, GivesThePublishedValues)
{
    // RFC 3720, B.4.
    EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
    EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
    EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
}

TEST(Crc32c, TablesAndProcessorAgreeAtEveryLengthAndOffset)
{
    std::mt19937_64 random(1);
    std::string bytes(300, ' ');
    for (char &byte : bytes)
        byte = static_cast<char>(random());
    for (std::size_t begin = 0; begin < 9; ++begin) {
        for (std::size_t size = 0; size + begin <= bytes.size(); ++size) {
            ASSERT_EQ(crc32c(bytes.data() + begin, size), crc32cByTable(bytes.data() + begin, size));
            ASSERT_EQ(crc32c(bytes.data() + begin, size),
                      crc32c(bytes.data() + begin + size / 3, size - size / 3,
                             crc32c(bytes.data() + begin, size / 3)));
        }
    }
}

TEST(Wire, EveryRecordRoundTrips)
{
    std::mt19937_64 random(2);
    for (std::uint64_t i = 1; i < 3000; ++i) {
        const Record record = samples::record(i, samples::any(static_cast<std::int64_t>(i), random),
                                              static_cast<int>(i % 9) - 1, 3);
        const std::string bytes = bytesOf(record);
        const FrameEnd end = parseFrame(bytes);
        ASSERT_EQ(end.kind, FrameEnd::Kind::Complete);
        ASSERT_EQ(end.size, bytes.size());
        const auto back = decodeRecord(end.frame);
        ASSERT_TRUE(back) << back.error().text();
        ASSERT_EQ(back->sequence, i);
        ASSERT_EQ(back->rank, static_cast<int>(i % 9) - 1);
        ASSERT_EQ(back->epoch, 3u);
        ASSERT_EQ(bytesOf(*back), bytes);
    }
}

TEST(Wire, KeepsNaNAndInfinity)
{
    StepRecord step;
    step.loss = std::numeric_limits<double>::quiet_NaN();
    step.gradNorm = -std::numeric_limits<double>::infinity();
    const auto back = unpackStep(packStep(step));
    ASSERT_TRUE(back);
    EXPECT_TRUE(std::isnan(back->loss));
    EXPECT_EQ(back->gradNorm, step.gradNorm);
}

TEST(Wire, SpansAreSmall)
{
    std::mt19937_64 random(3);
    const SpanRecord spans = samples::spans(1, 1000, random);
    EXPECT_LT(packSpans(spans).size(), 9000u); // 12 bytes a span as columns
}

TEST(Wire, CutsLongLinesBetweenCharacters)
{
    std::string line(maxLogText - 1, 'x');
    line += "äöü and more";
    const std::string bytes = bytesOf(samples::record(1, LogRecord{1, Level::Info, 1, line}));
    const auto back = decodeRecord(parseFrame(bytes).frame);
    ASSERT_TRUE(back);
    const std::string &text = std::get<LogRecord>(back->payload).text;
    EXPECT_EQ(text.substr(0, maxLogText), std::string(maxLogText - 1, 'x') + " ");
    EXPECT_NE(text.find("bytes cut"), std::string::npos);
}

TEST(Wire, RefusesWhatDoesNotFitAFrame)
{
    std::string bytes;
    const EventRecord event{1, 1, "note", {{"text", std::string(maxPayload, 'x')}}};
    EXPECT_FALSE(appendRecord(bytes, samples::record(1, event)));
    EXPECT_TRUE(bytes.empty());
    EXPECT_FALSE(appendFrame(bytes, {}, std::string(maxPayload + 1, 'x')));
    EXPECT_TRUE(appendFrame(bytes, {}, std::string(maxPayload, 'x')));
}

TEST(Wire, DecodesOverAnyPartition)
{
    std::mt19937_64 random(4);
    std::string bytes;
    for (std::uint64_t i = 1; i <= 200; ++i)
        ASSERT_TRUE(
            appendRecord(bytes, samples::record(i, samples::any(static_cast<std::int64_t>(i), random))));
    for (const std::size_t most : {1u, 7u, 100u, 100000u}) {
        FrameDecoder decoder;
        std::uint64_t seen = 0;
        for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t size = std::min<std::size_t>(bytes.size() - at, 1 + random() % most);
            decoder.feed(std::string_view(bytes).substr(at, size));
            at += size;
            for (;;) {
                const auto frame = decoder.next();
                ASSERT_TRUE(frame);
                if (!*frame)
                    break;
                ASSERT_EQ((*frame)->header.sequence, ++seen);
            }
        }
        EXPECT_EQ(seen, 200u);
        EXPECT_EQ(decoder.buffered(), 0u);
    }
}

TEST(Wire, SkipsUnknownTypesUnlessTheyAreCritical)
{
    std::string bytes;
    appendFrame(bytes, {.type = static_cast<FrameType>(200)}, "later");
    appendFrame(bytes, {.type = FrameType::Ping, .sequence = 7}, "");
    appendFrame(bytes, {.type = static_cast<FrameType>(201), .flags = critical}, "must");
    appendFrame(bytes, {.type = FrameType::Ping, .sequence = 8}, "");
    FrameDecoder decoder;
    decoder.feed(bytes);
    const auto first = decoder.next();
    ASSERT_TRUE(first && *first);
    EXPECT_EQ((*first)->header.sequence, 7u);
    const auto second = decoder.next();
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().found, "201");
    decoder.feed(bytes);
    EXPECT_FALSE(decoder.next()) << "an error stays";
}

TEST(Wire, AnImpossibleLengthIsKnownFromFourBytes)
{
    std::string bytes;
    put(bytes, std::uint32_t{0x7fffffff});
    FrameDecoder decoder;
    decoder.feed(bytes);
    EXPECT_FALSE(decoder.next());
}

TEST(Wire, EveryFlippedBitIsFound)
{
    std::mt19937_64 random(5);
    const std::string bytes = bytesOf(samples::record(3, samples::step(3, random)));
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        std::string broken = bytes;
        broken[bit / 8] = static_cast<char>(broken[bit / 8] ^ (1 << (bit % 8)));
        ASSERT_NE(parseFrame(broken).kind, FrameEnd::Kind::Complete) << bit;
    }
}

TEST(Wire, HostilePayloadsWithGoodChecksumsNeverCrash)
{
    std::mt19937_64 random(6);
    int refused = 0;
    for (int round = 0; round < 60000; ++round) {
        FrameHeader header;
        const auto payload = encodeRecord(samples::record(1, samples::any(round, random)), header);
        ASSERT_TRUE(payload);
        std::string broken = *payload;
        for (auto changes = random() % 6; changes-- > 0 && !broken.empty();) {
            const std::size_t at = random() % broken.size();
            switch (random() % 4) {
            case 0:
                broken.resize(at);
                break;
            case 1:
                broken[at] = static_cast<char>(0xff);
                break;
            case 2:
                broken.insert(at, 1 + random() % 9, static_cast<char>(random()));
                break;
            default:
                broken[at] = static_cast<char>(random());
                break;
            }
        }
        if (random() % 8 == 0)
            header.type = static_cast<FrameType>(random());
        std::string bytes;
        appendFrame(bytes, header, broken);
        refused += !decodeRecord(parseFrame(bytes).frame).ok();
        (void)parseRunRecord(parseFrame(bytes).frame);
        (void)parseHeartbeat(parseFrame(bytes).frame);
        (void)parseFrameJson(parseFrame(bytes).frame);
    }
    EXPECT_GT(refused, 1000);
}

TEST(Wire, NoiseNeverCrashesTheDecoder)
{
    std::mt19937_64 random(7);
    for (int round = 0; round < 3000; ++round) {
        std::string noise(random() % 400, ' ');
        for (char &byte : noise)
            byte = static_cast<char>(random() % 3 ? random() % 4 : random());
        FrameDecoder decoder;
        decoder.feed(noise);
        for (auto frame = decoder.next(); frame && *frame; frame = decoder.next()) {
        }
    }
}

TEST(Wire, RunRecordsCarryTheRecordUnchanged)
{
    std::mt19937_64 random(8);
    const Record record = samples::record(42, samples::step(42, random), 1, 2);
    const std::string bytes = bytesOf(record);
    std::string wrapped;
    ASSERT_TRUE(appendRunRecord(wrapped, "r-20260101T000000-abcdef", parseFrame(bytes).frame));
    const auto view = parseRunRecord(parseFrame(wrapped).frame);
    ASSERT_TRUE(view);
    EXPECT_EQ(view->run, "r-20260101T000000-abcdef");
    const auto back = decodeRecord(view->record);
    ASSERT_TRUE(back);
    EXPECT_EQ(bytesOf(*back), bytes);
    EXPECT_FALSE(parseRunRecord(parseFrame(bytes).frame));
}

TEST(Wire, HeartbeatsAndDocumentsRoundTrip)
{
    std::string bytes;
    appendHeartbeat(bytes, {17, 123456});
    const auto beat = parseHeartbeat(parseFrame(bytes).frame);
    ASSERT_TRUE(beat);
    EXPECT_EQ(beat->step, 17);
    EXPECT_EQ(beat->progress, 123456u);
    bytes.clear();
    ASSERT_TRUE(appendJson(bytes, FrameType::Control, {{"command", "stop"}}));
    EXPECT_EQ(parseFrameJson(parseFrame(bytes).frame)->at("command"), "stop");
    bytes.clear();
    ASSERT_TRUE(appendFrame(bytes, {.type = FrameType::Control}, "[1]"));
    EXPECT_FALSE(parseFrameJson(parseFrame(bytes).frame));
}
