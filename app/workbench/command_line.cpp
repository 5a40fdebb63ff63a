// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/workbench/command_line.h"

#include "ui/shell/main_window.h"

#include <algorithm>

namespace rankyard::app {

namespace {

constexpr int mostPixels = 16384; ///< of a side of a picture

Error bad(const char *what, const QString &found, const QString &expected)
{
    return Error::make(Code::Usage, what)
        .withFound(found.toStdString())
        .withExpected(expected.toStdString())
        .withHint("See rankyard --help");
}

Result<QSize> sizeOf(const QString &text)
{
    const QStringList parts = text.split(QLatin1Char('x'));
    bool wide = false;
    bool high = false;
    const QSize size(parts.value(0).toInt(&wide), parts.value(1).toInt(&high));
    if (parts.size() != 2 || !wide || !high)
        return bad("not a size", text, QStringLiteral("WIDTHxHEIGHT, for example 1600x1000"));
    const QSize least = ui::MainWindow::smallestSize();
    if (size.expandedTo(least) != size || size.width() > mostPixels || size.height() > mostPixels)
        return bad("the window has no such size", text,
                   QStringLiteral("%1x%2 to %3x%3").arg(least.width()).arg(least.height()).arg(mostPixels));
    return size;
}

/// Views of a page by name, in the order of its buttons.
QStringList viewsOf(const QString &page)
{
    if (page == QLatin1String("cluster"))
        return {QStringLiteral("boxes"), QStringLiteral("matrix"), QStringLiteral("fabric")};
    if (page == QLatin1String("design"))
        return {QStringLiteral("step"), QStringLiteral("search"), QStringLiteral("compare"),
                QStringLiteral("data")};
    return {};
}

Status checkView(const CommandLine &line)
{
    const QStringList views = viewsOf(line.snapshot);
    if (!line.view.isEmpty() && !views.contains(line.view))
        return bad("the page has no such view", line.view,
                   views.isEmpty() ? QStringLiteral("none: a snapshot of cluster or design has views")
                                   : views.join(QStringLiteral(", ")));
    if (!line.against.isEmpty() && line.snapshot != QLatin1String("design"))
        return bad("only designs are compared", line.against, QStringLiteral("--snapshot design"));
    return {};
}

} // namespace

int CommandLine::viewIndex() const
{
    return static_cast<int>(std::max<qsizetype>(0, viewsOf(snapshot).indexOf(view)));
}

Result<CommandLine> parseCommandLine(const QStringList &words)
{
    CommandLine line;
    qsizetype at = 0;
    const auto value = [&]() -> Result<QString> {
        if (at + 1 >= words.size())
            return Error::make(Code::Usage, "the option needs a value", words[at].toStdString())
                .withHint("See rankyard --help");
        return words[++at];
    };
    for (; at < words.size(); ++at) {
        const QString word = words[at];
        if (word == QLatin1String("--help") || word == QLatin1String("-h")) {
            line.help = true;
        } else if (word == QLatin1String("--version")) {
            line.version = true;
        } else if (word == QLatin1String("--run")) {
            RY_ASSIGN(line.job, value());
        } else if (word == QLatin1String("--store")) {
            RY_ASSIGN(line.store, value());
        } else if (word == QLatin1String("--open")) {
            RY_ASSIGN(line.open, value());
        } else if (word == QLatin1String("--view")) {
            RY_ASSIGN(line.view, value());
        } else if (word == QLatin1String("--against")) {
            RY_ASSIGN(line.against, value());
        } else if (word == QLatin1String("--theme")) {
            RY_ASSIGN(line.theme, value());
            if (line.theme != QLatin1String("dark") && line.theme != QLatin1String("light"))
                return bad("no such theme", line.theme, QStringLiteral("dark or light"));
        } else if (word == QLatin1String("--size")) {
            RY_ASSIGN(const QString text, value());
            RY_ASSIGN(line.size, sizeOf(text));
        } else if (word == QLatin1String("--scale")) {
            RY_ASSIGN(const QString text, value());
            bool ok = false;
            line.scale = text.toDouble(&ok);
            if (!ok || line.scale < 0.5 || line.scale > 4)
                return bad("not a scale", text, QStringLiteral("0.5 to 4"));
        } else if (word == QLatin1String("--text")) {
            RY_ASSIGN(const QString text, value());
            bool ok = false;
            line.text = text.toInt(&ok);
            if (!ok || *line.text < 100 || *line.text > 200)
                return bad("not a text size", text, QStringLiteral("100 to 200"));
        } else if (word == QLatin1String("--snapshot")) {
            RY_ASSIGN(line.snapshot, value());
            RY_ASSIGN(line.picture, value());
            if (!line.picture.endsWith(QLatin1String(".png"), Qt::CaseInsensitive))
                return bad("pictures are written as PNG only", line.picture,
                           QStringLiteral("a file name that ends in .png"));
            if (!ui::MainWindow::pageNames().contains(line.snapshot))
                return bad("no such page", line.snapshot,
                           ui::MainWindow::pageNames().join(QStringLiteral(", ")));
        } else if (!word.startsWith(QLatin1Char('-')) && line.open.isEmpty()) {
            line.open = word;
        } else {
            return bad("unknown argument", word, QString());
        }
    }
    RY_TRY(checkView(line));
    return line;
}

QString usage()
{
    return QStringLiteral(
        "rankyard [FILE|RUN|CLUSTER] [--run JOB] [--store FILE] [--theme dark|light] [--text PERCENT]\n"
        "    Opens the workbench: on a job or another engine's configuration in the designer, a run in the monitor, a preset; with --run on JOB,\n"
        "    started as a new run.\n"
        "rankyard --snapshot PAGE FILE.png [--open RUN|JOB|CLUSTER] [--view VIEW] [--against JOB] [--size WxH] [--theme dark|light] [--scale N] [--text PERCENT] [--store FILE]\n"
        "    Draws a page without a display. PAGE: home, runs, cluster, design, monitor, settings. RUN: an id, the beginning of one, or last.\n"
        "    VIEW: boxes, matrix, fabric of cluster; step, search, compare, data of design, which is compared with the job of --against.\n"
        "    CLUSTER: a file, a preset (dgx-h100x32) or local.\n"
        "rankyard --help | --version\n");
}

} // namespace rankyard::app
