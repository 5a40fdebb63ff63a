// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/design_form.h"

#include "engine/predict/shape.h"
#include "engine/spec/model_presets.h"
#include "ui/common/choice_box.h"
#include "ui/common/format.h"
#include "ui/common/icons.h"
#include "ui/common/rows.h"
#include "ui/common/theme.h"
#include "ui/designer/axis_board.h"
#include "ui/designer/cluster_choice.h"

#include <QComboBox>
#include <QEvent>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalBlocker>
#include <QToolButton>
#include <QVBoxLayout>

namespace rankyard::ui {

using Editor = FieldRow::Editor;

namespace {
constexpr QLatin1String plannedPrefix("plan_only:"); ///< of the data of models that are planned only
}

DesignForm::DesignForm(DesignDocument *document, QWidget *parent) : QScrollArea(parent), m_document(document)
{
    const auto widen = [this] { setMinimumWidth(Theme::instance().scaled(232)); };
    connect(&Theme::instance(), &Theme::changed, this, widen);
    widen();
    setObjectName(QStringLiteral("leftSide"));
    setWidgetResizable(true);
    setFrameShape(QFrame::NoFrame);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setFocusPolicy(Qt::NoFocus);
    auto *content = new QWidget;
    content->setObjectName(QStringLiteral("sideContent"));
    setWidget(content);
    m_column = new QVBoxLayout(content);
    m_column->setContentsMargins(14, 8, 14, 12);
    m_column->setSpacing(6);
    buildModel();
    buildLayout();
    buildBatch();
    buildMemory();
    buildTraining();
    m_column->addStretch(1);
    refresh();
}

DesignForm::Section DesignForm::section(const QString &title, bool open)
{
    Section section;
    section.head = new QToolButton(widget());
    section.head->setText(title);
    section.head->setToolTip(tr("Folds or unfolds this section"));
    section.head->setProperty("section", true);
    section.head->setCheckable(true);
    section.head->setChecked(open);
    section.head->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
    section.head->setArrowType(open ? Qt::DownArrow : Qt::RightArrow);
    section.head->setAccessibleName(title);
    setRole(section.head, FontRole::Strong);
    const auto grow = [head = section.head] {
        head->setIconSize(QSize(16, 16) * Theme::instance().textPercent() / 100);
    };
    connect(&Theme::instance(), &Theme::changed, section.head, grow);
    grow();
    section.body = new QWidget(widget());
    section.rows = new QVBoxLayout(section.body);
    section.rows->setContentsMargins(0, 2, 0, 8);
    section.rows->setSpacing(6);
    section.body->setVisible(open);
    connect(section.head, &QToolButton::toggled, section.body,
            [body = section.body, head = section.head](bool on) {
                body->setVisible(on);
                head->setArrowType(on ? Qt::DownArrow : Qt::RightArrow);
            });
    m_column->addWidget(section.head, 0, Qt::AlignLeft);
    m_column->addWidget(section.body);
    return section;
}

FieldRow *DesignForm::field(const Section &section, const char *path, const QString &label, Editor editor)
{
    auto *row = new FieldRow(m_document, path, label, editor, section.body);
    section.rows->addWidget(row);
    m_rows[path] = row;
    return row;
}

void DesignForm::buildModel()
{
    const Section model = section(tr("Model"));
    auto *row = new QHBoxLayout;
    row->setSpacing(8);
    m_presets = new ChoiceBox(model.body);
    m_presets->setAccessibleName(tr("Model preset"));
    m_presets->setToolTip(tr("Models with known sizes"));
    m_presets->setProperty("data", true);
    m_presets->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
    m_presets->setMinimumContentsLength(8);
    for (const spec::ModelPreset &preset : spec::modelPresets())
        m_presets->addItem(QString::fromUtf8(preset.name), QString::fromLatin1(preset.id));
    m_presets->insertSeparator(m_presets->count());
    for (const char *name : predict::plannedModels()) {
        m_presets->addItem(QString::fromLatin1(name), QString(plannedPrefix) + QLatin1String(name));
        m_presets->setItemData(m_presets->count() - 1,
                               tr("Planned only: experts, latent attention or squared ReLU do not run here"),
                               Qt::ToolTipRole);
    }
    m_presets->insertSeparator(m_presets->count());
    m_presets->addItem(tr("Own sizes"));
    auto *file = new QPushButton(tr("Config"), model.body);
    file->setToolTip(
        tr("Takes the sizes from a Hugging Face config.json; it can also be dropped on the page"));
    row->addWidget(m_presets, 1);
    row->addWidget(file);
    model.rows->addLayout(row);
    connect(m_presets, &QComboBox::activated, this, &DesignForm::choosePreset);
    connect(file, &QPushButton::clicked, this, &DesignForm::openConfigRequested);
    field(model, "name", tr("Name of the design"), Editor::Value);
    field(model, "model.family", tr("Family"), Editor::Choice);
    field(model, "model.layers", tr("Layers"), Editor::Value);
    field(model, "model.hidden", tr("Hidden"), Editor::Value);
    field(model, "model.heads", tr("Heads"), Editor::Value);
    field(model, "model.kv_heads", tr("Key heads"), Editor::Value);
    field(model, "model.ffn", tr("Inner width"), Editor::Value);
    field(model, "model.seq", tr("Sequence"), Editor::Value);
    field(model, "model.vocab", tr("Vocabulary"), Editor::Value);
    field(model, "model.tied", tr("Tied embedding"), Editor::Buttons);
}

void DesignForm::buildLayout()
{
    const Section layout = section(tr("Layout"));
    m_cluster = new ClusterChoice(m_document, layout.body);
    layout.rows->addWidget(m_cluster);
    m_axes = new AxisBoard(m_document, layout.body);
    layout.rows->addWidget(m_axes);
    for (FieldRow *row : m_axes->rows())
        m_rows[row->path()] = row;
    field(layout, "layout.schedule", tr("Schedule"), Editor::Choice);
    field(layout, "layout.virtual", tr("Chunks a stage"), Editor::Value);
    field(layout, "layout.sequence_parallel", tr("Sequence parallel"), Editor::Buttons);
    field(layout, "layout.order", tr("Order of axes"), Editor::Value);
}

void DesignForm::buildBatch()
{
    const Section batch = section(tr("Batch and precision"));
    field(batch, "batch.global", tr("Global batch"), Editor::Value);
    field(batch, "batch.micro", tr("Micro-batch"), Editor::Value);
    QWidget *row = valueRow(tr("Micro-batches"), {}, batch.body, &m_microBatches);
    row->setToolTip(tr("Of a replica in a step: global batch / (dp · micro-batch)"));
    m_microBatches->setContentsMargins(0, 0, 9, 0); // below the numbers of the fields
    batch.rows->addWidget(row);
    field(batch, "precision.compute", tr("Compute"), Editor::Choice);
    field(batch, "precision.loss_scale.mode", tr("Loss scale"), Editor::Choice);
    field(batch, "precision.loss_scale.rule", tr("Loss scale rule"), Editor::Choice);
}

void DesignForm::buildMemory()
{
    const Section memory = section(tr("Memory and traffic"));
    field(memory, "zero.stage", tr("ZeRO"), Editor::Buttons);
    field(memory, "recompute.mode", tr("Recompute"), Editor::Choice);
    field(memory, "recompute.every", tr("Every so many layers"), Editor::Value);
    field(memory, "offload.optimizer", tr("Optimizer states on"), Editor::Choice);
    field(memory, "offload.params", tr("Parameters on"), Editor::Choice);
    field(memory, "compression.mode", tr("Compression"), Editor::Choice);
    field(memory, "zero.bucket_bytes", tr("Bucket, bytes"), Editor::Value);
}

void DesignForm::buildTraining()
{
    const Section training = section(tr("Training"), false);
    field(training, "data.train", tr("Corpus"), Editor::Value);
    field(training, "data.valid_fraction", tr("Validation part"), Editor::Value);
    field(training, "optimizer.kind", tr("Optimizer"), Editor::Choice);
    field(training, "optimizer.lr", tr("Learning rate"), Editor::Value);
    field(training, "optimizer.weight_decay", tr("Weight decay"), Editor::Value);
    field(training, "optimizer.clip", tr("Clip"), Editor::Value);
    field(training, "lr_schedule.kind", tr("Schedule of the rate"), Editor::Choice);
    field(training, "lr_schedule.warmup", tr("Warm-up steps"), Editor::Value);
    field(training, "lr_schedule.total", tr("Steps of the schedule"), Editor::Value);
    field(training, "lr_schedule.min_lr", tr("Last learning rate"), Editor::Value);
    field(training, "run.steps", tr("Steps"), Editor::Value);
    field(training, "run.eval_every", tr("Validate every"), Editor::Value);
    field(training, "run.checkpoint_every", tr("Checkpoint every"), Editor::Value);
}

void DesignForm::choosePreset(int index)
{
    const QString chosen = m_presets->itemData(index).toString();
    Json document = m_document->json();
    document.erase("plan_only"); // of the model before
    if (chosen.startsWith(plannedPrefix)) {
        document["plan_only"]["model"] = chosen.mid(plannedPrefix.size()).toStdString();
    } else if (const spec::ModelPreset *preset = spec::findModelPreset(chosen.toStdString())) {
        spec::JobSpec job;
        job.model = preset->model;
        document["model"] = spec::writeJob(job)["model"];
    } else {
        return refresh();
    }
    m_document->replace(std::move(document), tr("Model %1").arg(m_presets->itemText(index)));
}

FieldRow *DesignForm::row(const std::string &path) const
{
    const auto found = m_rows.find(path);
    return found == m_rows.end() ? nullptr : found->second;
}

bool DesignForm::reveal(const std::string &path)
{
    FieldRow *found = row(path);
    if (!found)
        return false;
    for (QToolButton *head : widget()->findChildren<QToolButton *>()) {
        if (head->property("section").toBool() && !found->isVisibleTo(widget())) {
            const bool was = head->isChecked();
            head->setChecked(true);
            if (!found->isVisibleTo(widget()))
                head->setChecked(was);
        }
    }
    ensureWidgetVisible(found);
    found->editor()->setFocus(Qt::OtherFocusReason);
    return true;
}

/// The preset whose sizes these are; a changed sequence length does not make another model.
void DesignForm::refreshPreset()
{
    const auto &job = m_document->job();
    const int last = m_presets->count() - 1;
    int at = last;
    const Json planned = m_document->value("plan_only.model");
    const bool own = !planned.is_string(); // a model of the planner's catalogue brings its own sizes
    const QString name = own ? QString() : QString::fromStdString(planned.get<std::string>());
    for (int i = 0; i < last; ++i) {
        const QString key = m_presets->itemData(i).toString();
        if (key.startsWith(plannedPrefix)) {
            const auto *shape = own ? nullptr : predict::findModel(name.toStdString());
            if (shape && shape == predict::findModel(key.mid(plannedPrefix.size()).toStdString()))
                at = i;
        } else if (const spec::ModelPreset *preset = spec::findModelPreset(key.toStdString());
                   preset && job) {
            const spec::Model &known = preset->model;
            const spec::Model &model = job->model;
            if (known.family == model.family && known.layers == model.layers && known.hidden == model.hidden
                && known.heads == model.heads && known.keyHeads() == model.keyHeads()
                && known.ffnSize() == model.ffnSize() && known.vocab == model.vocab
                && known.tied == model.tied)
                at = i;
        }
    }
    const QSignalBlocker quiet(m_presets);
    m_presets->setItemText(last, own ? tr("Own sizes") : name);
    m_presets->setCurrentIndex(at);
    for (const char *path : {"model.family", "model.layers", "model.hidden", "model.heads", "model.ffn",
                             "model.vocab", "model.tied"})
        m_rows.at(path)->setVisible(own);
    m_rows.at("model.kv_heads")
        ->setVisible(own
                     && (m_document->value("model.family") == Json("llama")
                         || !m_document->value("model.kv_heads").is_null()));
}

void DesignForm::refreshDerived()
{
    const auto &job = m_document->job();
    m_microBatches->setText(job ? formatStep(job->microBatches()) : QStringLiteral("–"));
    refreshPreset();
    const bool scaled = m_document->value("precision.compute") == Json("fp16");
    for (const char *path : {"precision.loss_scale.mode", "precision.loss_scale.rule"})
        m_rows.at(path)->setVisible(scaled);
    m_rows.at("recompute.every")->setVisible(m_document->value("recompute.mode") != Json("none"));
    m_rows.at("layout.virtual")
        ->setVisible(m_document->value("layout.pp") != Json(1)
                     || m_document->value("layout.virtual") != Json(1));
    m_rows.at("layout.schedule")->setVisible(m_document->value("layout.pp") != Json(1));
}

void DesignForm::refresh()
{
    m_cluster->refresh();
    m_axes->refresh();
    for (const auto &[path, row] : m_rows)
        row->refresh();
    refreshDerived();
}

void DesignForm::setProblems(const std::vector<predict::Problem> &problems)
{
    for (const auto &[path, row] : m_rows) {
        std::vector<predict::Problem> own;
        for (const predict::Problem &problem : problems) {
            if (problem.path == path && problem.severity >= predict::Severity::Warning)
                own.push_back(problem);
        }
        if (!own.empty() || row->problems() > 0)
            row->setProblems(own);
        if (!own.empty())
            row->setVisible(true);
    }
}

bool DesignForm::viewportEvent(QEvent *event)
{
    if (event->type() == QEvent::Resize && widget())
        widget()->setMaximumWidth(viewport()->width());
    return QScrollArea::viewportEvent(event);
}

} // namespace rankyard::ui
