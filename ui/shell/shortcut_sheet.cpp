// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/shell/shortcut_sheet.h"

#include "ui/common/actions.h"
#include "ui/common/theme.h"

#include <QApplication>
#include <QGridLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QScrollArea>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

ShortcutSheet::ShortcutSheet(ActionRegistry *registry, QWidget *window) : QFrame(window), m_registry(registry)
{
    setObjectName(QStringLiteral("popup"));
    setFocusPolicy(Qt::StrongFocus);
    setAccessibleName(tr("Keyboard shortcuts"));
    new QVBoxLayout(this);
    layout()->setContentsMargins(24, 16, 16, 16);
    window->installEventFilter(this);
    hide();
}

void ShortcutSheet::fill()
{
    const Theme &theme = Theme::instance();
    while (QLayoutItem *item = layout()->takeAt(0)) {
        delete item->widget();
        delete item;
    }
    auto *title = new QLabel(tr("Keyboard shortcuts"));
    title->setFont(theme.font(FontRole::Head));
    layout()->addWidget(title);
    auto *scroll = new QScrollArea;
    scroll->setWidgetResizable(true);
    scroll->setFocusPolicy(Qt::NoFocus);
    scroll->setFrameShape(QFrame::NoFrame);
    auto *content = new QWidget;
    scroll->setWidget(content);
    layout()->addWidget(scroll);
    auto *columns = new QHBoxLayout(content);
    columns->setContentsMargins(0, 12, 8, 0);
    columns->setSpacing(32);

    QStringList categories;
    for (const auto &entry : m_registry->entries()) {
        if (!entry.spec.shortcut.isEmpty() && !categories.contains(entry.spec.category))
            categories << entry.spec.category;
    }
    // What the charts do with the mouse and keys of their own has no action, but belongs here.
    const std::pair<QString, QString> charts[] = {
        {tr("Zoom at the cursor"), tr("Wheel")},        {tr("x only"), tr("Shift + wheel")},
        {tr("y only"), tr("Ctrl + wheel")},             {tr("Zoom to a box"), tr("Drag")},
        {tr("Pan"), tr("Ctrl + drag")},                 {tr("Fit"), tr("Double click")},
        {tr("Move the cursor"), QStringLiteral("← →")}, {tr("Zoom x"), QStringLiteral("+ −")},
    };
    m_rows = 0;
    QVBoxLayout *column = nullptr;
    int inColumn = 0;
    const auto section = [&](const QString &name) {
        if (!column || inColumn > 14) {
            column = new QVBoxLayout;
            column->setSpacing(6);
            columns->addLayout(column, 1);
            inColumn = 0;
        } else {
            column->addSpacing(12);
        }
        auto *head = new QLabel(name);
        head->setFont(theme.font(FontRole::Strong));
        column->addWidget(head);
        ++inColumn;
    };
    const auto row = [&](const QString &name, const QString &key) {
        auto *line = new QHBoxLayout;
        line->setSpacing(16);
        auto *text = new QLabel(name);
        text->setProperty("tone", "muted");
        auto *keys = new QLabel(key);
        keys->setFont(theme.font(FontRole::Mono));
        line->addWidget(text, 1);
        line->addWidget(keys);
        column->addLayout(line);
        ++inColumn;
        ++m_rows;
    };
    for (const QString &category : categories) {
        section(category);
        for (const auto &entry : m_registry->entries()) {
            if (entry.spec.category == category && !entry.spec.shortcut.isEmpty())
                row(entry.spec.text, entry.spec.shortcut.toString(QKeySequence::NativeText));
        }
    }
    section(tr("Charts"));
    for (const auto &[name, key] : charts)
        row(name, key);
    for (int i = 0; i < columns->count(); ++i) {
        if (auto *each = qobject_cast<QVBoxLayout *>(columns->itemAt(i)->layout()))
            each->addStretch(1);
    }
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
    fill();
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

} // namespace rankyard::ui
