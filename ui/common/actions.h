// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QAction>
#include <QKeySequence>
#include <QObject>
#include <QPointer>
#include <QString>
#include <QWidget>

#include <functional>
#include <utility>
#include <vector>

class QKeyEvent;

namespace rankyard::ui {

/// Where a shortcut is heard.
enum class Scope {
    Window, ///< anywhere in the main window, but not while text is typed
    Page, ///< on its page only. With Ctrl, Alt or Meta as of the window; a bare key when the focused widget does not want it itself
          ///< (Space on a button presses the button)
};

struct ActionSpec {
    QString id{};       ///< "view.palette"
    QString text{};     ///< a verb, sentence case
    QString tip{};      ///< one sentence
    QString category{}; ///< heading in the sheet and the palette
    QString icon{};     ///< a name of resources/icons; may be empty
    QKeySequence shortcut{};
    Scope scope = Scope::Window;
    QString page{}; ///< of Scope::Page
};

/// Every action of the program: menus, the command palette, the shortcut sheet and the tests read from here.
/// Owns its actions. GUI thread.
class ActionRegistry : public QObject
{
    Q_OBJECT
public:
    struct Entry {
        ActionSpec spec;
        QAction *action = nullptr;
    };

    explicit ActionRegistry(QObject *parent = nullptr);

    QAction *add(const ActionSpec &spec, std::function<void()> run);
    /// Null when there is none.
    QAction *action(const QString &id) const;
    const std::vector<Entry> &entries() const { return m_entries; }
    /// Makes the shortcuts of Scope::Window work in `window`.
    void attach(QWidget *window);
    /// Makes those of a page with Ctrl, Alt or Meta work in `part` and all that is in it; also of actions that are added later.
    void attachPage(const QString &page, QWidget *part);
    /// Runs the action of Scope::Page that has this key; false when there is none or it is disabled.
    bool handleKey(const QString &page, QKeyEvent *event);
    /// Newest first.
    const std::vector<QString> &recent() const { return m_recent; }

private:
    static void attach(const Entry &entry, QWidget *part);

    std::vector<Entry> m_entries;
    std::vector<std::pair<QString, QPointer<QWidget>>> m_parts; ///< of pages
    std::vector<QString> m_recent;
};

/// How well `pattern` matches `text` as a subsequence; −1: it does not. Word starts and runs count more. `at` receives the places.
int fuzzyScore(const QString &pattern, const QString &text, std::vector<int> *at = nullptr);

} // namespace rankyard::ui
