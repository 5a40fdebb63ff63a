// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/run_actions.h"
#include "ui/designer/verdict_runner.h"

#include <QPointer>
#include <QWidget>

class QPushButton;
class QSplitter;
class QStackedWidget;

namespace rankyard::ui {

class ActionRegistry;
class CompareView;
class DataView;
class DesignDocument;
class DesignForm;
class ElidedLabel;
class KindLegend;
class NarrowRow;
class Notices;
class RankPanel;
class SearchView;
class Segmented;
class Settings;
class StepTimeline;
class VerdictPanel;

/// A job under design: form, ranks on the cluster, predicted step, verdict. Owns the document; a change asks the runner for a new
/// verdict, and what it brings goes to all views.
class DesignPage : public QWidget
{
    Q_OBJECT
public:
    struct Context {
        ActionRegistry *registry;
        Settings *settings;
        Notices *notices;
        RunActions *actions;
    };
    /// What stands below the ranks.
    enum Drawer { Step, Search, Compare, Data };

    explicit DesignPage(const Context &context, QWidget *parent = nullptr, VerdictRunner::Judge judge = {});
    ~DesignPage() override;

    /// A job file, a model's config.json, a cluster file, or another engine's configuration, told by its content.
    Status open(const QString &file);
    /// The file of last time, or the sample's model on this machine; only when nothing is open.
    void openSomething();
    /// As cluster::openCluster takes it; a step of undo.
    void setCluster(const QString &what);
    bool save();
    void saveAs();
    void launch();

    QWidget *headWidget() const;
    DesignDocument *document() const { return m_document; }
    DesignForm *form() const { return m_form; }
    VerdictPanel *panel() const { return m_panel; }
    RankPanel *ranks() const { return m_ranks; }
    StepTimeline *timeline() const { return m_timeline; }
    SearchView *search() const { return m_search; }
    CompareView *compare() const { return m_compare; }
    DataView *data() const { return m_data; }
    void setDrawer(Drawer drawer);
    void showDrawer(Drawer drawer); ///< and the focus goes there
    Drawer drawer() const;
    const std::shared_ptr<const predict::Verdict> &verdict() const { return m_verdict; }
    /// Everything that the document says has been judged and is drawn.
    bool isReady() const;
    QStringList recent() const;
    /// Asks first what becomes of unsaved changes; what cannot be opened is a notice.
    void openAsking(const QString &file);

signals:
    void ready();
    void answered(predict::Depth depth); ///< to the newest change, and drawn

protected:
    void keyPressEvent(QKeyEvent *event) override;
    void focusInEvent(QFocusEvent *event) override;
    void showEvent(QShowEvent *event) override;
    void dragEnterEvent(QDragEnterEvent *event) override;
    void dropEvent(QDropEvent *event) override;

private:
    // design_actions.cpp
    void addActions();
    void addEditActions();
    // design_build.cpp
    void buildHead();
    QWidget *buildCentre();
    void connectParts();
    // design_files.cpp
    void chooseFile();
    void openOrTell(
        const QString &file); ///< a file that cannot be opened is a notice, from which another is chosen
    void chooseRecent();
    bool mayLeave(); ///< asks where a change would be lost
    void keepDraft();
    Status import(const std::string &text, const QString &file);
    void chooseConfig();
    void begin(const Json &document, const QString &file);
    void remember(const QString &file);
    // design_page.cpp
    void documentChanged();
    void refreshHead();
    void ask();
    void compareNow();
    void take(const std::shared_ptr<const predict::Verdict> &verdict);
    void tell(const Error &error);

    Context m_context;
    QPointer<NarrowRow> m_head; ///< the window head owns it once it is in there
    ElidedLabel *m_title = nullptr;
    QPushButton *m_launch = nullptr;
    DesignDocument *m_document;
    VerdictRunner *m_runner;
    QSplitter *m_across;
    DesignForm *m_form;
    QSplitter *m_down;
    RankPanel *m_ranks;
    StepTimeline *m_timeline;
    KindLegend *m_legend = nullptr;
    Segmented *m_drawers = nullptr;
    QStackedWidget *m_stack = nullptr;
    SearchView *m_search;
    CompareView *m_compare;
    DataView *m_data;
    VerdictPanel *m_panel;
    std::shared_ptr<const predict::Verdict> m_verdict;
    double m_targetTokens = 300e9;
    bool m_open = false;
};

} // namespace rankyard::ui
