// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/shell/shortcut_sheet.h"

#include "ui/common/actions.h"
#include "ui/common/shortcut_table.h"
#include "ui/common/theme.h"

#include <QApplication>
#include <QGridLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QScrollArea>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

ShortcutSheet::ShortcutSheet(ActionRegistry *registry, QWidget *window) : QFrame(window)
{
    setObjectName(QStringLiteral("popup"));
    setFocusPolicy(Qt::StrongFocus);
    setAccessibleName(tr("Keyboard shortcuts"));
    auto *column = new QVBoxLayout(this);
    column->setContentsMargins(24, 16, 16, 16);
    auto *title = new QLabel(tr("Keyboard shortcuts"), this);
    setRole(title, FontRole::Head);
    column->addWidget(title);
    auto *scroll = new QScrollArea(this);
    scroll->setWidgetResizable(true);
    scroll->setFocusPolicy(Qt::NoFocus);
    scroll->setFrameShape(QFrame::NoFrame);
    m_table = new ShortcutTable(registry);
    scroll->setWidget(m_table);
    // The popup's own ground, also below a short table.
    scroll->viewport()->setAutoFillBackground(false);
    m_table->setAutoFillBackground(false);
    column->addWidget(scroll);
    window->installEventFilter(this);
    hide();
}

void ShortcutSheet::toggle()
{
    if (isVisible()) {
        hide();
        if (m_before)
            m_before->setFocus();
        return;
    }
    m_before = QApplication::focusWidget();
    m_table->fill();
    place();
    show();
    raise();
    setFocus(Qt::PopupFocusReason);
}

void ShortcutSheet::place()
{
    const QWidget *window = parentWidget();
    const int width = std::min(Theme::instance().scaled(980), window->width() - 64);
    const int height = std::min(Theme::instance().scaled(620), window->height() - 96);
    setGeometry((window->width() - width) / 2, (window->height() - height) / 2, width, height);
}

void ShortcutSheet::keyPressEvent(QKeyEvent *event)
{
    if (event->key() == Qt::Key_Escape || event->key() == Qt::Key_Question)
        toggle();
    else
        QFrame::keyPressEvent(event);
}

void ShortcutSheet::focusOutEvent(QFocusEvent *event)
{
    QFrame::focusOutEvent(event);
    if (event->reason() == Qt::MouseFocusReason)
        hide();
}

bool ShortcutSheet::eventFilter(QObject *object, QEvent *event)
{
    if (object == parentWidget() && event->type() == QEvent::Resize && isVisible())
        place();
    return QFrame::eventFilter(object, event);
}

int ShortcutSheet::rows() const { return m_table->rows(); }

} // namespace rankyard::ui
