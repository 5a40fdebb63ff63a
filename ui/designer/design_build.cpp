// SPDX-License-Identifier: GPL-3.0-or-later
// How the Design page is put together.
#include "engine/spec/job.h"
#include "ui/common/actions.h"
#include "ui/common/elided_label.h"
#include "ui/common/narrow_row.h"
#include "ui/common/notices.h"
#include "ui/common/panel.h"
#include "ui/common/rows.h"
#include "ui/common/segmented.h"
#include "ui/common/settings.h"
#include "ui/designer/cluster_choice.h"
#include "ui/designer/compare_view.h"
#include "ui/designer/data_view.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_form.h"
#include "ui/designer/design_page.h"
#include "ui/designer/kind_legend.h"
#include "ui/designer/rank_panel.h"
#include "ui/designer/search_view.h"
#include "ui/designer/step_timeline.h"
#include "ui/designer/verdict_panel.h"

#include <QComboBox>
#include <QHBoxLayout>
#include <QPushButton>
#include <QScrollArea>
#include <QSplitter>
#include <QStackedWidget>

namespace rankyard::ui {

namespace {

constexpr QLatin1String tokensKey("design/targetTokens");

} // namespace

DesignPage::DesignPage(const Context &context, QWidget *parent, VerdictRunner::Judge judge)
    : QWidget(parent),
      m_context(context),
      m_head(new NarrowRow),
      m_document(new DesignDocument(this)),
      m_runner(new VerdictRunner(this, std::move(judge))),
      m_across(new QSplitter(Qt::Horizontal, this)),
      m_form(new DesignForm(m_document, this)),
      m_down(new QSplitter(Qt::Vertical, this)),
      m_ranks(new RankPanel(this)),
      m_timeline(new StepTimeline(this)),
      m_search(new SearchView(this)),
      m_compare(new CompareView(this)),
      m_data(new DataView(m_document, context.notices, this)),
      m_panel(new VerdictPanel(this))
{
    setAcceptDrops(true);
    addActions();
    buildHead();
    m_across->setHandleWidth(1);
    m_across->addWidget(m_form);
    m_across->addWidget(buildCentre());
    m_across->addWidget(m_panel);
    for (int i = 0; i < 3; ++i) {
        m_across->setStretchFactor(i, i == 1 ? 1 : 0);
        m_across->setCollapsible(i, i != 1);
    }
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->addWidget(m_across);
    if (!m_context.settings->bringBack(QStringLiteral("design"), m_across))
        m_across->setSizes({300, 900, 320});
    if (!m_context.settings->bringBack(QStringLiteral("designCentre"), m_down))
        m_down->setSizes({500, 400});

    connectParts();
    refreshHead();
    orderFocus(this);
}

void DesignPage::connectParts()
{
    connect(m_document, &DesignDocument::changed, this, &DesignPage::documentChanged);
    connect(m_document, &DesignDocument::fileChanged, this, &DesignPage::refreshHead);
    connect(m_form, &DesignForm::openConfigRequested, this, &DesignPage::chooseConfig);
    connect(m_form->cluster(), &ClusterChoice::clusterChanged, this, &DesignPage::ask);
    connect(m_search, &SearchView::chosen, this, [this](const search::Choice &choice) {
        if (m_document->job())
            m_document->replace(Json(spec::writeJob(search::jobOf(*m_document->job(), choice))),
                                tr("Layout %1").arg(QString::fromStdString(search::textOf(choice))));
    });
    connect(m_compare, &CompareView::loadRequested, this,
            [this](const Json &document) { m_document->replace(document, tr("Back to the kept design")); });
    connect(m_panel, &VerdictPanel::fixChosen, this, [this](const predict::Fix &fix) {
        m_document->apply(fix.changes, tr("Fix: %1").arg(QString::fromStdString(fix.words)));
    });
    m_targetTokens = m_context.settings->value(tokensKey, m_targetTokens).toDouble();
    m_panel->setTargetTokens(m_targetTokens);
    connect(m_panel, &VerdictPanel::targetTokensChanged, this, [this](double tokens) {
        m_targetTokens = tokens;
        m_context.settings->setValue(tokensKey, tokens);
        ask();
    });
    connect(m_runner, &VerdictRunner::judged, this, &DesignPage::take);
    connect(m_runner, &VerdictRunner::busyChanged, this, [this] { m_panel->setBusy(m_runner->isBusy()); });
}

void DesignPage::buildHead()
{
    QHBoxLayout *row = m_head->row();
    m_title = new ElidedLabel(m_head);
    m_title->setProperty("tone", "muted");
    m_title->setProperty("data", true);
    row->addWidget(m_title, 1);
    const auto button = [&](const char *id) {
        QAction *action = m_context.registry->action(QLatin1String(id));
        auto *made = new QPushButton(action->text(), m_head);
        made->setToolTip(action->toolTip());
        made->setEnabled(action->isEnabled());
        connect(made, &QPushButton::clicked, action, &QAction::trigger);
        connect(action, &QAction::changed, made, [made, action] { made->setEnabled(action->isEnabled()); });
        row->addWidget(made);
        return made;
    };
    QPushButton *undo = button("design.undo");
    QPushButton *redo = button("design.redo");
    QPushButton *open = button("design.open");
    button("design.save");
    m_launch = button("design.launch");
    m_launch->setProperty("tone", "primary");
    for (QPushButton *giving : {redo, undo, open})
        m_head->addGiving(giving);
}

QWidget *DesignPage::buildCentre()
{
    auto *lower = new Panel({}, this);
    lower->setAccessibleName(tr("Step, search, comparison, data"));
    auto *head = new NarrowRow(lower);
    m_drawers = new Segmented(tr("Below the ranks"),
                              {tr("Predicted step"), tr("Search"), tr("Compare"), tr("Data")}, head);
    m_legend = new KindLegend(lower);
    head->row()->addWidget(m_drawers);
    head->row()->addStretch(1);
    head->addGiving(m_drawers);
    lower->headLayout()->addWidget(head, 1);
    lower->body()->addWidget(m_legend);
    m_stack = new QStackedWidget(lower);
    m_stack->addWidget(m_timeline);
    for (QWidget *view : std::initializer_list<QWidget *>{m_search, m_compare, m_data}) {
        auto *scroll = new QScrollArea(m_stack); // large text needs more room than there is
        scroll->setWidgetResizable(true);
        scroll->setFrameShape(QFrame::NoFrame);
        scroll->setFocusPolicy(Qt::NoFocus);
        view->setObjectName(QStringLiteral("sideContent"));
        view->setAttribute(Qt::WA_StyledBackground);
        scroll->setWidget(view);
        m_stack->addWidget(scroll);
    }
    lower->body()->addWidget(m_stack, 1);
    connect(m_drawers, &Segmented::changed, this,
            [this](int index) { setDrawer(static_cast<Drawer>(index)); });
    m_down->addWidget(m_ranks);
    m_down->addWidget(lower);
    m_down->setHandleWidth(12);
    m_down->setObjectName(QStringLiteral("apart"));
    m_down->setChildrenCollapsible(false);
    auto *holder = new QWidget(this);
    auto *around = new QVBoxLayout(holder);
    around->setContentsMargins(12, 12, 12, 12);
    around->addWidget(m_down);
    return holder;
}

} // namespace rankyard::ui
