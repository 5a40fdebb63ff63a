// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/actions.h"
#include "ui/common/notices.h"
#include "ui/common/settings.h"
#include "ui/data/data_hub.h"
#include "ui/data/run_actions.h"

#include <QMainWindow>

class QFrame;
class QHBoxLayout;
class QLabel;
class QStackedWidget;

namespace rankyard::ui {

class ActivityBar;
class ClusterPage;
class DesignPage;
class HomePage;
class MonitorPage;
class NoticeList;
class NoticeStack;
class QuickPick;
class RunsPage;
class SettingsPage;
class ShortcutSheet;
class StatusStrip;

/// The window: activity bar, head, pages, status strip, and what drops over them. Owns registry and notices; data, actions and
/// settings outlive it.
class MainWindow : public QMainWindow
{
    Q_OBJECT
public:
    MainWindow(DataHub *hub, RunActions *actions, Settings *settings, QWidget *parent = nullptr);
    ~MainWindow() override;

    static QSize smallestSize();    ///< at which every page has its place
    static QStringList pageNames(); ///< "home", "runs", "cluster", "design", "monitor", "settings"
    void showPage(const QString &name);
    QString page() const { return m_page; }
    void openRun(const QString &run); ///< in the Monitor
    /// A file in the designer, which tells jobs, clusters and other engines' configurations apart; a preset, with nodes or without, and
    /// "local" on the Cluster page; else a run.
    void openAnything(const QString &what);
    /// The page, and in the Monitor the run, that were open when the window was closed.
    void bringBackPage();
    /// Everything that the page shows was read and can be drawn.
    bool isReady() const;
    /// Draws what is waiting for the event loop.
    void drawNow();

    ActionRegistry *registry() const { return m_registry; }
    Notices *notices() const { return m_notices; }
    MonitorPage *monitor() const { return m_monitor; }
    RunsPage *runs() const { return m_runs; }
    ClusterPage *cluster() const { return m_cluster; }
    DesignPage *design() const { return m_design; }
    HomePage *home() const { return m_home; }
    QuickPick *quickPick() const { return m_pick; }
    ShortcutSheet *sheet() const { return m_sheet; }
    StatusStrip *strip() const { return m_strip; }
    NoticeStack *noticeStack() const { return m_stack; }

signals:
    void pageReady();

protected:
    void closeEvent(QCloseEvent *event) override;
    void keyPressEvent(QKeyEvent *event) override;
    void resizeEvent(QResizeEvent *event) override;

private:
    void addActions(); ///< window_actions.cpp
    void addLookActions();
    void build();
    void connectPages();
    void openPalette();
    void openQuickOpen();
    void runSample();
    void openJob();
    void restyle();

    DataHub *m_hub;
    RunActions *m_actions;
    Settings *m_settings;
    ActionRegistry *m_registry;
    Notices *m_notices;
    ActivityBar *m_bar = nullptr;
    QFrame *m_head = nullptr;
    QHBoxLayout *m_headLayout = nullptr;
    QLabel *m_title = nullptr;
    QStackedWidget *m_pages = nullptr;
    QStackedWidget *m_heads = nullptr;
    StatusStrip *m_strip = nullptr;
    HomePage *m_home = nullptr;
    RunsPage *m_runs = nullptr;
    ClusterPage *m_cluster = nullptr;
    DesignPage *m_design = nullptr;
    MonitorPage *m_monitor = nullptr;
    SettingsPage *m_settingsPage = nullptr;
    QuickPick *m_pick = nullptr;
    ShortcutSheet *m_sheet = nullptr;
    NoticeStack *m_stack = nullptr;
    NoticeList *m_list = nullptr;
    QString m_page;
};

} // namespace rankyard::ui
