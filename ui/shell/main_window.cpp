// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/shell/main_window.h"

#include "engine/cluster/sources.h"
#include "ui/cluster/cluster_page.h"
#include "ui/common/icons.h"
#include "ui/common/long_work.h"
#include "ui/common/notice_stack.h"
#include "ui/designer/design_page.h"
#include "ui/home/home_page.h"
#include "ui/monitor/monitor_page.h"
#include "ui/runs/runs_page.h"
#include "ui/settings/settings_page.h"
#include "ui/shell/activity_bar.h"
#include "ui/shell/notice_list.h"
#include "ui/shell/quick_pick.h"
#include "ui/shell/shortcut_sheet.h"
#include "ui/shell/status_strip.h"

#include <QCloseEvent>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QScreen>
#include <QStackedWidget>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

MainWindow::MainWindow(DataHub *hub, RunActions *actions, Settings *settings, QWidget *parent)
    : QMainWindow(parent),
      m_hub(hub),
      m_actions(actions),
      m_settings(settings),
      m_registry(new ActionRegistry(this)),
      m_notices(new Notices(this))
{
    setObjectName(QStringLiteral("main"));
    setWindowTitle(tr("Rankyard"));
    setMinimumSize(smallestSize());
    addActions();
    build();
    connectPages();
    m_registry->attach(this);
    connect(&Theme::instance(), &Theme::changed, this, &MainWindow::restyle);
    restyle();
    // Not larger than the screen leaves room for, with a title bar.
    const QSize room = screen()->availableSize() - QSize(0, 40);
    resize(QSize(1600, 1000).boundedTo(room));
    m_settings->bringBack(this);
    showPage(QStringLiteral("home"));
}

MainWindow::~MainWindow() = default;

QSize MainWindow::smallestSize() { return {900, 560}; }

QStringList MainWindow::pageNames()
{
    return {QStringLiteral("home"),   QStringLiteral("runs"),    QStringLiteral("cluster"),
            QStringLiteral("design"), QStringLiteral("monitor"), QStringLiteral("settings")};
}

void MainWindow::build()
{
    auto *central = new QWidget(this);
    setCentralWidget(central);
    auto *across = new QHBoxLayout(central);
    across->setContentsMargins(0, 0, 0, 0);
    across->setSpacing(0);
    m_bar = new ActivityBar(central);
    across->addWidget(m_bar);
    auto *column = new QVBoxLayout;
    column->setSpacing(0);
    across->addLayout(column, 1);

    m_head = new QFrame(central);
    m_head->setObjectName(QStringLiteral("head"));
    m_headLayout = new QHBoxLayout(m_head);
    m_headLayout->setContentsMargins(16, 0, 12, 1);
    m_headLayout->setSpacing(16);
    m_title = new QLabel(m_head);
    setRole(m_title, FontRole::Head);
    m_heads = new QStackedWidget(m_head);
    m_headLayout->addWidget(m_title);
    m_headLayout->addWidget(m_heads, 1);
    column->addWidget(m_head);

    m_home = new HomePage(m_hub, m_registry, central);
    m_runs = new RunsPage(m_hub, m_actions, m_registry, m_settings, central);
    m_cluster = new ClusterPage(m_registry, m_settings, central, m_hub);
    m_design = new DesignPage({m_registry, m_settings, m_notices, m_actions}, central);
    m_monitor = new MonitorPage(m_hub, m_actions, m_registry, m_settings, central);
    m_settingsPage =
        new SettingsPage(m_settings, m_registry, QString::fromStdString(m_hub->file().string()), central);
    m_pages = new QStackedWidget(central);
    auto *emptyHead = new QWidget;
    auto *homeHead = new QWidget;
    auto *homeRow = new QHBoxLayout(homeHead);
    homeRow->setContentsMargins(0, 0, 0, 0);
    homeRow->addStretch(1);
    QAction *open = m_registry->action(QStringLiteral("file.openjob"));
    auto *openButton = new QPushButton(open->text());
    openButton->setToolTip(open->toolTip());
    connect(openButton, &QPushButton::clicked, open, &QAction::trigger);
    homeRow->addWidget(openButton);
    for (const auto &[page, head] : {std::pair<QWidget *, QWidget *>{m_home, homeHead},
                                     {m_runs, m_runs->headWidget()},
                                     {m_cluster, m_cluster->headWidget()},
                                     {m_design, m_design->headWidget()},
                                     {m_monitor, m_monitor->headWidget()},
                                     {m_settingsPage, emptyHead}}) {
        const QString name = pageNames()[m_pages->addWidget(page)];
        m_heads->addWidget(head);
        m_registry->attachPage(name, page);
        m_registry->attachPage(name, head);
    }
    column->addWidget(m_pages, 1);
    m_strip = new StatusStrip(m_hub, m_notices, central);
    column->addWidget(m_strip);

    for (const QString &name : pageNames())
        m_bar->add(name, m_registry->action(QStringLiteral("go.") + name), name == QLatin1String("settings"));
    m_pick = new QuickPick(central);
    m_sheet = new ShortcutSheet(m_registry, central);
    m_stack = new NoticeStack(m_notices, central);
    m_list = new NoticeList(m_notices, central);
}

void MainWindow::connectPages()
{
    connect(m_home, &HomePage::openRequested, this, &MainWindow::openRun);
    connect(m_home, &HomePage::designRequested, this, &MainWindow::openAnything);
    connect(m_runs, &RunsPage::openRequested, this, &MainWindow::openRun);
    connect(m_strip, &StatusStrip::runClicked, this, &MainWindow::openRun);
    connect(m_strip, &StatusStrip::noticesClicked, this, [this] { m_list->toggle(m_strip->height()); });
    connect(m_stack, &NoticeStack::moreClicked, this, [this] { m_list->toggle(m_strip->height()); });
    connect(m_home, &HomePage::ready, this, &MainWindow::pageReady);
    connect(m_runs, &RunsPage::ready, this, &MainWindow::pageReady);
    connect(m_monitor, &MonitorPage::ready, this, &MainWindow::pageReady);
    connect(m_design, &DesignPage::ready, this, &MainWindow::pageReady);
    connect(m_cluster, &ClusterPage::ready, this, &MainWindow::pageReady);
    connect(m_cluster, &ClusterPage::designWanted, this, [this](const QString &what) {
        m_design->setCluster(what);
        showPage(QStringLiteral("design"));
    });
    connect(m_cluster, &ClusterPage::told, this,
            [this](Severity severity, const QString &text) { m_notices->post(severity, text); });
    for (LongWork *work : findChildren<LongWork *>())
        m_strip->watch(work);
    connect(m_actions, &RunActions::started, this, [this](const QString &run) {
        m_strip->setJob({});
        m_hub->poke();
        openRun(run);
    });
    connect(m_actions, &RunActions::done, this, [this](RunActions::Verb verb, const QString &run) {
        m_hub->poke();
        if (verb == RunActions::Verb::Remove && m_monitor->run() == run)
            m_monitor->showRun({});
    });
    connect(m_actions, &RunActions::failed, this, [this](const QString &what, const Error &error) {
        m_strip->setJob({});
        Error told = error;
        told.what = what.toStdString() + ": " + told.what;
        m_notices->post(told);
    });
    connect(m_actions, &RunActions::storeChanged, m_hub, &DataHub::poke);
    connect(m_hub, &DataHub::failed, this, [this](const Error &error) { m_notices->post(error); });
}

void MainWindow::showPage(const QString &name)
{
    const qsizetype index = pageNames().indexOf(name);
    if (index < 0)
        return;
    const bool changed = m_page != name;
    m_page = name;
    m_pages->setCurrentIndex(static_cast<int>(index));
    m_heads->setCurrentIndex(static_cast<int>(index));
    // A stack asks for the room of its widest page; heads out of sight need none.
    for (int i = 0; i < m_heads->count(); ++i)
        m_heads->widget(i)->setSizePolicy(i == index ? QSizePolicy::Preferred : QSizePolicy::Ignored,
                                          QSizePolicy::Preferred);
    m_bar->setCurrent(name);
    // The Monitor's title is its run.
    const bool monitor = name == QLatin1String("monitor");
    m_title->setText(monitor ? QString() : m_registry->action(QStringLiteral("go.") + name)->text());
    m_title->setVisible(!monitor);
    // The Monitor opens on what is running, or ran last.
    if (monitor && m_monitor->run().isEmpty() && m_hub->runs() && !m_hub->runs()->empty()) {
        const store::RunInfo *best = nullptr;
        for (const store::RunInfo &run : *m_hub->runs()) {
            const bool better = !best
                || std::pair(telemetry::isLive(run.state), run.startedNs)
                    > std::pair(telemetry::isLive(best->state), best->startedNs);
            if (better)
                best = &run;
        }
        m_monitor->showRun(QString::fromStdString(best->id));
    }
    if (name == QLatin1String("home"))
        m_home->setDesigns(m_design->recent());
    if (changed)
        m_pages->currentWidget()->setFocus(Qt::OtherFocusReason);
}

void MainWindow::openRun(const QString &run)
{
    m_monitor->showRun(run);
    showPage(QStringLiteral("monitor"));
    const store::RunInfo *info = m_hub->find(run);
    if (info && telemetry::isLive(info->state))
        m_actions->perform(RunActions::Verb::Follow, run);
}

void MainWindow::openAnything(const QString &what)
{
    const QFileInfo file(what);
    if (file.isFile() || what.contains(QLatin1Char('/')) || what.endsWith(QLatin1String(".json"))) {
        showPage(QStringLiteral("design"));
        m_design->openAsking(file.absoluteFilePath());
        return;
    }
    const auto &presets = cluster::presets();
    const bool known = what == QLatin1String("local")
        || std::any_of(presets.begin(), presets.end(), [&](const cluster::Preset &preset) {
                           return what.startsWith(QLatin1String(preset.id));
                       });
    if (!known)
        return openRun(what);
    showPage(QStringLiteral("cluster"));
    m_cluster->openLater(what);
}

void MainWindow::bringBackPage()
{
    const QString run = m_settings->value(QStringLiteral("window/run")).toString();
    const QString page = m_settings->value(QStringLiteral("window/page")).toString();
    // A run that is no longer in the store would open on an error.
    const auto open = [this, run, page] {
        if (!run.isEmpty() && m_monitor->run().isEmpty() && m_hub->find(run))
            m_monitor->showRun(run);
        showPage(page);
    };
    if (m_hub->runs())
        return open();
    const auto connection = std::make_shared<QMetaObject::Connection>();
    *connection = connect(m_hub, &DataHub::runsChanged, this, [open, connection] {
        disconnect(*connection);
        open();
    });
}

bool MainWindow::isReady() const
{
    if (m_page == QLatin1String("home"))
        return m_home->isReady();
    if (m_page == QLatin1String("runs"))
        return m_runs->isReady();
    if (m_page == QLatin1String("cluster"))
        return !m_cluster->isOpening();
    if (m_page == QLatin1String("design"))
        return m_design->isReady();
    if (m_page == QLatin1String("monitor"))
        return m_hub->runs() && m_monitor->isReady();
    return true;
}

void MainWindow::drawNow()
{
    if (m_page == QLatin1String("monitor"))
        m_monitor->drawNow();
}

void MainWindow::closeEvent(QCloseEvent *event)
{
    m_settings->keep(this);
    m_settings->setValue(QStringLiteral("window/page"), m_page);
    m_settings->setValue(QStringLiteral("window/run"), m_monitor->run());
    event->accept();
}

/// From the head and the bars, which are no part of the page.
void MainWindow::keyPressEvent(QKeyEvent *event)
{
    if (!m_registry->handleKey(m_page, event))
        QMainWindow::keyPressEvent(event);
}

void MainWindow::resizeEvent(QResizeEvent *event)
{
    QMainWindow::resizeEvent(event);
    m_stack->setBottom(m_strip->height());
}

void MainWindow::restyle()
{
    const Theme &theme = Theme::instance();
    m_head->setFixedHeight(theme.textPercent() > 100 ? std::max(48, theme.scaled(40)) : 48);
    setWindowIcon(icon(QStringLiteral("rankyard"), Token::Accent));
}

} // namespace rankyard::ui
