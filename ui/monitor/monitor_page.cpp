// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/monitor_page.h"

#include "engine/base/units.h"
#include "ui/common/actions.h"
#include "ui/common/empty_state.h"
#include "ui/common/settings.h"
#include "ui/monitor/banner.h"
#include "ui/monitor/log_pane.h"
#include "ui/monitor/monitor_head.h"
#include "ui/monitor/values_panel.h"

#include "ui/common/segmented.h"

#include <QEvent>
#include <QGridLayout>
#include <QKeyEvent>
#include <QLineEdit>
#include <QListView>
#include <QScrollArea>
#include <QSplitter>
#include <QStackedWidget>
#include <QTimer>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

MonitorPage::MonitorPage(DataHub *hub, RunActions *actions, ActionRegistry *registry, Settings *settings,
                         QWidget *parent)
    : QWidget(parent),
      m_hub(hub),
      m_actions(actions),
      m_registry(registry),
      m_settings(settings),
      m_banner(new Banner(this)),
      m_stack(new QStackedWidget(this)),
      m_empty(new EmptyState(this)),
      m_splitter(new QSplitter(Qt::Horizontal, this)),
      m_scroll(new QScrollArea(this)),
      m_gridHolder(new QWidget),
      m_grid(new QGridLayout(m_gridHolder)),
      m_charts(new MonitorCharts(m_gridHolder)),
      m_log(new LogPane(this)),
      m_clock(new QTimer(this))
{
    addActions();
    m_head = new MonitorHead(registry, settings);
    m_grid->setContentsMargins(12, 12, 12, 0);
    m_grid->setSpacing(12);
    m_scroll->setWidget(m_gridHolder);
    m_scroll->setWidgetResizable(true);
    m_scroll->setFrameShape(QFrame::NoFrame);
    m_scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    m_scroll->setFocusPolicy(Qt::NoFocus);
    auto *left = new QWidget(m_splitter);
    auto *leftLayout = new QVBoxLayout(left);
    leftLayout->setContentsMargins(0, 0, 0, 12);
    leftLayout->setSpacing(12);
    leftLayout->addWidget(m_scroll, 1);
    auto *laneHolder = new QVBoxLayout;
    laneHolder->setContentsMargins(12, 0, 12, 0);
    laneHolder->addWidget(m_charts->lane());
    leftLayout->addLayout(laneHolder);
    m_splitter->addWidget(left);
    m_splitter->addWidget(m_log);
    m_splitter->setStretchFactor(0, 1);
    m_splitter->setStretchFactor(1, 0);
    m_splitter->setCollapsible(0, false);
    m_splitter->setHandleWidth(1);
    m_stack->addWidget(m_splitter);
    m_stack->addWidget(m_empty);
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->setSpacing(0);
    layout->addWidget(m_banner);
    layout->addWidget(m_stack, 1);

    for (QWidget *panel : m_charts->panels()) {
        if (auto *chart = qobject_cast<Chart *>(panel))
            connect(chart, &Chart::enlargeRequested, this,
                    [this, chart] { enlarge(m_enlarged ? nullptr : chart); });
    }
    m_order = m_charts->panels();
    connect(m_charts, &MonitorCharts::panelsChanged, this, &MonitorPage::layOut);
    m_charts->setSmoothing(settings->smoothing());
    m_log->setVisible(settings->logShown());
    connect(settings, &Settings::changed, this, [this] {
        m_charts->setSmoothing(m_settings->smoothing());
        m_log->setVisible(m_settings->logShown());
        layOut();
    });
    connect(m_head, &MonitorHead::modeChosen, m_charts, &MonitorCharts::setMode);
    connect(m_head, &MonitorHead::resumeFollowing, m_charts->group(), [this] { m_charts->group()->fit(); });
    connect(m_charts->group(), &ChartGroup::followChanged, this, [this] {
        m_head->showFollowing(m_charts->group()->isFollowing(), m_charts->group()->newSincePaused());
    });
    connect(m_log, &LogPane::stepChosen, this, [this](qint64 step) {
        if (m_charts->mode() == XMode::Step)
            m_charts->group()->setCursor(static_cast<double>(step), m_log, -1);
    });
    connect(m_hub, &DataHub::failed, this, [this](const Error &error) {
        if (!m_run)
            m_banner->show(QStringLiteral("error"), Token::Bad, QString::fromStdString(error.text()));
    });
    connect(m_clock, &QTimer::timeout, this, [this] {
        if (m_run && isVisible() && m_run->hasInfo()) {
            m_head->showRun(*m_run);
            refreshBanner();
        }
    });
    m_clock->start(1000);
    m_log->findChild<QListView *>()->installEventFilter(this);
    m_scroll->viewport()->installEventFilter(this);
    setFocusPolicy(Qt::StrongFocus);
    if (!settings->bringBack(QStringLiteral("monitor"), m_splitter))
        m_splitter->setSizes({1000, 330});
    bringBackLayout();
    showRun({});
}

MonitorPage::~MonitorPage()
{
    m_settings->keep(QStringLiteral("monitor"), m_splitter);
    keepView();
    if (m_head && !m_head->parentWidget())
        delete m_head;
}

QWidget *MonitorPage::headWidget() const { return m_head; }
MonitorHead *MonitorPage::head() const { return m_head; }
QString MonitorPage::run() const { return m_run ? m_run->id() : QString(); }

void MonitorPage::addActions()
{
    const QString page = QStringLiteral("monitor");
    const QString category = tr("Monitor");
    const auto add = [&](const char *id, const QString &text, const QString &tip, const char *iconName,
                         const QKeySequence &key, auto run) {
        return m_registry->add(
            {QLatin1String(id), text, tip, category, QLatin1String(iconName), key, Scope::Page, page}, run);
    };
    add("monitor.fit", tr("Fit charts"), tr("Shows all data and follows the run again"), "fit", Qt::Key_F,
        [this] { m_charts->group()->fit(); });
    add("monitor.back", tr("Back to the view before"), tr("Undoes the last zoom or pan"), "back",
        Qt::Key_Backspace, [this] { m_charts->group()->back(); });
    add("monitor.follow", tr("Follow or pause the view"),
        tr("Stops the view where it is, or follows the run again"), "follow", Qt::Key_Space,
        [this] { m_charts->group()->setFollowing(!m_charts->group()->isFollowing()); });
    add("monitor.earlier", tr("Move the card earlier"),
        tr("The focused card changes places with the one before it"), "back",
        QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Left), [this] { moveCard(-1); });
    add("monitor.later", tr("Move the card later"),
        tr("The focused card changes places with the one after it"), "follow",
        QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Right), [this] { moveCard(1); });
    add("monitor.enlarge", tr("Enlarge chart or restore"),
        tr("Gives the focused chart the whole grid, or puts the grid back"), "columns", Qt::Key_Return,
        [this] { enlarge(m_enlarged ? nullptr : focusedPanel()); });
    add("monitor.x", tr("Change the x axis"), tr("Step, tokens, or time"), "monitor", Qt::Key_X,
        [this] { m_head->modes()->setCurrent((m_head->modes()->current() + 1) % 3); });
    add("monitor.log", tr("Show or hide the log"), tr("The log of all ranks at the right edge"), "log",
        Qt::Key_L, [this] { m_settings->setLogShown(!m_settings->logShown()); });
    add("monitor.filter", tr("Filter the log"), tr("Moves to the filter line of the log"), "filter",
        QKeySequence(Qt::Key_Slash), [this] {
            m_settings->setLogShown(true);
            m_log->filterLine()->setFocus(Qt::ShortcutFocusReason);
            m_log->filterLine()->selectAll();
        });
    for (int columns = 0; columns <= 4; ++columns) {
        add(qPrintable(QStringLiteral("monitor.columns%1").arg(columns)),
            columns == 0       ? tr("Columns by width")
                : columns == 1 ? tr("One column of charts")
                               : tr("%1 columns of charts").arg(columns),
            columns == 0 ? tr("As many columns as fit") : tr("Lays the charts out side by side"), "columns",
            QKeySequence(Qt::Key_0 + columns), [this, columns] { m_settings->setColumns(columns); });
    }
    add("monitor.pause", tr("Pause"), tr("Pauses or resumes the run at the next step"), "pause", Qt::Key_P,
        [this] {
            if (!m_run)
                return;
            const auto state = m_run->info().state;
            perform(telemetry::isTerminal(state) || state == telemetry::RunState::Paused
                        ? RunActions::Verb::Resume
                        : RunActions::Verb::Pause);
        });
    add("monitor.checkpoint", tr("Checkpoint"), tr("Saves the run's state at the next step"), "checkpoint",
        Qt::Key_C, [this] { perform(RunActions::Verb::Checkpoint); });
    add("monitor.stop", tr("Stop"), tr("Stops the run at the next step, with a checkpoint"), "stop",
        QKeySequence(Qt::CTRL | Qt::Key_Period), [this] { perform(RunActions::Verb::Stop); });
}

void MonitorPage::perform(RunActions::Verb verb)
{
    if (m_run)
        m_actions->perform(verb, m_run->id());
}

void MonitorPage::showRun(const QString &run)
{
    if (m_run && m_run->id() == run)
        return;
    if (m_run)
        disconnect(m_run.get(), nullptr, this, nullptr);
    if (m_run)
        keepView();
    m_zoomDue = true;
    m_log->clear();
    m_run = run.isEmpty() ? nullptr : m_hub->open(run);
    m_charts->reset(m_run && m_run->hasInfo() ? m_run.get() : nullptr);
    if (m_run) {
        m_log->append(m_run->logs()); // another page may have it open, and has had its updates
        connect(m_run.get(), &RunData::cleared, this, [this] {
            m_log->clear();
            m_charts->reset(m_run.get());
        });
        connect(m_run.get(), &RunData::changed, this, [this] {
            m_log->append(m_run->newLogs());
            m_charts->update();
            refresh();
        });
    }
    refresh();
    emit runChanged(run);
}

void MonitorPage::refresh()
{
    refreshActions();
    refreshBanner();
    if (!m_run) {
        m_head->showNothing();
        m_empty->show(
            QStringLiteral("monitor"), tr("No run to watch"),
            tr("Open one from Runs, or start the sample: it trains a small GPT on two ranks of this machine."),
            m_registry->action(QStringLiteral("home.sample")));
        m_stack->setCurrentWidget(m_empty);
        return;
    }
    if (!m_run->hasInfo()) {
        m_head->showNothing();
        if (m_run->error())
            m_empty->show(QStringLiteral("error"), tr("This run cannot be shown"),
                          QString::fromStdString(m_run->error()->text()));
        else
            m_empty->show(QStringLiteral("monitor"), tr("Reading the run"),
                          tr("%1 is being read from the store.").arg(m_run->id()));
        m_stack->setCurrentWidget(m_empty);
        if (m_run->error())
            emit ready();
        return;
    }
    m_stack->setCurrentWidget(m_splitter);
    m_head->showRun(*m_run);
    if (m_columnsShown == 0)
        layOut();
    if (!m_run->isLoaded())
        return;
    if (std::exchange(m_zoomDue, false))
        bringBackZoom();
    emit ready();
}

void MonitorPage::refreshActions()
{
    using telemetry::RunState;
    const bool any = m_run && m_run->hasInfo();
    const RunState state = any ? m_run->info().state : RunState::Draft;
    const bool live = any && telemetry::isLive(state);
    const bool resumable = any
        && (state == RunState::Stopped || state == RunState::FailedResumable || state == RunState::Preempted);
    QAction *pause = m_registry->action(QStringLiteral("monitor.pause"));
    pause->setText(state == RunState::Paused || resumable ? tr("Resume") : tr("Pause"));
    pause->setVisible(live || resumable);
    pause->setEnabled(state == RunState::Running || state == RunState::Degraded || state == RunState::Paused
                      || resumable);
    QAction *checkpoint = m_registry->action(QStringLiteral("monitor.checkpoint"));
    checkpoint->setVisible(live);
    checkpoint->setEnabled(state == RunState::Running || state == RunState::Degraded
                           || state == RunState::Paused);
    QAction *stop = m_registry->action(QStringLiteral("monitor.stop"));
    stop->setVisible(live);
    stop->setEnabled(live && state != RunState::Stopping);
}

void MonitorPage::refreshBanner()
{
    using telemetry::RunState;
    if (!m_run || !m_run->hasInfo()) {
        if (m_run || !m_hub->runs())
            m_banner->clear();
        return;
    }
    const store::RunInfo &info = m_run->info();
    const bool silent =
        info.state == RunState::Running && info.lastSeenNs > 0 && wallNs() - info.lastSeenNs > 30'000'000'000;
    if (!m_run->isLoaded() && m_run->rowsExpected() > m_run->rowsLoaded()) {
        m_banner->show(QStringLiteral("state_waiting"), Token::Accent,
                       tr("Loading: %1 of %2 rows so far")
                           .arg(formatStep(m_run->rowsLoaded()), formatStep(m_run->rowsExpected())));
    } else if (info.error
               && (info.state == RunState::Failed || info.state == RunState::FailedResumable
                   || info.state == RunState::Lost)) {
        m_banner->show(QStringLiteral("error"), Token::Bad, QString::fromStdString(info.error->text()));
    } else if (info.state == RunState::Lost) {
        m_banner->show(QStringLiteral("state_lost"), Token::Bad,
                       tr("Contact with this run was lost; what is shown ends %1.")
                           .arg(formatAge(info.lastSeenNs, wallNs())));
    } else if (silent) {
        m_banner->show(QStringLiteral("warning"), Token::Warn,
                       tr("Nothing was heard from this run for %1; the charts show what came before.")
                           .arg(formatSeconds(static_cast<double>(wallNs() - info.lastSeenNs) / 1e9)));
    } else {
        m_banner->clear();
    }
}

int MonitorPage::columnsFor(int width) const
{
    if (m_enlarged)
        return 1;
    return m_settings->columns() > 0 ? m_settings->columns()
                                     : std::clamp(width / Theme::instance().scaled(286), 1, 3);
}

void MonitorPage::layOut()
{
    const Theme &theme = Theme::instance();
    const int columns = columnsFor(m_scroll->viewport()->width());
    for (QWidget *panel : m_order)
        m_grid->removeWidget(panel);
    for (int i = 0; i < 10; ++i) {
        m_grid->setRowStretch(i, 0);
        m_grid->setColumnStretch(i, 0);
        m_grid->setRowMinimumHeight(i, 0);
    }
    std::vector<QWidget *> shown;
    for (QWidget *panel : m_order) {
        const bool has = m_enlarged ? panel == m_enlarged : m_charts->isUsed(panel);
        panel->setVisible(has);
        if (has)
            shown.push_back(panel);
    }
    // In a last row with room to spare the first card takes it.
    const int count = static_cast<int>(shown.size());
    const int lastRow = std::max(0, count - 1) / columns;
    const int spare = (columns - count % columns) % columns;
    for (int at = 0; at < count; ++at) {
        const int row = at / columns;
        const int column = at % columns;
        const bool first = column == 0;
        const int shift = row == lastRow && !first ? spare : 0;
        m_grid->addWidget(shown[static_cast<std::size_t>(at)], row, column + shift, 1,
                          row == lastRow && first ? 1 + spare : 1);
        m_grid->setRowStretch(row, 1);
        m_grid->setRowMinimumHeight(row, theme.scaled(176));
    }
    for (int column = 0; column < columns; ++column)
        m_grid->setColumnStretch(column, 1);
    m_columnsShown = columns;
}

void MonitorPage::enlarge(QWidget *panel)
{
    if (panel == m_enlarged)
        return;
    m_enlarged = panel;
    layOut();
    if (panel)
        panel->setFocus();
}

bool MonitorPage::isReady() const { return !m_run || m_run->isLoaded() || m_run->error(); }

void MonitorPage::drawNow() { m_charts->drawNow(); }

void MonitorPage::keyPressEvent(QKeyEvent *event)
{
    if (event->key() == Qt::Key_Escape && m_enlarged) {
        enlarge(nullptr);
        return;
    }
    if (!m_registry->handleKey(QStringLiteral("monitor"), event))
        QWidget::keyPressEvent(event);
}

bool MonitorPage::eventFilter(QObject *object, QEvent *event)
{
    if (object == m_scroll->viewport()) {
        if (event->type() == QEvent::Resize && columnsFor(m_scroll->viewport()->width()) != m_columnsShown)
            layOut();
        else if (event->type() != QEvent::KeyPress)
            return false;
    }
    // Before the log's list takes letters for its search, and the scroll area arrows.
    if (event->type() == QEvent::KeyPress
        && m_registry->handleKey(QStringLiteral("monitor"), static_cast<QKeyEvent *>(event)))
        return true;
    return QWidget::eventFilter(object, event);
}

void MonitorPage::changeEvent(QEvent *event)
{
    QWidget::changeEvent(event);
    if (event->type() == QEvent::FontChange || event->type() == QEvent::StyleChange)
        layOut();
}

} // namespace rankyard::ui
