// SPDX-License-Identifier: GPL-3.0-or-later
// The program itself: snapshots of every page without a display, exit codes, what it says.
#include "tests/ui/synthetic_store.h"
#include "tests/ui/ui_test.h"

#include <QImage>
#include <QProcess>
#include <QProcessEnvironment>
#include <QTemporaryDir>

using namespace rankyard;

namespace {

struct Outcome {
    int code = -1;
    QString out;
    QString err;
};

Outcome rankyardProgram(const QStringList &arguments, const QString &display = {})
{
    QProcess process;
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    environment.remove(QStringLiteral("QT_QPA_PLATFORM"));
    environment.remove(QStringLiteral("DISPLAY"));
    environment.remove(QStringLiteral("WAYLAND_DISPLAY"));
    if (!display.isEmpty())
        environment.insert(QStringLiteral("DISPLAY"), display);
    process.setProcessEnvironment(environment);
    process.start(qEnvironmentVariable("RANKYARD_BIN_DIR") + QStringLiteral("/rankyard"), arguments);
    if (!process.waitForFinished(60'000))
        process.kill();
    return {process.exitStatus() == QProcess::NormalExit ? process.exitCode() : -1,
            QString::fromUtf8(process.readAllStandardOutput()),
            QString::fromUtf8(process.readAllStandardError())};
}

/// Distinct colours on a coarse grid: a blank page has a handful.
int colours(const QImage &image)
{
    QSet<QRgb> seen;
    for (int y = 0; y < image.height(); y += 3) {
        for (int x = 0; x < image.width(); x += 3)
            seen.insert(image.pixel(x, y));
    }
    return static_cast<int>(seen.size());
}

} // namespace

class TestSnapshot : public test::UiTest
{
    Q_OBJECT
    QTemporaryDir m_dir;
    QString m_store;

private slots:
    void initTestCase()
    {
        m_store = m_dir.filePath(QStringLiteral("runs.sqlite"));
        const Status put = test::putDemo(m_store.toStdString());
        QVERIFY2(put, put ? "" : put.error().text().c_str());
    }

    void everyPage_data()
    {
        QTest::addColumn<QString>("page");
        for (const char *page : {"home", "runs", "cluster", "design", "monitor", "settings"})
            QTest::addRow("%s", page) << QString::fromLatin1(page);
    }

    void everyPage()
    {
        QFETCH(QString, page);
        for (const char *theme : {"dark", "light"}) {
            const QString file = m_dir.filePath(page + QLatin1String(theme) + QStringLiteral(".png"));
            const Outcome outcome =
                rankyardProgram({QStringLiteral("--snapshot"), page, file, QStringLiteral("--store"), m_store,
                                 QStringLiteral("--size"), QStringLiteral("1280x800"),
                                 QStringLiteral("--theme"), QLatin1String(theme)});
            QCOMPARE(outcome.err, QString());
            QCOMPARE(outcome.code, 0);
            const QImage image(file);
            QCOMPARE(image.size(), QSize(1280, 800));
            QVERIFY2(colours(image) > 60, qPrintable(QString::number(colours(image))));
        }
    }

    void aRunByNameAndScale()
    {
        const QString file = m_dir.filePath(QStringLiteral("scaled.png"));
        const Outcome outcome = rankyardProgram(
            {QStringLiteral("--snapshot"), QStringLiteral("monitor"), file, QStringLiteral("--store"),
             m_store, QStringLiteral("--open"), QStringLiteral("r-20261129T16"), QStringLiteral("--size"),
             QStringLiteral("1280x800"), QStringLiteral("--scale"), QStringLiteral("2")});
        QCOMPARE(outcome.err, QString());
        QCOMPARE(outcome.code, 0);
        QCOMPARE(QImage(file).size(), QSize(2560, 1600));
    }

    void badInput_data()
    {
        QTest::addColumn<QStringList>("arguments");
        QTest::addColumn<QString>("says");
        const QString file = m_dir.filePath(QStringLiteral("no.png"));
        QTest::newRow("page") << QStringList{QStringLiteral("--snapshot"), QStringLiteral("clusters"), file}
                              << QStringLiteral("home, runs, cluster, design, monitor, settings");
        QTest::newRow("run") << QStringList{QStringLiteral("--snapshot"), QStringLiteral("monitor"), file,
                                            QStringLiteral("--open"), QStringLiteral("r-1999")}
                             << QStringLiteral("r-1999");
        QTest::newRow("prefix") << QStringList{QStringLiteral("--snapshot"), QStringLiteral("monitor"), file,
                                               QStringLiteral("--open"), QStringLiteral("r-2026")}
                                << QStringLiteral("several");
        QTest::newRow("size") << QStringList{QStringLiteral("--snapshot"), QStringLiteral("home"), file,
                                             QStringLiteral("--size"), QStringLiteral("big")}
                              << QStringLiteral("1600x1000");
        for (const char *size : {"320x200", "899x560", "900x559", "900x20000"})
            QTest::addRow("size %s", size)
                << QStringList{QStringLiteral("--snapshot"), QStringLiteral("home"), file,
                               QStringLiteral("--size"), QString::fromLatin1(size)}
                << QStringLiteral("900x560 to 16384x16384");
        for (const char *name : {"a.svg", "a.jpg", "png"})
            QTest::addRow("picture %s", name)
                << QStringList{QStringLiteral("--snapshot"), QStringLiteral("home"),
                               m_dir.filePath(QString::fromLatin1(name))}
                << QStringLiteral(".png");
        QTest::newRow("view") << QStringList{QStringLiteral("--snapshot"), QStringLiteral("cluster"), file,
                                             QStringLiteral("--view"), QStringLiteral("search")}
                              << QStringLiteral("boxes, matrix, fabric");
        QTest::newRow("theme") << QStringList{QStringLiteral("--theme"), QStringLiteral("blue")}
                               << QStringLiteral("dark or light");
        QTest::newRow("unknown") << QStringList{QStringLiteral("--frobnicate")}
                                 << QStringLiteral("--frobnicate");
        QTest::newRow("value") << QStringList{QStringLiteral("--store")} << QStringLiteral("needs a value");
    }

    void badInput()
    {
        QFETCH(QStringList, arguments);
        QFETCH(QString, says);
        const Outcome outcome =
            rankyardProgram(arguments
                            + QStringList{QStringLiteral("--store"), m_store}.mid(
                                0, arguments.contains(QStringLiteral("--store")) ? 0 : 2));
        QCOMPARE(outcome.code, 2);
        QVERIFY2(outcome.err.contains(says), qPrintable(outcome.err));
        QCOMPARE(outcome.err.count(QLatin1Char('\n')), 1);
    }

    void unwritablePicture()
    {
        const Outcome outcome =
            rankyardProgram({QStringLiteral("--snapshot"), QStringLiteral("settings"),
                             QStringLiteral("/nonexistent/x.png"), QStringLiteral("--store"), m_store});
        QVERIFY(outcome.code != 0);
        QVERIFY(outcome.err.contains(QStringLiteral("/nonexistent/x.png")));
        QVERIFY2(outcome.err.contains(QStringLiteral("No such file or directory")), qPrintable(outcome.err));
    }

    void noDisplay()
    {
        const Outcome outcome = rankyardProgram({});
        QCOMPARE(outcome.code, 3);
        QVERIFY(outcome.err.contains(QStringLiteral("--snapshot")));
        QCOMPARE(outcome.err.count(QLatin1Char('\n')), 1);
    }

    void deadDisplay_data()
    {
        QTest::addColumn<QString>("display");
        QTest::newRow("nobody there") << QStringLiteral(":31999");
        QTest::newRow("no name") << QStringLiteral("nonsense");
    }

    void deadDisplay()
    {
        QFETCH(QString, display);
        const Outcome outcome = rankyardProgram({}, display);
        QCOMPARE(outcome.code, 3);
        QVERIFY2(outcome.err.contains(QStringLiteral("DISPLAY=") + display), qPrintable(outcome.err));
        QVERIFY2(outcome.err.contains(QStringLiteral("--snapshot")), qPrintable(outcome.err));
        QCOMPARE(outcome.err.count(QLatin1Char('\n')), 1);
    }

    void help()
    {
        QCOMPARE(rankyardProgram({QStringLiteral("--help")}).code, 0);
        QVERIFY(rankyardProgram({QStringLiteral("--version")}).out.startsWith(QStringLiteral("rankyard 0.")));
    }
};

static test::Register<TestSnapshot> registered;
#include "test_snapshot.moc"
