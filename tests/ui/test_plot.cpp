// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ui/ui_test.h"
#include "ui/plot/chart.h"
#include "ui/plot/heat_map.h"
#include "ui/plot/legend.h"
#include "ui/plot/ticks.h"

#include <QFile>
#include <QImage>
#include <QLocale>
#include <QMenu>
#include <QTemporaryDir>
#include <QToolButton>
#include <QWheelEvent>

#include <ctime>

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
    // However long the labels of an axis are, they stand left of the lines.
    void labelsHaveRoom()
    {
        Fixture f(100);
        const double usual = f.chart.pixelOf(f.group.lo(), 0).x();
        SeriesModel &model = f.chart.model(f.series);
        model.clear();
        for (int i = 1; i <= 100; ++i)
            model.append(i, 1.6e15 + 1e7 * i);
        f.chart.dataChanged();
        f.chart.fitY();
        QCoreApplication::processEvents();
        QFont font = Theme::instance().font(FontRole::Small);
        font.setPixelSize(Theme::instance().scaled(11));
        const double room = f.chart.pixelOf(f.group.lo(), 0).x();
        const YView view = f.chart.yView();
        const TickSet ticks = linearTicks(view.lo, view.hi, Unit::Number, 3);
        QVERIFY(ticks.label.size() >= 2);
        for (const QString &label : ticks.label)
            QVERIFY2(QFontMetrics(font).horizontalAdvance(label) < room, qPrintable(label));
        QVERIFY(room > usual);
    }

    // The name of a band stands where the reference line does not cross it out.
    void bandNamesBesideTheReference()
    {
        const double reference = 5; // the middle of the band, where the name would be
        const auto draw = [reference](const QString &name, double &line) {
            ChartGroup group;
            Chart chart(QStringLiteral("Memory"), &group);
            chart.addSeries({name, Ink::series(0), Unit::Number, SeriesSpec::Draw::Area});
            for (int i = 1; i <= 100; ++i)
                chart.model(0).append(i, 10);
            chart.setReference(QStringLiteral("predicted"), reference);
            chart.resize(600, 300);
            chart.show();
            group.setData(1, 100, 100, true);
            chart.drawNow();
            QCoreApplication::processEvents();
            line = std::floor(chart.pixelOf(1, reference).y());
            return chart.canvas()->grab().toImage();
        };
        double line = 0;
        const QImage with = draw(QStringLiteral("workspace"), line);
        const QImage without = draw(QStringLiteral(" "), line);
        QCOMPARE(with.size(), without.size());
        int inked = 0;
        for (int y = 0; y < with.height(); ++y) {
            bool differs = false;
            for (int x = 0; x < with.width(); ++x)
                differs = differs || with.pixel(x, y) != without.pixel(x, y);
            inked += differs;
            QVERIFY2(!differs || std::fabs(y - line) > 1, qPrintable(QString::number(y)));
        }
        QVERIFY2(inked >= 5, qPrintable(QString::number(inked)));
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

    // In a narrow head no mark stands without its name; what has no room is in a menu and can be switched there.
    void legendFolds()
    {
        ChartGroup group;
        Chart chart(QStringLiteral("Step time"), &group);
        for (const char *name : {"compute", "exposed", "bubble", "optimizer", "data"}) {
            const int series = chart.addSeries({QLatin1String(name), Ink::series(chart.seriesCount()),
                                                Unit::Milliseconds, SeriesSpec::Draw::Area});
            chart.model(series).append(1, 12);
            chart.model(series).append(2, 12);
        }
        group.setData(1, 2, 2, false);
        chart.show();
        auto *more = chart.findChild<QToolButton *>(QStringLiteral("legendMore"));
        QVERIFY(more);
        const QList<LegendItem *> items = chart.findChildren<LegendItem *>();
        for (int width : {900, 420, 300, 240, 160}) {
            chart.resize(width, 200);
            QCoreApplication::processEvents();
            int seen = 0;
            for (const LegendItem *item : items) {
                if (!item->isVisible())
                    continue;
                ++seen;
                QVERIFY(item->width() >= item->widthFor(LegendItem::Show::Name));
                QVERIFY(item->geometry().right() <= item->parentWidget()->width());
            }
            QCOMPARE(more->isVisible(), seen < 5);
            if (seen < 5)
                QCOMPARE(more->text(), QStringLiteral("+%1").arg(5 - seen));
        }
        emit more->menu()->aboutToShow();
        QVERIFY(!more->menu()->actions().isEmpty());
        more->menu()->actions().last()->setChecked(false);
        QVERIFY(!chart.isShown(4));
        // Hidden by name: it stays so when the series come again.
        QCOMPARE(chart.hidden(), QStringList{QStringLiteral("data")});
        chart.clearSeries();
        QVERIFY(!chart.isShown(chart.addSeries({QStringLiteral("data"), Ink::series(0)})));
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
