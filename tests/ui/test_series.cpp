// SPDX-License-Identifier: GPL-3.0-or-later
// What charts are drawn from: series, their pyramid, ticks. No widgets.
#include "tests/ui/ui_test.h"
#include "ui/plot/series_model.h"
#include "ui/plot/ticks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace rankyard;
using namespace rankyard::ui;

namespace {

constexpr double notANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

} // namespace

class TestSeries : public test::UiTest
{
    Q_OBJECT
private slots:
    // A constant stays that constant for every weight below 1; 1 is refused.
    void smoothingOfAConstant_data()
    {
        QTest::addColumn<double>("weight");
        for (double weight : {0.0, 0.222, 0.6, 0.999})
            QTest::addRow("%g", weight) << weight;
    }

    void smoothingOfAConstant()
    {
        QFETCH(double, weight);
        SeriesModel model;
        QVERIFY(model.setSmoothing(weight));
        for (int i = 0; i < 10'000; ++i)
            model.append(i, 1e-4);
        for (double value : model.smooth())
            QVERIFY(std::fabs(value / 1e-4 - 1) < 1e-12);
        QVERIFY(!model.setSmoothing(1.0));
        QVERIFY(!model.setSmoothing(notANumber));
        QVERIFY(!model.setSmoothing(-0.1));
        QCOMPARE(model.smoothing(), weight);
    }

    void smoothingSeesEverySample()
    {
        // The last smoothed value does not depend on how it is drawn, and skips what is not a number.
        SeriesModel model;
        model.setSmoothing(0.9);
        double moment = 0;
        double debias = 0;
        for (int i = 1; i <= 5000; ++i) {
            const double y = i == 100 ? notANumber : i == 200 ? inf : std::sin(i);
            model.append(i, y);
            if (std::isfinite(y)) {
                moment = 0.9 * moment + 0.1 * y;
                debias = 0.9 * debias + 0.1;
            }
        }
        QVERIFY(std::fabs(model.smooth().back() - moment / debias) < 1e-12);
        QVERIFY(std::isnan(model.smooth()[99]));
        QCOMPARE(model.nonFinite(), (std::vector<std::size_t>{99, 199}));
        std::vector<Sample> drawn;
        model.decimate({1, 5000, false, 300}, SeriesModel::Which::Smooth, false, drawn);
        for (const Sample &sample : drawn) {
            if (std::isfinite(sample.y))
                QCOMPARE(sample.y, model.smooth()[static_cast<std::size_t>(sample.x) - 1]);
        }
    }

    // Every extreme in view is drawn, wherever it is, at each zoom.
    void peaksAreNeverLost()
    {
        constexpr int n = 1'000'000;
        std::mt19937 random(5);
        std::vector<double> values(n);
        for (double &value : values)
            value = std::uniform_real_distribution<>(0, 1)(random);
        SeriesModel model;
        model.reserve(n);
        std::vector<int> spikes;
        for (int seed = 0; seed < 200; ++seed)
            spikes.push_back(static_cast<int>(random() % n));
        // All spikes at once, each higher than the last: each must be the maximum of the ranges in which it is the highest.
        for (std::size_t k = 0; k < spikes.size(); ++k)
            values[static_cast<std::size_t>(spikes[k])] = 10 + static_cast<double>(k);
        for (int i = 0; i < n; ++i)
            model.append(i, values[static_cast<std::size_t>(i)]);
        std::vector<Sample> drawn;
        for (int spike : spikes) {
            for (int half : {n, 100'000, 5'000, 700, 3}) {
                for (bool log : {false, true}) {
                    const double lo = std::max(log ? 1 : 0, spike - half);
                    const double hi = std::min(n - 1, spike + half + 1);
                    model.decimate({lo, hi, log, 800}, SeriesModel::Which::Raw, false, drawn);
                    QVERIFY(drawn.size() <= 2 * 800 + 2);
                    double top = 0;
                    for (const Sample &sample : drawn) {
                        if (sample.x >= lo && sample.x <= hi)
                            top = std::max(top, sample.y);
                    }
                    const auto expected = *std::max_element(values.begin() + static_cast<int>(lo),
                                                            values.begin() + static_cast<int>(hi) + 1);
                    QCOMPARE(top, expected);
                }
            }
        }
        for (std::size_t i = 1; i < drawn.size(); ++i)
            QVERIFY(drawn[i].x > drawn[i - 1].x);
    }

    void pyramidEqualsAScan()
    {
        std::mt19937 random(9);
        MinMaxPyramid pyramid;
        std::vector<double> values;
        for (int i = 0; i < 5000; ++i) {
            values.push_back(random() % 50 == 0 ? notANumber : static_cast<double>(random() % 100'000));
            pyramid.append(values.back());
        }
        for (int round = 0; round < 2000; ++round) {
            std::size_t first = random() % values.size();
            std::size_t last = random() % (values.size() + 1);
            if (first > last)
                std::swap(first, last);
            const auto found = pyramid.query(values, first, last);
            double lo = inf;
            double hi = -inf;
            for (std::size_t i = first; i < last; ++i) {
                if (std::isfinite(values[i])) {
                    lo = std::min(lo, values[i]);
                    hi = std::max(hi, values[i]);
                }
            }
            QCOMPARE(found.any, lo <= hi);
            if (found.any) {
                QCOMPARE(found.min, lo);
                QCOMPARE(found.max, hi);
                QCOMPARE(values[found.maxAt], hi);
            }
        }
    }

    void gapsStayGaps()
    {
        SeriesModel model;
        for (int i = 1; i <= 100'000; ++i)
            model.append(i, i > 40'000 && i < 60'000 ? notANumber : 1.0);
        std::vector<Sample> drawn;
        model.decimate({1, 100'000, false, 500}, SeriesModel::Which::Raw, false, drawn);
        QVERIFY(std::any_of(drawn.begin(), drawn.end(), [](const Sample &s) { return std::isnan(s.y); }));
        QVERIFY(!model.append(100'000, 1)); // never backwards
        QVERIFY(!model.append(notANumber, 1));
    }

    void ticksAreRound()
    {
        const TickSet bytes = linearTicks(0, 4.0 * 1073741824, Unit::Bytes, 5);
        QCOMPARE(bytes.label.back(), QStringLiteral("4 GiB"));
        QCOMPARE(bytes.label.front(), QStringLiteral("0"));
        QCOMPARE(linearTicks(0, 6000, Unit::TokensPerSecond, 4).label.back(), QStringLiteral("6 k"));
        QCOMPARE(linearTicks(0, 600, Unit::Milliseconds, 4).label.back(), QStringLiteral("600 ms"));
        QCOMPARE(linearTicks(0, 1200, Unit::Step, 4).label.back(), QStringLiteral("1,000"));
        const TickSet huge = linearTicks(0, 1.6e15, Unit::Number, 4);
        QCOMPARE(huge.label,
                 (std::vector<QString>{QStringLiteral("0"), QStringLiteral("5e14"), QStringLiteral("1e15"),
                                       QStringLiteral("1.5e15")}));
        QCOMPARE(
            linearTicks(-2.5e5, 2.5e5, Unit::Scientific, 2).label,
            (std::vector<QString>{QStringLiteral("-2.5e5"), QStringLiteral("0"), QStringLiteral("2.5e5")}));
        QCOMPARE(linearTicks(1.6e15, 1.61e15, Unit::Number, 2).label,
                 (std::vector<QString>{QStringLiteral("1.6e15"), QStringLiteral("1.605e15"),
                                       QStringLiteral("1.61e15")}));
        QCOMPARE(linearTicks(0, 200'000, Unit::Step, 2).label.back(), QStringLiteral("200,000"));
        QCOMPARE(powerTicks(16384, 262144, 6).label.front(), QStringLiteral("2¹⁴"));
        QCOMPARE(decadeTicks(0.1, 10, 5).label,
                 (std::vector<QString>{QStringLiteral("0.1"), QStringLiteral("1"), QStringLiteral("10")}));
        QVERIFY(linearTicks(0, 1e-12, Unit::Number, 4).at.size() <= 6);
        QVERIFY(linearTicks(5, 5, Unit::Number, 4).at.size() <= 100);
        for (double hi : {1.0, 3.7, 11.0, 250.0, 9999.0}) {
            const NiceRange range = niceRange(0, hi, Unit::Number, 5, true);
            QVERIFY(range.lo == 0 && range.hi >= hi && range.hi <= 1.7 * hi);
        }
    }
};

static test::Register<TestSeries> registered;
#include "test_series.moc"
