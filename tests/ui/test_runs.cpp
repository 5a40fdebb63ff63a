// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ui/synthetic_store.h"
#include "tests/ui/ui_test.h"
#include "ui/common/actions.h"
#include "ui/common/settings.h"
#include "ui/monitor/log_model.h"
#include "ui/plot/chart.h"
#include "ui/runs/compare_panel.h"
#include "ui/runs/difference_model.h"
#include "ui/runs/runs_model.h"
#include "ui/runs/runs_page.h"

#include <QAbstractItemModelTester>
#include <QLineEdit>
#include <QSignalSpy>
#include <QTableView>
#include <QTemporaryDir>

using namespace rankyard;
using namespace rankyard::ui;

namespace {

RunListPtr listOf(std::initializer_list<store::RunInfo> runs)
{
    return std::make_shared<std::vector<store::RunInfo>>(runs);
}

store::RunInfo info(const std::string &id, std::int64_t started, telemetry::RunState state, std::int64_t step)
{
    store::RunInfo run;
    run.id = id;
    run.name = "name-" + id;
    run.state = state;
    run.startedNs = started;
    run.step = step;
    run.steps = 100;
    run.lastLoss = 2.5;
    run.job = R"({"layout":{"dp":2},"zero":{"stage":1}})";
    return run;
}

} // namespace

class TestRuns : public test::UiTest
{
    Q_OBJECT
private slots:
    void modelKeepsItsRows()
    {
        using telemetry::RunState;
        RunsModel model;
        QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        RunsProxy proxy;
        proxy.setSourceModel(&model);
        QAbstractItemModelTester proxyTester(&proxy, QAbstractItemModelTester::FailureReportingMode::QtTest);
        model.setRuns(listOf({info("a", 1, RunState::Finished, 100), info("b", 2, RunState::Running, 10)}),
                      100);
        QCOMPARE(model.idAt(0), QStringLiteral("b")); // newest first
        const QPersistentModelIndex b(model.index(0, RunsModel::Name));
        model.setRuns(listOf({info("c", 3, RunState::Starting, 0), info("b", 2, RunState::Running, 11),
                              info("a", 1, RunState::Finished, 100)}),
                      100);
        QCOMPARE(model.rowCount(), 3);
        QVERIFY(b.isValid());
        QCOMPARE(b.row(), 1);
        model.setRuns(listOf({info("b", 9, RunState::Stopped, 12)}), 100);
        QCOMPARE(model.rowCount(), 1);
        QCOMPARE(model.index(0, RunsModel::State).data().toString(), QStringLiteral("stopped"));
        QCOMPARE(model.index(0, RunsModel::Layout).data().toString(), QStringLiteral("dp2·z1"));
        QCOMPARE(model.index(0, RunsModel::Progress).data().toString(), QStringLiteral("12 / 100"));
        proxy.setWords(QStringLiteral("name stop"));
        QCOMPARE(proxy.rowCount(), 1);
        proxy.setWords(QStringLiteral("name running"));
        QCOMPARE(proxy.rowCount(), 0);
        model.setRuns(listOf({}), 100);
        QCOMPARE(model.rowCount(), 0);
    }

    void differences()
    {
        DifferenceModel model;
        QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        model.setJobs({{QStringLiteral("a"), R"({"name":"a","optimizer":{"lr":0.1},"x":1})"},
                       {QStringLiteral("b"), R"({"name":"b","optimizer":{"lr":0.2},"x":1,"y":[1]})"}});
        QCOMPARE(model.rowCount(), 2); // not the name, not what is equal
        QCOMPARE(model.index(0, 0).data().toString(), QStringLiteral("optimizer.lr"));
        QCOMPARE(model.index(0, 2).data().toString(), QStringLiteral("0.2"));
        QCOMPARE(model.index(1, 1).data().toString(), QStringLiteral("–"));
        model.setJobs({{QStringLiteral("a"), "not json"}, {QStringLiteral("b"), "{}"}});
        QCOMPARE(model.rowCount(), 0);
    }

    void logModelMergesAndStaysBounded()
    {
        LogModel model;
        QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        LogProxy proxy;
        proxy.setSourceModel(&model);
        const auto row = [](std::int64_t id, int rank, std::int64_t wall, telemetry::Level level,
                            const char *text) {
            store::LogRow line;
            line.id = id;
            line.rank = rank;
            line.record = {wall, level, 7, text};
            return line;
        };
        using telemetry::Level;
        model.append({row(1, 0, 30, Level::Info, "late"), row(2, 1, 10, Level::Warning, "early"),
                      row(3, -1, 20, Level::Error, "middle")});
        QCOMPARE(model.index(0).data(LogModel::TextRole).toString(), QStringLiteral("early"));
        QCOMPARE(model.index(2).data().toString(), QStringLiteral("7 r0 late"));
        proxy.setLeast(Level::Warning);
        QCOMPARE(proxy.rowCount(), 2);
        proxy.setLeast(Level::Debug);
        proxy.setWords(QStringLiteral("r1"));
        QCOMPARE(proxy.rowCount(), 1);
        proxy.setWords(QStringLiteral("agent midd"));
        QCOMPARE(proxy.rowCount(), 1);
        std::vector<store::LogRow> many;
        for (int i = 0; i < LogModel::most; ++i)
            many.push_back(row(10 + i, 0, 100 + i, Level::Info, "x"));
        model.append(many);
        model.append({row(1'000'000, 0, 1'000'000, Level::Info, "last")});
        QVERIFY(model.rowCount() <= LogModel::most);
        QCOMPARE(model.index(model.rowCount() - 1).data(LogModel::TextRole).toString(),
                 QStringLiteral("last"));
        model.clear();
        QCOMPARE(model.rowCount(), 0);
    }

    void pageByKeyboard()
    {
        QTemporaryDir dir;
        const std::filesystem::path file = dir.filePath(QStringLiteral("runs.sqlite")).toStdString();
        test::SyntheticRun run;
        run.steps = run.done = 60;
        run.compute = "fp32";
        QVERIFY(test::putRun(file, run));
        test::SyntheticRun other = run;
        other.id = "r-20261130T130000-ghijkl";
        other.name = "other";
        other.lr = 1e-3;
        other.startedNs += 1'000'000'000'000;
        QVERIFY(test::putRun(file, other));

        DataHub hub(file);
        test::FakeActions actions;
        ActionRegistry registry;
        registry.add({QStringLiteral("home.sample"), QStringLiteral("Run the sample"), QStringLiteral("tip"),
                      QStringLiteral("Run")},
                     [] {});
        Settings settings({});
        RunsPage page(&hub, &actions, &registry, &settings);
        page.resize(1280, 700);
        page.show();
        page.headWidget()->show();
        QTRY_COMPARE(page.table()->model()->rowCount(), 2);
        QSignalSpy opened(&page, &RunsPage::openRequested);
        page.table()->setFocus();
        QTest::keyClick(page.table(), Qt::Key_Down);
        QTest::keyClick(page.table(), Qt::Key_Up);
        QTest::keyClick(page.table(), Qt::Key_Return);
        QCOMPARE(opened.count(), 1);
        QCOMPARE(opened[0][0].toString(), QString::fromStdString(other.id)); // newest first
        // Both selected: their losses over each other, and the one key that differs.
        QTest::keyClick(page.table(), Qt::Key_A, Qt::ControlModifier);
        QCOMPARE(page.selected().size(), 2);
        QTRY_VERIFY(page.comparePanel()->isVisible());
        QTRY_VERIFY(page.isReady());
        QTRY_COMPARE(page.comparePanel()->chart()->model(1).size(), std::size_t(60));
        QCOMPARE(page.comparePanel()->differences()->rowCount(), 1);
        QCOMPARE(page.comparePanel()->differences()->index(0, 0).data().toString(),
                 QStringLiteral("optimizer.lr"));
        // Delete asks; no means no.
        bool answer = false;
        int asked = 0;
        page.confirmDelete = [&](const QStringList &names) {
            ++asked;
            return answer && names.size() == 2;
        };
        QTest::keyClick(page.table(), Qt::Key_Delete);
        QCOMPARE(asked, 1);
        QVERIFY(actions.asked.isEmpty());
        answer = true;
        QTest::keyClick(page.table(), Qt::Key_Delete);
        QCOMPARE(actions.asked.size(), 2);
        QVERIFY(actions.asked[0].startsWith(QStringLiteral("Delete r-")));
        // Slash goes to the filter, Enter back to the table.
        QTest::keyClick(page.table(), Qt::Key_Slash);
        page.filterLine()->setText(QStringLiteral("other"));
        QCOMPARE(page.table()->model()->rowCount(), 1);
        // Escape shows all again, from the line and from the table.
        QTest::keyClick(page.filterLine(), Qt::Key_Escape);
        QVERIFY(page.filterLine()->text().isEmpty());
        QCOMPARE(page.table()->model()->rowCount(), 2);
        page.filterLine()->setText(QStringLiteral("other"));
        QTest::keyClick(page.table(), Qt::Key_Escape);
        QCOMPARE(page.table()->model()->rowCount(), 2);
        delete page.headWidget();
    }

    // The longest state and counts of six digits are read whole; a width that somebody has set stays.
    void columnsHaveRoom()
    {
        QTemporaryDir dir;
        const std::filesystem::path file = dir.filePath(QStringLiteral("runs.sqlite")).toStdString();
        test::SyntheticRun run;
        run.steps = 1'200'000;
        run.done = 30;
        run.state = telemetry::RunState::FailedResumable;
        QVERIFY(test::putRun(file, run));
        DataHub hub(file);
        test::FakeActions actions;
        ActionRegistry registry;
        registry.add({QStringLiteral("home.sample"), QStringLiteral("Run the sample"), QStringLiteral("tip"),
                      QStringLiteral("Run")},
                     [] {});
        Settings settings({});
        RunsPage page(&hub, &actions, &registry, &settings);
        page.resize(1280, 700);
        page.show();
        QTRY_COMPARE(page.table()->model()->rowCount(), 1);
        const Theme &theme = Theme::instance();
        const auto text = [&](int column) {
            return page.table()->model()->index(0, column).data().toString();
        };
        QVERIFY(page.table()->columnWidth(RunsModel::State)
                >= QFontMetrics(theme.font(FontRole::Body)).horizontalAdvance(text(RunsModel::State))
                    + theme.scaled(16) + 20);
        QVERIFY(page.table()->columnWidth(RunsModel::Progress)
                >= QFontMetrics(theme.font(FontRole::Mono)).horizontalAdvance(text(RunsModel::Progress))
                    + 60);
        page.table()->setColumnWidth(RunsModel::State, 90);
        QVERIFY(test::putSteps(file, run, 31, 40));
        QTRY_VERIFY(text(RunsModel::Progress).startsWith(QStringLiteral("40 ")));
        QCOMPARE(page.table()->columnWidth(RunsModel::State), 90);
        delete page.headWidget();
    }
};

static test::Register<TestRuns> registered;
#include "test_runs.moc"
