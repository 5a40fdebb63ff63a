// SPDX-License-Identifier: GPL-3.0-or-later
// What the Design page opens: other engines' configurations, and files that it cannot use.
#include "tests/ui/design_fixture.h"
#include "ui/designer/import_list.h"
#include "ui/designer/verdict_panel.h"

#include <QDragEnterEvent>
#include <QDropEvent>
#include <QMimeData>
#include <QUndoStack>

#include <tuple>

using namespace rankyard;
using namespace rankyard::ui;
using Fixture = test::DesignFixture;
using test::whole;

class TestDesignFiles : public test::UiTest
{
    Q_OBJECT
private slots:
    // Dropped, another engine's file becomes the design; what it does not say stays, and what was lost is listed.
    void anotherEnginesFileIsImported()
    {
        Fixture f;
        f.document().set("cluster", "dgx-a100-80 x 2");
        f.settle();
        const QString file = f.write(
            "train.sh",
            "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
            "--num-attention-heads 16 --seq-length 1024 --tensor-model-parallel-size 4 --micro-batch-size 2 "
            "--global-batch-size 64 --bf16 --vocab-size 50257 --use-distributed-optimizer --own-flag 7\n");
        QMimeData data;
        data.setUrls({QUrl::fromLocalFile(file)});
        QDragEnterEvent enter(QPoint(100, 100), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(&f.page, &enter);
        QVERIFY(enter.isAccepted());
        QDropEvent drop(QPointF(100, 100), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(&f.page, &drop);
        QVERIFY2(f.notices.all().empty(),
                 qPrintable(f.notices.all().empty() ? QString() : f.notices.all()[0].text));
        f.settle();
        QCOMPARE(whole(f.document().value("model.layers")), 24);
        QCOMPARE(whole(f.document().value("layout.dp")), 4);
        QVERIFY(f.document().value("cluster") == "dgx-a100-80 x 2");
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Fits"));
        const ImportList *list = f.page.panel()->imported();
        QVERIFY(list->isVisibleTo(&f.page));
        QVERIFY(list->headline().contains(QStringLiteral("train.sh")));
        QVERIFY2(list->rows().join(QLatin1Char('\n')).contains(QStringLiteral("own-flag = 7")),
                 qPrintable(list->rows().join(QLatin1Char('\n'))));
        // The list goes with the import that it is about, and comes back with it.
        f.document().set("layout.dp", 2);
        QVERIFY(list->isVisibleTo(&f.page));
        f.document().undoStack()->undo();
        f.document().undoStack()->undo();
        f.settle();
        QCOMPARE(whole(f.document().value("model.layers")), 6);
        QVERIFY(!list->isVisibleTo(&f.page));
        f.document().undoStack()->redo();
        QVERIFY(list->isVisibleTo(&f.page));
        QVERIFY(list->headline().contains(QStringLiteral("train.sh")));
        QVERIFY(f.page.open(f.write("other.json", f.document().text().c_str())));
        QVERIFY(!list->isVisibleTo(&f.page));
        f.settle();
        QVERIFY(f.page.open(file));
        QVERIFY(list->isVisibleTo(&f.page));
        f.document().undoStack()->undo();
        f.document().set("model.layers", 6);
        f.settle();
        // A file that is wrong says where, and leaves the design alone.
        const QString wrong =
            f.write("ds.json", "{\"train_batch_size\": 100, \"train_micro_batch_size_per_gpu\": \"x\"}");
        const Status opened = f.page.open(wrong);
        QVERIFY(!opened);
        QCOMPARE(opened.error().where, std::string("train_micro_batch_size_per_gpu"));
        QCOMPARE(whole(f.document().value("model.layers")), 6);
    }

    // A file that is nothing for the page, or is wrong, is a notice that says what was found, and what there is to open.
    void badFilesAreNotices()
    {
        Fixture f;
        const std::tuple<const char *, const char *, QStringList> files[] = {
            {"a.json", "{}", {"found {}", "model_type", "job", "cluster", "DeepSpeed"}},
            {"b.json", "[1, 2]", {"found [1,2]", "model_type"}},
            {"c.txt", "hello", {"nothing that a design begins with", "torchtitan"}},
            {"d.json", "{\"hidden_size\": 64}", {"no model_type", "gpt2, llama"}},
            {"e.json", "{\"model_type\": \"bert\"}", {"model_type bert", "gpt2, llama"}},
            {"f.json",
             "{\"model_type\": \"llama\", \"hidden_size\": 0}",
             {"hidden_size", "found 0", "from 1 on"}},
            {"g.json", "{\"schema\": \"rankyard/job/1\",,}", {"Not valid JSON", "g.json:1"}},
        };
        std::size_t count = 0;
        for (const auto &[name, text, says] : files) {
            QMimeData data;
            data.setUrls({QUrl::fromLocalFile(f.write(name, text))});
            QDragEnterEvent enter(QPoint(100, 100), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
            QCoreApplication::sendEvent(&f.page, &enter);
            QDropEvent drop(QPointF(100, 100), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
            QCoreApplication::sendEvent(&f.page, &drop);
            QCOMPARE(f.notices.all().size(), ++count);
            const Notices::Notice &notice = f.notices.all()[0];
            for (const QString &part : says)
                QVERIFY2(notice.text.contains(part), qPrintable(notice.text + QStringLiteral(" | ") + part));
            QCOMPARE(notice.verb, QStringLiteral("Another file…"));
        }
    }
};

static test::Register<TestDesignFiles> registered;
#include "test_design_files.moc"
