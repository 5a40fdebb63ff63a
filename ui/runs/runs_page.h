// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/data_hub.h"
#include "ui/data/run_actions.h"

#include <QPointer>
#include <QSet>
#include <QWidget>

#include <functional>

class QLineEdit;
class QSplitter;
class QStackedWidget;
class QTableView;
class QTimer;

namespace rankyard::ui {

class ActionRegistry;
class ComparePanel;
class EmptyState;
class RunsModel;
class RunsProxy;
class Settings;

/// All runs of the store: find, open, stop, delete, compare.
class RunsPage : public QWidget
{
    Q_OBJECT
public:
    RunsPage(DataHub *hub, RunActions *actions, ActionRegistry *registry, Settings *settings,
             QWidget *parent = nullptr);
    ~RunsPage() override;

    QStringList selected() const;
    QStringList chosen() const;
    void select(const QStringList &runs);
    QWidget *headWidget() const { return m_head; }
    QTableView *table() const { return m_table; }
    QLineEdit *filterLine() const { return m_filter; }
    ComparePanel *comparePanel() const { return m_compare; }
    bool isReady() const;
    /// Asked before a run is deleted; replaced by tests. True: go on.
    std::function<bool(const QStringList &names)> confirmDelete;

protected:
    bool eventFilter(QObject *object, QEvent *event) override;

signals:
    void openRequested(const QString &run);
    void ready();

private:
    void buildTable();
    void addActions();
    void refresh();
    void selectionChanged();
    void removeSelected();
    void fitColumns();
    void restyle();

    DataHub *m_hub;
    RunActions *m_actions;
    ActionRegistry *m_registry;
    Settings *m_settings;
    RunsModel *m_model;
    RunsProxy *m_proxy;
    QTableView *m_table;
    QLineEdit *m_filter;
    QPointer<QWidget> m_head; ///< the window head owns it once it is in there
    QSplitter *m_splitter;
    ComparePanel *m_compare;
    QStackedWidget *m_stack;
    EmptyState *m_empty;
    QTimer *m_clock;
    bool m_ordering = false;
    bool m_fitting = false;  ///< widths that change now are set by the page
    QSet<int> m_sizedByHand; ///< columns
};

} // namespace rankyard::ui
