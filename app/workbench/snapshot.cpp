// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/workbench/snapshot.h"

#include "engine/spec/job.h"
#include "ui/cluster/cluster_page.h"
#include "ui/designer/compare_view.h"
#include "ui/designer/design_page.h"
#include "ui/designer/search_task.h"
#include "ui/designer/search_view.h"
#include "ui/monitor/monitor_page.h"
#include "ui/runs/runs_page.h"
#include "ui/shell/main_window.h"

#include <QApplication>
#include <QCursor>
#include <QEventLoop>
#include <QFileInfo>
#include <QImageWriter>
#include <QPixmap>
#include <QSaveFile>

#include <algorithm>

namespace rankyard::app {

namespace {

/// Turns the event loop until `done`. It waits for events only: every state that ends the wait is announced by one.
template<typename Done>
void turnUntil(Done done)
{
    while (!done())
        QCoreApplication::processEvents(QEventLoop::AllEvents | QEventLoop::WaitForMoreEvents);
}

Result<QString> runFor(const QString &open, const ui::DataHub &hub)
{
    const auto &runs = *hub.runs();
    std::string name;
    if (open.endsWith(QLatin1String(".json")) || QFileInfo(open).isFile()) {
        RY_ASSIGN(const spec::JobSpec job, spec::loadJob(open.toStdString()));
        name = job.name;
    }
    const store::RunInfo *found = nullptr;
    int matches = 0;
    for (const store::RunInfo &run : runs) {
        const bool exact = run.id == open.toStdString();
        const bool fits = !name.empty()     ? run.name == name
            : open == QLatin1String("last") ? true
                                            : QString::fromStdString(run.id).startsWith(open);
        if (exact)
            return open;
        if (!fits)
            continue;
        ++matches;
        if (!found || run.startedNs > found->startedNs)
            found = &run;
    }
    const bool newest = !name.empty() || open == QLatin1String("last");
    if (!found || (matches > 1 && !newest))
        return Error::make(Code::NotFound, found ? "several runs begin so" : "no such run",
                           open.toStdString())
            .withHint("rankyardctl runs list shows the runs of the store");
    return QString::fromStdString(found->id);
}

Status openDesign(const CommandLine &line, ui::DesignPage &page)
{
    if (!line.against.isEmpty()) {
        RY_TRY(page.open(line.against));
        turnUntil([&] { return page.isReady(); });
        page.compare()->keep();
    }
    if (!line.open.isEmpty())
        RY_TRY(page.open(line.open));
    page.setDrawer(static_cast<ui::DesignPage::Drawer>(line.viewIndex()));
    if (page.drawer() == ui::DesignPage::Search) {
        page.openSomething();
        page.search()->start();
        turnUntil([&] { return !page.search()->task()->isRunning(); });
    }
    return {};
}

Status write(const QImage &image, const QString &picture)
{
    // Whole or not at all: a picture that was there before stays until the new one is complete.
    QSaveFile file(picture);
    QString reason;
    if (!file.open(QIODevice::WriteOnly)) {
        reason = file.errorString();
    } else {
        QImageWriter writer(&file, "png");
        if (!writer.write(image))
            reason = writer.error() == QImageWriter::DeviceError ? file.errorString() : writer.errorString();
        else if (!file.commit())
            reason = file.errorString();
    }
    if (reason.isEmpty())
        return {};
    return Error::make(Code::Io, "the picture could not be written: " + reason.toStdString(),
                       picture.toStdString());
}

} // namespace

Status drawSnapshot(const CommandLine &line, ui::DataHub &hub, ui::MainWindow &window)
{
    std::optional<Error> failure;
    QObject::connect(&hub, &ui::DataHub::failed, &window, [&](const Error &error) { failure = error; });
    // Nothing is hovered in a picture.
    QCursor::setPos(line.size.width() + 100, line.size.height() + 100);
    window.resize(line.size);
    window.show();
    turnUntil([&] { return hub.runs() || failure; });
    if (failure)
        return *failure;
    if (line.snapshot == QLatin1String("cluster")) {
        RY_TRY(window.cluster()->open(line.open.isEmpty() ? QStringLiteral("local") : line.open));
        window.cluster()->setView(static_cast<ui::ClusterPage::View>(line.viewIndex()));
    } else if (line.snapshot == QLatin1String("design")) {
        RY_TRY(openDesign(line, *window.design()));
    } else if (!line.open.isEmpty()) {
        RY_ASSIGN(const QString run, runFor(line.open, hub));
        if (line.snapshot == QLatin1String("runs"))
            window.runs()->select({run});
        else
            window.monitor()->showRun(run); // looks at the store only: no agent is asked
    }
    window.showPage(line.snapshot);
    turnUntil([&] { return window.isReady() || failure; });
    if (failure)
        return *failure;
    // Layouts that the data asked for, then the charts at their final size.
    for (int i = 0; i < 3; ++i) {
        QCoreApplication::sendPostedEvents();
        QCoreApplication::processEvents(QEventLoop::ExcludeUserInputEvents);
        window.drawNow();
    }
    return write(window.grab().toImage(), line.picture);
}

} // namespace rankyard::app
