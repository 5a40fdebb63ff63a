// SPDX-License-Identifier: GPL-3.0-or-later
// What the Design page reads and writes: jobs, models, clusters, other engines' files; what comes back at the next start.
#include "engine/base/file.h"
#include "engine/interop/interop.h"
#include "engine/spec/hf_config.h"
#include "ui/common/notices.h"
#include "ui/common/settings.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_page.h"
#include "ui/designer/import_list.h"
#include "ui/designer/verdict_panel.h"

#include <QFileDialog>
#include <QFileInfo>
#include <QMenu>
#include <QMessageBox>

namespace rankyard::ui {

namespace {

constexpr QLatin1String openKey("design/open");
constexpr QLatin1String recentKey("design/recent");
constexpr QLatin1String draftKey("design/draft"); ///< what was not saved: it comes back at the next start
constexpr QLatin1String draftFileKey("design/draftFile");
constexpr int keptRecent = 8;

/// With or without the type that it must have: then the error is about the model, not about a job.
bool isModelConfig(const Json &document)
{
    constexpr const char *keys[] = {"model_type", "architectures", "hidden_size", "n_embd"};
    return document.is_object() && !document.contains("schema")
        && std::any_of(std::begin(keys), std::end(keys),
                       [&](const char *key) { return document.contains(key); });
}

bool isClusterFile(const Json &document)
{
    return document.is_object() && document.value("schema", Json()).is_string()
        && document["schema"].get<std::string>().rfind("rankyard/cluster", 0) == 0;
}

/// "{}", "name, layers, …": what a document has at its top.
std::string shownKeys(const Json &document)
{
    std::string keys;
    if (document.is_object()) {
        for (const auto &[key, value] : document.items())
            keys += (keys.empty() ? "" : ", ") + key;
    }
    const QString text = QString::fromStdString(keys.empty() ? dumpJson(document) : keys);
    constexpr int most = 60;
    return (text.size() > most ? text.left(most) + QStringLiteral("…") : text).toStdString();
}

Error unknownKind(const std::string &name, std::string found)
{
    return Error::make(Code::BadData, "this file is nothing that a design begins with", name)
        .withFound(std::move(found))
        .withExpected(
            "a job or a cluster with its \"schema\", a model's config.json with its \"model_type\", or a "
            "configuration of DeepSpeed, Megatron-LM or torchtitan");
}

} // namespace

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
    if (interop::engineOf(text))
        return import(text, file);
    const auto parsed = parseJson(text, name, Code::BadJob);
    const bool json =
        text.find_first_not_of(" \t\r\n") == text.find('{') && text.find('{') != std::string::npos;
    if (!parsed && json)
        return parsed.error(); // with the line
    if (!parsed || !parsed->is_object() || !(parsed->contains("schema") || isModelConfig(*parsed)))
        return unknownKind(name, parsed ? shownKeys(*parsed) : std::string());
    const Json &document = *parsed;
    if (isClusterFile(document)) {
        m_document->set("cluster", QFileInfo(file).absoluteFilePath().toStdString());
        m_open = true;
        return {};
    }
    if (isModelConfig(document)) {
        RY_ASSIGN(const Json sections, spec::readHfSections(document, name));
        Json changed = m_document->json();
        changed.erase("plan_only"); // of the model before
        changed.update(sections);
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
    m_open = true;
    m_document->import(
        std::move(imported.job), tr("Import of %1").arg(shortName),
        std::make_shared<const ImportNote>(ImportNote{shortName, std::move(imported.remarks)}));
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

void DesignPage::setCluster(const QString &what)
{
    openSomething();
    m_document->set("cluster", what.toStdString());
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

void DesignPage::openOrTell(const QString &file)
{
    const Status opened = open(file);
    if (opened)
        return;
    m_context.notices->post(opened.error(), tr("Another file…"), [page = QPointer<DesignPage>(this)] {
        if (page)
            page->chooseFile();
    });
}

void DesignPage::openAsking(const QString &file)
{
    if (mayLeave())
        openOrTell(file);
}

void DesignPage::chooseRecent()
{
    QMenu menu(this);
    for (const QString &file : recent()) {
        QAction *action = menu.addAction(QFileInfo(file).fileName());
        action->setToolTip(file);
        action->setEnabled(QFileInfo::exists(file));
        connect(action, &QAction::triggered, this, [this, file] { openAsking(file); });
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
    openOrTell(file);
}

void DesignPage::chooseConfig()
{
    const QString file = QFileDialog::getOpenFileName(this, tr("Open a model's config.json"), {},
                                                      tr("Model configurations (*.json);;All files (*)"));
    if (file.isEmpty())
        return;
    openOrTell(file);
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

} // namespace rankyard::ui
