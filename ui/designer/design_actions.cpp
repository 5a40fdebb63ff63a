// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/actions.h"
#include "ui/designer/compare_view.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_page.h"
#include "ui/designer/rank_panel.h"
#include "ui/designer/search_view.h"

#include <QUndoStack>

namespace rankyard::ui {

void DesignPage::addActions()
{
    const QString page = QStringLiteral("design");
    const QString category = tr("Design");
    const auto add = [&](const char *id, const QString &text, const QString &tip, const char *iconName,
                         const QKeySequence &key, auto run) {
        m_context.registry->add(
            {QLatin1String(id), text, tip, category, QLatin1String(iconName), key, Scope::Page, page}, run);
    };
    add("design.open", tr("Open"), tr("A job file, a model's config.json or a cluster file"), "folder",
        QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_O), [this] { chooseFile(); });
    add("design.recent", tr("Open a recent design"), tr("Files that were opened or saved last"), "folder",
        QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_E), [this] { chooseRecent(); });
    add("design.new", tr("New design"), tr("Begins again with the smallest job"), "design", {}, [this] {
        if (mayLeave())
            begin(Json::object(), {});
    });
    add("design.save", tr("Save"), tr("Writes the job file"), "export", QKeySequence(QKeySequence::Save),
        [this] { save(); });
    add("design.saveas", tr("Save the design as"), tr("Writes the job to another file"), "export",
        QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_S), [this] { saveAs(); });
    add("design.launch", tr("Launch"), tr("Starts the design as a new run on this machine"), "play",
        QKeySequence(Qt::CTRL | Qt::Key_Return), [this] { launch(); });
    add("design.step", tr("Show the predicted step"), tr("When each stage does what"), "design",
        Qt::ALT | Qt::Key_1, [this] { showDrawer(Step); });
    add("design.search", tr("Search layouts"), tr("The best layouts of this model on the cluster"), "search",
        Qt::ALT | Qt::Key_2, [this] {
            showDrawer(Search);
            m_search->startUnlessFound();
        });
    add("design.compare", tr("Compare designs"), tr("Two designs side by side, only what differs"), "compare",
        Qt::ALT | Qt::Key_3, [this] { showDrawer(Compare); });
    add("design.prepare", tr("Prepare a corpus"), tr("Text to tokens, for this design and others"), "inbox",
        Qt::ALT | Qt::Key_4, [this] { showDrawer(Data); });
    add("design.keep", tr("Keep this design to compare"), tr("Later changes are compared with it"),
        "checkpoint", Qt::CTRL | Qt::Key_D, [this] {
            m_compare->keep();
            showDrawer(Compare);
        });
    const std::tuple<const char *, QString, RankMap::Colouring> colours[] = {
        {"design.stages", tr("Colour ranks by stage"), RankMap::Stages},
        {"design.tensor", tr("Colour ranks by tensor group"), RankMap::TensorGroups},
        {"design.data", tr("Colour ranks by data group"), RankMap::DataGroups}};
    for (const auto &[id, text, colouring] : colours)
        add(id, text, tr("Which ranks belong together"), "cluster", {},
            [this, chosen = colouring] { m_ranks->setColouring(chosen); });
    addEditActions();
}

void DesignPage::addEditActions()
{
    const QString page = QStringLiteral("design");
    const QString category = tr("Design");
    QUndoStack *stack = m_document->undoStack();
    QAction *undo = m_context.registry->add(
        {QStringLiteral("design.undo"), tr("Undo"), tr("Takes the last change back"), category,
         QStringLiteral("back"), QKeySequence(QKeySequence::Undo), Scope::Page, page},
        [stack] { stack->undo(); });
    QAction *redo = m_context.registry->add(
        {QStringLiteral("design.redo"), tr("Redo"), tr("Makes the change again"), category,
         QStringLiteral("follow"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Z), Scope::Page, page},
        [stack] { stack->redo(); });
    undo->setEnabled(false);
    redo->setEnabled(false);
    connect(stack, &QUndoStack::canUndoChanged, undo, &QAction::setEnabled);
    connect(stack, &QUndoStack::canRedoChanged, redo, &QAction::setEnabled);
}

} // namespace rankyard::ui
