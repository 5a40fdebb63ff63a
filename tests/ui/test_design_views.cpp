// SPDX-License-Identifier: GPL-3.0-or-later
// What the Design page draws, and its drawers.
#include "engine/cluster/sources.h"
#include "engine/data/corpus.h"
#include "tests/ui/design_fixture.h"
#include "ui/designer/compare_view.h"
#include "ui/designer/data_view.h"
#include "ui/designer/figure_row.h"
#include "ui/designer/layout_scatter.h"
#include "ui/designer/memory_bars.h"
#include "ui/designer/prepare_task.h"
#include "ui/designer/rank_panel.h"
#include "ui/designer/search_task.h"
#include "ui/designer/search_view.h"
#include "ui/designer/step_timeline.h"
#include "ui/designer/verdict_panel.h"

#include <QAbstractItemModelTester>
#include <QComboBox>
#include <QImage>
#include <QSignalSpy>
#include <QTableView>
#include <QUndoStack>
#include <QWheelEvent>

using namespace rankyard;
using namespace rankyard::ui;
using Fixture = test::DesignFixture;
using test::whole;

class TestDesignViews : public test::UiTest
{
    Q_OBJECT
private slots:
    // A model that nothing runs is planned: figures and bars, no step to draw, no launch. Another model makes it a job like others.
    void plannedOnly()
    {
        Fixture f;
        const Json before = f.document().json();
        const QString file =
            f.write("wide.json", R"({"schema": "rankyard/job/1", "name": "wide", "data": {"train": "corpus"},
            "cluster": "gb200-nvl72 x 64", "model": {"seq": 4096}, "plan_only": {"model": "DeepSeek-V3", "ep": 32},
            "layout": {"dp": 64, "pp": 4}, "batch": {"global": 4096, "micro": 1}, "precision": {"compute": "bf16"}})");
        QVERIFY(f.page.open(file));
        f.settle();
        QVERIFY(f.page.panel()->headline().startsWith(QStringLiteral("Would")));
        QVERIFY(f.page.verdict()->isPlanOnly());
        QCOMPARE(f.page.verdict()->stages.size(), std::size_t(4));
        QVERIFY(f.page.verdict()->figure("step")->value > 0);
        QVERIFY(!f.registry.action(QStringLiteral("design.launch"))->isEnabled());
        QVERIFY(!f.page.form()->row("model.hidden")->isVisible());
        QVERIFY(f.page.form()->row("model.seq")->isVisible());
        QCOMPARE(f.page.form()->presets()->currentText(), QStringLiteral("DeepSeek-V3"));
        // An axis moves it like any design, and undo brings it back.
        const double peak = f.page.verdict()->figure("peak")->value;
        f.document().apply({"layout.pp=8", "layout.dp=32"}, {});
        f.settle();
        QCOMPARE(f.page.verdict()->stages.size(), std::size_t(8));
        QVERIFY(f.page.verdict()->figure("peak")->value != peak);
        f.document().undoStack()->undo();
        f.settle();
        QCOMPARE(f.page.verdict()->figure("peak")->value, peak);
        // What is saved is what is open.
        QVERIFY(f.document().save(f.dir.filePath(QStringLiteral("again.json"))));
        QVERIFY(f.page.open(f.dir.filePath(QStringLiteral("again.json"))));
        f.settle();
        QCOMPARE(f.page.verdict()->figure("peak")->value, peak);
        // What is wrong stands at its key.
        f.document().set("plan_only.ep", 48);
        f.settle();
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Cannot run"));
        f.document().undoStack()->undo();
        f.page.form()->presets()->setCurrentIndex(0);
        emit f.page.form()->presets()->activated(0);
        f.settle();
        QVERIFY(f.document().job());
        QVERIFY(!f.page.verdict()->isPlanOnly());
        QVERIFY(f.page.form()->row("model.hidden")->isVisible());
        f.document().undoStack()->undo();
        f.settle();
        QVERIFY(f.page.verdict()->isPlanOnly());
        const int mixtral = f.page.form()->presets()->findText(QStringLiteral("Mixtral 8x7B"));
        f.page.form()->presets()->setCurrentIndex(mixtral);
        emit f.page.form()->presets()->activated(mixtral);
        f.settle();
        QVERIFY(f.page.verdict()->isPlanOnly());
        QVERIFY(std::abs(f.page.verdict()->figure("parameters")->value / 46.7e9 - 1)
                < 0.01); // arXiv:2401.04088
        QCOMPARE(f.page.form()->presets()->currentIndex(), mixtral);
        // A file of it, too; and one of a model that runs is a job again.
        QVERIFY(f.page.open(
            f.write("config.json", R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000})")));
        f.settle();
        QVERIFY(f.page.verdict()->isPlanOnly());
        QVERIFY(std::abs(f.page.verdict()->figure("parameters")->value / 46.7e9 - 1) < 0.01);
        QVERIFY(f.page.form()->row("model.hidden")->isVisible());
        QVERIFY(f.page.open(f.write("config.json", R"({"model_type": "gpt2"})")));
        f.settle();
        QVERIFY(!f.page.verdict()->isPlanOnly());
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
        // Below them the kinds of the fullest stage, or of the chosen one, each of which opens.
        const auto rows = [&] {
            std::map<std::string, FigureRow *> found;
            for (FigureRow *row : f.page.panel()->findChildren<FigureRow *>())
                found[row->key()] = row;
            return found;
        };
        QCOMPARE(bars->fullest(), 0);
        QVERIFY(rows().count("optimizer") == 1 && rows().count("activations") == 1);
        const QString first = rows()["activations"]->accessibleName();
        QTest::mouseClick(rows()["activations"], Qt::LeftButton);
        QVERIFY(rows()["activations"]->isOpen());
        QVERIFY(rows()["activations"]->accessibleDescription().contains(QStringLiteral("in flight: 2")));
        bars->setCurrent(1);
        QVERIFY(rows()["activations"]->accessibleName() != first);
        QVERIFY2(rows()["activations"]->isOpen(), "what is open stays open");
        QVERIFY(rows()["activations"]->accessibleDescription().contains(QStringLiteral("in flight: 1")));
        bars->setCurrent(-1);
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
        line->zoomAt(box.center(), 8);
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

    // A wide op right behind narrow ones keeps its pixels: nothing looks idle that is not. Also when the whole step is zoomed out so far
    // that most ops are narrower than a pixel.
    void nothingThatRunsIsDrawnAsWaiting()
    {
        Fixture f;
        f.document().apply({"cluster=dgx-a100-80", "model.layers=12", "model.hidden=768", "model.heads=12",
                            "batch.micro=4", "batch.global=4", "layout.dp=1"},
                           {});
        f.settle();
        StepTimeline *line = f.page.timeline();
        for (const int width : {1900, 900, 500}) {
            line->resize(width, 260);
            line->fit();
            QImage picture(line->size(), QImage::Format_RGB32);
            line->render(&picture);
            const auto &spans = line->lanes()[0].spans;
            int looked = 0;
            for (int i = 0; i < static_cast<int>(spans.size()); ++i) {
                const QRectF box = line->rectOf({0, i});
                const Ink ink = Ink::of(spans[static_cast<std::size_t>(i)].kind);
                const QBrush brush = Theme::instance().brush(ink);
                if (box.width() < 2.5 || brush.style() != Qt::SolidPattern || box.right() > line->width())
                    continue;
                ++looked;
                QCOMPARE(picture.pixelColor(box.center().toPoint()).rgb(), brush.color().rgb());
            }
            QVERIFY2(looked > 10, qPrintable(QString::number(looked)));
        }
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

    // What the search finds stands in the table and the picture, and becomes the design by one choice.
    void searchedLayouts()
    {
        Fixture f;
        f.document().apply({"cluster=dgx-a100-80", "model.heads=8", "model.hidden=512", "model.layers=8",
                            "layout.dp=8", "batch.global=64", "batch.micro=1", "precision.compute=\"bf16\""},
                           {});
        f.settle();
        SearchView *view = f.page.search();
        QSignalSpy done(view->task(), &SearchTask::finished);
        view->start();
        QTRY_COMPARE_WITH_TIMEOUT(done.count(), 1, 60'000);
        SearchModel *model = view->model();
        QAbstractItemModelTester tester(model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QVERIFY(model->rowCount() > 1);
        for (int row = 1; row < model->rowCount(); ++row) {
            if (model->candidate(row).margin >= 0)
                QVERIFY(model->candidate(row).time.seconds >= model->candidate(0).time.seconds);
        }
        LayoutScatter *scatter = view->scatter();
        QVERIFY(!scatter->points().empty());
        for (const LayoutScatter::Point &point : scatter->points())
            QVERIFY(QRectF(scatter->rect()).contains(scatter->pixelOf(point)));
        // Another one than the present: it is loaded, can run, and is as it was promised.
        const search::Choice choice = model->candidate(1).choice;
        view->table()->setCurrentIndex(model->index(1, 0));
        emit view->table()->activated(model->index(1, 0));
        QVERIFY(f.document().job());
        QVERIFY(search::choiceOf(*f.document().job()) == choice);
        QVERIFY(f.document().value("cluster") == Json("dgx-a100-80"));
        f.settle();
        QCOMPARE(f.page.verdict()->answer, predict::Verdict::Answer::Fits);
        f.document().undoStack()->undo();
        QCOMPARE(whole(f.document().value("layout.dp")), 8);
        f.settle();
        // Another learning rate asks nothing new; another model does, and then nothing of it can be taken.
        f.document().set("optimizer.lr", 1e-3);
        f.settle();
        QVERIFY(view->table()->isEnabled());
        f.document().set("model.layers", 2);
        f.settle();
        QVERIFY2(view->summary().contains(QStringLiteral("search again")), qPrintable(view->summary()));
        QVERIFY(!view->table()->isEnabled() && !view->scatter()->isEnabled());
        f.document().undoStack()->undo();
        f.settle();
        QVERIFY(view->table()->isEnabled());
        const int before = static_cast<int>(done.count());
        view->startUnlessFound();
        QVERIFY(!view->task()->isRunning());
        QCOMPARE(done.count(), before);
        // Stopped at once, it says so or is done already; nothing hangs.
        view->start();
        view->cancel();
        QTRY_VERIFY_WITH_TIMEOUT(!view->task()->isRunning(), 30'000);
        QImage picture(scatter->size(), QImage::Format_RGB32);
        scatter->render(&picture);
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

    // One way to zoom and pan wherever there is a drawing: what is under the pointer stays there, a short drag is a click.
    void canvasesZoomAtThePointer()
    {
        RankMap map;
        map.resize(600, 400);
        spec::Layout layout;
        layout.tp = 8;
        layout.dp = 4;
        map.setDesign(
            layout,
            std::make_shared<const cluster::Cluster>(cluster::openCluster("dgx-a100-80 x 4").value()));
        map.show();
        const QPointF at = map.cellOf(11).center();
        QWheelEvent wheel(at, map.mapToGlobal(at), {}, {0, 240}, Qt::NoButton, Qt::NoModifier,
                          Qt::NoScrollPhase, false);
        const double before = map.cellOf(11).width();
        QCoreApplication::sendEvent(&map, &wheel);
        QVERIFY(qAbs(map.cellOf(11).width() - 1.44 * before) < 1e-6 * before); // two notches
        QVERIFY((map.cellOf(11).center() - at).manhattanLength() < 1e-6);
        const QPoint press = at.toPoint();
        QTest::mousePress(&map, Qt::LeftButton, {}, press);
        QTest::mouseMove(&map, press + QPoint(2, 1));
        QTest::mouseRelease(&map, Qt::LeftButton, {}, press + QPoint(2, 1));
        QCOMPARE(map.selected(), 11);
        QTest::keyClick(&map, Qt::Key_Minus);
        QVERIFY(qAbs(map.cellOf(11).width() - 1.44 / 1.25 * before) < 1e-6 * before);
        QTest::keyClick(&map, Qt::Key_F);
        QVERIFY(qAbs(map.cellOf(11).width() - before) < 1e-6 * before);
    }
};

static test::Register<TestDesignViews> registered;
#include "test_design_views.moc"
