// SPDX-License-Identifier: GPL-3.0-or-later
// The Design and Cluster pages without a mouse: the chain of focus, its order, names and marks, and a whole journey by keys.
#include "engine/spec/job.h"
#include "tests/ui/design_fixture.h"
#include "ui/cluster/cluster_canvas.h"
#include "ui/cluster/cluster_page.h"
#include "ui/cluster/fabric_view.h"
#include "ui/cluster/inspector.h"
#include "ui/cluster/matrix_view.h"
#include "ui/designer/axis_board.h"
#include "ui/designer/compare_view.h"
#include "ui/designer/data_view.h"
#include "ui/designer/rank_panel.h"
#include "ui/designer/search_task.h"
#include "ui/designer/search_view.h"
#include "ui/designer/step_timeline.h"
#include "ui/designer/verdict_panel.h"

#include <QAbstractButton>
#include <QApplication>
#include <QSpinBox>
#include <QTableView>
#include <QUndoStack>
#include <QVBoxLayout>

#include <algorithm>

using namespace rankyard;
using namespace rankyard::ui;
using Fixture = test::DesignFixture;
using test::whole;

namespace {

/// A page under its head, as the window shows them.
struct Framed {
    QWidget window;

    Framed(QWidget *head, QWidget *page)
    {
        auto *column = new QVBoxLayout(&window);
        column->setContentsMargins(0, 0, 0, 0);
        column->addWidget(head);
        column->addWidget(page, 1);
        window.resize(1280, 800);
        window.show();
        window.activateWindow();
        page->setFocus();
    }
    ~Framed()
    {
        for (QObject *child : window.children()) { // neither is ours
            if (auto *widget = qobject_cast<QWidget *>(child))
                widget->setParent(nullptr);
        }
    }
};

QString nameOf(const QWidget *widget)
{
    const auto *button = qobject_cast<const QAbstractButton *>(widget);
    const QString name = !widget->accessibleName().isEmpty() ? widget->accessibleName()
        : button                                             ? button->text()
                                                             : QString();
    return QStringLiteral("%1 \"%2\"").arg(QLatin1String(widget->metaObject()->className()), name);
}

QString namesOf(const QList<QWidget *> &widgets)
{
    QStringList names;
    for (const QWidget *widget : widgets)
        names << nameOf(widget);
    return names.join(QStringLiteral(", "));
}

bool hasName(const QWidget *widget) { return !nameOf(widget).endsWith(QLatin1String("\"\"")); }

/// What Tab reaches from the widget that has the focus, until it comes round.
QList<QWidget *> chainOfFocus()
{
    QList<QWidget *> stops;
    for (QWidget *focus = QApplication::focusWidget(); focus && !stops.contains(focus) && stops.size() < 300;
         focus = QApplication::focusWidget()) {
        stops << focus;
        QTest::keyClick(focus, Qt::Key_Tab);
    }
    return stops;
}

/// Goes on by Tab until `wanted` says yes; null when it comes round without.
template<typename Wanted>
QWidget *tabTo(Wanted wanted)
{
    QCoreApplication::processEvents(); // what was made by the last key is shown by the event loop
    for (int i = 0; i < 300; ++i) {
        QWidget *focus = QApplication::focusWidget();
        if (!focus)
            return nullptr;
        if (wanted(focus))
            return focus;
        QTest::keyClick(focus, Qt::Key_Tab);
    }
    return nullptr;
}

QWidget *tabToThe(const QWidget *widget)
{
    return tabTo([widget](const QWidget *focus) { return focus == widget; });
}

/// Everything that somebody could want to use, and Tab should come by. A checked button stands for its group.
QList<QWidget *> usable(const QWidget &window)
{
    QList<QWidget *> all;
    for (QWidget *widget : window.findChildren<QWidget *>()) {
        const auto *button = qobject_cast<const QAbstractButton *>(widget);
        const bool exclusive = button && button->group() && !button->isChecked();
        const bool inside = widget->focusProxy() != nullptr;
        if ((widget->focusPolicy() & Qt::TabFocus) && widget->isVisible() && widget->isEnabled() && !exclusive
            && !inside)
            all << widget;
    }
    return all;
}

/// How many pixels of `widget` and its border are another colour with the focus than without.
int markOf(QWidget *widget)
{
    const auto look = [widget] {
        QCoreApplication::processEvents();
        return widget->grab().toImage().convertToFormat(QImage::Format_RGB32);
    };
    const QImage with = look();
    QTest::keyClick(widget, Qt::Key_Tab);
    const QImage without = look();
    if (with.size() != without.size())
        return -1;
    int differ = 0;
    for (int y = 0; y < with.height(); ++y) {
        for (int x = 0; x < with.width(); ++x)
            differ += with.pixel(x, y) != without.pixel(x, y);
    }
    return differ;
}

/// Tab goes down a column, and along a row from left to right: where it went up or back instead.
QStringList outOfOrder(const QList<QWidget *> &stops, const QWidget *column)
{
    QStringList wrong;
    const QWidget *before = nullptr;
    for (const QWidget *stop : stops) {
        if (!column->isAncestorOf(stop))
            continue;
        if (before) {
            const QRect a(before->mapTo(column, QPoint()), before->size());
            const QRect b(stop->mapTo(column, QPoint()), stop->size());
            const bool row = a.top() < b.bottom() && b.top() < a.bottom();
            if (row ? b.left() < a.left() : b.top() < a.top())
                wrong << nameOf(before) + QStringLiteral(" → ") + nameOf(stop);
        }
        before = stop;
    }
    return wrong;
}

} // namespace

class TestKeyboard : public test::UiTest
{
    Q_OBJECT
private:
    static void walk(QWidget &window, const QList<const QWidget *> &columns)
    {
        QList<QWidget *> stops = chainOfFocus();
        const auto first = std::find_if(stops.begin(), stops.end(), [&](const QWidget *stop) {
            return columns.front()->isAncestorOf(stop);
        });
        std::rotate(stops.begin(), first, stops.end()); // the walk began somewhere inside
        for (QWidget *widget : usable(window))
            QVERIFY2(
                stops.contains(widget),
                qPrintable(nameOf(widget) + QStringLiteral(" is not reached: ") + namesOf(stops).right(700)));
        for (QWidget *stop : stops) {
            QVERIFY2(hasName(stop), qPrintable(nameOf(stop) + QStringLiteral(" has no name")));
        }
        for (const QWidget *column : columns)
            QCOMPARE(outOfOrder(stops, column), QStringList());
        // Columns after another, each whole: nobody jumps between them.
        QList<qsizetype> visits;
        for (const QWidget *stop : stops) {
            for (qsizetype i = 0; i < columns.size(); ++i) {
                if (columns[i]->isAncestorOf(stop) && (visits.isEmpty() || visits.back() != i))
                    visits << i;
            }
        }
        for (qsizetype i = 1; i < visits.size(); ++i)
            QVERIFY2(visits[i] > visits[i - 1], qPrintable(namesOf(stops).left(700)));
        // And where the focus is can be seen.
        for (int i = 0; i < stops.size(); ++i) {
            QWidget *stop = QApplication::focusWidget();
            QVERIFY(stop);
            const int mark = markOf(stop);
            QVERIFY2(mark < 0 || mark >= 12,
                     qPrintable(nameOf(stop) + QStringLiteral(" shows no focus: %1 pixels").arg(mark)));
        }
    }

private slots:
    void designChain_data()
    {
        QTest::addColumn<int>("drawer");
        QTest::newRow("step") << int(DesignPage::Step);
        QTest::newRow("search") << int(DesignPage::Search);
        QTest::newRow("compare") << int(DesignPage::Compare);
        QTest::newRow("data") << int(DesignPage::Data);
    }

    void designChain()
    {
        QFETCH(int, drawer);
        Fixture f;
        Framed framed(f.page.headWidget(), &f.page);
        f.document().apply({"cluster=dgx-a100-80", "model.heads=8", "model.hidden=512", "model.layers=8",
                            "layout.dp=4", "layout.pp=2", "batch.global=64", "batch.micro=1"},
                           {});
        f.settle();
        f.page.setDrawer(static_cast<DesignPage::Drawer>(drawer));
        if (drawer == DesignPage::Search) {
            f.page.search()->start();
            QTRY_VERIFY_WITH_TIMEOUT(!f.page.search()->task()->isRunning(), 60'000);
        }
        if (drawer == DesignPage::Compare) {
            f.page.compare()->keep();
            f.document().set("model.layers", 4);
            f.settle();
        }
        QVERIFY(QTest::qWaitForWindowActive(&framed.window));
        const QWidget *lower = f.page.timeline()->parentWidget()->parentWidget();
        walk(framed.window, {f.page.headWidget(), f.page.form(), f.page.ranks(), lower, f.page.panel()});
    }

    void clusterChain_data()
    {
        QTest::addColumn<int>("view");
        QTest::newRow("boxes") << int(ClusterPage::Boxes);
        QTest::newRow("matrix") << int(ClusterPage::Matrix);
        QTest::newRow("fabric") << int(ClusterPage::FabricOfNodes);
    }

    void clusterChain()
    {
        QFETCH(int, view);
        ActionRegistry registry;
        Settings settings{QString()};
        ClusterPage page(&registry, &settings);
        QVERIFY(page.open(QStringLiteral("dgx-a100-80 x 3")));
        Framed framed(page.headWidget(), &page);
        page.setView(static_cast<ClusterPage::View>(view));
        QVERIFY(QTest::qWaitForWindowActive(&framed.window));
        const QWidget *drawing = view == ClusterPage::Boxes ? static_cast<const QWidget *>(page.canvas())
            : view == ClusterPage::Matrix                   ? static_cast<const QWidget *>(page.matrix())
                                                            : page.fabric();
        walk(framed.window, {page.headWidget(), drawing->parentWidget(), page.inspector()});
    }

    // Changed, looked at, mended, undone, searched, loaded, compared and saved: no mouse anywhere.
    void aJourneyByKeysAlone()
    {
        Fixture f;
        Framed framed(f.page.headWidget(), &f.page);
        QVERIFY(QTest::qWaitForWindowActive(&framed.window));
        const auto key = [](int which, Qt::KeyboardModifiers with = {}) {
            QWidget *focus = QApplication::focusWidget();
            QVERIFY(focus);
            // As a keyboard sends it: with Ctrl or Alt a letter is no text.
            QTest::sendKeyEvent(QTest::Click, focus, static_cast<Qt::Key>(which), QString(), with);
        };
        const QString file = f.write(
            "journey.json",
            R"({"schema": "rankyard/job/1", "name": "journey", "data": {"train": "corpus"}, "cluster": "dgx-a100-80",
            "model": {"layers": 8, "hidden": 512, "heads": 8, "seq": 1024, "vocab": 50304},
            "batch": {"global": 64, "micro": 1}, "layout": {"dp": 8}, "precision": {"compute": "bf16"}})");
        QVERIFY(f.page.open(file)); // dialogs and menus of files have loops of their own
        QCOMPARE(f.document().file(), file);
        f.settle();
        // An axis: a factor of dp goes to pp.
        FactorBoard *factors = f.page.form()->axes()->factors();
        QVERIFY(tabToThe(factors));
        key(Qt::Key_Left, Qt::ControlModifier);
        QCOMPARE(whole(f.document().value("layout.pp")), 2);
        QCOMPARE(whole(f.document().value("layout.dp")), 4);
        f.settle();
        // A rank and whom it talks to.
        QVERIFY(tabToThe(f.page.ranks()->map()));
        key(Qt::Key_Right);
        key(Qt::Key_Right);
        QVERIFY2(f.page.ranks()->detail().startsWith(QStringLiteral("Rank 1")),
                 qPrintable(f.page.ranks()->detail()));
        // What is wrong is mended by its button, and the focus is not lost with the button.
        QWidget *micro = f.page.form()->row("batch.micro")->line();
        QVERIFY(tabToThe(micro));
        QTest::keyClicks(micro, QStringLiteral("3"));
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Cannot run"));
        QWidget *fix = tabTo([](const QWidget *focus) {
            const auto *button = qobject_cast<const QAbstractButton *>(focus);
            return button && button->text().startsWith(QStringLiteral("Set "));
        });
        QVERIFY2(fix,
                 qPrintable(QStringLiteral("the focus is at ")
                            + (QApplication::focusWidget() ? nameOf(QApplication::focusWidget()) : QString())
                            + QStringLiteral(", problems of the field: %1")
                                  .arg(f.page.form()->row("batch.micro")->problems())));
        key(Qt::Key_Space);
        f.settle();
        QVERIFY2(f.document().job(), "the fix mends it");
        QCOMPARE(f.page.panel()->headline(), QStringLiteral("Fits"));
        QVERIFY(QApplication::focusWidget());
        QVERIFY(framed.window.isAncestorOf(QApplication::focusWidget()));
        // A fix of the panel, whose buttons are made anew by each answer.
        QWidget *advice = tabTo([&](const QWidget *focus) {
            const auto *button = qobject_cast<const QAbstractButton *>(focus);
            return button && f.page.panel()->isAncestorOf(focus)
                && button->text().startsWith(QStringLiteral("Set "));
        });
        QVERIFY(advice);
        const Json before = f.document().json();
        key(Qt::Key_Space);
        QVERIFY(f.document().json() != before);
        f.settle();
        QVERIFY(QApplication::focusWidget());
        QVERIFY2(f.page.panel()->isAncestorOf(QApplication::focusWidget()),
                 qPrintable(nameOf(QApplication::focusWidget())));
        key(Qt::Key_Z, Qt::ControlModifier);
        QVERIFY(f.document().json() == before);
        f.settle();
        // The search, and its second best.
        key(Qt::Key_2, Qt::AltModifier);
        QCOMPARE(f.page.drawer(), DesignPage::Search);
        QVERIFY(f.page.search()->task()->isRunning());
        QTRY_VERIFY_WITH_TIMEOUT(!f.page.search()->task()->isRunning(), 60'000);
        QTableView *found = f.page.search()->table();
        QCOMPARE(QApplication::focusWidget(), found);
        key(Qt::Key_Down);
        const search::Choice choice = f.page.search()->model()->candidate(1).choice;
        key(Qt::Key_D, Qt::ControlModifier); // what there is now is kept to compare
        QCOMPARE(f.page.drawer(), DesignPage::Compare);
        key(Qt::Key_2, Qt::AltModifier);
        QVERIFY(
            !f.page.search()->task()->isRunning()); // it is of this design: the second best is still current
        QCOMPARE(QApplication::focusWidget(), found);
        key(Qt::Key_Return);
        QVERIFY(f.document().job());
        QVERIFY(search::choiceOf(*f.document().job()) == choice);
        f.settle();
        // Side by side.
        key(Qt::Key_3, Qt::AltModifier);
        QCOMPARE(QApplication::focusWidget(), f.page.compare()->table());
        QVERIFY(f.page.compare()->model()->rowCount() > 0);
        key(Qt::Key_Down);
        // Saved from a button of the head: shortcuts are heard there too.
        key(Qt::Key_S, Qt::ControlModifier);
        QVERIFY(!f.document().isDirty());
        const auto saved = spec::loadJob(file.toStdString());
        QVERIFY2(saved, saved ? "" : saved.error().text().c_str());
        QVERIFY(search::choiceOf(*saved) == choice);
        QVERIFY(f.notices.all().empty());
    }

    // Every drawing by its keys: step, ends, zoom, fit, nothing selected.
    void drawings()
    {
        Fixture f;
        f.document().apply({"layout.pp=2", "layout.dp=1", "batch.global=16", "batch.micro=4"}, {});
        f.settle();
        StepTimeline *line = f.page.timeline();
        line->setFocus(Qt::TabFocusReason);
        const double whole = line->end() - line->begin();
        QTest::keyClick(line, Qt::Key_Right);
        QTest::keyClick(line, Qt::Key_End);
        QCOMPARE(line->current().span, static_cast<int>(line->lanes()[0].spans.size()) - 1);
        QTest::keyClick(line, Qt::Key_Home);
        QCOMPARE(line->current().span, 0);
        QTest::keyClick(line, Qt::Key_Plus);
        QVERIFY(line->end() - line->begin() < whole);
        QTest::keyClick(line, Qt::Key_Minus);
        QTest::keyClick(line, Qt::Key_F);
        QCOMPARE(line->end() - line->begin(), whole);
        QTest::keyClick(line, Qt::Key_Escape);
        QCOMPARE(line->current().lane, -1);
    }
};

static test::Register<TestKeyboard> registered;
#include "test_keyboard.moc"
