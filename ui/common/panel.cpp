// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/panel.h"

#include "ui/common/icons.h"
#include "ui/common/theme.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QToolButton>
#include <QVBoxLayout>

namespace rankyard::ui {

Panel::Panel(const QString &title, QWidget *parent)
    : QFrame(parent),
      m_head(new QHBoxLayout),
      m_body(new QVBoxLayout),
      m_title(new QLabel(this))
{
    setObjectName(QStringLiteral("panel"));
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(1, 1, 1, 1);
    layout->setSpacing(0);
    m_head->setContentsMargins(12, 5, 6, 3);
    m_head->setSpacing(8);
    m_head->addWidget(m_title);
    m_body->setContentsMargins(0, 0, 0, 0);
    m_body->setSpacing(0);
    layout->addLayout(m_head);
    layout->addLayout(m_body, 1);
    setRole(m_title, FontRole::Strong);
    setTitle(title);
    connect(&Theme::instance(), &Theme::changed, this, &Panel::restyle);
    Panel::restyle();
}

void Panel::setTitle(const QString &title)
{
    m_title->setText(title);
    m_title->setVisible(!title.isEmpty());
    setAccessibleName(title);
}

QString Panel::title() const { return m_title->text(); }

QToolButton *Panel::menuButton()
{
    if (!m_menu) {
        m_menu = new QToolButton(this);
        m_menu->setIcon(icon(QStringLiteral("more")));
        m_menu->setIconSize(QSize(16, 16) * Theme::instance().textPercent() / 100);
        m_menu->setPopupMode(QToolButton::InstantPopup);
        m_menu->setToolTip(tr("More for %1").arg(title()));
        m_menu->setAccessibleName(tr("Menu of %1").arg(title()));
        m_head->addStretch(0);
        m_head->addWidget(m_menu, 0, Qt::AlignRight);
    }
    return m_menu;
}

void Panel::restyle()
{
    const Theme &theme = Theme::instance();
    m_title->setMinimumHeight(theme.scaled(24));
    if (m_menu)
        m_menu->setIconSize(QSize(16, 16) * theme.textPercent() / 100);
}

} // namespace rankyard::ui
