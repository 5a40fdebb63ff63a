// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/store/pyramid.h"
#include "tests/engine/store/store_test.h"

#include <cmath>

using namespace rankyard;
using namespace rankyard::store;
using namespace rankyard::telemetry;

using SeriesTest = StoreTest;

TEST_F(SeriesTest, EmptyRunsAndRangesGiveNothing)
{
    const std::string id = newRun();
    EXPECT_TRUE(m_store->series(id, "loss", 0, 0, 1000, 100)->empty());
    ASSERT_TRUE(m_store->ingest(id, stepRecords(1, 20, [](std::int64_t i) { return double(i); })));
    EXPECT_TRUE(m_store->series(id, "loss", 0, 21, 1000, 100)->empty());
    EXPECT_TRUE(m_store->series(id, "loss", 0, 30, 40, 100)->empty());
    EXPECT_TRUE(m_store->series(id, "loss", 3, 1, 20, 100)->empty());
    EXPECT_TRUE(m_store->series(id, "loss", 0, 9, 8, 100)->empty());
    EXPECT_EQ(m_store->series("r-none", "loss", 0, 0, 1, 2).error().code, Code::NotFound);
    const auto single = m_store->series(id, "loss", 0, 5, 5, 100);
    ASSERT_EQ(single->size(), 1u);
    EXPECT_EQ((*single)[0].last, 5);
    const auto all = m_store->series(id, "loss", 0, std::numeric_limits<std::int64_t>::min(),
                                     std::numeric_limits<std::int64_t>::max(), 100);
    EXPECT_EQ(all->size(), 20u);
}

TEST_F(SeriesTest, AgreesWithTheRawValuesInEveryRange)
{
    const std::string id = newRun();
    std::mt19937_64 random(1);
    std::vector<double> values(5000);
    for (double &value : values)
        value = random() % 97 == 0 ? std::nan("") : double(random() % 100000);
    for (std::int64_t i = 0; i < 5000; i += 250)
        ASSERT_TRUE(m_store->ingest(id, stepRecords(i, i + 249, [&](std::int64_t s) {
                                        return values[static_cast<std::size_t>(s)];
                                    })));
    for (int round = 0; round < 400; ++round) {
        std::int64_t first = static_cast<std::int64_t>(random() % 5000);
        std::int64_t last = static_cast<std::int64_t>(random() % 5000);
        if (first > last)
            std::swap(first, last);
        const int points = 2 + static_cast<int>(random() % 300);
        const auto series = m_store->series(id, "loss", 0, first, last, points);
        ASSERT_TRUE(series);
        ASSERT_LE(series->size(), static_cast<std::size_t>(points));
        std::int64_t next = first;
        for (const SeriesPoint &point : *series) {
            ASSERT_EQ(point.stepBegin, next) << "every step is in exactly one bucket";
            next = point.stepEnd + 1;
            double min = std::nan("");
            double max = std::nan("");
            double newest = std::nan("");
            std::int64_t nonFinite = 0;
            for (std::int64_t s = point.stepBegin; s <= point.stepEnd; ++s) {
                const double value = values[static_cast<std::size_t>(s)];
                min = std::fmin(min, value);
                max = std::fmax(max, value);
                newest = std::isnan(value) ? newest : value;
                nonFinite += std::isnan(value);
            }
            const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
            ASSERT_TRUE(same(point.min, min) && same(point.max, max) && same(point.last, newest));
            ASSERT_EQ(point.nonFinite, nonFinite);
        }
        ASSERT_EQ(next, last + 1);
    }
}

TEST_F(SeriesTest, ASpikeIsDrawnAtEveryZoom)
{
    // wandb/wandb#4295: one spike somewhere among many points must be in whatever range holds it.
    const std::string id = newRun();
    constexpr std::int64_t total = 60'000;
    std::mt19937_64 random(2);
    std::vector<std::int64_t> spikes;
    std::map<std::int64_t, double> height;
    for (int i = 0; i < 200; ++i) {
        spikes.push_back(static_cast<std::int64_t>(random() % total));
        height[spikes.back()] = 1000.0 + i;
    }
    const auto loss = [&](std::int64_t i) {
        const auto at = height.find(i);
        return at == height.end() ? double(i % 10) : at->second;
    };
    for (std::int64_t i = 0; i < total; i += 2000)
        ASSERT_TRUE(m_store->ingest(id, stepRecords(i, i + 1999, loss)));
    for (const std::int64_t spike : spikes) {
        for (std::int64_t zoom = total; zoom >= 20; zoom /= 7) {
            const std::int64_t first = std::max<std::int64_t>(
                0, spike - static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(zoom)));
            const std::int64_t last = std::min(total - 1, first + zoom);
            const auto series = m_store->series(id, "loss", 0, first, last, 800);
            bool drawn = false;
            for (const SeriesPoint &point : *series)
                drawn = drawn
                    || (point.stepBegin <= spike && spike <= point.stepEnd && point.max >= height[spike]);
            ASSERT_TRUE(drawn) << "spike at " << spike << " in " << first << " … " << last;
        }
    }
}

TEST_F(SeriesTest, OverAllRanksTakesTheExtremesOfEach)
{
    const std::string id = newRun();
    for (const int rank : {0, 1, 2})
        ASSERT_TRUE(m_store->ingest(
            id,
            stepRecords(
                1, 300, [rank](std::int64_t i) { return double(rank) * 10 + double(i % 5); }, rank)));
    for (const int points : {5, 1000}) {
        const auto series = m_store->series(id, "loss", -1, 1, 300, points);
        ASSERT_TRUE(series);
        std::int64_t next = 1;
        for (const SeriesPoint &point : *series) {
            EXPECT_EQ(point.stepBegin, next);
            next = point.stepEnd + 1;
            EXPECT_LT(point.min, 5);
            EXPECT_GE(point.max, 20);
            EXPECT_LT(point.last, 5) << "of the lowest rank";
        }
        EXPECT_EQ(next, 301);
    }
}

TEST_F(SeriesTest, GroupMetricsComeFromTheRows)
{
    const std::string id = newRun();
    std::mt19937_64 random(3);
    std::vector<Record> records;
    for (std::uint64_t i = 1; i <= 40; ++i)
        records.push_back(samples::record(i, samples::step(static_cast<std::int64_t>(i), random)));
    ASSERT_TRUE(m_store->ingest(id, records));
    const auto series = m_store->series(id, "comm.dp.payload", 0, 1, 40, 10);
    ASSERT_LE(series->size(), 10u);
    ASSERT_GE(series->size(), 4u);
    EXPECT_EQ((*series)[3].max, 1 << 20);
}

TEST(Pyramid, BucketsRoundTripAndRefuseNoise)
{
    Bucket bucket;
    bucket.add(3, {1, std::nan(""), 5});
    bucket.add(4, {-1, std::nan(""), 6});
    Bucket back;
    ASSERT_TRUE(back.unpack(bucket.pack()));
    EXPECT_EQ(back.pack(), bucket.pack());
    SeriesPoint point;
    ASSERT_TRUE(Bucket::peek(bucket.pack(), 0, point));
    EXPECT_EQ(point.stepBegin, 3);
    EXPECT_EQ(point.stepEnd, 4);
    EXPECT_EQ(point.min, -1);
    EXPECT_EQ(point.max, 1);
    EXPECT_EQ(point.last, -1);
    ASSERT_TRUE(Bucket::peek(bucket.pack(), 1, point));
    EXPECT_TRUE(std::isnan(point.min));
    EXPECT_EQ(point.nonFinite, 2);
    ASSERT_TRUE(Bucket::peek(bucket.pack(), 77, point)) << "a metric that the writer did not know";
    EXPECT_TRUE(std::isnan(point.last));
    for (std::size_t size = 0; size < bucket.pack().size(); ++size)
        EXPECT_FALSE(back.unpack(std::string_view(bucket.pack()).substr(0, size)));
}
