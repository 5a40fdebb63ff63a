// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/runs/runs_page.h"

#include "engine/base/units.h"
#include "ui/common/actions.h"
#include "ui/common/empty_state.h"
#include "ui/common/format.h"
#include "ui/common/icons.h"
#include "ui/common/settings.h"
#include "ui/plot/chart.h"
#include "ui/runs/compare_panel.h"
#include "ui/runs/run_delegate.h"
#include "ui/runs/runs_model.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QKeyEvent>
#include <QLineEdit>
#include <QMenu>
#include <QMessageBox>
#include <QPushButton>
#include <QScopedValueRollback>
#include <QSplitter>
#include <QStackedWidget>
#include <QTableView>
#include <QTimer>
#include <QVBoxLayout>

namespace rankyard::ui {

RunsPage::RunsPage(DataHub *hub, RunActions *actions, ActionRegistry *registry, Settings *settings,
                   QWidget *parent)
    : QWidget(parent),
      m_hub(hub),
      m_actions(actions),
      m_registry(registry),
      m_settings(settings),
      m_model(new RunsModel(this)),
      m_proxy(new RunsProxy(this)),
      m_table(new QTableView(this)),
      m_filter(new QLineEdit),
      m_head(new QWidget),
      m_splitter(new QSplitter(Qt::Vertical, this)),
      m_compare(new ComparePanel(hub, this)),
      m_stack(new QStackedWidget(this)),
      m_empty(new EmptyState(this)),
      m_clock(new QTimer(this))
{
    m_proxy->setSourceModel(m_model);
    buildTable();
    m_table->installEventFilter(this);
    setFocusProxy(m_table);
    auto *frame = new QFrame(this);
    frame->setObjectName(QStringLiteral("panel"));
    auto *inside = new QVBoxLayout(frame);
    inside->setContentsMargins(1, 1, 1, 1);
    inside->addWidget(m_table);
    auto *top = new QWidget(this);
    auto *topLayout = new QVBoxLayout(top);
    topLayout->setContentsMargins(12, 12, 12, 12);
    topLayout->addWidget(frame);
    m_splitter->addWidget(top);
    m_splitter->addWidget(m_compare);
    m_splitter->setStretchFactor(0, 3);
    m_splitter->setStretchFactor(1, 2);
    m_splitter->setChildrenCollapsible(false);
    m_stack->addWidget(m_splitter);
    m_stack->addWidget(m_empty);
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->addWidget(m_stack);
    m_compare->setVisible(false);
    m_compare->setSmoothing(settings->smoothing());
    connect(settings, &Settings::changed, this, [this] { m_compare->setSmoothing(m_settings->smoothing()); });

    m_filter->setPlaceholderText(tr("Filter by name, state, layout, tag"));
    m_filter->setAccessibleName(tr("Filter runs"));
    m_filter->setClearButtonEnabled(true);
    connect(m_filter, &QLineEdit::textChanged, m_proxy, &RunsProxy::setWords);
    connect(m_filter, &QLineEdit::returnPressed, m_table, [this] { m_table->setFocus(); });
    addActions();

    confirmDelete = [this](const QStringList &names) {
        QMessageBox box(QMessageBox::Warning, tr("Delete runs"),
                        names.size() == 1 ? tr("Delete the run “%1”?").arg(names.front())
                                          : tr("Delete %n runs?", nullptr, static_cast<int>(names.size())),
                        QMessageBox::Cancel, this);
        box.setInformativeText(
            tr("Metrics, logs and checkpoints are removed from this machine. This cannot be undone."));
        auto *go = box.addButton(tr("Delete"), QMessageBox::DestructiveRole);
        box.setDefaultButton(QMessageBox::Cancel);
        box.exec();
        return box.clickedButton() == go;
    };
    connect(m_hub, &DataHub::runsChanged, this, &RunsPage::refresh);
    connect(m_compare, &ComparePanel::loaded, this, &RunsPage::ready);
    connect(&Theme::instance(), &Theme::changed, this, &RunsPage::restyle);
    connect(m_clock, &QTimer::timeout, this, [this] {
        if (isVisible())
            m_model->setNow(wallNs());
    });
    m_clock->start(1000);
    restyle();
    refresh();
}

RunsPage::~RunsPage()
{
    m_settings->keep(QStringLiteral("runs"), m_table->horizontalHeader());
    m_settings->keep(QStringLiteral("runs"), m_splitter);
    if (m_head && !m_head->parentWidget())
        delete m_head;
}

void RunsPage::buildTable()
{
    m_table->setModel(m_proxy);
    m_table->setItemDelegate(new RunDelegate(m_table));
    m_table->setSelectionBehavior(QAbstractItemView::SelectRows);
    m_table->setSelectionMode(QAbstractItemView::ExtendedSelection);
    m_table->setEditTriggers(QAbstractItemView::NoEditTriggers);
    m_table->setShowGrid(false);
    m_table->setMouseTracking(true);
    m_table->setSortingEnabled(true);
    m_table->setWordWrap(false);
    m_table->setTabKeyNavigation(false);
    m_table->setAccessibleName(tr("Runs"));
    m_table->verticalHeader()->hide();
    m_table->horizontalHeader()->setHighlightSections(false);
    m_table->horizontalHeader()->setSectionsMovable(true);
    m_table->setContextMenuPolicy(Qt::CustomContextMenu);
    m_proxy->sort(RunsModel::Started, Qt::DescendingOrder);
    m_table->horizontalHeader()->setSortIndicator(RunsModel::Started, Qt::DescendingOrder);
    connect(m_table, &QTableView::doubleClicked, this,
            [this] { m_registry->action(QStringLiteral("runs.open"))->trigger(); });
    connect(m_table, &QTableView::customContextMenuRequested, this, [this](const QPoint &at) {
        QMenu menu(this);
        for (const char *id : {"runs.open", "runs.stop", "runs.delete"})
            menu.addAction(m_registry->action(QLatin1String(id)));
        menu.exec(m_table->viewport()->mapToGlobal(at));
    });
    connect(m_table->horizontalHeader(), &QHeaderView::sectionResized, this, [this](int column) {
        if (!m_fitting)
            m_sizedByHand.insert(column);
    });
    connect(m_table->selectionModel(), &QItemSelectionModel::selectionChanged, this,
            &RunsPage::selectionChanged);
    connect(m_table->selectionModel(), &QItemSelectionModel::currentChanged, this,
            &RunsPage::selectionChanged);
}

void RunsPage::addActions()
{
    const QString page = QStringLiteral("runs");
    const QString category = tr("Runs");
    QAction *open = m_registry->add({QStringLiteral("runs.open"), tr("Open run"),
                                     tr("Shows the selected run in the Monitor"), category,
                                     QStringLiteral("monitor"), Qt::Key_Return, Scope::Page, page},
                                    [this] {
                                        const QStringList ids = chosen();
                                        if (!ids.isEmpty())
                                            emit openRequested(ids.front());
                                    });
    QAction *stop =
        m_registry->add({QStringLiteral("runs.stop"), tr("Stop runs"),
                         tr("Stops the selected runs at the next step, with a checkpoint"), category,
                         QStringLiteral("stop"), QKeySequence(Qt::CTRL | Qt::Key_Period), Scope::Page, page},
                        [this] {
                            for (const QString &id : chosen()) {
                                const store::RunInfo *info = m_hub->find(id);
                                if (info && telemetry::isLive(info->state))
                                    m_actions->perform(RunActions::Verb::Stop, id);
                            }
                        });
    QAction *remove =
        m_registry->add({QStringLiteral("runs.delete"), tr("Delete runs"),
                         tr("Removes the selected runs and their checkpoints from this machine"), category,
                         QStringLiteral("trash"), Qt::Key_Delete, Scope::Page, page},
                        [this] { removeSelected(); });
    QAction *find = m_registry->add(
        {QStringLiteral("runs.filter"), tr("Filter runs"), tr("Moves to the filter line of the runs table"),
         category, QStringLiteral("filter"), QKeySequence(Qt::Key_Slash), Scope::Page, page},
        [this] {
            m_filter->setFocus(Qt::ShortcutFocusReason);
            m_filter->selectAll();
        });
    Q_UNUSED(find)
    m_registry->add({QStringLiteral("runs.all"), tr("Show all runs"),
                     tr("Empties the filter of the runs table"), category, QStringLiteral("close"),
                     QKeySequence(Qt::Key_Escape), Scope::Page, page},
                    [this] {
                        m_filter->clear();
                        m_table->setFocus(Qt::ShortcutFocusReason);
                    });
    m_filter->installEventFilter(this);
    auto *row = new QHBoxLayout(m_head);
    row->setContentsMargins(0, 0, 0, 0);
    row->setSpacing(8);
    m_filter->setMinimumWidth(220);
    m_filter->setMaximumWidth(360);
    row->addWidget(m_filter, 1);
    row->addStretch(1);
    for (QAction *action : {remove, stop, open}) {
        auto *button = new QPushButton(action->text(), m_head);
        button->setToolTip(action->toolTip());
        button->setEnabled(false);
        if (action == open)
            button->setProperty("tone", "primary");
        else if (action == remove)
            button->setProperty("tone", "danger");
        connect(button, &QPushButton::clicked, action, &QAction::trigger);
        connect(action, &QAction::changed, button,
                [button, action] { button->setEnabled(action->isEnabled()); });
        row->addWidget(button);
        action->setEnabled(false);
    }
}

QStringList RunsPage::selected() const
{
    QStringList ids;
    for (const QModelIndex &index : m_table->selectionModel()->selectedRows())
        ids << index.data(RunsModel::IdRole).toString();
    return ids;
}

/// What an action is about: the selected runs, or the one under the keyboard's cursor.
QStringList RunsPage::chosen() const
{
    const QStringList ids = selected();
    const QModelIndex current = m_table->currentIndex();
    return ids.isEmpty() && current.isValid() ? QStringList{current.data(RunsModel::IdRole).toString()} : ids;
}

void RunsPage::select(const QStringList &runs)
{
    QItemSelection selection;
    for (const QString &id : runs) {
        const int row = m_model->rowOf(id);
        if (row < 0)
            continue;
        const QModelIndex at = m_proxy->mapFromSource(m_model->index(row, 0));
        selection.select(at, at);
    }
    if (!selection.isEmpty())
        m_table->selectionModel()->setCurrentIndex(selection.indexes().front(),
                                                   QItemSelectionModel::NoUpdate);
    m_table->selectionModel()->select(selection,
                                      QItemSelectionModel::ClearAndSelect | QItemSelectionModel::Rows);
}

void RunsPage::refresh()
{
    if (!m_hub->runs()) {
        m_empty->show(QStringLiteral("runs"), tr("Reading the runs"), tr("The store is being opened."));
        m_stack->setCurrentWidget(m_empty);
        return;
    }
    m_model->setRuns(m_hub->runs(), wallNs());
    if (m_model->rowCount() == 0) {
        m_empty->show(
            QStringLiteral("inbox"), tr("No runs yet"),
            tr("A run is one training job, from its start to its last checkpoint. The sample takes about two minutes."),
            m_registry->action(QStringLiteral("home.sample")));
        m_stack->setCurrentWidget(m_empty);
    } else {
        m_stack->setCurrentWidget(m_splitter);
        if (!m_ordering) {
            m_ordering = true;
            if (!m_settings->bringBack(QStringLiteral("runs"), m_table->horizontalHeader()))
                restyle();
            m_settings->bringBack(QStringLiteral("runs"), m_splitter);
            m_sizedByHand.clear();
        }
        fitColumns();
    }
    selectionChanged();
    emit ready();
}

void RunsPage::selectionChanged()
{
    const QStringList ids = chosen();
    bool anyLive = false;
    bool allEnded = true;
    for (const QString &id : ids) {
        const store::RunInfo *info = m_hub->find(id);
        const bool live = info && telemetry::isLive(info->state);
        anyLive = anyLive || live;
        allEnded = allEnded && !live;
    }
    m_registry->action(QStringLiteral("runs.open"))->setEnabled(ids.size() >= 1);
    m_registry->action(QStringLiteral("runs.stop"))->setEnabled(anyLive);
    m_registry->action(QStringLiteral("runs.delete"))->setEnabled(!ids.isEmpty() && allEnded);
    m_compare->setVisible(!selected().isEmpty());
    m_compare->setRuns(selected());
}

void RunsPage::removeSelected()
{
    QStringList names;
    const QStringList ids = chosen();
    for (const QString &id : ids) {
        const store::RunInfo *info = m_hub->find(id);
        names << (info ? QString::fromStdString(info->name) : id);
    }
    if (ids.isEmpty() || !confirmDelete(names))
        return;
    for (const QString &id : ids)
        m_actions->perform(RunActions::Verb::Remove, id);
}

bool RunsPage::eventFilter(QObject *object, QEvent *event)
{
    // Before the table takes letters for its search.
    if (object == m_table && event->type() == QEvent::KeyPress
        && m_registry->handleKey(QStringLiteral("runs"), static_cast<QKeyEvent *>(event)))
        return true;
    // In a line all keys but this one write.
    if (object == m_filter && event->type() == QEvent::KeyPress
        && static_cast<QKeyEvent *>(event)->matches(QKeySequence::Cancel)) {
        m_registry->action(QStringLiteral("runs.all"))->trigger();
        return true;
    }
    return QWidget::eventFilter(object, event);
}

bool RunsPage::isReady() const { return m_hub->runs() && (!m_compare->isVisible() || m_compare->isLoaded()); }

/// Columns grow with what they have to say, unless somebody has set their width since the start. The name has the rest.
void RunsPage::fitColumns()
{
    const QScopedValueRollback fitting(m_fitting, true);
    for (int column = 0; column < RunsModel::columnCount_; ++column) {
        if (column == RunsModel::Name || m_sizedByHand.contains(column))
            continue;
        const int before = m_table->columnWidth(column);
        m_table->resizeColumnToContents(column);
        if (m_table->columnWidth(column) < before)
            m_table->setColumnWidth(column, before);
    }
}

void RunsPage::restyle()
{
    const QScopedValueRollback fitting(m_fitting, true);
    const Theme &theme = Theme::instance();
    m_table->verticalHeader()->setDefaultSectionSize(theme.scaled(34));
    m_table->horizontalHeader()->setMinimumHeight(theme.scaled(30));
    const int widths[] = {150, 180, 104, 260, 92, 92, 92, 116, 140};
    for (int column = 0; column < RunsModel::columnCount_; ++column)
        m_table->setColumnWidth(column, theme.scaled(widths[column]));
    m_table->horizontalHeader()->setSectionResizeMode(QHeaderView::Interactive);
    m_table->horizontalHeader()->setStretchLastSection(false);
    m_table->horizontalHeader()->setSectionResizeMode(RunsModel::Name, QHeaderView::Stretch);
    m_sizedByHand.clear();
    fitColumns();
}

} // namespace rankyard::ui
