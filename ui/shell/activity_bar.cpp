// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/shell/activity_bar.h"

#include "ui/common/theme.h"

#include <QAction>
#include <QToolButton>
#include <QVBoxLayout>

namespace rankyard::ui {

ActivityBar::ActivityBar(QWidget *parent) : QFrame(parent), m_top(new QVBoxLayout), m_bottom(new QVBoxLayout)
{
    setObjectName(QStringLiteral("activity"));
    setAccessibleName(tr("Pages"));
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(5, 6, 6, 6);
    layout->setSpacing(4);
    for (QVBoxLayout *part : {m_top, m_bottom})
        part->setSpacing(4);
    layout->addLayout(m_top);
    layout->addStretch(1);
    layout->addLayout(m_bottom);
    connect(&Theme::instance(), &Theme::changed, this, &ActivityBar::restyle);
    restyle();
}

void ActivityBar::add(const QString &page, QAction *action, bool bottom)
{
    auto *button = new QToolButton(this);
    button->setIcon(action->icon());
    button->setToolTip(action->toolTip());
    button->setAccessibleName(action->text());
    button->setCheckable(true);
    button->setFocusPolicy(Qt::TabFocus);
    connect(button, &QToolButton::clicked, this, [this, action] {
        action->trigger();
        // A click on the current page does not uncheck it.
        for (QToolButton *each : std::as_const(m_buttons))
            each->setChecked(each->property("current").toBool());
    });
    m_buttons.insert(page, button);
    (bottom ? m_bottom : m_top)->addWidget(button);
    restyle();
}

void ActivityBar::setCurrent(const QString &page)
{
    for (auto it = m_buttons.cbegin(); it != m_buttons.cend(); ++it) {
        it.value()->setProperty("current", it.key() == page);
        it.value()->setChecked(it.key() == page);
    }
}

void ActivityBar::restyle()
{
    // Icons grow half as much as text: they are read at a glance.
    const int percent = (Theme::instance().textPercent() + 100) / 2;
    setFixedWidth(48 * percent / 100);
    for (QToolButton *button : std::as_const(m_buttons)) {
        button->setFixedSize(36 * percent / 100, 36 * percent / 100);
        button->setIconSize(QSize(18, 18) * percent / 100);
    }
}

} // namespace rankyard::ui
