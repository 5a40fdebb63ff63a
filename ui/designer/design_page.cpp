// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/design_page.h"

#include "ui/common/actions.h"
#include "ui/common/elided_label.h"
#include "ui/common/narrow_row.h"
#include "ui/common/notices.h"
#include "ui/common/rows.h"
#include "ui/common/segmented.h"
#include "ui/common/settings.h"
#include "ui/designer/axis_board.h"
#include "ui/designer/cluster_choice.h"
#include "ui/designer/compare_view.h"
#include "ui/designer/data_view.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_form.h"
#include "ui/designer/import_list.h"
#include "ui/designer/kind_legend.h"
#include "ui/designer/rank_panel.h"
#include "ui/designer/search_view.h"
#include "ui/designer/step_timeline.h"
#include "ui/designer/verdict_panel.h"

#include <QDragEnterEvent>
#include <QFileInfo>
#include <QKeyEvent>
#include <QMimeData>
#include <QPushButton>
#include <QSplitter>
#include <QStackedWidget>
#include <QUrl>

namespace rankyard::ui {

DesignPage::~DesignPage()
{
    m_context.settings->keep(QStringLiteral("design"), m_across);
    m_context.settings->keep(QStringLiteral("designCentre"), m_down);
    keepDraft();
    if (m_head && !m_head->parentWidget())
        delete m_head;
}

void DesignPage::setDrawer(Drawer drawer)
{
    m_drawers->setCurrent(drawer);
    m_stack->setCurrentIndex(drawer);
    m_legend->setKinds(drawer == Step ? m_timeline->kinds() : std::vector<Kind>());
}

void DesignPage::showDrawer(Drawer drawer)
{
    setDrawer(drawer);
    QWidget *entries[] = {m_timeline, m_search->entry(), m_compare->entry(), m_data->entry()};
    entries[drawer]->setFocus(Qt::ShortcutFocusReason);
}

DesignPage::Drawer DesignPage::drawer() const { return static_cast<Drawer>(m_stack->currentIndex()); }

/// The comparison knows the design at once, its verdict a moment later.
void DesignPage::compareNow() { m_compare->setNow({m_document->json(), m_verdict}); }

QWidget *DesignPage::headWidget() const { return m_head; }

void DesignPage::tell(const Error &error) { m_context.notices->post(error); }

void DesignPage::launch()
{
    // A run is started from a file: what runs is what is kept.
    if ((m_document->isDirty() || m_document->file().isEmpty()) && !save())
        return;
    m_context.actions->startJob(m_document->file());
}

void DesignPage::documentChanged()
{
    m_form->refresh();
    m_panel->imported()->setNote(m_document->importNote());
    refreshHead();
    ask();
}

void DesignPage::refreshHead()
{
    QStringList parts{m_document->name()};
    if (!m_document->file().isEmpty())
        parts << QFileInfo(m_document->file()).fileName();
    if (m_document->isDirty()) {
        const int changes = m_document->changes();
        parts << (changes == 1 ? tr("edited, 1 change") : tr("edited, %1 changes").arg(changes));
    } else if (m_document->file().isEmpty()) {
        parts << tr("not saved");
    }
    m_title->setFullText(parts.join(QStringLiteral(" · ")));
    const bool runs = m_document->job().ok() && m_document->cluster() == "local";
    m_context.registry->action(QStringLiteral("design.launch"))->setEnabled(runs);
    if (m_launch)
        m_launch->setToolTip(
            runs ? tr("Starts the design as a new run on this machine")
                : m_document->job()
                ? tr("Runs start on this machine only in this version: choose This machine as the cluster")
                : spec::hasPlanOnly(m_document->json())
                ? tr(
                    "Such a model can be planned, not run: its section plan_only says more than the engine has")
                : tr("The job cannot run yet"));
}

void DesignPage::ask()
{
    const auto &cluster = m_form->cluster()->cluster();
    m_form->axes()->setPlaces(cluster ? cluster::Slots(*cluster).count() : 0, cluster && cluster->gpus() > 0);
    const auto &job = m_document->job();
    // Where the ranks are does not depend on the batch, or whatever else is wrong.
    spec::Layout layout;
    const auto &sizes = m_form->axes()->factors()->sizes();
    std::tie(layout.tp, layout.cp, layout.pp, layout.dp) = std::tie(sizes[0], sizes[1], sizes[2], sizes[3]);
    m_ranks->setDesign(job ? job->layout : layout, cluster);
    m_search->setDesign(job ? std::optional(*job) : std::nullopt, cluster);
    const bool plannedOnly = spec::hasPlanOnly(m_document->json());
    if ((!job && !plannedOnly) || !cluster) {
        m_runner->cancel();
        std::vector<predict::Problem> problems = predict::problemsOf(m_document->json());
        if (!cluster)
            problems.push_back(
                {predict::Severity::Error, "cluster", m_form->cluster()->error().toStdString(), {}});
        m_verdict.reset();
        m_timeline->setVerdict(nullptr);
        m_legend->setKinds({});
        m_form->setProblems(problems);
        m_panel->setProblems(std::move(problems));
        orderFocus(this);
        compareNow();
        emit ready();
        return;
    }
    m_form->setProblems({});
    m_runner->request(
        {plannedOnly ? std::nullopt : std::optional(*job), m_document->json(), cluster, m_targetTokens});
}

void DesignPage::take(const std::shared_ptr<const predict::Verdict> &verdict)
{
    const auto &cluster = m_form->cluster()->cluster();
    m_panel->setVerdict(verdict, cluster && cluster->gpus() > 0 ? tr("GPU") : tr("rank"));
    m_form->setProblems(verdict->problems);
    orderFocus(this);
    if (verdict->depth != predict::Depth::Closed) {
        m_timeline->setVerdict(verdict);
        setDrawer(drawer()); // with the legend of the new step
    }
    if (verdict->isEarly()) {
        emit answered(verdict->depth);
        return;
    }
    m_verdict = verdict;
    compareNow();
    keepDraft();
    emit answered(predict::Depth::Whole);
    emit ready();
}

bool DesignPage::isReady() const { return m_open && !m_runner->isBusy(); }

void DesignPage::keyPressEvent(QKeyEvent *event)
{
    if (!m_context.registry->handleKey(QStringLiteral("design"), event))
        QWidget::keyPressEvent(event);
}

/// No proxy: Tab would come by the page, and from there jump over what stands before the presets.
void DesignPage::focusInEvent(QFocusEvent *event) { m_form->presets()->setFocus(event->reason()); }

void DesignPage::showEvent(QShowEvent *event)
{
    QWidget::showEvent(event);
    openSomething();
}

void DesignPage::dragEnterEvent(QDragEnterEvent *event)
{
    if (event->mimeData()->urls().size() == 1 && event->mimeData()->urls()[0].isLocalFile())
        event->acceptProposedAction();
}

void DesignPage::dropEvent(QDropEvent *event)
{
    event->acceptProposedAction();
    openOrTell(event->mimeData()->urls()[0].toLocalFile());
}

} // namespace rankyard::ui
