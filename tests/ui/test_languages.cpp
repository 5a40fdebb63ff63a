// SPDX-License-Identifier: GPL-3.0-or-later
// Every text goes through translation, and pages hold longer and larger ones without cutting them.
#include "engine/base/build_id.h"
#include "tests/ui/synthetic_store.h"
#include "tests/ui/ui_test.h"
#include "ui/common/elided_label.h"
#include "ui/common/english.h"
#include "ui/shell/main_window.h"

#include <QAbstractButton>
#include <QApplication>
#include <QDirIterator>
#include <QFile>
#include <QLabel>
#include <QRegularExpression>
#include <QTemporaryDir>
#include <QTranslator>

using namespace rankyard;
using namespace rankyard::ui;

namespace {

/// A language that nobody speaks: each text in brackets and longer by four tenths, as German or Finnish would make it.
class LongLanguage : public QTranslator
{
public:
    bool isEmpty() const override { return false; }
    QString translate(const char *, const char *source, const char *, int count) const override
    {
        QString text = QString::fromUtf8(source);
        if (count >= 0)
            text.replace(QStringLiteral("%n"), QString::number(count));
        const auto more = static_cast<qsizetype>(std::ceil(0.4 * static_cast<double>(text.size())));
        // Before a shortcut behind a tab, which is no text.
        const qsizetype end =
            text.contains(QLatin1Char('\t')) ? text.indexOf(QLatin1Char('\t')) : text.size();
        return QStringLiteral("[") + text.left(end) + QString(more, QLatin1Char('~')) + QStringLiteral("]")
            + text.mid(end);
    }
};

/// A text of ours, not a number, a name of a run or a key. Some commits have three letters in a row.
bool isWords(const QString &text)
{
    if (text == QLatin1String(buildId()))
        return false;
    static const QRegularExpression letters(QStringLiteral("[A-Za-z]{3,}"));
    return text.contains(letters);
}

struct Fixture {
    QTemporaryDir dir;
    std::filesystem::path file = dir.filePath(QStringLiteral("runs.sqlite")).toStdString();
    LongLanguage language;
    test::FakeActions actions;
    Settings settings{QString()};
    std::unique_ptr<DataHub> hub;
    std::unique_ptr<MainWindow> window;

    explicit Fixture(int percent)
    {
        if (const Status put = test::putDemo(file); !put)
            qFatal("%s", put.error().text().c_str());
        QCoreApplication::installTranslator(&language);
        Theme::instance().setTextPercent(percent);
        hub = std::make_unique<DataHub>(file);
        window = std::make_unique<MainWindow>(hub.get(), &actions, &settings);
        window->resize(1280, 800);
        window->show();
    }

    ~Fixture()
    {
        window.reset();
        QCoreApplication::removeTranslator(&language);
        Theme::instance().setTextPercent(100);
    }
};

} // namespace

class TestLanguages : public test::UiTest
{
    Q_OBJECT
private slots:
    void pages_data()
    {
        QTest::addColumn<QString>("page");
        QTest::addColumn<int>("percent");
        for (const QString &page : MainWindow::pageNames()) {
            for (int percent : {100, 200})
                QTest::addRow("%s %d", qPrintable(page), percent) << page << percent;
        }
    }

    void pages()
    {
        QFETCH(QString, page);
        QFETCH(int, percent);
        Fixture f(percent);
        f.window->showPage(page);
        QTRY_VERIFY_WITH_TIMEOUT(f.window->isReady(), 30'000);
        for (int i = 0; i < 5; ++i)
            QCoreApplication::processEvents();
        QStringList cut;
        QStringList plain;
        for (const QWidget *widget : f.window->findChildren<QWidget *>()) {
            if (!widget->isVisible() || widget->visibleRegion().isEmpty())
                continue;
            look(widget, cut, plain);
        }
        QVERIFY2(cut.isEmpty(), qPrintable(QStringLiteral("cut: ") + cut.join(QStringLiteral(" | "))));
        QVERIFY2(plain.isEmpty(),
                 qPrintable(QStringLiteral("not translated: ") + plain.join(QStringLiteral(" | "))));
        QString widest;
        for (const QWidget *widget : f.window->findChildren<QWidget *>()) {
            const int needed = widget->minimumSizeHint().width();
            if (needed > 900)
                widest += QStringLiteral(" %1 %2")
                              .arg(QLatin1String(widget->metaObject()->className()))
                              .arg(needed);
        }
        QVERIFY2(f.window->minimumSizeHint().width() <= 1280, qPrintable(widest));
    }

    void oneIsNotMany()
    {
        // Every text that counts has a singular.
        const QDir tree(qEnvironmentVariable("RANKYARD_SOURCE_DIR") + QStringLiteral("/ui"));
        QDirIterator files(tree.path(), {QStringLiteral("*.cpp")}, QDir::Files, QDirIterator::Subdirectories);
        int found = 0;
        while (files.hasNext()) {
            QFile file(files.next());
            QVERIFY(file.open(QIODevice::ReadOnly));
            static const QRegularExpression counting(QStringLiteral("tr\\(\"([^\"]*%n[^\"]*)\", nullptr"));
            for (auto it = counting.globalMatch(QString::fromUtf8(file.readAll())); it.hasNext(); ++found) {
                const QString source = it.next().captured(1);
                QVERIFY2(English::singularOf(qPrintable(source)), qPrintable(source));
            }
        }
        QVERIFY(found >= 6);
        English english;
        QCoreApplication::installTranslator(&english);
        QCOMPARE(QCoreApplication::translate("x", "%n ranks", nullptr, 1), QStringLiteral("1 rank"));
        QCOMPARE(QCoreApplication::translate("x", "%n ranks", nullptr, 2), QStringLiteral("2 ranks"));
        QCoreApplication::removeTranslator(&english);
    }

private:
    static void look(const QWidget *widget, QStringList &cut, QStringList &plain)
    {
        QString text;
        if (const auto *label = qobject_cast<const QLabel *>(widget))
            text = label->text();
        else if (const auto *button = qobject_cast<const QAbstractButton *>(widget))
            text = button->text();
        if (text.isEmpty() || !isWords(text))
            return;
        // What is data (names, layouts, paths) is marked as such where it is put.
        if (!widget->property("data").toBool() && !text.contains(QLatin1Char('[')))
            plain << text;
        if (qobject_cast<const ElidedLabel *>(widget))
            return;
        const auto *label = qobject_cast<const QLabel *>(widget);
        if (label && label->wordWrap()) {
            if (label->height() < label->heightForWidth(label->width()))
                cut << text;
            return;
        }
        const int needed =
            label ? QFontMetrics(label->font()).horizontalAdvance(text) : widget->sizeHint().width();
        if (widget->width() < needed || widget->height() < QFontMetrics(widget->font()).height())
            cut << text + QStringLiteral(" %1 < %2").arg(widget->width()).arg(needed);
    }
};

static test::Register<TestLanguages> registered;
#include "test_languages.moc"
