// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/actions.h"

#include "ui/common/icons.h"

#include <QKeyEvent>
#include <QWidget>

#include <algorithm>

namespace rankyard::ui {

ActionRegistry::ActionRegistry(QObject *parent) : QObject(parent) {}

QAction *ActionRegistry::add(const ActionSpec &spec, std::function<void()> run)
{
    Q_ASSERT(!action(spec.id));
    auto *action = new QAction(spec.text, this);
    action->setObjectName(spec.id);
    action->setShortcut(spec.shortcut);
    // Bare keys of pages go through handleKey; until it is attached no action hears its shortcut.
    action->setShortcutContext(spec.scope == Scope::Window ? Qt::WindowShortcut : Qt::WidgetShortcut);
    QString tip = spec.tip;
    if (!spec.shortcut.isEmpty())
        tip += QStringLiteral("  (") + spec.shortcut.toString(QKeySequence::NativeText) + QStringLiteral(")");
    action->setToolTip(tip);
    action->setStatusTip(spec.tip);
    if (!spec.icon.isEmpty())
        action->setIcon(icon(spec.icon));
    const QString id = spec.id;
    connect(action, &QAction::triggered, this, [this, id, run = std::move(run)] {
        std::erase(m_recent, id);
        m_recent.insert(m_recent.begin(), id);
        if (m_recent.size() > 8)
            m_recent.pop_back();
        run();
    });
    m_entries.push_back({spec, action});
    for (const auto &[page, part] : m_parts) {
        if (part && spec.scope == Scope::Page && spec.page == page)
            attach(m_entries.back(), part);
    }
    return action;
}

QAction *ActionRegistry::action(const QString &id) const
{
    for (const Entry &entry : m_entries) {
        if (entry.spec.id == id)
            return entry.action;
    }
    return nullptr;
}

void ActionRegistry::attach(QWidget *window)
{
    for (const Entry &entry : m_entries) {
        if (entry.spec.scope == Scope::Window)
            window->addAction(entry.action);
    }
}

void ActionRegistry::attachPage(const QString &page, QWidget *part)
{
    m_parts.emplace_back(page, part);
    for (const Entry &entry : m_entries) {
        if (entry.spec.scope == Scope::Page && entry.spec.page == page)
            attach(entry, part);
    }
}

/// Lists would take Alt with a figure for the first letter of an entry, text fields would write it.
void ActionRegistry::attach(const Entry &entry, QWidget *part)
{
    constexpr Qt::KeyboardModifiers command = Qt::ControlModifier | Qt::AltModifier | Qt::MetaModifier;
    if (entry.spec.shortcut.isEmpty() || !(entry.spec.shortcut[0].keyboardModifiers() & command))
        return;
    entry.action->setShortcutContext(Qt::WidgetWithChildrenShortcut);
    part->addAction(entry.action);
}

bool ActionRegistry::handleKey(const QString &page, QKeyEvent *event)
{
    const Qt::KeyboardModifiers modifiers = event->modifiers() & ~Qt::KeypadModifier;
    // A shifted symbol carries Shift already.
    const QKeySequence plain(QKeyCombination(modifiers, static_cast<Qt::Key>(event->key())));
    const QKeySequence unshifted(
        QKeyCombination(modifiers & ~Qt::ShiftModifier, static_cast<Qt::Key>(event->key())));
    for (const Entry &entry : m_entries) {
        if (entry.spec.scope != Scope::Page || entry.spec.page != page || entry.spec.shortcut.isEmpty())
            continue;
        if ((entry.spec.shortcut == plain || (entry.spec.shortcut == unshifted && event->key() < Qt::Key_A))
            && entry.action->isEnabled()) {
            entry.action->trigger();
            return true;
        }
    }
    return false;
}

int fuzzyScore(const QString &pattern, const QString &text, std::vector<int> *at)
{
    if (at)
        at->clear();
    if (pattern.isEmpty())
        return 0;
    int score = 0;
    qsizetype place = 0;
    qsizetype last = -2;
    for (const QChar wanted : pattern) {
        if (wanted.isSpace())
            continue;
        // A word start is worth more than the nearest occurrence.
        qsizetype found = -1;
        for (qsizetype i = place; i < text.size(); ++i) {
            if (text[i].toCaseFolded() != wanted.toCaseFolded())
                continue;
            const bool start = i == 0 || !text[i - 1].isLetterOrNumber();
            if (found < 0)
                found = i;
            if (start || i == last + 1) {
                found = i;
                break;
            }
        }
        if (found < 0)
            return -1;
        const bool start = found == 0 || !text[found - 1].isLetterOrNumber();
        score += 10 + (start ? 15 : 0) + (found == last + 1 ? 12 : 0)
            - static_cast<int>(std::min<qsizetype>(found - place, 8));
        last = found;
        place = found + 1;
        if (at)
            at->push_back(static_cast<int>(found));
    }
    return std::max(0, score - static_cast<int>(text.size()) / 8);
}

} // namespace rankyard::ui
