// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/store/run_store.h"
#include "tests/ui/synthetic_store.h"
#include "tests/ui/ui_test.h"
#include "ui/common/actions.h"
#include "ui/common/segmented.h"
#include "ui/common/settings.h"
#include "ui/monitor/banner.h"
#include "ui/monitor/log_model.h"
#include "ui/monitor/log_pane.h"
#include "ui/monitor/monitor_head.h"
#include "ui/monitor/monitor_page.h"
#include "ui/monitor/values_panel.h"

#include <QAbstractItemModelTester>
#include <QTemporaryDir>

#include <cmath>
#include <limits>

using namespace rankyard;
using namespace rankyard::ui;

namespace {

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

std::map<int, double> predicted(const std::string &)
{
    return {{0, 200.0 * (1 << 20)}, {1, 201.0 * (1 << 20)}};
}

/// A Monitor over a store with one run.
struct Fixture {
    QTemporaryDir dir;
    std::filesystem::path file = dir.filePath(QStringLiteral("runs.sqlite")).toStdString();
    test::SyntheticRun run;
    std::unique_ptr<DataHub> hub;
    test::FakeActions actions;
    ActionRegistry registry;
    ActionRegistry other; ///< of a second page
    Settings settings{QString()};
    std::unique_ptr<MonitorPage> page;

    explicit Fixture(test::SyntheticRun given) : run(std::move(given))
    {
        const Status put = test::putRun(file, run);
        if (!put)
            qFatal("%s", put.error().text().c_str());
        hub = std::make_unique<DataHub>(file, &predicted);
        registry.add({QStringLiteral("home.sample"), QStringLiteral("Run the sample"), QStringLiteral("tip"),
                      QStringLiteral("Run")},
                     [] {});
        page = std::make_unique<MonitorPage>(hub.get(), &actions, &registry, &settings);
        page->resize(1600, 900);
        page->show();
    }

    void open()
    {
        page->showRun(QString::fromStdString(run.id));
        QTRY_VERIFY_WITH_TIMEOUT(page->isReady(), 30'000);
        QTRY_VERIFY_WITH_TIMEOUT(page->charts()->chart(QStringLiteral("loss"))->model(0).size()
                                     >= static_cast<std::size_t>(run.done),
                                 30'000);
        page->drawNow();
    }

    Chart *chart(const char *name) const { return page->charts()->chart(QLatin1String(name)); }
};

test::SyntheticRun livingRun()
{
    test::SyntheticRun run;
    run.state = telemetry::RunState::Running;
    run.steps = 2000;
    run.done = 2000;
    run.overflow = {212, 287, 803};
    run.nan = {640, 641};
    run.endedAgoNs = 1'000'000;
    return run;
}

} // namespace

class TestMonitor : public test::UiTest
{
    Q_OBJECT
private slots:
    // What the charts hold is what the store holds, step by step.
    void chartsEqualTheStore()
    {
        Fixture f(livingRun());
        f.open();
        auto runs = store::RunStore::open(f.file, true);
        QVERIFY(runs);
        const auto rows = (*runs)->steps(f.run.id, 0, 1, std::numeric_limits<std::int64_t>::max());
        QVERIFY(rows);
        QCOMPARE(rows->size(), std::size_t(2000));
        const SeriesModel &loss = f.chart("loss")->model(0);
        const SeriesModel &scale = f.chart("scale")->model(0);
        const SeriesModel &norm = f.chart("norm")->model(0);
        const SeriesModel &lr = f.chart("norm")->model(1);
        const SeriesModel &rate = f.chart("throughput")->model(0);
        QCOMPARE(loss.size(), rows->size());
        double together = 0;
        for (std::size_t i = 0; i < rows->size(); ++i) {
            const telemetry::StepRecord &step = (*rows)[i].record;
            QCOMPARE(loss.x()[i], static_cast<double>(step.step));
            QVERIFY(same(loss.y()[i], step.loss));
            QVERIFY(same(norm.y()[i], step.gradNorm));
            QVERIFY(same(scale.y()[i], step.lossScale));
            QVERIFY(same(lr.y()[i], step.lr));
            QVERIFY(same(rate.y()[i], step.tokensPerS));
            together = 0;
            for (std::int64_t bytes : step.memory)
                together += static_cast<double>(bytes);
        }
        QCOMPARE(loss.nonFinite(), (std::vector<std::size_t>{639, 640}));
        QCOMPARE(f.chart("scale")->marks().size(), std::size_t(3));
        QCOMPARE(f.chart("scale")->marks()[1].x, 287.0);
        // Validation, memory, communication, step time, ranks, log, events.
        const auto evals = (*runs)->evals(f.run.id);
        const SeriesModel &valid = f.chart("loss")->model(1);
        QCOMPARE(valid.size(), evals->size());
        for (std::size_t i = 0; i < evals->size(); ++i)
            QCOMPARE(valid.y()[i], (*evals)[i].loss);
        Chart *memory = f.chart("memory");
        double drawn = 0;
        for (int i = 0; i < memory->seriesCount(); ++i)
            drawn += memory->model(i).y().back();
        QCOMPARE(drawn, together);
        QCOMPARE(memory->seriesCount(), 6); // gathered and host are zero and stay away
        QCOMPARE(*memory->reference(), 200.0 * (1 << 20));
        QCOMPARE(f.chart("comm")->seriesCount(), 2);
        QCOMPARE(f.chart("comm")->model(0).y().back(), 28.0 * (1 << 20));
        QCOMPARE(f.page->charts()->heatMap()->ranks(), 2);
        QCOMPARE(f.page->charts()->heatMap()->model(1).size(), std::size_t(2000));
        QCOMPARE(f.page->charts()->heatMap()->slowest(), 1);
        const auto logs = (*runs)->logs(f.run.id, 0, 1'000'000);
        QCOMPARE(f.page->log()->model()->rowCount(), static_cast<int>(logs->size()));
        const auto &lane = f.page->charts()->lane()->events();
        QCOMPARE(std::count_if(lane.begin(), lane.end(),
                               [](const auto &e) { return e.text.startsWith(QStringLiteral("overflow")); }),
                 3);
        QCOMPARE(std::count_if(lane.begin(), lane.end(),
                               [](const auto &e) { return e.text.startsWith(QStringLiteral("checkpoint")); }),
                 5);
        // And what is drawn are samples of it.
        for (const Sample &sample : f.chart("loss")->drawn(0, SeriesModel::Which::Raw))
            QVERIFY(same(sample.y, loss.y()[static_cast<std::size_t>(sample.x) - 1]));
    }

    void newStepsArrive()
    {
        test::SyntheticRun run = livingRun();
        run.done = 300;
        Fixture f(run);
        f.open();
        QVERIFY(f.page->charts()->group()->isFollowing());
        QVERIFY(test::putSteps(f.file, f.run, 301, 340));
        QTRY_COMPARE(f.chart("loss")->model(0).size(), std::size_t(340));
        QVERIFY(f.page->charts()->group()->hi() >= 340);
        // Paused: the view stays, the chip counts.
        f.page->charts()->group()->zoomX(100, 200);
        QVERIFY(test::putSteps(f.file, f.run, 341, 360));
        QTRY_COMPARE(f.page->charts()->group()->newSincePaused(), 20);
        QCOMPARE(f.page->charts()->group()->lo(), 100.0);
    }

    // After a restart from a checkpoint the line goes on forwards, and the abandoned tail is gone from it.
    void restartSupersedes()
    {
        test::SyntheticRun run = livingRun();
        run.done = 150;
        run.nan.clear();
        Fixture f(run);
        f.open();
        test::SyntheticRun again = f.run;
        again.seed = 99;
        QVERIFY(test::putSteps(f.file, again, 101, 200, 2));
        QTRY_COMPARE_WITH_TIMEOUT(f.chart("loss")->model(0).size(), std::size_t(200), 10'000);
        const SeriesModel &loss = f.chart("loss")->model(0);
        for (std::size_t i = 0; i < loss.size(); ++i)
            QCOMPARE(loss.x()[i], static_cast<double>(i + 1));
        QCOMPARE(loss.y()[99], test::lossAt(f.run, 100));
        QCOMPARE(loss.y()[120], test::lossAt(again, 121));
        // The tail itself is kept, faint: as it was, in no value and no export.
        QTRY_COMPARE(f.page->charts()->chart(QStringLiteral("loss"))->tailCount(0), 1);
        QVERIFY(f.hub->open(f.page->run())->tails().size() == 1);
        const RankColumns &tail = f.hub->open(f.page->run())->tails()[0];
        QCOMPARE(tail.step.front(), 101);
        QCOMPARE(tail.step.back(), 150);
        QCOMPARE(tail.loss[10], test::lossAt(f.run, 111));
        QCOMPARE(f.chart("loss")->csv().count('\n'), 1 + 200);
    }

    // More than four ranks: the spread over all of them, each figure as a scan over the rows finds it.
    void manyRanks()
    {
        test::SyntheticRun run = livingRun();
        run.world = 5;
        run.done = 60;
        Fixture f(run);
        f.open();
        MonitorCharts *charts = f.page->charts();
        QCOMPARE(charts->rank(), MonitorCharts::allRanks);
        const Chart *time = f.chart("time");
        QCOMPARE(time->seriesCount(), 3);
        QCOMPARE(time->model(0).size(), std::size_t(60));
        const auto data = f.hub->open(f.page->run());
        for (std::size_t at = 0; at < 60; ++at) {
            std::vector<double> all;
            for (const auto &[rank, columns] : data->ranks())
                all.push_back(columns.stepMs[at]);
            std::sort(all.begin(), all.end());
            QCOMPARE(all.size(), std::size_t(5));
            QCOMPARE(time->model(0).y()[at], all[4]);
            QCOMPARE(time->model(1).y()[at], all[2]);
            QCOMPARE(time->model(2).y()[at], all[0]);
        }
        charts->setRank(3);
        QVERIFY(time->title().contains(QStringLiteral("rank 3")));
        QCOMPARE(f.chart("memory")->model(0).size(), std::size_t(60));
        charts->setRank(MonitorCharts::allRanks);
        QCOMPARE(time->seriesCount(), 3);
    }

    // A step counts when all ranks have it; a rank with a hole leaves its step out.
    void ranksThatComeLate()
    {
        std::map<int, RankColumns> ranks;
        const auto put = [&ranks](int rank, std::int64_t step, double ms) {
            telemetry::StepRecord record;
            record.step = step;
            record.stepMs = ms;
            ranks[rank].append(record);
        };
        std::vector<std::int64_t> steps;
        std::vector<double> medians;
        AcrossRanks across({[](const RankColumns &columns, std::size_t at) { return columns.stepMs[at]; }});
        const auto go = [&] {
            across.update(ranks, [&](std::int64_t step, std::int64_t, const auto &figures) {
                steps.push_back(step);
                medians.push_back(figures[0].median);
            });
        };
        for (int rank = 0; rank < 3; ++rank)
            put(rank, 1, 10 + rank);
        put(0, 2, 5);
        put(1, 2, 6);
        go();
        QCOMPARE(steps, (std::vector<std::int64_t>{1}));
        put(2, 3, 9); // never says anything of step 2
        put(0, 3, 7);
        put(1, 3, 8);
        go();
        QCOMPARE(steps, (std::vector<std::int64_t>{1, 3}));
        QCOMPARE(medians, (std::vector<double>{11, 8}));
    }

    // Zoom, axes, hidden series, the order of the cards: as they were left.
    void viewComesBack()
    {
        test::SyntheticRun run = livingRun();
        run.done = 300;
        Fixture f(run);
        f.open();
        f.chart("throughput")->setFocus();
        QTest::keyClick(f.chart("throughput"), Qt::Key_Left, Qt::ControlModifier | Qt::ShiftModifier);
        QCoreApplication::processEvents();
        QVERIFY(f.chart("throughput")->x() < f.chart("loss")->x());
        f.chart("loss")->setShown(1, false);
        AxisSpec axis = f.chart("loss")->leftAxis();
        axis.scale = AxisSpec::Scale::Log10;
        f.chart("loss")->setLeftAxis(axis);
        f.page->charts()->group()->zoomX(50, 120);
        f.page.reset();
        f.page = std::make_unique<MonitorPage>(f.hub.get(), &f.actions, &f.other, &f.settings);
        f.page->resize(1600, 900);
        f.page->show();
        f.open();
        QCOMPARE(f.page->charts()->group()->lo(), 50.0);
        QCOMPARE(f.page->charts()->group()->hi(), 120.0);
        QVERIFY(!f.page->charts()->group()->isFollowing());
        QVERIFY(!f.chart("loss")->isShown(1));
        QCOMPARE(f.chart("loss")->leftAxis().scale, AxisSpec::Scale::Log10);
        QCoreApplication::processEvents();
        QVERIFY(f.chart("throughput")->x() < f.chart("loss")->x());
    }

    // What a run has nothing for gives its place away, and the table says why.
    void unusedCards()
    {
        test::SyntheticRun run = livingRun();
        run.done = 30;
        run.compute = "fp32";
        run.world = 1;
        Fixture f(run);
        f.open();
        QCoreApplication::processEvents();
        QVERIFY(!f.chart("scale")->isVisible());
        QVERIFY(!f.chart("comm")->isVisible());
        QVERIFY(!f.page->charts()->heatMap()->isVisible());
        QVERIFY(f.chart("norm")->isVisible());
        const ValuesModel *values = f.page->charts()->values()->model();
        QCOMPARE(values->index(values->rowCount() - 1, 1).data().toString(), QStringLiteral("not used"));
    }

    void xAxisModes()
    {
        test::SyntheticRun run = livingRun();
        run.done = 100;
        Fixture f(run);
        f.open();
        f.page->head()->modes()->setCurrent(1);
        QCOMPARE(f.chart("loss")->model(0).x()[9], 10.0 * 16 * 256);
        f.page->head()->modes()->setCurrent(2);
        QVERIFY(f.chart("loss")->model(0).x()[9] > 3 && f.chart("loss")->model(0).x()[9] < 10);
        QCOMPARE(f.chart("loss")->model(0).size(), std::size_t(100));
        f.page->head()->modes()->setCurrent(0);
        QCOMPARE(f.chart("loss")->model(0).x()[9], 10.0);
    }

    void statesAreSaid()
    {
        test::SyntheticRun run = livingRun();
        run.done = 50;
        run.compute = "fp32";
        Fixture f(run);
        f.open();
        QCOMPARE(f.page->head()->stateWord(), QStringLiteral("running"));
        QVERIFY(f.page->head()->summary().contains(QStringLiteral("step 50 / 2,000")));
        QVERIFY(f.page->head()->summary().contains(QStringLiteral("left")));
        QVERIFY(f.chart("scale")->message().contains(QStringLiteral("fp32")));
        QVERIFY(f.registry.action(QStringLiteral("monitor.pause"))->isEnabled());
        auto runs = store::RunStore::open(f.file);
        QVERIFY((*runs)->setState(f.run.id, telemetry::RunState::Failed,
                                  Error::make(Code::RankFailed, "the worker was killed by signal 9", "rank 1")
                                      .withHint("see dmesg")));
        QTRY_COMPARE(f.page->head()->stateWord(), QStringLiteral("failed"));
        QVERIFY(f.page->banner()->text().contains(QStringLiteral("rank 1")));
        QVERIFY(f.page->banner()->text().contains(QStringLiteral("dmesg")));
        QVERIFY(!f.registry.action(QStringLiteral("monitor.stop"))->isVisible());
        f.page->showRun(QStringLiteral("r-20000101T000000-nobody"));
        QTRY_VERIFY(f.page->isReady());
        f.page->showRun({});
        QVERIFY(f.page->run().isEmpty());
    }

    void everythingByKeyboard()
    {
        test::SyntheticRun run = livingRun();
        run.done = 200;
        Fixture f(run);
        f.open();
        ChartGroup *group = f.page->charts()->group();
        Chart *loss = f.chart("loss");
        loss->setFocus();
        const auto press = [&](Qt::Key key, Qt::KeyboardModifiers modifiers = {}) {
            QTest::keyClick(loss, key, modifiers);
        };
        press(Qt::Key_Home);
        QCOMPARE(*group->cursor(), 1.0);
        press(Qt::Key_Right);
        press(Qt::Key_Right, Qt::ShiftModifier);
        QCOMPARE(*group->cursor(), 12.0);
        QVERIFY(f.page->charts()->values()->title().contains(QStringLiteral("12")));
        QCOMPARE(f.page->charts()->values()->model()->index(0, 1).data().toString(),
                 formatValue(loss->model(0).y()[11], Unit::Number));
        press(Qt::Key_Plus);
        QVERIFY(!group->isFollowing());
        press(Qt::Key_Backspace);
        QVERIFY(group->isFollowing());
        press(Qt::Key_Space);
        QVERIFY(!group->isFollowing());
        press(Qt::Key_Space);
        QVERIFY(group->isFollowing());
        press(Qt::Key_Plus);
        press(Qt::Key_F);
        QVERIFY(group->isFollowing());
        press(Qt::Key_Return);
        QVERIFY(!f.chart("memory")->isVisible() && loss->isVisible());
        QTest::keyClick(loss, Qt::Key_Escape); // the cursor first
        QTest::keyClick(loss, Qt::Key_Escape);
        QVERIFY(f.chart("memory")->isVisible());
        press(Qt::Key_2);
        QCOMPARE(f.page->columns(), 2);
        press(Qt::Key_0);
        press(Qt::Key_L);
        QVERIFY(!f.page->log()->isVisible());
        press(Qt::Key_L);
        press(Qt::Key_X);
        QCOMPARE(f.page->charts()->mode(), XMode::Tokens);
        press(Qt::Key_P);
        press(Qt::Key_C);
        press(Qt::Key_Period, Qt::ControlModifier);
        const QString id = QString::fromStdString(f.run.id);
        QCOMPARE(f.actions.asked,
                 (QStringList{QStringLiteral("Pause ") + id, QStringLiteral("Checkpoint ") + id,
                              QStringLiteral("Stop ") + id}));
        // Tab reaches charts, legends and menus, and never gets stuck.
        QSet<QWidget *> reached;
        for (int i = 0; i < 120; ++i) {
            QTest::keyClick(f.page->window()->focusWidget() ? f.page->window()->focusWidget() : f.page.get(),
                            Qt::Key_Tab);
            reached.insert(f.page->window()->focusWidget());
        }
        QVERIFY(reached.contains(f.chart("memory")));
        QVERIFY(reached.contains(f.chart("norm")));
        QVERIFY2(reached.size() > 20, qPrintable(QString::number(reached.size())));
        for (QWidget *widget : std::as_const(reached))
            QVERIFY2(!widget || widget->isVisible(), "a hidden widget has the focus");
    }

    void logFollowsAndFilters()
    {
        test::SyntheticRun run = livingRun();
        run.done = 300;
        Fixture f(run);
        f.open();
        QVERIFY(f.page->log()->isFollowing());
        QAbstractItemModelTester tester(f.page->log()->proxy(),
                                        QAbstractItemModelTester::FailureReportingMode::QtTest);
        f.page->log()->findChild<Segmented *>()->setCurrent(1);
        QCOMPARE(f.page->log()->proxy()->rowCount(), 2); // two overflows by step 300
        f.page->log()->setFollowing(false);
        QVERIFY(!f.page->log()->isFollowing());
    }

    // A run that another page has open has told its lines already.
    void logOfARunThatIsOpenElsewhere_data()
    {
        QTest::addColumn<int>("state");
        QTest::newRow("finished") << static_cast<int>(telemetry::RunState::Finished);
        QTest::newRow("failed") << static_cast<int>(telemetry::RunState::Failed);
        QTest::newRow("running") << static_cast<int>(telemetry::RunState::Running);
    }

    void logOfARunThatIsOpenElsewhere()
    {
        QFETCH(int, state);
        test::SyntheticRun run = livingRun();
        run.done = 300;
        run.state = static_cast<telemetry::RunState>(state);
        Fixture f(run);
        const std::shared_ptr<RunData> held = f.hub->open(QString::fromStdString(f.run.id));
        QTRY_VERIFY(held->isLoaded());
        auto runs = store::RunStore::open(f.file, true);
        const auto lines = (*runs)->logs(f.run.id, 0, 1'000'000);
        QVERIFY(lines && !lines->empty());
        f.open();
        QCOMPARE(f.page->log()->model()->rowCount(), static_cast<int>(lines->size()));
        // Away and back, while the other holds it: once each.
        f.page->showRun({});
        QCOMPARE(f.page->log()->model()->rowCount(), 0);
        f.open();
        QCOMPARE(f.page->log()->model()->rowCount(), static_cast<int>(lines->size()));
        // And what comes later comes once.
        QVERIFY(test::putSteps(f.file, f.run, 301, 320));
        QTRY_COMPARE(f.chart("loss")->model(0).size(), std::size_t(320));
        const auto all = (*runs)->logs(f.run.id, 0, 1'000'000);
        QVERIFY(all && all->size() > lines->size());
        QTRY_COMPARE(f.page->log()->model()->rowCount(), static_cast<int>(all->size()));
    }

    void memoryOfAnotherRank()
    {
        test::SyntheticRun run = livingRun();
        run.done = 80;
        Fixture f(run);
        f.open();
        f.page->charts()->setRank(1);
        QCOMPARE(*f.chart("memory")->reference(), 201.0 * (1 << 20));
        QCOMPARE(f.chart("memory")->model(0).size(), std::size_t(80));
        QVERIFY(f.chart("time")->title().contains(QStringLiteral("rank 1")));
    }

    void openAndCloseManyTimes()
    {
        test::SyntheticRun run = livingRun();
        run.done = 60;
        Fixture f(run);
        for (int i = 0; i < 20; ++i) {
            f.page->showRun(QString::fromStdString(f.run.id));
            f.page->showRun({});
        }
        f.open();
        QCOMPARE(f.chart("loss")->model(0).size(), std::size_t(60));
    }
};

static test::Register<TestMonitor> registered;
#include "test_monitor.moc"
