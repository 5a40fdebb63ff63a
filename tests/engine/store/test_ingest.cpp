// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/telemetry/wire.h"
#include "tests/engine/store/store_test.h"

#include <chrono>
#include <cmath>
#include <iostream>

using namespace rankyard;
using namespace rankyard::store;
using namespace rankyard::telemetry;

using IngestTest = StoreTest;

namespace {

std::vector<std::int64_t> numbers(const std::vector<StepRow> &rows)
{
    std::vector<std::int64_t> all;
    for (const StepRow &row : rows)
        all.push_back(row.record.step);
    return all;
}

} // namespace

TEST_F(IngestTest, GivesBackEveryKindOfRecord)
{
    const std::string id = newRun();
    std::mt19937_64 random(1);
    std::vector<Record> records;
    const StepRecord step = samples::step(1, random);
    records.push_back(samples::record(1, HelloRecord{{{"host", "a"}}}));
    records.push_back(samples::record(2, step));
    records.push_back(samples::record(3, EvalRecord{1, 2.25, 4096, 77}));
    records.push_back(samples::record(4, LogRecord{88, Level::Warning, 1, "watch out äöü"}));
    records.push_back(samples::record(5, EventRecord{99, 1, "note", {{"n", 1}}}));
    const SpanRecord spans = samples::spans(1, 50, random);
    records.push_back(samples::record(6, spans));
    ASSERT_TRUE(m_store->ingest(id, records));
    ASSERT_TRUE(m_store->ingest(id, records)) << "repeats do no harm";

    const auto rows = m_store->steps(id, 0, 0, 100);
    ASSERT_EQ(rows->size(), 1u);
    EXPECT_EQ(wire::packStep((*rows)[0].record), wire::packStep(step));
    ASSERT_EQ(m_store->evals(id)->size(), 1u);
    EXPECT_EQ((*m_store->evals(id))[0].loss, 2.25);
    const auto logs = m_store->logs(id, 0, 10);
    ASSERT_EQ(logs->size(), 1u);
    EXPECT_EQ((*logs)[0].record.text, "watch out äöü");
    EXPECT_EQ((*logs)[0].record.level, Level::Warning);
    ASSERT_EQ(m_store->events(id)->size(), 1u);
    EXPECT_EQ((*m_store->events(id))[0].detail["n"], 1);
    const auto kept = m_store->spans(id, 0, 1);
    ASSERT_EQ(kept->size(), 1u);
    EXPECT_EQ(wire::packSpans((*kept)[0]), wire::packSpans(spans));
    EXPECT_EQ((*m_store->hellos(id))[0].detail["host"], "a");
    const auto positions = m_store->positions(id);
    ASSERT_EQ(positions->size(), 1u);
    EXPECT_EQ((*positions)[0].sequence, 6u);
    const auto run = m_store->run(id);
    EXPECT_EQ(run->step, 1);
    EXPECT_EQ(run->bestLoss, 2.25) << "validation before training";
    EXPECT_EQ(m_store->ingest("r-none", records).error().code, Code::NotFound);
}

TEST_F(IngestTest, AHoleIsRefusedAndADeclaredGapIsNot)
{
    const std::string id = newRun();
    auto records = stepRecords(1, 10, [](std::int64_t i) { return double(i); });
    records.erase(records.begin() + 4);
    const auto status = m_store->ingest(id, records);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::BadData);
    EXPECT_EQ(status.error().found, "sequence 6");
    EXPECT_TRUE(m_store->steps(id, 0, 0, 100)->empty()) << "all or nothing";
    EXPECT_TRUE(m_store->positions(id)->empty());

    records.insert(records.begin() + 4,
                   samples::record(5, EventRecord{1, 1, "gap", {{"from", 5}, {"to", 5}, {"why", "test"}}}));
    ASSERT_TRUE(m_store->ingest(id, records));
    EXPECT_EQ(m_store->steps(id, 0, 0, 100)->size(), 9u);
    ASSERT_TRUE(m_store->ingest(
        id, {samples::record(30, EventRecord{1, 1, "gap", {{"from", 11u}, {"to", 30u}, {"why", "test"}}})}));
    EXPECT_FALSE(m_store->ingest(
        id, {samples::record(40, EventRecord{1, 1, "gap", {{"from", 35u}, {"to", 40u}, {"why", "test"}}})}));
    EXPECT_FALSE(m_store->ingest(id, {samples::record(40, EventRecord{1, 1, "gap", {{"from", "1"}}})}));
    EXPECT_FALSE(m_store->ingest(id, {samples::record(0, LogRecord{})}));
}

TEST_F(IngestTest, AResumedRunSupersedesTheOverlappedTail)
{
    // tensorflow/tensorboard#3732: steps 0 … 149, then a restart that begins at 100.
    const std::string id = newRun();
    ASSERT_TRUE(m_store->ingest(id, stepRecords(0, 149, [](std::int64_t i) { return 1000.0 + double(i); })));
    for (std::int64_t from = 100; from < 200; from += 20)
        ASSERT_TRUE(m_store->ingest(id,
                                    stepRecords(
                                        from, from + 19, [](std::int64_t i) { return double(i); }, 0, 2)));
    const auto rows = m_store->steps(id, 0, 0, 1000);
    ASSERT_EQ(rows->size(), 200u);
    for (std::size_t i = 0; i < rows->size(); ++i) {
        EXPECT_EQ((*rows)[i].record.step, static_cast<std::int64_t>(i));
        EXPECT_EQ((*rows)[i].epoch, i < 100 ? 1u : 2u);
        EXPECT_EQ((*rows)[i].record.loss, i < 100 ? 1000.0 + double(i) : double(i));
    }
    const auto abandoned = m_store->superseded(id, -1);
    ASSERT_EQ(abandoned->size(), 50u);
    EXPECT_EQ((*abandoned)[0].record.step, 100);
    EXPECT_EQ((*abandoned)[0].record.loss, 1100.0);
    EXPECT_EQ((*abandoned)[0].epoch, 1u);
    // The pyramid forgot the tail too, at every zoom.
    for (const int points : {2, 3, 10, 50, 400}) {
        const auto series = m_store->series(id, "loss", 0, 0, 1000, points);
        ASSERT_FALSE(series->empty());
        ASSERT_LE(series->size(), static_cast<std::size_t>(points));
        double max = 0;
        std::int64_t last = -1;
        for (const SeriesPoint &point : *series) {
            EXPECT_GT(point.stepBegin, last);
            last = point.stepEnd;
            max = std::max(max, point.max);
            EXPECT_EQ(point.last,
                      point.stepEnd < 100 ? 1000.0 + double(point.stepEnd) : double(point.stepEnd));
        }
        EXPECT_EQ(last, 199);
        EXPECT_EQ(max, 1099.0);
    }
    EXPECT_EQ(m_store->run(id)->step, 199);
}

TEST_F(IngestTest, ALateRecordOfAnOlderEpochSupersedesNothing)
{
    const std::string id = newRun();
    ASSERT_TRUE(m_store->ingest(id,
                                stepRecords(
                                    1, 50, [](std::int64_t) { return 1.0; }, 0, 1)));
    ASSERT_TRUE(m_store->ingest(id,
                                stepRecords(
                                    41, 60, [](std::int64_t) { return 2.0; }, 0, 2)));
    ASSERT_TRUE(m_store->ingest(
        id,
        stepRecords(
            1, 50, [](std::int64_t) { return 3.0; }, 1, 1))); // the other rank's stream comes late
    ASSERT_TRUE(m_store->ingest(id,
                                stepRecords(
                                    51, 55, [](std::int64_t) { return 3.0; }, 0, 1)));
    EXPECT_EQ(m_store->steps(id, 0, 0, 100)->size(), 60u);
    const auto other = m_store->steps(id, 1, 0, 100);
    ASSERT_EQ(other->size(), 40u);
    EXPECT_EQ(other->back().record.step, 40);
    EXPECT_EQ(m_store->superseded(id, 0)->size(), 15u);
    EXPECT_EQ(m_store->superseded(id, 1)->size(), 10u);
    EXPECT_EQ(m_store->run(id)->lastLoss, 2.0);
    EXPECT_EQ(m_store->run(id)->epoch, 2u);
}

TEST_F(IngestTest, ResumingWithFewerRanksSupersedesTheOthersTails)
{
    const std::string id = newRun();
    for (const int rank : {0, 1})
        ASSERT_TRUE(m_store->ingest(id,
                                    stepRecords(
                                        1, 30, [](std::int64_t) { return 1.0; }, rank)));
    ASSERT_TRUE(m_store->ingest(id,
                                stepRecords(
                                    11, 20, [](std::int64_t) { return 2.0; }, 0, 2)));
    EXPECT_EQ(numbers(*m_store->steps(id, 1, 0, 100)).back(), 10);
    EXPECT_EQ(m_store->steps(id, -1, 0, 100)->size(), 30u);
}

TEST_F(IngestTest, StateEventsMoveTheRun)
{
    const std::string id = newRun();
    const Error error = Error::make(Code::RankFailed, "killed", "rank 1");
    ASSERT_TRUE(m_store->ingest(
        id, {samples::record(1, EventRecord{5, 0, "state", {{"from", "starting"}, {"to", "running"}}}, -1)}));
    EXPECT_EQ(m_store->run(id)->state, RunState::Running);
    ASSERT_TRUE(m_store->ingest(
        id,
        {samples::record(
            2, EventRecord{7, 3, "state", {{"from", "running"}, {"to", "failed"}, {"error", Json(error)}}},
            -1)}));
    EXPECT_EQ(m_store->run(id)->state, RunState::Failed);
    EXPECT_EQ(m_store->run(id)->endedNs, 7);
    EXPECT_EQ(m_store->run(id)->error->where, "rank 1");
    ASSERT_TRUE(
        m_store->ingest(id, {samples::record(1, EventRecord{9, 3, "state", {{"to", "preflight"}}}, -1, 2)}));
    EXPECT_EQ(m_store->run(id)->state, RunState::Preflight);
    EXPECT_FALSE(m_store->run(id)->error);
    ASSERT_TRUE(
        m_store->ingest(id, {samples::record(3, EventRecord{10, 3, "state", {{"to", "lost"}}}, -1, 1)}));
    EXPECT_EQ(m_store->run(id)->state, RunState::Preflight) << "an older epoch has no say";
    ASSERT_TRUE(m_store->ingest(id, {samples::record(2, EventRecord{9, 3, "state", {{"to", 7}}}, -1, 2)}));
    ASSERT_TRUE(m_store->ingest(id, {samples::record(3, EventRecord{9, 3, "state", Json("text")}, -1, 2)}));
}

TEST_F(IngestTest, NonFiniteLossesAreKept)
{
    const std::string id = newRun();
    ASSERT_TRUE(m_store->ingest(id, stepRecords(1, 5, [](std::int64_t i) {
                                    return i == 3 ? std::numeric_limits<double>::quiet_NaN()
                                        : i == 5  ? std::numeric_limits<double>::infinity()
                                                  : double(i);
                                })));
    const auto rows = m_store->steps(id, 0, 1, 5);
    EXPECT_TRUE(std::isnan((*rows)[2].record.loss));
    EXPECT_TRUE(std::isinf((*rows)[4].record.loss));
    EXPECT_TRUE(std::isinf(m_store->run(id)->lastLoss));
    EXPECT_EQ(m_store->run(id)->bestLoss, 1.0);
    const auto series = m_store->series(id, "loss", 0, 1, 5, 2);
    std::int64_t nonFinite = 0;
    for (const SeriesPoint &point : *series)
        nonFinite += point.nonFinite;
    EXPECT_EQ(nonFinite, 2);
}

TEST_F(IngestTest, LogsArePagedAndCapped)
{
    const std::string id = newRun();
    std::uint64_t sequence = 0;
    constexpr int total = 220'000;
    for (int i = 0; i < total;) {
        std::vector<Record> records;
        for (int k = 0; k < 5000; ++k, ++i)
            records.push_back(
                samples::record(++sequence, LogRecord{i, Level::Info, i, "line " + std::to_string(i)}));
        ASSERT_TRUE(m_store->ingest(id, records));
    }
    const auto newest = m_store->logs(id, 0, 3);
    ASSERT_EQ(newest->size(), 3u);
    EXPECT_EQ((*newest)[2].record.text, "line " + std::to_string(total - 1));
    EXPECT_LT((*newest)[0].id, (*newest)[1].id);
    EXPECT_TRUE(m_store->logs(id, newest->back().id, 10)->empty());
    const std::size_t left = m_store->logs(id, 0, 1'000'000)->size();
    EXPECT_GE(left, 200'000u);
    EXPECT_LE(left, 205'000u);
}

TEST_F(IngestTest, SpansAreKeptOfTheNewestOfOneInAHundredAndAroundOverflow)
{
    const std::string id = newRun();
    std::mt19937_64 random(5);
    std::uint64_t sequence = 0;
    for (std::int64_t i = 1; i <= 250;) {
        std::vector<Record> records;
        for (int k = 0; k < 7 && i <= 250; ++k, ++i) {
            StepRecord step;
            step.step = i;
            step.loss = 1;
            step.overflow = i == 123;
            records.push_back(samples::record(++sequence, samples::spans(i, 20, random)));
            records.push_back(samples::record(++sequence, step));
        }
        ASSERT_TRUE(m_store->ingest(id, records));
    }
    std::vector<std::int64_t> kept;
    for (const SpanRecord &spans : *m_store->spans(id, 0, -1))
        kept.push_back(spans.step);
    EXPECT_EQ(kept, (std::vector<std::int64_t>{250, 249, 248, 247, 246, 245, 244, 243, 200, 123, 100, 1}));
    std::size_t files = 0;
    for ([[maybe_unused]] const auto &entry :
         std::filesystem::directory_iterator(m_dir / "runs" / id / "spans"))
        ++files;
    EXPECT_EQ(files, kept.size());
    EXPECT_EQ(m_store->spans(id, 0, 200)->size(), 1u);
    EXPECT_TRUE(m_store->spans(id, 0, 201)->empty());
}

TEST_F(IngestTest, RawStepsAreKeptForAHundredThousandStepsThePyramidForEver)
{
    const std::string id = newRun();
    constexpr std::int64_t total = 103'000;
    const auto loss = [](std::int64_t i) { return i == 700 ? 5000.0 : double(i % 100); };
    for (std::int64_t i = 0; i < total; i += 1000)
        ASSERT_TRUE(m_store->ingest(id, stepRecords(i, i + 999, loss)));
    EXPECT_TRUE(m_store->steps(id, 0, 0, 1000)->empty());
    EXPECT_GE(m_store->steps(id, 0, 0, total)->size(), 100'000u);
    double max = 0;
    for (const SeriesPoint &point : *m_store->series(id, "loss", 0, 0, total, 800))
        max = std::max(max, point.max);
    EXPECT_EQ(max, 5000.0);
    max = 0;
    for (const SeriesPoint &point : *m_store->series(id, "loss", 0, 690, 710, 800))
        max = std::max(max, point.max);
    EXPECT_EQ(max, 5000.0);
}

TEST_F(IngestTest, TakesTwoHundredThousandValuesASecond)
{
    const std::string id = newRun();
    std::mt19937_64 random(6);
    std::vector<std::vector<Record>> batches;
    constexpr int count = 20'000;
    for (int i = 1; i <= count; ++i) {
        if (i % 500 == 1)
            batches.emplace_back();
        for (const int rank : {0, 1})
            batches.back().push_back(
                samples::record(static_cast<std::uint64_t>(i), samples::step(i, random), rank));
    }
    const auto begin = std::chrono::steady_clock::now();
    for (const auto &batch : batches)
        ASSERT_TRUE(m_store->ingest(id, batch));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double values = 2.0 * count * double(metricNames().size());
    std::cout << "[ ingest   ] " << values / seconds << " values/s, " << 2 * count / seconds << " records/s, "
              << double(std::filesystem::file_size(file())) / (2 * count) << " bytes a record\n";
    RecordProperty("values_per_s", std::to_string(values / seconds));
    EXPECT_GT(values / seconds, 200'000.0 / 4) << "a loaded machine is forgiven a factor of four";
}
