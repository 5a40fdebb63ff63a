// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/spool.h"
#include "tests/engine/telemetry/samples.h"

#include <gtest/gtest.h>

#include <csignal>
#include <sys/resource.h>
#include <unistd.h>

using namespace rankyard;
using namespace rankyard::telemetry;
namespace fs = std::filesystem;

namespace {

class SpoolTest : public testing::Test
{
protected:
    void SetUp() override
    {
        std::string pattern = (fs::temp_directory_path() / "rankyard-spool-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        m_dir = pattern;
    }
    void TearDown() override { fs::remove_all(m_dir); }

    std::unique_ptr<Spool> open(SpoolLimits limits = {})
    {
        auto spool = Spool::open(m_dir, m_stream, limits);
        EXPECT_TRUE(spool) << spool.error().text();
        return std::move(spool).value();
    }

    static Record line(int number)
    {
        return samples::record(0, LogRecord{1, Level::Info, number, "line " + std::to_string(number)});
    }

    /// Everything from `next`: the numbers of the lines by sequence, gaps as −1.
    std::vector<std::pair<std::uint64_t, int>> readAll(std::uint64_t next, const Spool *live = nullptr)
    {
        SpoolReader reader(m_dir, m_stream, next);
        std::vector<std::pair<std::uint64_t, int>> all;
        const auto status = reader.read(
            std::size_t{1} << 40,
            [&](const wire::FrameView &frame) {
                const auto record = wire::decodeRecord(frame);
                EXPECT_TRUE(record);
                if (const auto *log = std::get_if<LogRecord>(&record->payload))
                    all.emplace_back(record->sequence, static_cast<int>(log->step));
                else if (const auto *event = std::get_if<EventRecord>(&record->payload))
                    all.emplace_back(record->sequence, event->kind == "gap" ? -1 : -2);
                return true;
            },
            live);
        EXPECT_TRUE(status);
        return all;
    }

    std::vector<fs::path> segments()
    {
        std::vector<fs::path> all;
        for (const auto &entry : fs::directory_iterator(streamDir(m_dir, m_stream)))
            all.push_back(entry.path());
        std::sort(all.begin(), all.end());
        return all;
    }

    fs::path m_dir;
    StreamId m_stream{1, 0};
};

/// No file may grow beyond `bytes` while it lives: a full disk that needs no rights.
class FullDisk
{
public:
    explicit FullDisk(rlim_t bytes)
    {
        m_old = ::signal(SIGXFSZ, SIG_IGN);
        ::getrlimit(RLIMIT_FSIZE, &m_limit);
        rlimit limit = m_limit;
        limit.rlim_cur = bytes;
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FullDisk()
    {
        ::setrlimit(RLIMIT_FSIZE, &m_limit);
        ::signal(SIGXFSZ, m_old);
    }

private:
    rlimit m_limit{};
    sighandler_t m_old;
};

} // namespace

TEST_F(SpoolTest, CountsFromOneAndGivesBackInOrder)
{
    auto spool = open();
    for (int i = 1; i <= 500; ++i) {
        Record record = line(i);
        ASSERT_TRUE(spool->append(record));
        EXPECT_EQ(record.sequence, static_cast<std::uint64_t>(i));
    }
    spool->flush();
    auto all = readAll(1);
    ASSERT_EQ(all.size(), 500u);
    EXPECT_EQ(all[499], std::make_pair(std::uint64_t{500}, 500));
    all = readAll(321);
    ASSERT_EQ(all.size(), 180u);
    EXPECT_EQ(all[0].second, 321);
    EXPECT_TRUE(readAll(501).empty());
    EXPECT_EQ(spoolStreams(m_dir), (std::vector<StreamId>{{1, 0}}));
    EXPECT_TRUE(spoolStreams(m_dir / "none").empty());
}

TEST_F(SpoolTest, EventsAreOnDiskAtOnceOthersAfterFlush)
{
    auto spool = open();
    Record record = line(1);
    spool->append(record);
    EXPECT_TRUE(readAll(1).empty());
    EXPECT_EQ(readAll(1, spool.get()).size(), 1u) << "a reader in this process sees it nevertheless";
    record = samples::record(0, EventRecord{1, 1, "note", {}});
    spool->append(record);
    EXPECT_EQ(readAll(1).size(), 2u);
}

TEST_F(SpoolTest, RollsOverAndContinues)
{
    SpoolLimits small;
    small.segmentBytes = 1000;
    int next = 1;
    for (int times = 0; times < 4; ++times) {
        auto spool = open(small);
        EXPECT_EQ(spool->lastSequence(), static_cast<std::uint64_t>(next - 1));
        for (int i = 0; i < 70; ++i) {
            Record record = line(next++);
            spool->append(record);
            if (i % 7 == 0)
                spool->flush();
        }
    }
    EXPECT_GT(segments().size(), 10u);
    for (const std::uint64_t from : {1, 2, 69, 71, 100, 279, 280}) {
        const auto all = readAll(from);
        ASSERT_EQ(all.size(), 281 - from);
        for (std::size_t i = 0; i < all.size(); ++i)
            ASSERT_EQ(all[i], std::make_pair(from + i, static_cast<int>(from + i)));
    }
}

TEST_F(SpoolTest, AReaderFollowsTheWriter)
{
    SpoolLimits small;
    small.segmentBytes = 500;
    auto spool = open(small);
    SpoolReader reader(m_dir, m_stream, 1);
    int seen = 0;
    std::mt19937_64 random(1);
    for (int i = 1; i <= 2000; ++i) {
        Record record = line(i);
        spool->append(record);
        if (random() % 3 == 0)
            spool->flush();
        if (random() % 5 == 0) {
            const Spool *live = random() % 2 ? spool.get() : nullptr;
            ASSERT_TRUE(reader.read(
                1 + random() % 300,
                [&](const wire::FrameView &frame) {
                    EXPECT_EQ(std::get<LogRecord>(wire::decodeRecord(frame)->payload).step, ++seen);
                    return random() % 4 != 0;
                },
                live));
        }
    }
    spool->flush();
    ASSERT_TRUE(reader.read(1 << 30, [&](const wire::FrameView &frame) {
        EXPECT_EQ(std::get<LogRecord>(wire::decodeRecord(frame)->payload).step, ++seen);
        return true;
    }));
    EXPECT_EQ(seen, 2000);
}

TEST_F(SpoolTest, ATornTailIsCutAtEveryByte)
{
    std::int64_t twoFrames = 0;
    {
        auto spool = open();
        for (int i = 1; i <= 3; ++i) {
            Record record = line(i);
            spool->append(record);
            spool->flush();
            if (i == 2)
                twoFrames = static_cast<std::int64_t>(fs::file_size(segments()[0]));
        }
    }
    const fs::path file = segments()[0];
    const std::string whole = readFile(file).value();
    for (std::size_t size = static_cast<std::size_t>(twoFrames); size < whole.size(); ++size) {
        ASSERT_TRUE(writeFileAtomically(
            file, whole.substr(0, size) + (size % 2 ? std::string(30, '\0') : std::string())));
        auto spool = open();
        ASSERT_EQ(spool->lastSequence(), 2u) << size;
        Record record = line(33);
        spool->append(record);
        spool.reset();
        const auto all = readAll(1);
        ASSERT_EQ(all.size(), 3u);
        ASSERT_EQ(all[2], std::make_pair(std::uint64_t{3}, 33));
    }
}

TEST_F(SpoolTest, DamageInTheMiddleIsADeclaredGap)
{
    SpoolLimits small;
    small.segmentBytes = 1000;
    {
        auto spool = open(small);
        for (int i = 1; i <= 100; ++i) {
            Record record = line(i);
            spool->append(record);
            spool->flush();
        }
    }
    std::string bytes = readFile(segments()[1]).value();
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    ASSERT_TRUE(writeFileAtomically(segments()[1], bytes));
    const auto all = readAll(1);
    std::uint64_t last = 0;
    int gaps = 0;
    std::uint64_t lost = 0;
    for (const auto &[sequence, number] : all) {
        if (number == -1) {
            ++gaps;
            lost += sequence - last;
        } else {
            EXPECT_EQ(sequence, last + 1);
        }
        last = sequence;
    }
    EXPECT_EQ(gaps, 1);
    EXPECT_EQ(last, 100u);
    EXPECT_EQ(all.size() - 1 + lost, 100u);

    fs::remove(segments()[0]);
    EXPECT_EQ(readAll(1)[0].second, -1) << "a missing segment is a gap too";
}

TEST_F(SpoolTest, AFullDiskKeepsInMemoryThenDropsAndDeclaresTheGap)
{
    SpoolLimits limits;
    limits.memoryBytes = 4000;
    auto spool = open(limits);
    {
        const FullDisk full(2000);
        for (int i = 1; i <= 300; ++i) {
            Record record = line(i);
            spool->append(record);
            spool->flush();
        }
        ASSERT_TRUE(spool->trouble());
        EXPECT_EQ(spool->trouble()->code, Code::Io);
        EXPECT_GT(spool->dropped(), 100u);
        EXPECT_LT(spool->dropped(), 299u);
        Record event = samples::record(0, EventRecord{1, 1, "note", {}});
        EXPECT_TRUE(spool->append(event)) << "events are never shed";
        const auto live = readAll(1, spool.get());
        EXPECT_EQ(live.back().second, -2);
        EXPECT_EQ(live.back().first, 301u);
    }
    for (int i = 302; i <= 310; ++i) {
        Record record = line(i);
        EXPECT_TRUE(spool->append(record));
    }
    spool->sync();
    EXPECT_FALSE(spool->trouble());
    const auto all = readAll(1);
    std::uint64_t last = 0;
    std::uint64_t lost = 0;
    for (const auto &[sequence, number] : all) {
        if (number == -1)
            lost += sequence - last;
        else
            EXPECT_EQ(sequence, last + 1);
        last = sequence;
    }
    EXPECT_EQ(last, 310u);
    EXPECT_EQ(lost, spool->dropped());
}

TEST_F(SpoolTest, WorkersFramesAreTakenOverUndecoded)
{
    auto spool = open();
    std::mt19937_64 random(9);
    std::string bytes;
    ASSERT_TRUE(wire::appendRecord(bytes, samples::record(77, samples::step(5, random), 12, 99)));
    EXPECT_TRUE(spool->appendRaw(wire::parseFrame(bytes).frame));
    bytes.clear();
    wire::appendHeartbeat(bytes, {});
    EXPECT_FALSE(spool->appendRaw(wire::parseFrame(bytes).frame));
    spool->flush();
    SpoolReader reader(m_dir, m_stream, 1);
    int seen = 0;
    ASSERT_TRUE(reader.read(1 << 20, [&](const wire::FrameView &frame) {
        const auto record = wire::decodeRecord(frame);
        EXPECT_EQ(record->sequence, 1u);
        EXPECT_EQ(record->rank, 0);
        EXPECT_EQ(record->epoch, 1u);
        EXPECT_EQ(std::get<StepRecord>(record->payload).step, 5);
        ++seen;
        return true;
    }));
    EXPECT_EQ(seen, 1);
}

TEST_F(SpoolTest, AnUnwritableFolderIsAClearError)
{
    ASSERT_TRUE(writeFileAtomically(m_dir / "file", "x"));
    const auto spool = Spool::open(m_dir / "file", m_stream);
    ASSERT_FALSE(spool);
    EXPECT_EQ(spool.error().code, Code::Io);
}
