// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ui/ui_test.h"
#include "ui/common/icons.h"
#include "ui/common/theme.h"

#include <QApplication>
#include <QDir>
#include <QImage>
#include <QPainter>
#include <QSignalSpy>

using namespace rankyard;
using namespace rankyard::ui;

/// The token table itself is what is tested: WCAG contrast of every pair that the pages use.
class TestTheme : public test::UiTest
{
    Q_OBJECT
private slots:
    void textIsReadable_data()
    {
        QTest::addColumn<bool>("dark");
        QTest::addColumn<int>("text");
        QTest::addColumn<int>("ground");
        const Token grounds[] = {Token::Background, Token::Surface, Token::Raised, Token::Selection};
        for (bool dark : {false, true}) {
            for (Token ground : grounds) {
                for (Token text : {Token::Text, Token::Muted})
                    row(dark, text, ground);
            }
            // Tones stand on pages, never on the selection (delegates switch to text there).
            for (Token ground : {Token::Background, Token::Surface, Token::Raised}) {
                for (Token text : {Token::Good, Token::Warn, Token::Bad})
                    row(dark, text, ground);
            }
            row(dark, Token::OnAccent, Token::Accent);
        }
    }

    void textIsReadable()
    {
        QFETCH(bool, dark);
        QFETCH(int, text);
        QFETCH(int, ground);
        const double found = contrast(Theme::colorIn(static_cast<Token>(text), dark),
                                      Theme::colorIn(static_cast<Token>(ground), dark));
        QVERIFY2(found >= 4.5, qPrintable(QString::number(found)));
    }

    void marksAreSeen()
    {
        for (bool dark : {false, true}) {
            for (Token ground : {Token::Background, Token::Surface}) {
                const QColor under = Theme::colorIn(ground, dark);
                for (int i = 0; i < seriesCount; ++i)
                    QVERIFY2(contrast(Theme::seriesIn(i, dark), under) >= 3,
                             qPrintable(QStringLiteral("series %1").arg(i)));
                QVERIFY(contrast(Theme::colorIn(Token::Accent, dark), under) >= 3);
            }
            const QColor surface = Theme::colorIn(Token::Surface, dark);
            for (int kind = 0; kind < kindCount; ++kind) {
                // The bubble is told by its hatch, which is drawn in the muted colour.
                const QColor mark = Theme::isHatched({Ink::From::Kind, kind})
                    ? Theme::colorIn(Token::Muted, dark)
                    : Theme::kindIn(static_cast<Kind>(kind), dark);
                QVERIFY2(contrast(mark, surface) >= 3, qPrintable(QStringLiteral("kind %1").arg(kind)));
            }
            QVERIFY(contrast(Theme::colorIn(Token::Accent, dark), Theme::colorIn(Token::Selection, dark))
                    >= 3);
        }
    }

    void switchesLive()
    {
        Theme &theme = Theme::instance();
        QSignalSpy changed(&theme, &Theme::changed);
        theme.setMode(ThemeMode::Dark);
        QCOMPARE(changed.count(), 1);
        QCOMPARE(QApplication::palette().color(QPalette::Window), QColor(0x13, 0x15, 0x19));
        QVERIFY(qApp->styleSheet().contains(QStringLiteral("#1a1d23")));
        QVERIFY2(!qApp->styleSheet().contains(QRegularExpression(QStringLiteral("@[a-z]"))),
                 "a name in the style sheet has no token");
        theme.setMode(ThemeMode::Light);
        QCOMPARE(QApplication::palette().color(QPalette::Window), QColor(0xF5, 0xF6, 0xF8));
    }

    void textGrows()
    {
        Theme &theme = Theme::instance();
        theme.setTextPercent(200);
        QCOMPARE(theme.font(FontRole::Body).pixelSize(), 26);
        theme.setTextPercent(500);
        QCOMPARE(theme.textPercent(), 200);
        theme.setTextPercent(100);
        QCOMPARE(theme.font(FontRole::Title).pixelSize(), 22);
    }

    void iconsDraw()
    {
        const QDir dir(QStringLiteral(":/rankyard/icons"));
        const QStringList names = dir.entryList({QStringLiteral("*.svg")});
        QVERIFY(names.size() > 30);
        for (const QString &file : names) {
            const QString name = file.chopped(4);
            const QImage image = iconPixmap(name, Qt::red, 18, 2).toImage();
            int red = 0;
            for (int y = 0; y < image.height(); ++y) {
                for (int x = 0; x < image.width(); ++x)
                    red += qAlpha(image.pixel(x, y)) > 128 && qRed(image.pixel(x, y)) > 200;
            }
            QVERIFY2(red > 8, qPrintable(name));
        }
    }

private:
    static void row(bool dark, Token text, Token ground)
    {
        QTest::addRow("%s %d on %d", dark ? "dark" : "light", static_cast<int>(text),
                      static_cast<int>(ground))
            << dark << static_cast<int>(text) << static_cast<int>(ground);
    }
};

static test::Register<TestTheme> registered;
#include "test_theme.moc"
