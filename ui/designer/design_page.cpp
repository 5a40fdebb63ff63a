// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/design_page.h"

#include "engine/base/file.h"
#include "engine/spec/model_presets.h"
#include "ui/common/actions.h"
#include "ui/common/elided_label.h"
#include "ui/common/narrow_row.h"
#include "ui/common/notices.h"
#include "ui/common/settings.h"
#include "ui/designer/axis_board.h"
#include "ui/designer/cluster_choice.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_form.h"
#include "ui/designer/kind_legend.h"
#include "ui/designer/rank_panel.h"
#include "ui/designer/step_timeline.h"
#include "ui/designer/verdict_panel.h"

#include <QComboBox>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QMimeData>
#include <QPushButton>
#include <QSplitter>
#include <QUndoStack>
#include <QUrl>

namespace rankyard::ui {

namespace {

constexpr QLatin1String openKey("design/open");
constexpr QLatin1String recentKey("design/recent");
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
    connect(m_panel, &VerdictPanel::fixChosen, this, [this](const predict::Fix &fix) {
        m_document->apply(fix.changes, tr("Fix: %1").arg(QString::fromStdString(fix.words)));
    });
    connect(m_runner, &VerdictRunner::judged, this, &DesignPage::take);
    connect(m_runner, &VerdictRunner::busyChanged, this, [this] { m_panel->setBusy(m_runner->isBusy()); });
    refreshHead();
}

DesignPage::~DesignPage()
{
    m_context.settings->keep(QStringLiteral("design"), m_across);
    m_context.settings->keep(QStringLiteral("designCentre"), m_down);
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
    auto *step = new Panel({}, this);
    auto *title = new ElidedLabel(step);
    title->setFullText(tr("Predicted step"));
    title->setSizePolicy(QSizePolicy::Maximum, QSizePolicy::Preferred);
    setRole(title, FontRole::Strong);
    step->setAccessibleName(title->fullText());
    step->headLayout()->addWidget(title);
    m_legend = new KindLegend(step);
    step->headLayout()->addWidget(m_legend, 1);
    step->body()->addWidget(m_timeline, 1);
    m_down->addWidget(m_ranks);
    m_down->addWidget(step);
    m_down->setHandleWidth(12);
    m_down->setObjectName(QStringLiteral("apart"));
    m_down->setChildrenCollapsible(false);
    auto *holder = new QWidget(this);
    auto *around = new QVBoxLayout(holder);
    around->setContentsMargins(12, 12, 12, 12);
    around->addWidget(m_down);
    return holder;
}

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
    m_document->begin(document, file);
}

Status DesignPage::open(const QString &file)
{
    const std::string name = file.toStdString();
    RY_ASSIGN(const std::string text, readFile(name));
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

void DesignPage::openSomething()
{
    if (m_open)
        return;
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

void DesignPage::chooseFile()
{
    const QString file =
        QFileDialog::getOpenFileName(this, tr("Open a design"), {}, tr("Jobs (*.json);;All files (*)"));
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
    m_ranks->setDesign(job ? std::optional(job->layout) : std::nullopt, cluster);
    if (!job || !cluster) {
        m_runner->cancel();
        predict::Problem problem;
        if (!job) {
            problem = predict::problemOf(job.error(), m_document->json());
        } else {
            problem.path = "cluster";
            problem.text = m_form->cluster()->error().toStdString();
        }
        m_verdict.reset();
        m_timeline->setVerdict(nullptr);
        m_legend->setKinds({});
        m_panel->setProblem(problem);
        m_form->setProblems({problem});
        emit ready();
        return;
    }
    m_form->setProblems({});
    m_runner->request({*job, m_document->json(), cluster});
}

void DesignPage::take(const std::shared_ptr<const predict::Verdict> &verdict)
{
    const auto &cluster = m_form->cluster()->cluster();
    if (verdict->early) {
        m_panel->setEarly(*verdict);
        return;
    }
    m_verdict = verdict;
    m_panel->setVerdict(verdict, cluster && cluster->gpus() > 0 ? tr("GPU") : tr("rank"));
    m_form->setProblems(verdict->problems);
    m_timeline->setVerdict(verdict);
    m_legend->setKinds(m_timeline->kinds());
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
    if (const Status opened = open(event->mimeData()->urls()[0].toLocalFile()); !opened)
        tell(opened.error());
}

} // namespace rankyard::ui
