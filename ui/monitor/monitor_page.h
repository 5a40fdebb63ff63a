// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/data_hub.h"
#include "ui/data/run_actions.h"
#include "ui/monitor/monitor_charts.h"

#include <QPointer>
#include <QWidget>

class QGridLayout;
class QScrollArea;
class QSplitter;
class QStackedWidget;
class QTimer;

namespace rankyard::ui {

class ActionRegistry;
class Banner;
class EmptyState;
class LogPane;
class MonitorHead;
class Settings;

/// One run, live or ended: charts, log, events, and what can be done with it.
class MonitorPage : public QWidget
{
    Q_OBJECT
public:
    MonitorPage(DataHub *hub, RunActions *actions, ActionRegistry *registry, Settings *settings,
                QWidget *parent = nullptr);
    ~MonitorPage() override;

    void showRun(const QString &run); ///< empty: none
    QString run() const;
    /// Everything that the store had of the run is in the charts, or it is said why not.
    bool isReady() const;
    void drawNow();

    QWidget *headWidget() const;
    MonitorHead *head() const;
    MonitorCharts *charts() const { return m_charts; }
    LogPane *log() const { return m_log; }
    Banner *banner() const { return m_banner; }
    int columns() const { return m_columnsShown; }

signals:
    void ready();
    void runChanged(const QString &run);

protected:
    void keyPressEvent(QKeyEvent *event) override;
    void changeEvent(QEvent *event) override;
    bool eventFilter(QObject *object, QEvent *event) override;

private:
    void addActions();
    void refresh();
    void refreshActions();
    void refreshBanner();
    int columnsFor(int width) const;
    void layOut();
    void enlarge(QWidget *panel);
    // monitor_layout.cpp
    QWidget *focusedPanel() const;
    void moveCard(int by);
    void keepView();
    void bringBackLayout();
    void bringBackZoom();
    void perform(RunActions::Verb verb);

    DataHub *m_hub;
    RunActions *m_actions;
    ActionRegistry *m_registry;
    Settings *m_settings;
    std::shared_ptr<RunData> m_run;
    QPointer<MonitorHead> m_head; ///< the window head owns it once it is in there
    Banner *m_banner;
    QStackedWidget *m_stack;
    EmptyState *m_empty;
    QSplitter *m_splitter;
    QScrollArea *m_scroll;
    QWidget *m_gridHolder;
    QGridLayout *m_grid;
    MonitorCharts *m_charts;
    LogPane *m_log;
    QTimer *m_clock;
    std::vector<QWidget *> m_order; ///< of the cards
    QWidget *m_enlarged = nullptr;
    bool m_zoomDue = false; ///< of the run that is being read
    int m_columnsShown = 0;
};

} // namespace rankyard::ui
