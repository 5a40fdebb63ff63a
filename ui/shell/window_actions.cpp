// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/sources.h"
#include "ui/cluster/cluster_page.h"
#include "ui/common/format.h"
#include "ui/designer/design_page.h"
#include "ui/monitor/monitor_page.h"
#include "ui/shell/main_window.h"
#include "ui/shell/notice_list.h"
#include "ui/shell/quick_pick.h"
#include "ui/shell/shortcut_sheet.h"
#include "ui/shell/status_strip.h"

#include <QCoreApplication>
#include <QFileDialog>
#include <QFileInfo>

#include <algorithm>

namespace rankyard::ui {

void MainWindow::addActions()
{
    const QString go = tr("Go to");
    const auto page = [&](const QString &name, const QString &text, const QString &tip, Qt::Key key) {
        m_registry->add({QStringLiteral("go.") + name, text, tip, go, name, QKeySequence(Qt::CTRL | key)},
                        [this, name] { showPage(name); });
    };
    page(QStringLiteral("home"), tr("Home"), tr("Start here"), Qt::Key_1);
    page(QStringLiteral("runs"), tr("Runs"), tr("All runs: open, stop, delete, compare"), Qt::Key_2);
    page(QStringLiteral("cluster"), tr("Cluster"), tr("What there is to run on, and how it is joined"),
         Qt::Key_3);
    page(QStringLiteral("design"), tr("Design"), tr("What a layout costs, before anything runs"), Qt::Key_4);
    page(QStringLiteral("monitor"), tr("Monitor"), tr("Watch a run live"), Qt::Key_5);
    page(QStringLiteral("settings"), tr("Settings"), tr("Look, charts, data"), Qt::Key_6);

    const QString run = tr("Run");
    m_registry->add({QStringLiteral("home.sample"), tr("Run the sample"),
                     tr("Trains a small GPT on two ranks of this machine"), run, QStringLiteral("play"),
                     QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_R)},
                    [this] { runSample(); });
    m_registry->add({QStringLiteral("file.openjob"), tr("Open a job file"),
                     tr("Starts the job of a file as a new run"), run, QStringLiteral("folder"),
                     QKeySequence(QKeySequence::Open)},
                    [this] { openJob(); });

    const QString view = tr("View");
    m_registry->add({QStringLiteral("view.palette"), tr("Command palette"),
                     tr("Finds any action by its name"), view, QStringLiteral("command"),
                     QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_P)},
                    [this] { openPalette(); });
    m_registry->add({QStringLiteral("view.quickopen"), tr("Quick open"),
                     tr("Finds runs, designs and clusters by their names and opens them"), view,
                     QStringLiteral("search"), QKeySequence(Qt::CTRL | Qt::Key_K)},
                    [this] { openQuickOpen(); });
    m_registry->add({QStringLiteral("view.notices"), tr("Show notices"),
                     tr("Everything that the program had to tell since the start"), view,
                     QStringLiteral("bell"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_N)},
                    [this] { m_list->toggle(m_strip->height()); });
    addLookActions();
    m_registry->add({QStringLiteral("help.sheet"), tr("Keyboard shortcuts"), tr("Shows every shortcut"), view,
                     QStringLiteral("keyboard"), QKeySequence(QStringLiteral("?"))},
                    [this] { m_sheet->toggle(); });
    m_registry->action(QStringLiteral("help.sheet"))
        ->setShortcuts({QKeySequence(QStringLiteral("?")), QKeySequence(Qt::Key_F1)});
    m_registry->add({QStringLiteral("app.quit"), tr("Quit"), tr("Closes the window; runs go on"), view,
                     QStringLiteral("close"), QKeySequence(Qt::CTRL | Qt::Key_Q)},
                    [this] { close(); });
}

void MainWindow::addLookActions()
{
    const QString look = tr("Look");
    const std::tuple<const char *, QString, QString, const char *, ThemeMode> themes[] = {
        {"look.system", tr("Use the system's theme"), tr("Light or dark, as the desktop says"), "settings",
         ThemeMode::System},
        {"look.light", tr("Use the light theme"), tr("Light background everywhere"), "sun", ThemeMode::Light},
        {"look.dark", tr("Use the dark theme"), tr("Dark background everywhere"), "sun", ThemeMode::Dark},
    };
    for (const auto &[id, text, tip, iconName, mode] : themes) {
        m_registry->add({QLatin1String(id), text, tip, look, QLatin1String(iconName), {}},
                        [this, chosen = mode] { m_settings->setThemeMode(chosen); });
    }
    m_registry->add({QStringLiteral("look.larger"), tr("Larger text"),
                     tr("Text grows by a tenth, up to 200 %"), look, QStringLiteral("settings"),
                     QKeySequence(QKeySequence::ZoomIn)},
                    [this] { m_settings->setTextPercent(m_settings->textPercent() + 10); });
    m_registry->add({QStringLiteral("look.smaller"), tr("Smaller text"),
                     tr("Text shrinks by a tenth, down to 100 %"), look, QStringLiteral("settings"),
                     QKeySequence(QKeySequence::ZoomOut)},
                    [this] { m_settings->setTextPercent(m_settings->textPercent() - 10); });
}

void MainWindow::openPalette()
{
    std::vector<PickItem> items;
    const auto put = [&](const ActionRegistry::Entry &entry) {
        if (entry.spec.id == QLatin1String("view.palette"))
            return;
        // Actions of another page first go there.
        const QString page = entry.spec.scope == Scope::Page ? entry.spec.page : QString();
        QAction *action = entry.action;
        items.push_back({action->text(), entry.spec.category,
                         entry.spec.shortcut.toString(QKeySequence::NativeText), entry.spec.icon,
                         [this, page, action] {
                             if (!page.isEmpty() && page != m_page)
                                 showPage(page);
                             action->trigger();
                         },
                         action->isEnabled() && action->isVisible()});
    };
    for (const QString &id : m_registry->recent()) {
        for (const auto &entry : m_registry->entries()) {
            if (entry.spec.id == id)
                put(entry);
        }
    }
    const auto &recent = m_registry->recent();
    for (const auto &entry : m_registry->entries()) {
        if (std::find(recent.begin(), recent.end(), entry.spec.id) == recent.end())
            put(entry);
    }
    m_pick->open(tr("Type a command"), std::move(items), tr("No action has such a name."));
}

/// Runs, then jobs that were open lately, then clusters.
void MainWindow::openQuickOpen()
{
    std::vector<PickItem> items;
    if (m_hub->runs()) {
        std::vector<const store::RunInfo *> runs;
        for (const store::RunInfo &run : *m_hub->runs())
            runs.push_back(&run);
        std::sort(runs.begin(), runs.end(),
                  [](const auto *a, const auto *b) { return a->startedNs > b->startedNs; });
        for (const store::RunInfo *run : runs) {
            const StateLook look = lookOf(run->state);
            const QString id = QString::fromStdString(run->id);
            items.push_back({QString::fromStdString(run->name), tr("Run"),
                             look.word + QStringLiteral("  ") + formatWhen(run->startedNs), look.icon,
                             [this, id] { openRun(id); }, true, id});
        }
    }
    for (const QString &file : m_design->recent()) {
        const QFileInfo info(file);
        items.push_back({info.fileName(), tr("Job"), info.path(), QStringLiteral("design"),
                         [this, file] {
                             showPage(QStringLiteral("design"));
                             m_design->openAsking(file);
                         },
                         info.exists()});
    }
    const auto addCluster = [&](const QString &what, const QString &title) {
        items.push_back({what == QLatin1String("local") ? tr("This machine") : what, tr("Cluster"), title,
                         QStringLiteral("cluster"), [this, what] {
                             m_cluster->openLater(what);
                             showPage(QStringLiteral("cluster"));
                         }});
    };
    addCluster(QStringLiteral("local"), {});
    for (const cluster::Preset &preset : cluster::presets())
        addCluster(QString::fromLatin1(preset.id), QString::fromUtf8(preset.what));
    m_pick->open(tr("Open a run, a job or a cluster"), std::move(items),
                 tr("No run, job or cluster has such a name."));
}

void MainWindow::runSample()
{
    const QString job = m_actions->sampleJob();
    if (job.isEmpty()) {
        m_notices->post(
            Severity::Error,
            tr("The sample job was not found beside the program. Prepare it with packaging/run."));
        return;
    }
    m_strip->setJob(tr("Starting the sample"));
    m_actions->startJob(job);
}

void MainWindow::openJob()
{
    const QString file = QFileDialog::getOpenFileName(this, tr("Open a job file"), {}, tr("Jobs (*.json)"));
    if (file.isEmpty())
        return;
    m_strip->setJob(tr("Starting %1").arg(file.section(QLatin1Char('/'), -1)));
    m_actions->startJob(file);
}

} // namespace rankyard::ui
