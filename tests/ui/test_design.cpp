// SPDX-License-Identifier: GPL-3.0-or-later
// The design itself: editing, undo, files, fixes, the runner.
#include "tests/ui/design_fixture.h"
#include "ui/designer/axis_board.h"
#include "ui/designer/cluster_choice.h"
#include "ui/designer/import_list.h"
#include "ui/designer/memory_bars.h"
#include "ui/designer/verdict_panel.h"

#include <QApplication>
#include <QComboBox>
#include <QDropEvent>
#include <QMimeData>
#include <QPushButton>
#include <QSignalSpy>
#include <QSlider>
#include <QUndoStack>
#include <QUrl>

#include <future>

using namespace rankyard;
using namespace rankyard::ui;
using Fixture = test::DesignFixture;
using test::whole;

class TestDesign : public test::UiTest
{
    Q_OBJECT
private slots:
    void aChangeGivesAnotherVerdict()
    {
        Fixture f;
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Fits"));
        const auto before = f.page.verdict();
        QVERIFY(before && !before->stages.empty());
        f.type("model.layers", "12");
        f.settle();
        QVERIFY(f.page.verdict() != before);
        const auto job = f.document().job();
        QVERIFY(job);
        QCOMPARE(job->model.layers, 12);
        // What the panel shows is the plan of what the form says.
        const auto plan = plan::makePlan(*job);
        QVERIFY(plan);
        QCOMPARE(f.page.verdict()->stages[0].report.peak, plan::memoryOf(*plan, 0).peak);
        QVERIFY(f.page.verdict()->stages[0].report.peak > before->stages[0].report.peak);
    }

    void typingInAFieldIsOneStep()
    {
        Fixture f;
        QUndoStack *stack = f.document().undoStack();
        const Json before = f.document().json();
        f.type("model.layers", "12"); // "1", then "12"
        QCOMPARE(stack->count(), 1);
        f.type("batch.global", "32");
        QCOMPARE(stack->count(), 2);
        stack->undo();
        QCOMPARE(whole(f.document().value("model.layers")), 12);
        stack->undo();
        QVERIFY(f.document().json() == before);
        QVERIFY(!f.document().isDirty());
        stack->redo();
        QCOMPARE(whole(f.document().value("model.layers")), 12);
        // Back to what it was by hand is no step at all.
        f.document().begin(Json::object());
        f.document().set("model.layers", 7, QStringLiteral("a"));
        f.document().set("model.layers", 6, QStringLiteral("a"));
        QCOMPARE(stack->count(), 0);
        // A field that was left begins another step.
        f.document().set("model.layers", 7, QStringLiteral("a"));
        f.document().closeMerge();
        f.document().set("model.layers", 8, QStringLiteral("a"));
        QCOMPARE(stack->count(), 2);
    }

    void aDragIsOneStepAndKeepsTheRanks()
    {
        Fixture f;
        f.document().apply(
            {"layout.dp=8", "model.heads=8", "model.hidden=512", "batch.global=64", "batch.micro=1"}, {});
        f.document().closeMerge();
        AxisBoard *axes = f.page.form()->axes();
        const int steps = f.document().undoStack()->count();
        QSlider *tensor = axes->slider(0);
        QCOMPARE(axes->legal(0), (std::vector<std::int64_t>{1, 2, 4, 8}));
        tensor->setSliderDown(true);
        for (int at = 1; at <= 3; ++at)
            tensor->setValue(at);
        tensor->setSliderDown(false);
        QCOMPARE(whole(f.document().value("layout.tp")), 8);
        QCOMPARE(whole(f.document().value("layout.dp")), 1);
        QCOMPARE(f.document().undoStack()->count(), steps + 1);
        QVERIFY2(axes->equation().contains(QStringLiteral("= 8")), qPrintable(axes->equation()));
        f.document().undoStack()->undo();
        QCOMPARE(whole(f.document().value("layout.dp")), 8);

        // A factor by mouse: the equation and the design follow while it is dragged, over axes on its way too.
        FactorBoard *board = axes->factors();
        const QPoint from = board->chipOf(3, 0).center();
        const QPoint to = board->boxOf(2).center();
        QTest::mousePress(board, Qt::LeftButton, {}, from);
        for (const int axis : {2, 1, 0}) {
            QTest::mouseMove(board, board->boxOf(axis).center());
            QVERIFY2(axes->equation().contains(
                         QStringLiteral("%1 2").arg(QLatin1String(FactorBoard::names[axis]))),
                     qPrintable(axes->equation()));
            QVERIFY2(axes->equation().contains(QStringLiteral("dp 4 = 8")), qPrintable(axes->equation()));
        }
        QTest::mouseMove(board, to);
        QTest::mouseRelease(board, Qt::LeftButton, {}, to);
        QCOMPARE(whole(f.document().value("layout.tp")), 1);
        QCOMPARE(whole(f.document().value("layout.pp")), 2);
        QCOMPARE(whole(f.document().value("layout.dp")), 4);
        QCOMPARE(f.document().undoStack()->count(), steps + 1); // what was undone went, the drag is one step
        // Another drag is another step; one that comes back, or that Escape ends, is none.
        for (const bool escape : {false, true}) {
            QTest::mousePress(board, Qt::LeftButton, {}, board->chipOf(3, 0).center());
            QTest::mouseMove(board, board->boxOf(0).center());
            QCOMPARE(whole(f.document().value("layout.tp")), 2);
            if (escape)
                QTest::keyClick(board, Qt::Key_Escape);
            else
                QTest::mouseMove(board, board->boxOf(3).center());
            QTest::mouseRelease(board, Qt::LeftButton, {}, board->boxOf(escape ? 0 : 3).center());
            QCOMPARE(whole(f.document().value("layout.tp")), 1);
            QCOMPARE(whole(f.document().value("layout.dp")), 4);
            QCOMPARE(f.document().undoStack()->count(), steps + 1);
        }
        // A slider by mouse: its handle to the end of the groove is one step, there and back again none.
        const QRect groove = tensor->rect();
        const QPoint handle(9, groove.center().y());
        for (const bool back : {false, true}) {
            QTest::mousePress(tensor, Qt::LeftButton, {}, handle);
            for (int x = handle.x(); x <= groove.right(); x += 4)
                QTest::mouseMove(tensor, QPoint(x, handle.y()));
            QCOMPARE(whole(f.document().value("layout.tp")), 8);
            for (int x = groove.right(); back && x >= 0; x -= 4)
                QTest::mouseMove(tensor, QPoint(x, handle.y()));
            QTest::mouseRelease(tensor, Qt::LeftButton, {}, QPoint(back ? 0 : groove.right(), handle.y()));
            QCOMPARE(f.document().undoStack()->count(), steps + (back ? 1 : 2));
            if (!back)
                f.document().undoStack()->undo();
            QCOMPARE(whole(f.document().value("layout.tp")), 1);
            QCOMPARE(whole(f.document().value("layout.dp")), 4);
        }
        // And another by the keyboard.
        board->setFocus();
        QTest::keyClick(board, Qt::Key_Right); // the first factor of dp
        QTest::keyClick(board, Qt::Key_Left, Qt::ControlModifier);
        QCOMPARE(whole(f.document().value("layout.pp")), 4);
        QCOMPARE(whole(f.document().value("layout.dp")), 2);
        QCOMPARE(FactorBoard::primesOf(360), (std::vector<std::int64_t>{2, 2, 2, 3, 3, 5}));
        QVERIFY(!board->move(7, 2, 3));
    }

    // What cannot run is said beside its field, and a click mends it.
    void anIllegalLayoutBesideItsField()
    {
        Fixture f;
        f.document().apply({"batch.global=16", "layout.dp=2", "batch.micro=3"}, {});
        FieldRow *row = f.page.form()->row("batch.micro");
        QCOMPARE(row->problems(), 1);
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Cannot run"));
        QVERIFY(!f.registry.action(QStringLiteral("design.launch"))->isEnabled());
        auto *fix = row->findChild<QPushButton *>();
        QVERIFY(fix);
        QVERIFY2(fix->text().contains(QStringLiteral("micro 2")), qPrintable(fix->text()));
        fix->click();
        QCOMPARE(whole(f.document().value("batch.micro")), 2);
        f.settle();
        QCOMPARE(row->problems(), 0);
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Fits"));
        QVERIFY(f.registry.action(QStringLiteral("design.launch"))->isEnabled());
        f.document().undoStack()->undo();
        QCOMPARE(row->problems(), 1);
        // What only the planner sees comes a moment later, at its key too.
        f.document().apply({"batch.micro=2", "layout.tp=5"}, {});
        f.settle();
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Cannot run"));
        QVERIFY(!f.page.verdict()->problems.empty());
        // Words where a number belongs are kept as typed, and named.
        f.document().begin(Json::object());
        f.type("model.layers", "many");
        QCOMPARE(f.page.form()->row("model.layers")->problems(), 1);
        QVERIFY(!f.document().job());
    }

    void savesAndOpens()
    {
        Fixture f;
        f.document().apply({"name=round trip", "layout.pp=2", "model.rope=null", "data.train=corpus"}, {});
        QVERIFY(f.document().isDirty());
        const QString file = f.dir.filePath(QStringLiteral("design.json"));
        QVERIFY(f.document().save(file));
        QVERIFY(!f.document().isDirty());
        const Json before = f.document().json();
        // The saved file is a job as every other reader sees it.
        const auto job = spec::loadJob(file.toStdString());
        QVERIFY2(job, job ? "" : job.error().text().c_str());
        QCOMPARE(job->layout.pp, 2);
        f.document().begin(Json::object());
        QVERIFY(f.page.open(file));
        QVERIFY(f.document().json() == before);
        QCOMPARE(f.document().file(), file);
        QCOMPARE(f.page.recent(), QStringList{file});
        f.settle();
        // One that cannot run opens as well, with its explicit null.
        const QString bad = f.write(
            "bad.json",
            R"({"schema": "rankyard/job/1", "model": {"ffn": null}, "data": {"train": "x"}, "batch": {"micro": 3}})");
        QVERIFY(f.page.open(bad));
        QCOMPARE(f.page.form()->row("batch.micro")->problems(), 1);
        QVERIFY(f.document().save(f.dir.filePath(QStringLiteral("again.json"))));
        // What is no job is refused, and nothing changes.
        const Json now = f.document().json();
        QVERIFY(!f.page.open(f.write("no.json", "{\"schema\": \"other/1\"}")));
        QVERIFY(!f.page.open(f.write("broken.json", "{\"schema\": ")));
        QVERIFY(!f.page.open(QStringLiteral("/nowhere.json")));
        QVERIFY(f.document().json() == now);
    }

    // What was not saved is there again at the next start, still as a change.
    void unsavedChangesComeBack()
    {
        Settings settings{QString()};
        Notices notices;
        test::FakeActions actions;
        {
            ActionRegistry registry;
            DesignPage page({&registry, &settings, &notices, &actions});
            page.openSomething();
            page.document()->set("model.layers", 11);
        }
        ActionRegistry registry;
        DesignPage page({&registry, &settings, &notices, &actions});
        page.openSomething();
        QCOMPARE(whole(page.document()->value("model.layers")), 11);
        QVERIFY(page.document()->isDirty());
        QTRY_VERIFY_WITH_TIMEOUT(page.isReady(), 30'000);
    }

    void launchesTheSavedFile()
    {
        Fixture f;
        f.document().set("data.train", "corpus");
        const QString file = f.dir.filePath(QStringLiteral("run.json"));
        QVERIFY(f.document().save(file));
        f.document().set("model.layers", 3);
        f.page.launch();
        QCOMPARE(f.actions.asked, QStringList{QStringLiteral("start ") + file});
        const auto job = spec::loadJob(file.toStdString());
        QVERIFY(job);
        QCOMPARE(job->model.layers, 3); // what runs is what was designed
        f.document().set("cluster", "dgx-a100-80 x 2");
        QVERIFY(!f.registry.action(QStringLiteral("design.launch"))->isEnabled());
    }

    void modelsByNameAndByConfig()
    {
        Fixture f;
        QComboBox *presets = f.page.form()->presets();
        const int xl = presets->findData(QStringLiteral("gpt2-xl"));
        presets->setCurrentIndex(xl);
        emit presets->activated(xl);
        QCOMPARE(whole(f.document().value("model.hidden")), 1600);
        QCOMPARE(presets->currentIndex(), xl);
        QVERIFY(f.page.open(
            f.write("config.json", R"({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256,
            "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000})")));
        QVERIFY(f.document().value("model.family") == Json("llama"));
        QCOMPARE(whole(f.document().value("model.kv_heads")), 2);
        QCOMPARE(presets->currentIndex(), presets->count() - 1);
        QVERIFY(!f.page.open(f.write("config.json", R"({"model_type": "mamba"})")));
        f.settle();
    }

    void clustersOtherThanThisMachine()
    {
        Fixture f;
        f.document().apply({"cluster=dgx-a100-80 x 4", "layout.dp=32", "batch.global=64", "batch.micro=1"},
                           {});
        f.settle();
        QCOMPARE(f.page.form()->cluster()->cluster()->gpus(), 32);
        QVERIFY2(f.page.form()->axes()->equation().contains(QStringLiteral("all GPUs")),
                 qPrintable(f.page.form()->axes()->equation()));
        QCOMPARE(f.page.verdict()->stages[0].capacity, 80'000'000'000);
        QVERIFY(f.page.verdict()->figure("step"));
        QVERIFY(f.page.panel()->trafficRows().join(QLatin1Char('\n')).contains(QStringLiteral("data (32)")));
        f.document().set("cluster", "no such cluster");
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Cannot run"));
        QVERIFY(!f.page.form()->cluster()->error().isEmpty());
    }

    // The time for so many tokens follows the field, which reads tokens as people write them, and is there at the next start.
    void timeForTheTokensToSee()
    {
        QCOMPARE(tokensOf(QStringLiteral("300 B")), std::optional(300e9));
        QCOMPARE(tokensOf(QStringLiteral("1.5t")), std::optional(1.5e12));
        QCOMPARE(tokensOf(QStringLiteral("2e12")), std::optional(2e12));
        QCOMPARE(tokensOf(QStringLiteral("300,000,000")), std::optional(3e8));
        for (const char *wrong : {"", "B", "-3", "0", "much", "nan", "1e99"})
            QVERIFY2(!tokensOf(QString::fromLatin1(wrong)), wrong);
        Fixture f;
        f.document().set("cluster", "dgx-a100-80");
        f.settle();
        const double before = f.page.verdict()->figure("target")->value;
        QLineEdit *field = f.page.panel()->target();
        QCOMPARE(field->text(), QStringLiteral("300 B"));
        field->setFocus();
        field->selectAll();
        QTest::keyClicks(field, QStringLiteral("1.2T"));
        QTest::keyClick(field, Qt::Key_Return);
        f.settle();
        QVERIFY(qAbs(f.page.verdict()->figure("target")->value - 4 * before) < 1e-6 * before);
        QCOMPARE(f.settings.value(QStringLiteral("design/targetTokens")).toDouble(), 1.2e12);
        QVERIFY(!f.document().isDirty() || f.document().changes() == 1); // no key of the job
        QTest::keyClicks(field, QStringLiteral("x"));
        QTest::keyClick(field, Qt::Key_Return);
        QCOMPARE(tokensOf(field->text()), std::optional(1.2e12)); // back to what it was
    }

    // An answer to an older question is never shown, and the older work is told to stop.
    void staleAnswersAreDropped()
    {
        std::atomic<int> begun{0};
        std::promise<void> gate;
        std::shared_future<void> open = gate.get_future().share();
        std::atomic<bool> told{false};
        VerdictRunner runner(
            nullptr,
            [&](const VerdictRunner::Request &request, std::stop_token stop, const VerdictRunner::Early &) {
                const int number = ++begun;
                if (number == 1) {
                    open.wait();
                    told = stop.stop_requested();
                }
                predict::Verdict verdict;
                verdict.notes = {request.job->name};
                return verdict;
            });
        QSignalSpy spy(&runner, &VerdictRunner::judged);
        std::vector<std::string> seen;
        QObject::connect(&runner, &VerdictRunner::judged, &runner,
                         [&](const std::shared_ptr<const predict::Verdict> &verdict) {
                             seen.push_back(verdict->notes[0]);
                         });
        const auto ask = [&runner](const char *name) {
            VerdictRunner::Request request;
            request.job.emplace().name = name;
            runner.request(std::move(request));
        };
        ask("old");
        QTRY_COMPARE(begun.load(), 1);
        ask("skipped");
        ask("new");
        QVERIFY(runner.isBusy());
        gate.set_value();
        QTRY_VERIFY(!runner.isBusy());
        QVERIFY(told);
        QCOMPARE(seen, std::vector<std::string>{"new"});
        QCOMPARE(begun.load(), 2);
    }

    void cancelled()
    {
        std::promise<void> gate;
        std::shared_future<void> open = gate.get_future().share();
        std::atomic<bool> begun{false};
        std::atomic<bool> done{false};
        auto runner = std::make_unique<VerdictRunner>(
            nullptr, [&](const VerdictRunner::Request &, std::stop_token, const VerdictRunner::Early &) {
                begun = true;
                open.wait();
                done = true;
                return predict::Verdict();
            });
        QSignalSpy spy(runner.get(), &VerdictRunner::judged);
        runner->request({});
        QTRY_VERIFY(begun);
        QVERIFY(runner->isBusy());
        runner->cancel();
        QVERIFY(!runner->isBusy());
        gate.set_value();
        QTRY_VERIFY(done);
        runner.reset(); // joins; what was queued goes with it
        QCoreApplication::processEvents();
        QCOMPARE(spy.count(), 0);
    }

    // From the first field to the last by Tab alone; every stop has a name.
    void byKeyboard()
    {
        Fixture f;
        QWidget *line = f.page.form()->row("model.layers")->line();
        line->setFocus();
        QSet<QWidget *> stops;
        for (int i = 0; i < 120; ++i) {
            QWidget *focus = QApplication::focusWidget();
            QVERIFY(focus);
            if (stops.contains(focus))
                break;
            stops.insert(focus);
            const auto *button = qobject_cast<QAbstractButton *>(focus);
            QVERIFY2(!focus->accessibleName().isEmpty() || (button && !button->text().isEmpty()),
                     focus->metaObject()->className());
            QTest::keyClick(focus, Qt::Key_Tab);
        }
        for (const char *path : {"model.hidden", "batch.global", "layout.tp", "zero.stage"}) {
            QWidget *editor = f.page.form()->row(path)->editor();
            const bool reached = std::any_of(stops.begin(), stops.end(), [&](QWidget *stop) {
                return stop == editor || editor->isAncestorOf(stop);
            });
            QVERIFY2(reached, path);
        }
        QVERIFY(stops.contains(f.page.panel()->bars()));
        // Up and Down change a number; Ctrl+Z takes it back from inside the field.
        line->setFocus();
        const auto before = whole(f.document().value("model.layers"));
        QTest::keyClick(line, Qt::Key_Up);
        QCOMPARE(whole(f.document().value("model.layers")), before + 1);
        QTest::keyClick(line, Qt::Key_Z, Qt::ControlModifier);
        QCOMPARE(whole(f.document().value("model.layers")), before);
        f.settle();
    }
};

static test::Register<TestDesign> registered;
#include "test_design.moc"
