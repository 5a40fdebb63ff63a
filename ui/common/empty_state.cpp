// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/empty_state.h"

#include "ui/common/icons.h"

#include <QAction>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QVBoxLayout>

namespace rankyard::ui {

EmptyState::EmptyState(QWidget *parent)
    : QWidget(parent),
      m_picture(new QLabel(this)),
      m_title(new QLabel(this)),
      m_sentence(new QLabel(this)),
      m_button(new QPushButton(this))
{
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(24, 24, 24, 24);
    layout->setSpacing(8);
    layout->addStretch(2);
    for (QWidget *widget : {static_cast<QWidget *>(m_picture), static_cast<QWidget *>(m_title)})
        layout->addWidget(widget, 0, Qt::AlignHCenter);
    // Between stretches, not aligned: an aligned label does not get the height that its lines need.
    auto *line = new QHBoxLayout;
    line->addStretch(1);
    line->addWidget(m_sentence, 8);
    line->addStretch(1);
    layout->addLayout(line);
    layout->addSpacing(8);
    layout->addWidget(m_button, 0, Qt::AlignHCenter);
    layout->addStretch(3);
    m_sentence->setProperty("tone", "muted");
    m_sentence->setWordWrap(true);
    m_sentence->setAlignment(Qt::AlignHCenter);
    m_sentence->setMaximumWidth(Theme::instance().scaled(440));
    m_button->setProperty("tone", "primary");
    m_button->hide();
    setRole(m_title, FontRole::Head);
    connect(m_button, &QPushButton::clicked, this, [this] {
        if (m_action)
            m_action->trigger();
    });
    connect(&Theme::instance(), &Theme::changed, this, &EmptyState::retint);
    retint();
}

void EmptyState::show(const QString &iconName, const QString &title, const QString &sentence, QAction *action)
{
    m_icon = iconName;
    m_title->setText(title);
    m_sentence->setText(sentence);
    m_action = action;
    m_button->setVisible(action != nullptr);
    if (action)
        m_button->setText(action->text());
    setAccessibleName(title + QStringLiteral(". ") + sentence);
    retint();
}

void EmptyState::retint()
{
    const Theme &theme = Theme::instance();
    if (!m_icon.isEmpty())
        m_picture->setPixmap(
            iconPixmap(m_icon, theme.color(Token::Muted), theme.scaled(36), devicePixelRatioF()));
}

} // namespace rankyard::ui
