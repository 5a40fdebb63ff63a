// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ui/synthetic_store.h"
#include "tests/ui/ui_test.h"
#include "ui/cluster/cluster_page.h"
#include "ui/common/icons.h"
#include "ui/common/long_work.h"
#include "ui/common/notice_stack.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_page.h"
#include "ui/home/file_row.h"
#include "ui/monitor/log_model.h"
#include "ui/monitor/log_pane.h"
#include "ui/monitor/monitor_page.h"
#include "ui/runs/compare_panel.h"
#include "ui/runs/runs_page.h"
#include "ui/shell/main_window.h"
#include "ui/shell/quick_pick.h"
#include "ui/shell/shortcut_sheet.h"
#include "ui/shell/status_strip.h"

#include <QAbstractItemModelTester>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QTableView>
#include <QTemporaryDir>
#include <QToolButton>

using namespace rankyard;
using namespace rankyard::ui;

namespace {

struct Fixture {
    QTemporaryDir dir;
    std::filesystem::path file = dir.filePath(QStringLiteral("runs.sqlite")).toStdString();
    test::FakeActions actions;
    Settings settings{QString()};
    std::unique_ptr<DataHub> hub;
    std::unique_ptr<MainWindow> window;

    explicit Fixture(bool withRun)
    {
        if (withRun) {
            test::SyntheticRun run;
            run.state = telemetry::RunState::Running;
            run.done = 120;
            run.endedAgoNs = 1'000'000;
            if (const Status put = test::putRun(file, run); !put)
                qFatal("%s", put.error().text().c_str());
        }
        hub = std::make_unique<DataHub>(file);
        window = std::make_unique<MainWindow>(hub.get(), &actions, &settings);
        window->resize(1280, 800);
        window->show();
        window->activateWindow();
        (void)QTest::qWaitForWindowActive(window.get());
    }
};

} // namespace

class TestShell : public test::UiTest
{
    Q_OBJECT
private slots:
    void registryIsSound()
    {
        Fixture f(false);
        QStringList ids;
        QStringList keys;
        QStringList windowKeys;
        QVERIFY(f.window->registry()->entries().size() > 30);
        for (const auto &entry : f.window->registry()->entries()) {
            QVERIFY2(!ids.contains(entry.spec.id), qPrintable(entry.spec.id));
            ids << entry.spec.id;
            QVERIFY2(!entry.spec.text.isEmpty() && !entry.spec.tip.isEmpty()
                         && !entry.spec.category.isEmpty(),
                     qPrintable(entry.spec.id));
            QVERIFY2(!entry.spec.icon.isEmpty() && hasIcon(entry.spec.icon), qPrintable(entry.spec.id));
            QVERIFY2(!entry.spec.text.endsWith(QLatin1Char('!'))
                         && !entry.spec.tip.contains(QLatin1Char('!')),
                     qPrintable(entry.spec.id));
            if (entry.spec.shortcut.isEmpty())
                continue;
            const QString key = entry.spec.shortcut.toString();
            const QString place =
                entry.spec.scope == Scope::Window ? QString() : entry.spec.page + QLatin1Char(' ');
            QVERIFY2(!keys.contains(place + key), qPrintable(entry.spec.id + QLatin1Char(' ') + key));
            keys << place + key;
            if (entry.spec.scope == Scope::Window)
                windowKeys << key;
        }
        for (const auto &entry : f.window->registry()->entries()) {
            if (entry.spec.scope == Scope::Page)
                QVERIFY2(!windowKeys.contains(entry.spec.shortcut.toString()), qPrintable(entry.spec.id));
        }
    }

    void pagesByNumber()
    {
        Fixture f(true);
        const QStringList names = MainWindow::pageNames();
        for (int i = 0; i < names.size(); ++i) {
            QTest::keyClick(f.window.get(), static_cast<Qt::Key>(Qt::Key_1 + i), Qt::ControlModifier);
            QCOMPARE(f.window->page(), names[i]);
            QTRY_VERIFY(f.window->isReady());
        }
    }

    void paletteRunsAnything()
    {
        Fixture f(true);
        QTRY_VERIFY(f.hub->runs());
        QTest::keyClick(f.window.get(), Qt::Key_P, Qt::ControlModifier | Qt::ShiftModifier);
        QVERIFY(f.window->quickPick()->isVisible());
        QAbstractItemModelTester tester(f.window->quickPick()->model(),
                                        QAbstractItemModelTester::FailureReportingMode::QtTest);
        QLineEdit *line = f.window->quickPick()->line();
        QTest::keyClicks(line, QStringLiteral("go ru"));
        QCOMPARE(f.window->quickPick()->model()->index(0).data().toString(), QStringLiteral("Runs"));
        QTest::keyClick(line, Qt::Key_Return);
        QVERIFY(!f.window->quickPick()->isVisible());
        QCOMPARE(f.window->page(), QStringLiteral("runs"));
        // What is not possible now is shown, not run.
        QTest::keyClick(f.window.get(), Qt::Key_P, Qt::ControlModifier | Qt::ShiftModifier);
        QTest::keyClicks(line, QStringLiteral("qqqq"));
        QCOMPARE(f.window->quickPick()->model()->rowCount(), 0);
        QTest::keyClick(line, Qt::Key_Return);
        QTest::keyClick(line, Qt::Key_Escape);
        QVERIFY(!f.window->quickPick()->isVisible());
        // Quick open: a run by its name.
        QTest::keyClick(f.window.get(), Qt::Key_K, Qt::ControlModifier);
        QTest::keyClicks(line, QStringLiteral("kjv"));
        QTest::keyClick(line, Qt::Key_Return);
        QCOMPARE(f.window->page(), QStringLiteral("monitor"));
        QTRY_VERIFY(f.window->isReady());
        QVERIFY(f.actions.asked.contains(QStringLiteral("Follow r-20261130T120000-abcdef")));
    }

    void quickOpenFindsIds()
    {
        Fixture f(true);
        QTRY_VERIFY(f.hub->runs());
        QTest::keyClick(f.window.get(), Qt::Key_K, Qt::ControlModifier);
        QLineEdit *line = f.window->quickPick()->line();
        QTest::keyClicks(line, QStringLiteral("t120000-ABC"));
        QCOMPARE(f.window->quickPick()->model()->rowCount(), 1);
        line->setText(QStringLiteral("t120001"));
        QCOMPARE(f.window->quickPick()->model()->rowCount(), 0);
        line->setText(QStringLiteral("r-20261130T120000-abcdef"));
        QTest::keyClick(line, Qt::Key_Return);
        QCOMPARE(f.window->monitor()->run(), QStringLiteral("r-20261130T120000-abcdef"));
        QTRY_VERIFY(f.window->isReady());
    }

    void quickOpenFindsJobsAndClusters()
    {
        Fixture f(true);
        QTRY_VERIFY(f.hub->runs());
        const QString file = f.dir.filePath(QStringLiteral("wide.json"));
        QVERIFY(f.window->design()->document()->save(file));
        QVERIFY(f.window->design()->open(file));
        const auto pick = [&](const char *text) {
            QTest::keyClick(f.window.get(), Qt::Key_K, Qt::ControlModifier);
            QTest::keyClicks(f.window->quickPick()->line(), QLatin1String(text));
            QTest::keyClick(f.window->quickPick()->line(), Qt::Key_Return);
        };
        pick("dgx-h200");
        QCOMPARE(f.window->page(), QStringLiteral("cluster"));
        QTRY_VERIFY(f.window->isReady());
        QVERIFY2(f.window->cluster()->what().startsWith(QStringLiteral("dgx-h200")),
                 qPrintable(f.window->cluster()->what()));
        pick("wide.json");
        QCOMPARE(f.window->page(), QStringLiteral("design"));
        QCOMPARE(f.window->design()->document()->file(), file);
    }

    // Home leads to the designer, and lists what was designed last as long as it is there.
    void homeListsDesigns()
    {
        Fixture f(true);
        QTRY_VERIFY(f.hub->runs());
        QDir(f.dir.path()).mkpath(QString::fromUtf8("Entwürfe, alt"));
        QStringList files;
        for (int i = 0; i < 7; ++i) {
            files << f.dir.filePath(QString::fromUtf8("Entwürfe, alt/%1 ranks.json").arg(i));
            QVERIFY(f.window->design()->document()->save(files.back()));
            QVERIFY(f.window->design()->open(files.back()));
        }
        QVERIFY(QFile::remove(files[6]));
        f.window->showPage(QStringLiteral("home"));
        const auto rows = f.window->findChildren<FileRow *>();
        QCOMPARE(rows.size(), 5);
        QCOMPARE(rows[0]->file(), files[5]);
        QTest::mouseClick(rows[3], Qt::LeftButton);
        QCOMPARE(f.window->page(), QStringLiteral("design"));
        QCOMPARE(f.window->design()->document()->file(), files[2]);
        f.window->showPage(QStringLiteral("home"));
        QCOMPARE(f.window->findChildren<FileRow *>()[0]->file(), files[2]);
        const auto buttons = f.window->findChildren<QPushButton *>();
        const auto designer = std::find_if(buttons.begin(), buttons.end(), [](const QPushButton *button) {
            return button->text() == QStringLiteral("Open the designer");
        });
        QVERIFY(designer != buttons.end());
        QTest::mouseClick(*designer, Qt::LeftButton);
        QCOMPARE(f.window->page(), QStringLiteral("design"));
    }

    // What the command line names: by what it is.
    void anythingIsOpenedWhereItBelongs()
    {
        Fixture f(true);
        QTRY_VERIFY(f.hub->runs());
        const QString file = f.dir.filePath(QStringLiteral("a job.json"));
        QVERIFY(f.window->design()->document()->save(file));
        f.window->openAnything(QStringLiteral("dgx-h100x4"));
        QCOMPARE(f.window->page(), QStringLiteral("cluster"));
        QTRY_COMPARE(f.window->cluster()->what(), QStringLiteral("dgx-h100x4"));
        f.window->openAnything(file);
        QCOMPARE(f.window->page(), QStringLiteral("design"));
        QCOMPARE(f.window->design()->document()->file(), file);
        f.window->openAnything(QStringLiteral("r-20261130T120000-abcdef"));
        QCOMPARE(f.window->page(), QStringLiteral("monitor"));
        f.window->openAnything(QStringLiteral("/nowhere/b.json"));
        QCOMPARE(f.window->page(), QStringLiteral("design"));
        QCOMPARE(f.window->notices()->rowCount(), 1);
        QCOMPARE(f.window->design()->document()->file(), file);
    }

    // Select a run, Return: its lines are in the Monitor, though the comparison has read it before.
    void runFromRunsPageHasItsLog()
    {
        Fixture f(true);
        f.window->showPage(QStringLiteral("runs"));
        RunsPage *runs = f.window->runs();
        QTRY_COMPARE(runs->table()->model()->rowCount(), 1);
        runs->select({QStringLiteral("r-20261130T120000-abcdef")});
        QTRY_VERIFY(runs->comparePanel()->isVisible() && runs->comparePanel()->isLoaded());
        QTest::keyClick(runs->table(), Qt::Key_Return);
        QCOMPARE(f.window->page(), QStringLiteral("monitor"));
        QTRY_VERIFY(f.window->isReady());
        auto store = store::RunStore::open(f.file, true);
        const auto lines = (*store)->logs("r-20261130T120000-abcdef", 0, 1'000'000);
        QVERIFY(lines && !lines->empty());
        QCOMPARE(f.window->monitor()->log()->model()->rowCount(), static_cast<int>(lines->size()));
    }

    // As X11 sends them: Ctrl with a letter and Alt with a figure carry a text, which a list could take for the first letters of an
    // entry and a field could write.
    void shortcutsOfAPageWorkFromEverywhereOnIt()
    {
        Fixture f(true);
        int come = 0;
        for (const QString &page : MainWindow::pageNames()) {
            for (const auto &[name, keys] :
                 {std::pair("control", Qt::CTRL | Qt::Key_J), std::pair("alt", Qt::ALT | Qt::Key_9)}) {
                ActionSpec spec;
                spec.id = page + QLatin1String(".test.") + QLatin1String(name);
                spec.shortcut = QKeySequence(keys);
                spec.scope = Scope::Page;
                spec.page = page;
                f.window->registry()->add(spec, [&come] { ++come; });
            }
            f.window->showPage(page);
            QTRY_VERIFY_WITH_TIMEOUT(f.window->isReady(), 30'000);
            int asked = come;
            QList<QWidget *> seen;
            for (QWidget *stop = QApplication::focusWidget(); stop && !seen.contains(stop);
                 stop = QApplication::focusWidget()) {
                seen << stop;
                QTest::sendKeyEvent(QTest::Click, stop, Qt::Key_J, QStringLiteral("\n"), Qt::ControlModifier);
                QTest::sendKeyEvent(QTest::Click, stop, Qt::Key_9, QStringLiteral("9"), Qt::AltModifier);
                asked += 2;
                QVERIFY2(come == asked, stop->metaObject()->className());
                QTest::keyClick(stop, Qt::Key_Tab);
            }
            QVERIFY2(seen.size() > 3, qPrintable(page));
        }
    }

    // A probe, a search and the like are seen and ended wherever one is; the newest of several.
    void workInTheBackgroundIsInTheStrip()
    {
        struct Work : LongWork {
            using LongWork::begin;
            using LongWork::end;
            using LongWork::tell;
            void cancel() override { ++cancelled; }
            int cancelled = 0;
        };
        Fixture f(false);
        StatusStrip *strip = f.window->strip();
        QVERIFY(!strip->cancelButton()->isVisible());
        Work first;
        auto second = std::make_unique<Work>();
        strip->watch(&first);
        strip->watch(second.get());
        first.begin(QStringLiteral("Search of layouts"));
        first.tell(0.456, QStringLiteral("pricing"));
        QVERIFY2(strip->workText() == QStringLiteral("Search of layouts: 45 %"),
                 qPrintable(strip->workText()));
        second->begin(QStringLiteral("Measuring"));
        QVERIFY2(strip->workText().startsWith(QStringLiteral("Measuring: 0 %")),
                 qPrintable(strip->workText()));
        strip->cancelButton()->click();
        QCOMPARE(second->cancelled, 1);
        QCOMPARE(first.cancelled, 0);
        second.reset(); // gone without an end
        QVERIFY(strip->workText().startsWith(QStringLiteral("Search of layouts")));
        strip->cancelButton()->click();
        QCOMPARE(first.cancelled, 1);
        first.end();
        QVERIFY(!strip->cancelButton()->isVisible());
        QVERIFY(f.window->findChildren<LongWork *>().size() >= 3); // search, corpus, probe
    }

    void sheetShowsEveryShortcut()
    {
        Fixture f(false);
        QTest::keyClick(f.window.get(), Qt::Key_F1);
        QVERIFY(f.window->sheet()->isVisible());
        QTest::keyClick(f.window->sheet(), Qt::Key_Escape);
        QTest::keyClick(
            f.window.get(),
            Qt::Key_Question); // the offscreen platform knows no layout: with Shift it would be another key
        QVERIFY(f.window->sheet()->isVisible());
        int withKeys = 0;
        for (const auto &entry : f.window->registry()->entries())
            withKeys += !entry.spec.shortcut.isEmpty();
        QVERIFY(f.window->sheet()->rows() >= withKeys);
        QTest::keyClick(f.window->sheet(), Qt::Key_Escape);
        QVERIFY(!f.window->sheet()->isVisible());
    }

    void sampleStarts()
    {
        Fixture f(false);
        f.window->registry()->action(QStringLiteral("home.sample"))->trigger();
        QCOMPARE(f.actions.asked.last(), QStringLiteral("start /nowhere/sample.json"));
        emit f.actions.failed(
            QStringLiteral("Start"),
            Error::make(Code::DoesNotFit, "not enough memory", "rank 0").withHint("Use a smaller batch"));
        QCOMPARE(f.window->notices()->rowCount(), 1);
        QCOMPARE(f.window->noticeStack()->shown(), 1);
        QVERIFY(!QApplication::activeModalWidget());
        f.actions.sample.clear();
        f.window->registry()->action(QStringLiteral("home.sample"))->trigger();
        QCOMPARE(f.window->notices()->rowCount(), 2);
    }

    void stripFollowsTheLiveRun()
    {
        Fixture f(true);
        QTRY_VERIFY(f.window->strip()->liveText().contains(QStringLiteral("gpt-kjv")));
        QVERIFY(f.window->strip()->liveText().contains(QStringLiteral("step 120 / 2,000")));
        QVERIFY(f.window->strip()->liveText().contains(QStringLiteral("loss ")));
    }

    // Whatever takes the focus can say what it is.
    void namesForEverything()
    {
        Fixture f(true);
        for (const QString &page : MainWindow::pageNames()) {
            f.window->showPage(page);
            QTRY_VERIFY(f.window->isReady());
            for (QWidget *widget : f.window->findChildren<QWidget *>()) {
                if (!widget->isVisible() || !(widget->focusPolicy() & Qt::TabFocus) || widget->focusProxy())
                    continue;
                QString name = widget->accessibleName();
                if (const auto *button = qobject_cast<QAbstractButton *>(widget))
                    name += button->text();
                if (qobject_cast<QLabel *>(widget) || widget->inherits("QTabBar")
                    || widget->inherits("QLineEdit"))
                    name += QLatin1Char('-');
                const bool pageItself = widget == f.window->monitor() || widget->inherits("QStackedWidget");
                QVERIFY2(pageItself || !name.isEmpty(),
                         qPrintable(page + QLatin1Char(' ') + QLatin1String(widget->metaObject()->className())
                                    + QLatin1Char(' ') + widget->objectName()));
            }
        }
    }

    // No label of the window's own is cut at 200 % text and 1280×800.
    void largeTextFits()
    {
        Fixture f(true);
        Theme::instance().setTextPercent(200);
        for (const QString &page : MainWindow::pageNames()) {
            f.window->showPage(page);
            QTRY_VERIFY(f.window->isReady());
            QCoreApplication::processEvents();
            for (QPushButton *button : f.window->findChildren<QPushButton *>()) {
                if (button->isVisible())
                    QVERIFY2(button->width() >= button->minimumSizeHint().width() - 2,
                             qPrintable(page + QLatin1Char(' ') + button->text()));
            }
            QVERIFY(f.window->width() <= 1280 + 400);
        }
        Theme::instance().setTextPercent(100);
        QCoreApplication::processEvents();
    }

    void themeSwitchesEverywhere()
    {
        Fixture f(true);
        f.window->showPage(QStringLiteral("monitor"));
        QTRY_VERIFY(f.window->isReady());
        Theme::instance().setMode(ThemeMode::Dark);
        QCoreApplication::processEvents();
        f.window->drawNow();
        QCoreApplication::processEvents();
        const QImage image = f.window->grab().toImage();
        int bright = 0;
        for (int y = 0; y < image.height(); y += 4) {
            for (int x = 0; x < image.width(); x += 4)
                bright += qGray(image.pixel(x, y)) > 235;
        }
        QVERIFY2(bright < image.width() * image.height() / 16 / 50, qPrintable(QString::number(bright)));
        Theme::instance().setMode(ThemeMode::Light);
        QCoreApplication::processEvents();
    }

    void emptyStoreTeaches()
    {
        Fixture f(false);
        QTRY_VERIFY(f.hub->runs());
        for (const QString &page : MainWindow::pageNames()) {
            f.window->showPage(page);
            QTRY_VERIFY(f.window->isReady());
            QVERIFY(!f.window->grab().isNull());
        }
    }
};

static test::Register<TestShell> registered;
#include "test_shell.moc"
