// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QFrame>

namespace rankyard::ui {

class ActionRegistry;
class ShortcutTable;

/// All shortcuts by category, made from the registry each time it opens. Esc or ? closes it.
class ShortcutSheet : public QFrame
{
    Q_OBJECT
public:
    ShortcutSheet(ActionRegistry *registry, QWidget *window);
    void toggle();
    int rows() const;

protected:
    void keyPressEvent(QKeyEvent *event) override;
    void focusOutEvent(QFocusEvent *event) override;
    bool eventFilter(QObject *object, QEvent *event) override;

private:
    void place();

    ShortcutTable *m_table;
    QWidget *m_before = nullptr;
};

} // namespace rankyard::ui
