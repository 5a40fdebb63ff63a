// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ui/ui_test.h"
#include "ui/common/actions.h"
#include "ui/common/format.h"
#include "ui/common/narrow_row.h"
#include "ui/common/notice_stack.h"
#include "ui/common/notices.h"
#include "ui/common/segmented.h"
#include "ui/common/settings.h"
#include "ui/common/throttle.h"

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QHBoxLayout>
#include <QMenu>
#include <QPushButton>
#include <QSettings>
#include <QSignalSpy>
#include <QSplitter>
#include <QTemporaryDir>
#include <QToolButton>

using namespace rankyard;
using namespace rankyard::ui;

class TestCommon : public test::UiTest
{
    Q_OBJECT
private slots:
    void numbers()
    {
        QCOMPARE(formatStep(1234), QStringLiteral("1,234"));
        QCOMPARE(formatStep(999), QStringLiteral("999"));
        QCOMPARE(formatStep(-1234567), QStringLiteral("-1,234,567"));
        QCOMPARE(formatLoss(1.87349), QStringLiteral("1.873"));
        QCOMPARE(formatLoss(NAN), QStringLiteral("NaN"));
        QCOMPARE(formatShort(65536, Unit::Power2), QStringLiteral("2^16"));
        QCOMPARE(formatShort(4120, Unit::TokensPerSecond), QStringLiteral("4.12 k"));
        QCOMPARE(formatValue(3.41 * 1073741824.0, Unit::Bytes), QStringLiteral("3.41 GiB"));
        QCOMPARE(formatShort(2.4e-4, Unit::Scientific), QStringLiteral("2.4e-4"));
        QCOMPARE(formatShort(INFINITY, Unit::Number), QStringLiteral("Inf"));
        QCOMPARE(formatSeconds(580), QStringLiteral("9 min 40 s"));
    }

    void everyStateHasWordIconAndTone()
    {
        QStringList words;
        for (int state = 0; state <= static_cast<int>(telemetry::RunState::Lost); ++state) {
            const StateLook look = lookOf(static_cast<telemetry::RunState>(state));
            QVERIFY(!look.word.isEmpty() && !look.icon.isEmpty());
            words << look.word;
        }
        words.removeDuplicates();
        QCOMPARE(words.size(), static_cast<int>(telemetry::RunState::Lost) + 1);
    }

    void noticesAreCounted()
    {
        // A source that fails at every tick: one line with a count, nothing modal.
        QWidget window;
        window.resize(800, 600);
        Notices notices;
        NoticeStack stack(&notices, &window);
        window.show();
        QAbstractItemModelTester tester(&notices, QAbstractItemModelTester::FailureReportingMode::QtTest);
        for (int i = 0; i < 1000; ++i)
            notices.post(Severity::Error, QStringLiteral("The sample is damaged"));
        QCOMPARE(notices.rowCount(), 1);
        QCOMPARE(notices.index(0).data(Notices::CountRole).toInt(), 1000);
        QVERIFY(notices.index(0).data().toString().contains(QStringLiteral("1000")));
        QVERIFY(!QApplication::activeModalWidget());
        QCOMPARE(stack.shown(), 1);
        for (int i = 0; i < 300; ++i)
            notices.post(Severity::Info, QStringLiteral("Notice %1").arg(i));
        QCOMPARE(notices.rowCount(), 200);
        QCOMPARE(stack.shown(), 2);
        QCOMPARE(stack.moreText(), QStringLiteral("and 48 more"));
        QVERIFY(stack.height() < window.height() / 2);
        int ran = 0;
        const int id =
            notices.post(Error::make(Code::Io, "disk is full", "/data").withHint("Free some space"),
                         QStringLiteral("Retry"), [&] { ++ran; });
        QVERIFY(notices.index(0).data().toString().contains(QStringLiteral("Free some space")));
        notices.act(id);
        QCOMPARE(ran, 1);
        notices.clear();
        QTRY_VERIFY(!stack.isVisible());
        // Those behind come up when the newer ones are closed; the one that is told again is the newest.
        for (const char *text : {"one", "two", "three"})
            notices.post(Severity::Error, QLatin1String(text));
        notices.post(Severity::Error, QStringLiteral("one"));
        const auto visible = [&] {
            QStringList texts;
            for (const QFrame *card : stack.findChildren<QFrame *>(QStringLiteral("notice"))) {
                if (card->isVisible())
                    texts << card->accessibleName();
            }
            texts.sort();
            return texts.join(QLatin1Char(' '));
        };
        QCOMPARE(visible(), QStringLiteral("one three"));
        QCOMPARE(stack.moreText(), QStringLiteral("and 1 more"));
        for (QFrame *card : stack.findChildren<QFrame *>(QStringLiteral("notice"))) {
            if (card->accessibleName() == QLatin1String("one"))
                card->findChild<QToolButton *>()->click();
        }
        QTRY_COMPARE(visible(), QStringLiteral("three two"));
        QVERIFY(stack.moreText().isEmpty());
    }

    // What is wrong with a file stands in the notice, not in its tooltip alone.
    void noticesOfErrorsSayWhatWasFound()
    {
        Notices notices;
        notices.post(Error::make(Code::BadData, "the key hidden_size cannot be used", "config.json")
                         .withFound("0")
                         .withExpected("a whole number from 1 on"));
        QCOMPARE(
            notices.index(0).data().toString(),
            QStringLiteral(
                "The key hidden_size cannot be used: found 0, expected a whole number from 1 on (config.json)"));
    }

    void throttleKeepsTheLast()
    {
        Throttle throttle(40);
        int calls = 0;
        int value = 0;
        int seen = -1;
        connect(&throttle, &Throttle::triggered, this, [&] {
            ++calls;
            seen = value;
        });
        QElapsedTimer timer;
        timer.start();
        for (value = 1; value <= 60; ++value) {
            throttle.request();
            QTest::qWait(3);
        }
        value = 60;
        throttle.request();
        QTRY_COMPARE(seen, 60);
        QVERIFY2(calls <= timer.elapsed() / 40 + 2, qPrintable(QString::number(calls)));
    }

    void settingsComeBack()
    {
        QTemporaryDir dir;
        const QString file = dir.filePath(QStringLiteral("workbench.ini"));
        QSplitter splitter;
        splitter.addWidget(new QWidget);
        splitter.addWidget(new QWidget);
        splitter.resize(400, 100);
        splitter.setSizes({100, 300});
        {
            Settings settings(file);
            settings.setThemeMode(ThemeMode::Dark);
            settings.setTextPercent(150);
            settings.setSmoothing(1.0); // refused down to the largest that there is
            settings.keep(QStringLiteral("test"), &splitter);
        }
        Settings settings(file);
        QCOMPARE(settings.themeMode(), ThemeMode::Dark);
        QCOMPARE(settings.textPercent(), 150);
        QCOMPARE(settings.smoothing(), 0.999);
        splitter.setSizes({300, 100});
        QVERIFY(settings.bringBack(QStringLiteral("test"), &splitter));
        QVERIFY(splitter.sizes()[0] < splitter.sizes()[1]);
        settings.setValue(QStringLiteral("splitter/test"), QByteArray("garbage"));
        const QList<int> before = splitter.sizes();
        QVERIFY(!settings.bringBack(QStringLiteral("test"), &splitter));
        QCOMPARE(splitter.sizes(), before);
    }

    void newerSettingsAreNotWritten()
    {
        QTemporaryDir dir;
        const QString file = dir.filePath(QStringLiteral("workbench.ini"));
        {
            QSettings other(file, QSettings::IniFormat);
            other.setValue(QStringLiteral("schema"), Settings::schema + 1);
            other.setValue(QStringLiteral("look/text"), 130);
        }
        {
            Settings settings(file);
            QVERIFY(settings.isReadOnly());
            QCOMPARE(settings.textPercent(), 130);
            settings.setTextPercent(200);
            QCOMPARE(settings.textPercent(), 200);
        }
        QSettings other(file, QSettings::IniFormat);
        QCOMPARE(other.value(QStringLiteral("look/text")).toInt(), 130);
    }

    void fuzzy()
    {
        std::vector<int> at;
        QVERIFY(fuzzyScore(QStringLiteral("rts"), QStringLiteral("Run the sample"), &at) > 0);
        QCOMPARE(at, (std::vector<int>{0, 4, 8}));
        QCOMPARE(fuzzyScore(QStringLiteral("xyz"), QStringLiteral("Run the sample")), -1);
        QVERIFY(fuzzyScore(QStringLiteral("fit"), QStringLiteral("Fit charts"))
                > fuzzyScore(QStringLiteral("fit"), QStringLiteral("Filter the text")));
    }

    void segmentedMovesByArrows()
    {
        Segmented segmented(QStringLiteral("X axis"),
                            {QStringLiteral("Step"), QStringLiteral("Tokens"), QStringLiteral("Time")});
        QSignalSpy changed(&segmented, &Segmented::changed);
        segmented.show();
        segmented.activateWindow();
        QVERIFY(QTest::qWaitForWindowActive(&segmented));
        segmented.findChildren<QToolButton *>().first()->setFocus();
        QTest::keyClick(segmented.focusWidget(), Qt::Key_Right);
        QCOMPARE(segmented.current(), 1);
        QCOMPARE(changed.count(), 1);
        segmented.setCurrent(1);
        QCOMPARE(changed.count(), 1);
    }

    // Where a row has no room, choices fold into a menu, keep the focus, and unfold again; then buttons hide.
    void aNarrowRowGivesItsRoomInOrder()
    {
        QWidget holder; // a window is never narrower than its layout
        NarrowRow row(&holder);
        auto *choices = new Segmented(
            QStringLiteral("View"),
            {QStringLiteral("The first one"), QStringLiteral("Second"), QStringLiteral("Third choice")},
            &row);
        auto *button = new QPushButton(QStringLiteral("Open file"), &row);
        row.row()->addWidget(choices);
        row.row()->addWidget(button);
        row.addGiving(choices);
        row.addGiving(button);
        row.resize(1000, 40);
        holder.resize(1000, 40);
        holder.show();
        holder.activateWindow();
        QVERIFY(QTest::qWaitForWindowActive(&holder));
        QVERIFY(!choices->isFolded());
        QVERIFY(choices->leastWidth() < choices->fullWidth());
        QCOMPARE(choices->sizeHint().width(), choices->fullWidth());
        choices->findChildren<QToolButton *>().first()->setFocus();
        const int full = choices->fullWidth();
        row.resize(full + button->sizeHint().width(), 40); // not for the gap between them
        QTRY_VERIFY(choices->isFolded());
        QVERIFY(!button->isHidden());
        QCOMPARE(choices->fullWidth(), full);
        QVERIFY(choices->width() < full);
        auto *fold = qobject_cast<QToolButton *>(QApplication::focusWidget());
        QVERIFY(fold && fold->menu());
        QVERIFY2(fold->text().startsWith(QStringLiteral("The first one")), qPrintable(fold->text()));
        QSignalSpy changed(choices, &Segmented::changed);
        fold->menu()->actions().at(2)->trigger();
        QCOMPARE(choices->current(), 2);
        QCOMPARE(changed.count(), 1);
        QVERIFY(fold->text().startsWith(QStringLiteral("Third")));
        row.resize(choices->leastWidth() + button->sizeHint().width() + 8, 40);
        QTRY_COMPARE(choices->width(), choices->leastWidth());
        QVERIFY2(fold->text().contains(QChar(0x2026)), qPrintable(fold->text()));
        QCOMPARE(fold->toolTip(), QStringLiteral("Third choice"));
        row.resize(40, 40);
        QTRY_VERIFY(button->isHidden());
        row.resize(1000, 40);
        QTRY_VERIFY(!choices->isFolded());
        QVERIFY(!button->isHidden());
        QVERIFY(choices->isAncestorOf(QApplication::focusWidget()));
    }
};

static test::Register<TestCommon> registered;
#include "test_common.moc"
