// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ui/ui_test.h"
#include "ui/plot/chart.h"
#include "ui/plot/heat_map.h"
#include "ui/plot/ticks.h"

#include <QFile>
#include <QImage>
#include <QLocale>
#include <QMenu>
#include <QTemporaryDir>
#include <QToolButton>
#include <QWheelEvent>

#include <ctime>
#include <random>

using namespace rankyard;
using namespace rankyard::ui;

namespace {

constexpr double notANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

/// Processor time of this thread: other programs on the machine do not count.
double threadMs()
{
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

/// A chart with one smoothed series 1 … n, shown and drawn.
struct Fixture {
    ChartGroup group;
    Chart chart{QStringLiteral("Loss"), &group};
    int series = 0;

    explicit Fixture(int n)
    {
        series = chart.addSeries(
            {QStringLiteral("train"), Ink::series(0), Unit::Number, SeriesSpec::Draw::Line, true});
        chart.setSmoothing(0.9);
        chart.resize(600, 300);
        chart.show();
        append(n);
        QCoreApplication::processEvents();
    }

    void append(int n)
    {
        SeriesModel &model = chart.model(series);
        for (int i = 0; i < n; ++i) {
            const double x = static_cast<double>(model.size()) + 1;
            model.append(x, 3 + std::sin(x / 40) + 0.1 * std::sin(x * 7));
        }
        group.setData(model.x().front(), model.x().back(), n, true);
        chart.dataChanged();
        QCoreApplication::processEvents();
    }

    void wheel(Qt::KeyboardModifiers modifiers, const QPointF &at)
    {
        QWheelEvent event(at, chart.canvas()->mapToGlobal(at), {}, {0, 120}, Qt::NoButton, modifiers,
                          Qt::NoScrollPhase, false);
        QCoreApplication::sendEvent(chart.canvas(), &event);
        QCoreApplication::processEvents();
    }
};

} // namespace

class TestPlot : public test::UiTest
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

    // New data and smoothing never move a view that the user moved.
    void movedViewStays()
    {
        Fixture f(1000);
        QVERIFY(f.group.isFollowing());
        f.chart.zoomToBox(QRectF(f.chart.pixelOf(200, 3.5), f.chart.pixelOf(400, 2.5)));
        QCoreApplication::processEvents();
        QVERIFY(!f.group.isFollowing());
        const YView y = f.chart.yView();
        const double lo = f.group.lo();
        const double hi = f.group.hi();
        QVERIFY(std::fabs(lo - 200) < 3 && std::fabs(hi - 400) < 3);
        f.append(1000);
        f.chart.setSmoothing(0.3);
        QCoreApplication::processEvents();
        QVERIFY(f.chart.yView() == y);
        QCOMPARE(f.group.lo(), lo);
        QCOMPARE(f.group.hi(), hi);
        QCOMPARE(f.group.newSincePaused(), 1000);
        // And following again shows everything.
        f.group.setFollowing(true);
        QCoreApplication::processEvents();
        QVERIFY(f.group.hi() >= 2000);
        QVERIFY(!f.chart.yView().moved);
    }

    void wheelZoomsAtTheCursor()
    {
        Fixture f(1000);
        const QPointF at = f.chart.pixelOf(300, 3);
        f.wheel(Qt::NoModifier, at);
        QVERIFY(QLineF(f.chart.pixelOf(300, 3), at).length() < 1.5);
        const double width = f.group.hi() - f.group.lo();
        f.wheel(Qt::ControlModifier, at); // y only
        QCOMPARE(f.group.hi() - f.group.lo(), width);
        const YView y = f.chart.yView();
        f.wheel(Qt::ShiftModifier, at); // x only
        QVERIFY(f.group.hi() - f.group.lo() < width);
        QCOMPARE(f.chart.yView().lo, y.lo);
        // One Back undoes the whole run of notches and follows again.
        f.group.back();
        QCoreApplication::processEvents();
        QVERIFY(f.group.isFollowing());
        QVERIFY(f.group.hi() >= 1000);
    }

    void boxBackFit()
    {
        Fixture f(1000);
        QWidget *canvas = f.chart.canvas();
        const auto drag = [&](const QPointF &from, const QPointF &to) {
            QTest::mousePress(canvas, Qt::LeftButton, {}, from.toPoint());
            QTest::mouseMove(canvas, ((from + to) / 2).toPoint());
            QTest::mouseMove(canvas, to.toPoint());
            QTest::mouseRelease(canvas, Qt::LeftButton, {}, to.toPoint());
            QCoreApplication::processEvents();
        };
        drag(f.chart.pixelOf(100, 3.8), f.chart.pixelOf(800, 2.2));
        const double first = f.group.lo();
        QVERIFY(std::fabs(first - 100) < 4);
        drag(f.chart.pixelOf(200, 3.5), f.chart.pixelOf(300, 2.5));
        QVERIFY(std::fabs(f.group.lo() - 200) < 4);
        f.group.back();
        QCOMPARE(f.group.lo(), first);
        f.group.back();
        QVERIFY(f.group.isFollowing());
        QVERIFY(!f.group.canGoBack());
        drag(f.chart.pixelOf(200, 3.5), f.chart.pixelOf(300, 2.5));
        QTest::mouseDClick(canvas, Qt::LeftButton, {}, canvas->rect().center());
        QVERIFY(f.group.isFollowing());
    }

    // An infinity must never reach the automatic range; it is marked instead.
    void infinityDoesNotBreakTheAxis()
    {
        Fixture f(100);
        SeriesModel &model = f.chart.model(f.series);
        model.append(101, inf);
        model.append(102, notANumber);
        model.append(103, 1e300);
        model.append(104, 3);
        f.group.setData(1, 104, 4, true);
        f.chart.dataChanged();
        QCoreApplication::processEvents();
        const YView y = f.chart.yView();
        QVERIFY2(y.lo > 1 && y.hi < 5, qPrintable(QStringLiteral("%1 %2").arg(y.lo).arg(y.hi)));
        for (const Sample &sample : f.chart.drawn(f.series, SeriesModel::Which::Raw))
            QVERIFY(!std::isinf(sample.y));
        QCOMPARE(model.nonFinite().size(), std::size_t(2));
        // The mark is red, on the axis.
        const QImage image = f.chart.grab().toImage();
        const QPointF at = f.chart.canvas()->mapTo(&f.chart, f.chart.pixelOf(101, y.lo).toPoint());
        bool red = false;
        for (int dx = -4; dx <= 4; ++dx) {
            for (int dy = -8; dy <= 6; ++dy)
                red = red
                    || QColor(image.pixel(at.toPoint() + QPoint(dx, dy)))
                        == Theme::instance().color(Token::Bad);
        }
        QVERIFY(red);
    }

    void onlyNaNStillDraws()
    {
        Fixture f(0 + 1);
        SeriesModel &model = f.chart.model(f.series);
        model.clear();
        for (int i = 1; i < 10; ++i)
            model.append(i, notANumber);
        f.group.reset();
        f.group.setData(1, 9, 9, true);
        f.chart.dataChanged();
        QCoreApplication::processEvents();
        QVERIFY(f.chart.yView().hi > f.chart.yView().lo);
    }

    void logAxesSkipWhatTheyCannotShow()
    {
        Fixture f(10);
        f.chart.model(f.series).append(11, 0);
        f.chart.model(f.series).append(12, -5);
        f.chart.model(f.series).append(13, 4);
        f.chart.setLeftAxis({Unit::Number, AxisSpec::Scale::Log10});
        f.group.setData(1, 13, 3, false);
        f.group.setLogX(true);
        f.chart.dataChanged();
        QCoreApplication::processEvents();
        QVERIFY(f.group.lo() > 0);
        QVERIFY(f.chart.yView().lo > 0);
        for (const Sample &sample : f.chart.drawn(f.series, SeriesModel::Which::Raw))
            QVERIFY(std::isnan(sample.y) || sample.y > 0);
        f.group.setLogX(false);
    }

    void followingKeepsTheYAxis()
    {
        Fixture f(500);
        const YView before = f.chart.yView();
        f.append(20);
        QVERIFY(f.chart.yView() == before);
    }

    void linkedCursor()
    {
        Fixture f(100);
        Chart other(QStringLiteral("Other"), &f.group);
        const int series =
            other.addSeries({QStringLiteral("scale"), Ink::series(1), Unit::Power2, SeriesSpec::Draw::Step});
        other.model(series).append(1, 65536);
        other.model(series).append(60, 32768);
        f.chart.setFocus();
        const QPointF at = f.chart.pixelOf(50, 3);
        QMouseEvent move(QEvent::MouseMove, at, f.chart.canvas()->mapToGlobal(at), Qt::NoButton, Qt::NoButton,
                         Qt::NoModifier);
        QCoreApplication::sendEvent(f.chart.canvas(), &move);
        QVERIFY(f.group.cursor());
        QVERIFY(std::fabs(*f.group.cursor() - 50) < 1.5);
        const auto readings = other.readings(*f.group.cursor());
        QCOMPARE(readings.size(), std::size_t(1));
        QCOMPARE(readings[0].raw, QStringLiteral("2^16")); // what held then, not what is nearest
        QTest::keyClick(&f.chart, Qt::Key_Right);
        QCOMPARE(*f.group.cursor(), std::floor(*f.group.cursor()));
        QTest::keyClick(&f.chart, Qt::Key_End);
        QCOMPARE(*f.group.cursor(), 100.0);
        QTest::keyClick(&f.chart, Qt::Key_Escape);
        QVERIFY(!f.group.cursor());
    }

    void exportsReadBack()
    {
        Fixture f(50);
        f.chart.model(f.series).append(51, notANumber);
        QTemporaryDir dir;
        // A locale with a decimal comma must not leak in.
        QLocale::setDefault(QLocale(QLocale::German));
        const QByteArray csv = f.chart.csv();
        QLocale::setDefault(QLocale::c());
        const QList<QByteArray> lines = csv.split('\n');
        QCOMPARE(lines[0], QByteArray("step,train,train smoothed"));
        QCOMPARE(lines.size(), 1 + 51 + 1);
        for (int i = 0; i < 50; ++i) {
            const QList<QByteArray> cells = lines[i + 1].split(',');
            QCOMPARE(cells.size(), 3);
            QCOMPARE(cells[1].toDouble(), f.chart.model(f.series).y()[static_cast<std::size_t>(i)]);
            QCOMPARE(cells[2].toDouble(), f.chart.model(f.series).smooth()[static_cast<std::size_t>(i)]);
        }
        QCOMPARE(lines[51].split(',')[1], QByteArray("nan"));
        for (int scale : {1, 2, 3}) {
            const QString file = dir.filePath(QStringLiteral("chart%1.png").arg(scale));
            QVERIFY(f.chart.exportPicture(file, scale));
            QCOMPARE(QImage(file).size(), f.chart.size() * scale);
        }
        const QString svg = dir.filePath(QStringLiteral("chart.svg"));
        QVERIFY(f.chart.exportSvg(svg));
        QFile file(svg);
        QVERIFY(file.open(QIODevice::ReadOnly));
        const QByteArray text = file.readAll();
        QVERIFY(text.contains("<svg") && text.contains("polyline") && text.contains("train"));
        QVERIFY(f.chart.exportPdf(dir.filePath(QStringLiteral("chart.pdf"))));
        QVERIFY(f.chart.exportCsv(dir.filePath(QStringLiteral("chart.csv"))));
    }

    void stackAddsUp()
    {
        ChartGroup group;
        Chart chart(QStringLiteral("Memory"), &group);
        chart.resize(400, 240);
        const int a = chart.addSeries(
            {QStringLiteral("parameters"), Ink::of(Kind::Parameters), Unit::Bytes, SeriesSpec::Draw::Area});
        const int b = chart.addSeries(
            {QStringLiteral("gradients"), Ink::of(Kind::Gradients), Unit::Bytes, SeriesSpec::Draw::Area});
        chart.setLeftAxis({Unit::Bytes, AxisSpec::Scale::Linear, true});
        for (int i = 1; i <= 100; ++i) {
            chart.model(a).append(i, 1 << 20);
            chart.model(b).append(i, 2 << 20);
        }
        group.setData(1, 100, 100, false);
        chart.show();
        QCoreApplication::processEvents();
        QCOMPARE(chart.drawn(b, SeriesModel::Which::Raw).back().y, double(3 << 20));
        QCOMPARE(chart.yView().lo, 0.0);
        QVERIFY(chart.yView().hi >= (3 << 20));
        chart.setShown(a, false);
        QCoreApplication::processEvents();
        QCOMPARE(chart.drawn(b, SeriesModel::Which::Raw).back().y, double(2 << 20));
    }

    void ticksAreRound()
    {
        const TickSet bytes = linearTicks(0, 4.0 * 1073741824, Unit::Bytes, 5);
        QCOMPARE(bytes.label.back(), QStringLiteral("4 GiB"));
        QCOMPARE(bytes.label.front(), QStringLiteral("0"));
        QCOMPARE(linearTicks(0, 6000, Unit::TokensPerSecond, 4).label.back(), QStringLiteral("6 k"));
        QCOMPARE(linearTicks(0, 600, Unit::Milliseconds, 4).label.back(), QStringLiteral("600 ms"));
        QCOMPARE(linearTicks(0, 1200, Unit::Step, 4).label.back(), QStringLiteral("1,000"));
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

    void menusAndThemes()
    {
        Fixture f(50);
        QMenu *menu = f.chart.menuButton()->menu();
        emit menu->aboutToShow();
        QVERIFY(menu->actions().size() >= 7);
        Theme::instance().setMode(ThemeMode::Dark);
        QCoreApplication::processEvents();
        QCOMPARE(QColor(f.chart.grab().toImage().pixel(f.chart.rect().center() + QPoint(0, 120))),
                 Theme::colorIn(Token::Surface, true));
        Theme::instance().setMode(ThemeMode::Light);
        QCoreApplication::processEvents();
    }

    void heatMapFindsTheSlowRank()
    {
        ChartGroup group;
        HeatMap map(QStringLiteral("Ranks"), Unit::Milliseconds, &group);
        map.resize(400, 200);
        map.show();
        for (int rank = 0; rank < 4; ++rank) {
            for (int i = 1; i <= 300; ++i)
                map.model(rank).append(i, rank == 2 ? 110 : 100);
        }
        group.setData(1, 300, 300, false);
        map.dataChanged();
        QCOMPARE(map.slowest(), 2);
        QVERIFY(!map.grab().isNull());
    }

    // Zoom and pan over 10^6 points must cost about what they cost over 10^4: only ratios are judged.
    void aMillionPoints()
    {
        const auto median = [](int n) {
            Fixture f(n);
            std::vector<double> times;
            for (int i = 0; i < 15; ++i) {
                const double lo = 1 + i * n / 40.0;
                f.group.zoomX(lo, lo + n / 2.0);
                const double before = threadMs();
                f.chart.drawNow();
                f.chart.grab();
                times.push_back(threadMs() - before);
            }
            std::nth_element(times.begin(), times.begin() + 7, times.end());
            return times[7];
        };
        const double small = median(10'000);
        const double large = median(1'000'000);
        qInfo("zoom and redraw: %.2f ms over 10^4 points, %.2f ms over 10^6", small, large);
        QVERIFY2(large < 4 * small + 4, qPrintable(QStringLiteral("%1 against %2").arg(large).arg(small)));
    }
};

static test::Register<TestPlot> registered;
#include "test_plot.moc"
