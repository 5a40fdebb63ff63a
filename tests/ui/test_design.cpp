// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "engine/data/corpus.h"
#include "tests/ui/ui_test.h"
#include "ui/common/actions.h"
#include "ui/common/notices.h"
#include "ui/common/settings.h"
#include "ui/designer/axis_board.h"
#include "ui/designer/cluster_choice.h"
#include "ui/designer/compare_view.h"
#include "ui/designer/data_view.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_form.h"
#include "ui/designer/design_page.h"
#include "ui/designer/memory_bars.h"
#include "ui/designer/prepare_task.h"
#include "ui/designer/rank_panel.h"
#include "ui/designer/step_timeline.h"
#include "ui/designer/verdict_panel.h"

#include <QAbstractItemModelTester>
#include <QComboBox>
#include <QFile>
#include <QImage>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalSpy>
#include <QSlider>
#include <QTemporaryDir>
#include <QUndoStack>

#include <future>

using namespace rankyard;
using namespace rankyard::ui;

namespace {

struct Fixture {
    QTemporaryDir dir;
    ActionRegistry registry;
    Settings settings{QString()};
    Notices notices;
    test::FakeActions actions;
    DesignPage page;

    explicit Fixture(VerdictRunner::Judge judge = {})
        : page({&registry, &settings, &notices, &actions}, nullptr, std::move(judge))
    {
        page.resize(1280, 760);
        page.show();
        settle();
    }

    void settle() { QTRY_VERIFY_WITH_TIMEOUT(page.isReady(), 30'000); }

    QString write(const char *name, const char *text)
    {
        const QString path = dir.filePath(QString::fromLatin1(name));
        QFile file(path);
        if (!file.open(QIODevice::WriteOnly))
            qFatal("cannot write");
        file.write(text);
        return path;
    }

    void type(const char *path, const char *text)
    {
        QLineEdit *line = page.form()->row(path)->line();
        line->setFocus();
        line->selectAll();
        QTest::keyClicks(line, QString::fromLatin1(text));
    }

    DesignDocument &document() { return *page.document(); }
};

std::int64_t whole(const Json &value) { return value.is_number_integer() ? value.get<std::int64_t>() : -1; }

} // namespace

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

        // A factor by mouse, and another by the keyboard.
        FactorBoard *board = axes->factors();
        const QPoint from = board->chipOf(3, 0).center();
        const QPoint to = board->boxOf(2).center();
        QTest::mousePress(board, Qt::LeftButton, {}, from);
        QTest::mouseMove(board, to);
        QTest::mouseRelease(board, Qt::LeftButton, {}, to);
        QCOMPARE(whole(f.document().value("layout.pp")), 2);
        QCOMPARE(whole(f.document().value("layout.dp")), 4);
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

    // The bars are the numbers: each part as wide as its share of the bar.
    void barsAreToScale()
    {
        Fixture f;
        f.document().apply({"layout.pp=2", "layout.dp=1", "batch.global=8"}, {});
        f.settle();
        MemoryBars *bars = f.page.panel()->bars();
        const auto &stages = f.page.verdict()->stages;
        QCOMPARE(stages.size(), std::size_t(2));
        const auto bytes = [&](int stage, plan::MemoryKind kind) {
            return static_cast<double>(
                stages[static_cast<std::size_t>(stage)].report.bytes[static_cast<std::size_t>(kind)]);
        };
        const double perByte =
            bars->partOf(0, plan::MemoryKind::Activations).width() / bytes(0, plan::MemoryKind::Activations);
        for (int stage = 0; stage < 2; ++stage) {
            for (const auto kind :
                 {plan::MemoryKind::Params, plan::MemoryKind::Optimizer, plan::MemoryKind::Activations})
                QVERIFY(std::abs(bars->partOf(stage, kind).width() - perByte * bytes(stage, kind)) < 1e-6);
        }
        bars->setFocus();
        QTest::keyClick(bars, Qt::Key_Down);
        QCOMPARE(bars->current(), 0);
        QTest::keyClick(bars, Qt::Key_Down);
        QCOMPARE(bars->current(), 1);
        QVERIFY(bars->partsOf(1).contains(QStringLiteral("optimizer")));
    }

    // Ranks on their places: tensor groups fastest, then replicas, then stages.
    void ranksLightTheirGroups()
    {
        Fixture f;
        f.document().apply({"cluster=dgx-a100-80 x 3", "model.heads=8", "model.hidden=512", "layout.tp=4",
                            "layout.dp=2", "layout.pp=3", "batch.global=24", "batch.micro=1"},
                           {});
        f.settle();
        RankMap *map = f.page.ranks()->map();
        QCOMPARE(map->world(), 24);
        QCOMPARE(map->colourOf(7), 0);
        QCOMPARE(map->colourOf(8), 1); // the second stage
        map->setColouring(RankMap::TensorGroups);
        QCOMPARE(map->colourOf(3), map->colourOf(0));
        QVERIFY(map->colourOf(4) != map->colourOf(0));
        QTest::mouseClick(map, Qt::LeftButton, {}, map->cellOf(5).center().toPoint());
        QCOMPARE(map->selected(), 5);
        const auto &groups = map->groups();
        QCOMPARE(groups.size(), std::size_t(3));
        QCOMPARE(groups[0].ranks, (std::vector<int>{4, 5, 6, 7}));
        QCOMPARE(groups[0].worst.link.path, cluster::Path::NvSwitch);
        QCOMPARE(groups[1].ranks, (std::vector<int>{1, 5}));
        QCOMPARE(groups[2].ranks, (std::vector<int>{5, 13, 21}));
        QVERIFY(f.page.ranks()->detail().contains(QStringLiteral("tensor 4–7 (NVSwitch")));
        QTest::keyClick(map, Qt::Key_Right);
        QCOMPARE(map->selected(), 6);
        QTest::keyClick(map, Qt::Key_Escape);
        QCOMPARE(map->selected(), -1);
        // Groups of six on nodes of eight: two of four leave their node, and that is said.
        f.document().apply({"model.heads=6", "model.hidden=384", "layout.tp=6", "layout.dp=4", "layout.pp=1"},
                           {});
        f.settle();
        map->select(7);
        QVERIFY2(f.page.ranks()->detail().contains(QStringLiteral("leaves its fast island")),
                 qPrintable(f.page.ranks()->detail()));
        f.document().set("layout.dp", 40);
        QCOMPARE(map->world(), 0);
        f.settle();
    }

    // What is drawn is what was simulated, op by op.
    void theStepIsDrawn()
    {
        Fixture f;
        f.document().apply({"layout.pp=2", "layout.dp=1", "batch.global=16", "batch.micro=4"}, {});
        f.settle();
        StepTimeline *line = f.page.timeline();
        const auto &verdict = *f.page.verdict();
        QVERIFY(verdict.timeline);
        const auto &lanes = line->lanes();
        QVERIFY(lanes.size() >= 2);
        qint64 busy = 0;
        for (const StepTimeline::Span &span : lanes[0].spans)
            busy += span.end - span.begin;
        QCOMPARE(busy, verdict.timeline->stages[0].computeNs);
        QCOMPARE(line->end(), static_cast<double>(verdict.timeline->stepNs));
        const StepTimeline::Hit second{0, 1};
        const QRectF box = line->rectOf(second);
        QCOMPARE(line->hit(box.center()), second);
        QVERIFY2(line->tipOf(second).contains(QStringLiteral("forward")), qPrintable(line->tipOf(second)));
        line->zoomAt(box.center().x(), 8);
        QVERIFY(std::abs(line->rectOf(second).width() - 8 * box.width()) < 0.01);
        QVERIFY(std::abs(line->rectOf(second).center().x() - box.center().x()) < 0.01);
        line->setFocus();
        QTest::keyClick(line, Qt::Key_F);
        QCOMPARE(line->begin(), 0.0);
        QTest::keyClick(line, Qt::Key_Period);
        QTest::keyClick(line, Qt::Key_Period);
        QCOMPARE(line->current(), second);
        QTest::keyClick(line, Qt::Key_W);
        QVERIFY(line->end() - line->begin() < static_cast<double>(verdict.timeline->stepNs));
        QImage picture(line->size(), QImage::Format_RGB32);
        line->render(&picture);
    }

    // The kept design beside the present one: only what differs, and back by one click.
    void twoDesignsSideBySide()
    {
        Fixture f;
        QTRY_VERIFY(f.page.verdict());
        f.page.compare()->keep();
        QCOMPARE(f.page.compare()->model()->rowCount(), 0);
        const Json kept = f.document().json();
        f.document().set("model.layers", 3);
        f.settle();
        CompareModel *model = f.page.compare()->model();
        QAbstractItemModelTester tester(model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QHash<QString, QStringList> rows;
        for (int row = 0; row < model->rowCount(); ++row)
            rows[model->index(row, 0).data().toString()] = {model->index(row, 1).data().toString(),
                                                            model->index(row, 2).data().toString()};
        QCOMPARE(rows.value(QStringLiteral("model.layers")),
                 (QStringList{QStringLiteral("6"), QStringLiteral("3")}));
        QVERIFY(rows.contains(QStringLiteral("Parameters")));
        QVERIFY(rows.contains(QStringLiteral("Peak memory of a rank")));
        QVERIFY(!rows.contains(QStringLiteral("model.hidden"))); // the same in both
        emit f.page.compare()->loadRequested(f.page.compare()->kept()->document);
        QVERIFY(f.document().json() == kept);
        QVERIFY(f.document().isDirty() || f.document().undoStack()->canUndo());
        f.settle();
        QCOMPARE(model->rowCount(), 0);
    }

    // A text becomes a corpus that a job finds by its name; nothing is left behind when it is cancelled.
    void preparesACorpus()
    {
        Fixture f;
        qputenv("XDG_DATA_HOME", f.dir.filePath(QStringLiteral("data")).toLocal8Bit());
        QByteArray text = "In the beginning was the word.\n";
        text = text.repeated(2000);
        DataView *data = f.page.data();
        data->setFile(f.write("My Text.txt", text.constData()));
        QVERIFY(data->sample().startsWith(QStringLiteral("In the beginning")));
        QCOMPARE(data->corpusName()->text(), QStringLiteral("my-text"));
        QSignalSpy done(data->task(), &PrepareTask::finished);
        data->start();
        QVERIFY(data->task()->isRunning());
        QTRY_COMPARE(done.count(), 1);
        QVERIFY2(data->result().contains(QStringLiteral("1 document, 62,001 tokens")),
                 qPrintable(data->result()));
        data->use();
        QVERIFY(f.document().value("data.train") == Json("my-text"));
        QCOMPARE(whole(f.document().value("model.vocab")), 257);
        QVERIFY(data::resolveCorpus("my-text", "/"));
        // Cancelled at the first chance.
        data->setFile(f.write("large.txt", text.repeated(400).constData()));
        QSignalSpy failed(data->task(), &PrepareTask::failed);
        data->kinds()->setCurrentIndex(1);
        data->start();
        data->cancel();
        QTRY_COMPARE(failed.count(), 1);
        QVERIFY2(data->result().contains(QStringLiteral("Cancelled")), qPrintable(data->result()));
        QVERIFY(!data::resolveCorpus("large", "/"));
        // What cannot be read is said.
        data->setFile(QStringLiteral("/nowhere.txt"));
        QVERIFY(data->result().contains(QStringLiteral("/nowhere.txt")));
        QVERIFY(data->file().isEmpty());
        f.settle();
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
                verdict.notes = {request.job.name};
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
            request.job.name = name;
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
