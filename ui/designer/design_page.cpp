// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/design_page.h"

#include "engine/base/file.h"
#include "engine/interop/interop.h"
#include "engine/spec/model_presets.h"
#include "ui/common/actions.h"
#include "ui/common/elided_label.h"
#include "ui/common/narrow_row.h"
#include "ui/common/notices.h"
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

#include <QComboBox>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QMenu>
#include <QMessageBox>
#include <QMimeData>
#include <QPushButton>
#include <QScrollArea>
#include <QSplitter>
#include <QStackedWidget>
#include <QUndoStack>
#include <QUrl>

namespace rankyard::ui {

namespace {

constexpr QLatin1String openKey("design/open");
constexpr QLatin1String tokensKey("design/targetTokens");
constexpr QLatin1String recentKey("design/recent");
constexpr QLatin1String draftKey("design/draft"); ///< what was not saved: it comes back at the next start
constexpr QLatin1String draftFileKey("design/draftFile");
constexpr int keptRecent = 8;

bool isModelConfig(const Json &document) { return document.is_object() && document.contains("model_type"); }

bool isClusterFile(const Json &document)
{
    return document.is_object() && document.value("schema", Json()).is_string()
        && document["schema"].get<std::string>().rfind("rankyard/cluster", 0) == 0;
}

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
    setFocusProxy(m_form->presets());
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
    refreshHead();
}

DesignPage::~DesignPage()
{
    m_context.settings->keep(QStringLiteral("design"), m_across);
    m_context.settings->keep(QStringLiteral("designCentre"), m_down);
    keepDraft();
    if (m_head && !m_head->parentWidget())
        delete m_head;
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

void DesignPage::setDrawer(Drawer drawer)
{
    m_drawers->setCurrent(drawer);
    m_stack->setCurrentIndex(drawer);
    m_legend->setKinds(drawer == Step ? m_timeline->kinds() : std::vector<Kind>());
}

DesignPage::Drawer DesignPage::drawer() const { return static_cast<Drawer>(m_stack->currentIndex()); }

/// The comparison knows the design at once, its verdict a moment later.
void DesignPage::compareNow() { m_compare->setNow({m_document->json(), m_verdict}); }

QWidget *DesignPage::headWidget() const { return m_head; }

void DesignPage::tell(const Error &error) { m_context.notices->post(error); }

void DesignPage::remember(const QString &file)
{
    m_context.settings->setValue(openKey, file);
    QStringList files = recent();
    files.removeAll(file);
    files.prepend(file);
    m_context.settings->setValue(recentKey, files.mid(0, keptRecent));
}

QStringList DesignPage::recent() const { return m_context.settings->value(recentKey).toStringList(); }

void DesignPage::begin(const Json &document, const QString &file)
{
    m_open = true;
    m_panel->imported()->dismiss();
    m_document->begin(document, file);
}

Status DesignPage::open(const QString &file)
{
    const std::string name = file.toStdString();
    RY_ASSIGN(const std::string text, readFile(name));
    if (interop::engineOf(text))
        return import(text, file);
    RY_ASSIGN(const Json document, parseJson(text, name, Code::BadJob));
    if (isClusterFile(document)) {
        m_document->set("cluster", QFileInfo(file).absoluteFilePath().toStdString());
        m_open = true;
        return {};
    }
    if (isModelConfig(document)) {
        RY_ASSIGN(const spec::Model model, spec::readHfConfig(document, name));
        spec::JobSpec job;
        job.model = model;
        Json changed = m_document->json();
        const Json written = spec::writeJob(job);
        changed["model"] = written["model"];
        m_document->replace(std::move(changed), tr("Model from %1").arg(QFileInfo(file).fileName()));
        m_open = true;
        return {};
    }
    RY_TRY(m_document->open(QFileInfo(file).absoluteFilePath()));
    m_open = true;
    remember(m_document->file());
    return {};
}

/// What the other engine's file does not say stays as it is in the design. One step of undo.
Status DesignPage::import(const std::string &text, const QString &file)
{
    interop::ImportOptions options;
    if (m_document->job())
        options.base = *m_document->job();
    else
        options.base.data.train = "corpus";
    const QString shortName = QFileInfo(file).fileName();
    RY_ASSIGN(interop::Imported imported, interop::importConfig(text, shortName.toStdString(), options));
    m_panel->imported()->tell(imported, shortName);
    m_open = true;
    m_document->replace(std::move(imported.job), tr("Import of %1").arg(shortName));
    return {};
}

void DesignPage::keepDraft()
{
    if (!m_open)
        return;
    m_context.settings->setValue(
        draftKey, m_document->isDirty() ? QString::fromStdString(m_document->text()) : QString());
    m_context.settings->setValue(draftFileKey, m_document->file());
}

void DesignPage::openSomething()
{
    if (m_open)
        return;
    const QString draft = m_context.settings->value(draftKey).toString();
    if (!draft.isEmpty()) {
        if (const auto document = parseJson(draft.toStdString(), "draft")) {
            const QString file = m_context.settings->value(draftFileKey).toString();
            begin(Json::object(), {});
            if (file.isEmpty() || !m_document->open(file))
                begin(Json::object(), {});
            m_document->replace(withDefaults(*document), tr("Changes of last time"));
            return;
        }
    }
    const QString last = m_context.settings->value(openKey).toString();
    if (!last.isEmpty() && QFileInfo::exists(last) && open(last))
        return;
    const QString sample = m_context.actions->sampleJob();
    if (!sample.isEmpty()) {
        if (const auto text = readFile(sample.toStdString())) {
            if (auto document = parseJson(*text, sample.toStdString())) {
                // A new design that begins as the sample: saving asks for a name.
                (*document)["name"] = "design";
                return begin(*document, {});
            }
        }
    }
    begin(Json::object(), {});
}

bool DesignPage::mayLeave()
{
    if (!m_document->isDirty())
        return true;
    const auto answer = QMessageBox::question(
        this, tr("Save the changes?"), tr("The design has changes that are not saved."),
        QMessageBox::Save | QMessageBox::Discard | QMessageBox::Cancel, QMessageBox::Save);
    return answer == QMessageBox::Discard || (answer == QMessageBox::Save && save());
}

void DesignPage::chooseRecent()
{
    QMenu menu(this);
    for (const QString &file : recent()) {
        QAction *action = menu.addAction(QFileInfo(file).fileName());
        action->setToolTip(file);
        action->setEnabled(QFileInfo::exists(file));
        connect(action, &QAction::triggered, this, [this, file] {
            if (!mayLeave())
                return;
            if (const Status opened = open(file); !opened)
                tell(opened.error());
        });
    }
    if (menu.isEmpty())
        menu.addAction(tr("No design was saved or opened yet"))->setEnabled(false);
    menu.setToolTipsVisible(true);
    menu.exec(mapToGlobal(QPoint(width() / 2, 0)));
}

void DesignPage::chooseFile()
{
    if (!mayLeave())
        return;
    const QString file = QFileDialog::getOpenFileName(
        this, tr("Open a design"), {},
        tr("Jobs and other engines' configurations (*.json *.sh *.yaml *.yml *.toml);;All files (*)"));
    if (file.isEmpty())
        return;
    if (const Status opened = open(file); !opened)
        tell(opened.error());
}

void DesignPage::chooseConfig()
{
    const QString file = QFileDialog::getOpenFileName(this, tr("Open a model's config.json"), {},
                                                      tr("Model configurations (*.json);;All files (*)"));
    if (file.isEmpty())
        return;
    if (const Status opened = open(file); !opened)
        tell(opened.error());
}

bool DesignPage::save()
{
    if (m_document->file().isEmpty()) {
        saveAs();
        return !m_document->isDirty();
    }
    if (const Status saved = m_document->save(m_document->file()); !saved) {
        tell(saved.error());
        return false;
    }
    remember(m_document->file());
    return true;
}

void DesignPage::saveAs()
{
    const QString name =
        m_document->file().isEmpty() ? m_document->name() + QStringLiteral(".json") : m_document->file();
    const QString file = QFileDialog::getSaveFileName(this, tr("Save the design"), name, tr("Jobs (*.json)"));
    if (file.isEmpty())
        return;
    if (const Status saved = m_document->save(file); !saved)
        return tell(saved.error());
    remember(file);
}

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
    if (!job || !cluster) {
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
        compareNow();
        emit ready();
        return;
    }
    m_form->setProblems({});
    m_runner->request({*job, m_document->json(), cluster, m_targetTokens});
}

void DesignPage::take(const std::shared_ptr<const predict::Verdict> &verdict)
{
    const auto &cluster = m_form->cluster()->cluster();
    m_panel->setVerdict(verdict, cluster && cluster->gpus() > 0 ? tr("GPU") : tr("rank"));
    m_form->setProblems(verdict->problems);
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
    if (const Status opened = open(event->mimeData()->urls()[0].toLocalFile()); !opened)
        tell(opened.error());
}

} // namespace rankyard::ui
